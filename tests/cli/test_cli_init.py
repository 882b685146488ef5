"""``causerie init``: what it writes holds, and so does each line that is there as a comment."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from casekit import each_of
from typer.testing import CliRunner, Result

from causerie.cli.root import app
from causerie.providers.dialects import KNOWN_PROVIDERS
from causerie.settings.load import load
from causerie.settings.tree import Settings

KINDS = [
    ["--kind", "model"],
    ["--kind", "model", "--model", "qwen3:4b", "--context", "4096"],
    ["--kind", "gateway", "--provider", "openai"],
    ["--kind", "gateway", "--provider", "ollama", "--model", "qwen3:4b"],
    ["--kind", "team", "--provider", "anthropic", "--model", "claude-opus-4-6"],
]
KEYS = {"OPENAI_API_KEY": "sk-x", "ANTHROPIC_API_KEY": "sk-ant-x"}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def settings_of(text: str) -> Settings:
    return load(file=Path("causerie.toml"), text=text, environ={}).settings


def run(*words: str) -> Result:
    return CliRunner(env={"TERM": "dumb", **KEYS}).invoke(app, list(words))


@pytest.mark.parametrize("words", KINDS)
def test_what_it_writes_passes_check(words: list[str], folder: Path) -> None:
    written = run("init", *words)
    assert written.exit_code == 0, written.output
    assert "  causerie serve\n" in written.stdout
    checked = run("check")
    assert checked.exit_code == 0, checked.output
    kind = words[1]
    shown = {"model": "[[models]]", "gateway": "[[aliases]]", "team": 'keys = "accounts"'}
    assert shown[kind] in checked.stdout


@pytest.mark.parametrize("words", KINDS)
def test_each_setting_in_a_comment_holds_too(words: list[str], folder: Path) -> None:
    assert run("init", *words).exit_code == 0
    text = (folder / "causerie.toml").read_text()
    comments = re.findall(r"^# ((?:\w+ = |\[).*)$", text, re.MULTILINE)
    assert comments
    wanted = text
    for line in comments:
        wanted = wanted.replace(f"# {line}", line)
    wanted = wanted.replace("keys = []", f'keys = ["ck_aaaaaaaa:{"0" * 64}"]')
    assert settings_of(wanted) != settings_of(text)


@each_of("name", [name for name, known in KNOWN_PROVIDERS.items() if not known.own])
def test_every_known_provider_can_be_written(name: str, folder: Path) -> None:
    assert run("init", "--kind", "gateway", "--provider", name, "--force").exit_code == 0
    settings = settings_of((folder / "causerie.toml").read_text())
    [provider] = settings.providers
    assert provider.base_url == KNOWN_PROVIDERS[name].base_url
    assert (provider.key is None) == KNOWN_PROVIDERS[name].local
    assert f":{settings.server.port}/" not in provider.base_url


def test_a_file_is_replaced_only_by_force(folder: Path) -> None:
    file = folder / "causerie.toml"
    file.write_text("# mine\n")
    refused = run("init", "--kind", "model")
    assert refused.exit_code == 1
    assert "--force" in refused.stderr
    assert file.read_text() == "# mine\n"
    assert run("init", "--kind", "model", "--force").exit_code == 0
    assert "[[models]]" in file.read_text()


def test_another_file_is_named_in_what_to_run_next() -> None:
    written = run("init", "--kind", "gateway", "--provider", "openai", "--config", "gate.toml")
    assert "  export OPENAI_API_KEY=...\n" in written.stdout
    assert "  causerie serve --config gate.toml\n" in written.stdout


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ([], 2, "give --kind model, --kind gateway --provider NAME or --kind team"),
        (["--kind", "gateway"], 2, "--provider is missing; known are openai, "),
        (["--kind", "team", "--provider", "opnai"], 2, "did you mean openai?"),
        (["--kind", "model", "--provider", "openai"], 2, "--provider is for a gateway or a team"),
        (["--kind", "team", "--provider", "openai", "--context", "9"], 2, "--context is for"),
        (["--kind", "model", "--model", "qwen33:4b"], 2, "did you mean qwen3:4b"),
        (["--kind", "gateway", "--provider", "vllm", "--model", "a b"], 3, "aliases[0].id: is"),
        (["--kind", "model", "--config", "no/where.toml"], 1, "cannot be written"),
    ],
)
def test_what_is_wrong_is_told_and_nothing_written(
    words: list[str], code: int, message: str, folder: Path
) -> None:
    result = run("init", *words)
    assert (result.exit_code, list(folder.iterdir())) == (code, [])
    assert message in result.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="has no pseudo-terminals")
def test_three_questions_on_a_terminal(folder: Path) -> None:
    ours, theirs = os.openpty()
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", "causerie", "init"],
            stdin=theirs,
            stdout=subprocess.PIPE,
            stderr=theirs,
        )
        os.close(theirs)
        os.write(ours, b"gatway\ngateway\nopenai\ngpt-5-mini\n")
        out, _ = process.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
        process.wait()
        raise
    finally:
        os.close(ours)
    assert process.returncode == 0
    assert b"causerie serve" in out
    [alias] = load(file=folder / "causerie.toml", environ={}).settings.aliases
    assert (alias.id, alias.targets[0].provider) == ("gpt-5-mini", "openai")
