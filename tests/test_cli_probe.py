"""``causerie probe`` as people run it: what it says, what it asks first, how it ends."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from click.testing import Result
from probekit import document, refused, says_yes
from typer.testing import CliRunner

from causerie.cli.root import app
from causerie.probe.ask import Ask
from causerie.probe.questions import QUESTIONS
from causerie.probe.reply import Reply


@asynccontextmanager
async def endpoint(
    reply: Callable[[Ask], Reply] = says_yes,
) -> AsyncIterator[tuple[str, list[str]]]:
    """The base address of an endpoint that answers so, and the heads of its requests."""
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
                writer.write(_raw(reply(Ask(kind, path.removeprefix("/v1"), body))))
        writer.close()

    listening = await asyncio.start_server(connected, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/v1", heads
    finally:
        listening.close()


def _raw(reply: Reply) -> bytes:
    lines = [f"HTTP/1.1 {reply.status} x", f"content-length: {len(reply.body)}"]
    lines += [f"{name}: {value}" for name, value in reply.headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + reply.body


async def run(*arguments: str, **env: str) -> Result:
    """The command in a thread, while the endpoint answers here."""
    runner = CliRunner(env={"CAUSERIE_API_KEY": "", "TERM": "dumb", **env})
    return await asyncio.to_thread(runner.invoke, app, ["probe", *arguments])


async def test_the_matrix_and_what_follows_from_it() -> None:
    async with endpoint() as (base_url, _):
        result = await run(base_url)
    assert result.exit_code == 0, result.stderr
    lines = result.stdout.splitlines()
    matrix = [line for line in lines if line.startswith(("yes ", "partly ", "no ", "unclear "))]
    assert len(matrix) == len(QUESTIONS)
    assert any(line.startswith("no      stop ") for line in matrix)
    assert lines[-1] == "supported: modalities, stream, stream_options"
    assert "thinking: never; continues: no" in lines[-2]
    assert "at most" in result.stderr.splitlines()[0]
    assert f"[{len(QUESTIONS)}/{len(QUESTIONS)}] cancel.plain" in result.stderr


async def test_json_has_all_the_evidence() -> None:
    async with endpoint() as (base_url, heads):
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
        async with endpoint(lambda ask: refused(f"no such key: {secret}", 401)) as (base, heads):
            result = await run(base, *options, **env)
        assert result.exit_code == 1
        assert "another key" in result.stderr
        assert f"authorization: Bearer {secret}" in heads[0]
        assert secret not in result.output


async def test_a_wrong_command_line(tmp_path: Path) -> None:
    (tmp_path / "two").write_text("one\ntwo")
    for options, words in (
        (["--key", "a", "--key-env", "B"], "one of --key"),
        (["--key-env", "NOT_SET_HERE"], "NOT_SET_HERE holds no key"),
        (["--key-file", str(tmp_path / "none")], "cannot be read"),
        (["--key-file", str(tmp_path / "two")], "more than one line"),
    ):
        result = await run("http://127.0.0.1:1/v1", *options)
        assert result.exit_code == 2
        assert words in result.stderr
    assert (await run("ftp://x/v1")).exit_code == 2
    unknown = await run("http://127.0.0.1:1/v1", "--dialect", "latin")
    assert unknown.exit_code == 2
    assert "known: generic" in unknown.stderr


async def test_the_kind_of_server_is_guessed_or_told() -> None:
    def llama(ask: Ask) -> Reply:
        owned = document({"data": [{"id": "m", "owned_by": "llamacpp"}]})
        return owned if ask.method == "GET" else refused("no", 500)

    async with endpoint(llama) as (base_url, _):
        guessed = await run(base_url)
        told = await run(base_url, "--dialect", "vllm")
    assert "is spoken to as llama.cpp's server" in guessed.stderr
    assert "is spoken to as vLLM" in told.stderr


async def test_an_endpoint_that_cannot_be_asked() -> None:
    async with endpoint() as (base_url, _):
        pass
    nobody = await run(base_url)
    assert nobody.exit_code == 4
    assert "refused the connection" in nobody.stderr
    async with endpoint(lambda ask: document({"data": []})) as (base_url, _):
        empty = await run(base_url)
    assert empty.exit_code == 1
    assert "name one with --model" in empty.stderr
    async with endpoint(lambda ask: refused("who are you", 401)) as (base_url, _):
        locked = await run(base_url)
    assert locked.exit_code == 1
    assert "wants a key" in locked.stderr


async def test_much_is_asked_only_with_yes() -> None:
    several = ["-m", "a", "-m", "b", "-m", "c"]
    async with endpoint() as (base_url, heads):
        result = await run(base_url, *several)
        assert result.exit_code == 2
        assert "--yes" in result.stderr
        assert len(heads) == 1
        told = await run(base_url, *several, "--yes", "--json")
    assert [one["model"] for one in json.loads(told.stdout)] == ["a", "b", "c"]


async def test_nothing_is_written_where_not_all_could_be_asked(tmp_path: Path) -> None:
    file = tmp_path / "causerie.toml"
    file.write_text("# mine\n")

    def broken(ask: Ask) -> Reply:
        return says_yes(ask) if ask.method == "GET" else refused("out of order", 500)

    async with endpoint(broken) as (base_url, _):
        result = await run(base_url, "--write", "--config", str(file))
    assert result.exit_code == 1
    assert "stays as it is" in result.stderr
    assert file.read_text() == "# mine\n"
