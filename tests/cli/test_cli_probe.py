"""``causerie probe`` as people run it: what it says, what it asks first, how it ends."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from faultkit import Reply as FaultyReply
from faultkit import upstream
from probekit import document, refused, says_yes
from typer.testing import CliRunner

from causerie.cli.root import app
from causerie.probe.interview import Patience
from causerie.probe.question import ProbeReply, ProbeRequest
from causerie.probe.questions import QUESTIONS
from causerie.settings.load import load


@asynccontextmanager
async def provider(
    reply: Callable[[ProbeRequest], ProbeReply] = says_yes,
) -> AsyncIterator[tuple[str, list[str]]]:
    """The base URL of a provider that answers so, and the heads of its requests."""
    heads: list[str] = []

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                heads.append(head)
                size = head.lower().partition("content-length: ")[2].partition("\r\n")[0]
                body = await reader.readexactly(int(size or 0))
                method, path, _ = head.split(" ", 2)
                kind: Any = "POST" if method == "POST" else "GET"
                writer.write(_raw(reply(ProbeRequest(kind, path.removeprefix("/v1"), body))))
        writer.close()

    listening = await asyncio.start_server(connected, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/v1", heads
    finally:
        listening.close()


def _raw(reply: ProbeReply) -> bytes:
    lines = [f"HTTP/1.1 {reply.status} x", f"content-length: {len(reply.body)}"]
    lines += [f"{name}: {value}" for name, value in reply.headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + reply.body


async def run(*arguments: str, **env: str) -> Result:
    """The command in a thread, while the provider answers here."""
    runner = CliRunner(env={"CAUSERIE_API_KEY": "", "TERM": "dumb", **env})
    return await asyncio.to_thread(runner.invoke, app, ["probe", *arguments])


async def test_the_matrix_and_what_follows_from_it() -> None:
    async with provider() as (base_url, _):
        result = await run(base_url)
    assert result.exit_code == 0, result.stderr
    lines = result.stdout.splitlines()
    matrix = [line for line in lines if line.startswith(("yes ", "partly ", "no ", "unclear "))]
    assert len(matrix) == len(QUESTIONS)
    assert any(line.startswith("no      stop ") for line in matrix)
    assert "supported: modalities, stream, stream_options" in lines
    assert "[[providers.models]]" in lines
    assert any("thinking: never; continues: no" in line for line in lines)
    assert "at most" in result.stderr.splitlines()[0]
    assert f"[{len(QUESTIONS)}/{len(QUESTIONS)}] cancel.plain" in result.stderr


async def test_the_quick_probe_says_what_it_leaves_out() -> None:
    async with provider() as (base_url, quick):
        result = await run(base_url, "--quick", "--json")
    assert result.exit_code == 0, result.stderr
    [report] = json.loads(result.stdout)
    asked = [one["id"] for one in report["findings"]]
    left = result.stderr.splitlines()[-1].removeprefix("left out by --quick: ").split(", ")
    assert [one.id for one in QUESTIONS if one.id in asked] == asked
    assert sorted([*asked, *left]) == sorted(one.id for one in QUESTIONS)
    assert {"completion", "stream", "tools", "response_format.schema"} <= set(asked)
    assert "; 0 more if a prompt that is too long" in result.stderr
    async with provider() as (base_url, whole):
        await run(base_url)
    assert len(quick) * 2 < len(whole)


async def test_the_quick_probe_ends_after_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Patience] = []

    def noted(total_seconds: float) -> Patience:
        given.append(Patience(total_seconds=total_seconds))
        return given[-1]

    monkeypatch.setattr("causerie.cli.probe_run.Patience", noted)
    async with provider() as (base_url, _):
        await run(base_url, "--quick")
        await run(base_url, "--quick", "--total-seconds", "7")
        await run(base_url)
    assert [one.total_seconds for one in given] == [60, 7, 1800]


async def test_the_quick_probe_has_no_entry() -> None:
    result = await run("http://127.0.0.1:9/v1", "--quick", "--entry")
    assert result.exit_code == 2
    assert "--entry needs every answer" in result.stderr


async def test_json_has_all_the_evidence() -> None:
    async with provider() as (base_url, heads):
        result = await run(base_url, "--model", "m", "--json")
    (told,) = json.loads(result.stdout)
    assert told["model"] == "m"
    assert told["entry"]["supported_parameters"] == ["modalities", "stream", "stream_options"]
    by_id = {finding["id"]: finding for finding in told["findings"]}
    assert by_id["stop"]["answer"] == "no"
    assert by_id["stop"]["evidence"][-1]["asked"].startswith("'Count from 1")
    assert told["requests"] == len(heads) - 1  # the list of models came first


async def test_the_key_is_sent_and_said_nowhere(tmp_path: Path) -> None:
    secret = "ck_0123456789abcdef"
    (tmp_path / "key").write_text(f"{secret}\n")
    ways: tuple[tuple[list[str], dict[str, str]], ...] = (
        (["--key", secret], {}),
        (["--key-env", "MY_KEY"], {"MY_KEY": secret}),
        (["--key-file", str(tmp_path / "key")], {}),
        ([], {"CAUSERIE_API_KEY": secret}),
    )
    for options, env in ways:
        async with provider(lambda ask: refused(f"no such key: {secret}", 401)) as (base, heads):
            result = await run(base, *options, **env)
        assert result.exit_code == 1
        assert "another key" in result.stderr
        assert f"authorization: Bearer {secret}" in heads[0]
        assert secret not in result.output


async def test_a_wrong_command_line(tmp_path: Path) -> None:
    (tmp_path / "two").write_text("one\ntwo")
    for options, words in (
        (["--key", "a", "--key-env", "B"], "one of --key"),
        (["--key-env", "NOT_SET_HERE"], "NOT_SET_HERE is not set"),
        (["--key-file", str(tmp_path / "none")], "cannot be read"),
        (["--key-file", str(tmp_path / "two")], "more than one word"),
    ):
        result = await run("http://127.0.0.1:1/v1", *options)
        assert result.exit_code == 2
        assert words in result.stderr
    assert (await run("ftp://x/v1")).exit_code == 2
    unknown = await run("http://127.0.0.1:1/v1", "--dialect", "latin")
    assert unknown.exit_code == 2
    assert "known: generic" in unknown.stderr
    another = await run("http://127.0.0.1:1/v1", "--dialect", "anthropic")
    assert another.exit_code == 2
    assert "Anthropic cannot be probed" in another.stderr


async def test_the_kind_of_server_is_guessed_or_told() -> None:
    def llama(ask: ProbeRequest) -> ProbeReply:
        owned = document({"data": [{"id": "m", "owned_by": "llamacpp"}]})
        return owned if ask.method == "GET" else refused("no", 500)

    async with provider(llama) as (base_url, _):
        guessed = await run(base_url)
        told = await run(base_url, "--dialect", "vllm")
        doubted = await run(base_url, "--dialect", "generic")
    assert "is spoken to as llama.cpp's server" in guessed.stderr
    assert "is spoken to as vLLM" in told.stderr
    assert '`dialect = "llama-server"` would fit' in doubted.stderr


async def test_an_provider_that_cannot_be_asked() -> None:
    async with provider() as (base_url, _):
        pass
    nobody = await run(base_url)
    assert nobody.exit_code == 4
    assert "refused the connection" in nobody.stderr
    async with provider(lambda ask: document({"data": []})) as (base_url, _):
        empty = await run(base_url)
    assert empty.exit_code == 1
    assert "name one with --model" in empty.stderr
    async with provider(lambda ask: refused("who are you", 401)) as (base_url, _):
        locked = await run(base_url)
    assert locked.exit_code == 1
    assert "wants a key" in locked.stderr


async def test_much_is_asked_only_with_yes() -> None:
    several = ["-m", "a", "-m", "b", "-m", "c"]
    async with provider() as (base_url, heads):
        result = await run(base_url, *several)
        assert result.exit_code == 2
        assert "--yes" in result.stderr
        assert len(heads) == 1
        told = await run(base_url, *several, "--yes", "--json")
    assert [one["model"] for one in json.loads(told.stdout)] == ["a", "b", "c"]


async def test_there_is_no_entry_where_not_all_could_be_asked() -> None:
    def broken(ask: ProbeRequest) -> ProbeReply:
        return says_yes(ask) if ask.method == "GET" else refused("out of order", 500)

    async with provider(broken) as (base_url, _):
        result = await run(base_url, "--entry")
    assert result.exit_code == 1
    assert "not every question about m" in result.stderr
    assert result.stdout == ""


async def test_the_entry_goes_below_its_provider(tmp_path: Path) -> None:
    file = tmp_path / "causerie.toml"
    async with provider() as (base_url, heads):
        text = f'[[providers]]\nname = "gpu"\nbase_url = "{base_url}"\nkey.env = "GPU_KEY"\n'
        file.write_text(text)
        ended = await run(base_url, "--entry", "--config", str(file), GPU_KEY="ck_abc")
    assert ended.exit_code == 0, ended.output
    assert "authorization: Bearer ck_abc" in heads[0]
    file.write_text(f"{text}\n{ended.stdout}")
    (model,) = load(file=file, environ={}).settings.providers[0].models
    assert model.id == "m"
    assert model.supported_parameters == ("modalities", "stream", "stream_options")
    assert (model.thinking, model.continues) == ("never", False)
    assert model.probed is not None
    assert "not honoured: " in ended.stdout.split("probed = ")[1].splitlines()[0]
    assert "ck_abc" not in ended.stdout


async def test_certificates_of_the_configured_provider_are_used(tmp_path: Path) -> None:
    file = tmp_path / "causerie.toml"
    async with upstream(FaultyReply("Hello."), secure=True) as up:
        (tmp_path / "ca.pem").write_bytes(up.ca_pem)
        entry = f'[[providers]]\nname = "up"\nbase_url = "{up.base_url}"\n'
        file.write_text(f'{entry}[providers.tls]\nca_file = "{tmp_path / "ca.pem"}"\n')
        trusted = await run(up.base_url, "--config", str(file), "--seconds", "1")
        (tmp_path / "empty.toml").write_text("")
        stranger = await run(up.base_url, "--config", str(tmp_path / "empty.toml"))
    assert trusted.exit_code == 0, trusted.output
    assert "yes     completion " in trusted.stdout
    assert stranger.exit_code == 4
    assert "certificate" in stranger.stderr
