"""``causerie run``: a model of its own, or one that a running service has."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from service import serving
from typer.testing import CliRunner

from causerie.cli.root import app

CONFIG = '[[models]]\nid = "a"\nengine = "fake"\noptions = { replies = ["Blue."] }\n'
COMMAND = (sys.executable, "-c", "from causerie.cli import main; main()")


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="c") as short:
        monkeypatch.setenv("XDG_RUNTIME_DIR", short)
        monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
        monkeypatch.chdir(tmp_path)
        yield tmp_path


def run(*words: str, stdin: str = "") -> tuple[int, str, str]:
    done = subprocess.run([*COMMAND, *words], input=stdin, capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


def test_a_model_is_loaded_for_one_question(home: Path) -> None:
    (home / "causerie.toml").write_text(CONFIG, encoding="utf-8")
    code, out, err = run("run", "a", stdin="Which color?")
    assert (code, out) == (0, "Blue.\n"), err
    assert "is ready" not in err
    assert CliRunner().invoke(app, ["ps"]).stdout.count("\n") == 1, "nothing is left"


def test_a_running_service_is_used(home: Path) -> None:
    folder = home / "service"
    folder.mkdir()
    with serving(folder, CONFIG.replace("Blue", "Red").replace('"a"', '"b"')):
        code, out, err = run("run", "b", "Which color?")
        assert (code, out) == (0, "Red.\n"), err


def test_failures_are_a_sentence(home: Path) -> None:
    result = CliRunner().invoke(app, ["run", "smolm2", "x"])
    assert (result.exit_code, result.stdout) == (2, "")
    assert "did you mean smollm2 or " in result.stderr
    assert CliRunner().invoke(app, ["run", "a", "x", "--context", "0"]).exit_code == 2
    code, out, err = run("run", "./none.gguf", "x")
    assert (code, out) == (4, "")
    assert "none.gguf does not exist; name a .gguf file" in err


@pytest.mark.full
def test_it_is_shown_and_stopped_like_a_service(home: Path) -> None:
    (home / "causerie.toml").write_text(CONFIG, encoding="utf-8")
    master, slave = pty.openpty()
    process = subprocess.Popen([*COMMAND, "run", "a"], stdin=slave, stdout=slave, stderr=slave)
    os.close(slave)
    try:
        runner = CliRunner()
        while " ready " not in runner.invoke(app, ["ps"]).stdout:
            assert process.poll() is None
            time.sleep(0.1)  # another process: there is nothing to await but its answer
        result = runner.invoke(app, ["stop", "a"])
        assert (result.exit_code, result.stdout[:8]) == (0, "Stopped "), result.stderr
        assert process.wait(60) in (0, 143)
    finally:
        process.kill()
        process.wait()
        os.close(master)
