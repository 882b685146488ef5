"""``causerie probe`` as people run it: what it says, what it asks first, how it ends."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from faultkit import Reply as FaultyReply
from faultkit import upstream
from probekit import document, refused, says_yes
from typer.testing import CliRunner

from causerie.cli.root import app
from causerie.composition import provider_file
from causerie.composition.provider_file import CannotWrite, provider_name
from causerie.probe.ask import ProbeRequest
from causerie.probe.entry import ProbedModel
from causerie.probe.interview import Patience
from causerie.probe.questions import QUESTIONS
from causerie.probe.reply import ProbeReply
from causerie.settings import load
from causerie.settings.values import Secret


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
    assert lines[-1] == "supported: modalities, stream, stream_options"
    assert "thinking: never; continues: no" in lines[-2]
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

    monkeypatch.setattr("causerie.cli.probe.Patience", noted)
    async with provider() as (base_url, _):
        await run(base_url, "--quick")
        await run(base_url, "--quick", "--total-seconds", "7")
        await run(base_url)
    assert [one.total_seconds for one in given] == [60, 7, 1800]


async def test_the_quick_probe_writes_no_configuration(tmp_path: Path) -> None:
    result = await run("http://127.0.0.1:9/v1", "--quick", "--write")
    assert result.exit_code == 2
    assert "--write needs every answer" in result.stderr


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


async def test_nothing_is_written_where_not_all_could_be_asked(tmp_path: Path) -> None:
    file = tmp_path / "causerie.toml"
    file.write_text("# mine\n")

    def broken(ask: ProbeRequest) -> ProbeReply:
        return says_yes(ask) if ask.method == "GET" else refused("out of order", 500)

    async with provider(broken) as (base_url, _):
        result = await run(base_url, "--write", "--config", str(file))
    assert result.exit_code == 1
    assert "stays as it is" in result.stderr
    assert file.read_text() == "# mine\n"


CONFIG = """\
# mine
[[providers]]
name = "gpu"          # the big one
base_url = "{base_url}"
key = {{ env = "GPU_KEY" }}

# who may ask
[[aliases]]
id = "m"
targets = [{{ provider = "gpu", model = "m" }}]
"""


async def test_the_entry_is_written_below_its_provider(tmp_path: Path) -> None:
    file = tmp_path / "causerie.toml"
    async with provider() as (base_url, heads):
        before = CONFIG.format(base_url=base_url)
        file.write_text(before)
        file.chmod(0o600)
        ended = await run(base_url, "--write", "--config", str(file), GPU_KEY="ck_abc")
    assert ended.exit_code == 0, ended.output
    assert "authorization: Bearer ck_abc" in heads[0]
    after = file.read_text()
    assert [line for line in before.splitlines() if line not in after.splitlines()] == []
    assert after.index("[[providers.models]]") < after.index("# who may ask")
    (model,) = load(file=file, environ={}).settings.providers[0].models
    assert model.id == "m"
    assert model.supported_parameters == ("modalities", "stream", "stream_options")
    assert (model.thinking, model.continues) == ("never", False)
    assert model.probed is not None
    assert "not honoured: " in after.split("probed = ")[1].splitlines()[0]
    assert file.stat().st_mode & 0o777 == 0o600
    assert [one.name for one in tmp_path.iterdir()] == ["causerie.toml"]
    assert "ck_abc" not in after


async def test_an_provider_that_is_not_there_is_added(tmp_path: Path) -> None:
    file = tmp_path / "causerie.toml"
    file.write_bytes(b"\xef\xbb\xbf# mine\r\n[server]\r\nport = 9\r\n")
    options = ["--write", "--config", str(file), "--dialect", "vllm", "--key-env", "MY_KEY"]
    async with provider() as (base_url, _):
        ended = await run(base_url, *options, MY_KEY="ck_abc")
        assert ended.exit_code == 0, ended.output
        once = file.read_bytes()
        again = await run(base_url, *options, MY_KEY="ck_abc")
    assert again.exit_code == 0
    assert file.read_bytes() == once
    assert once.startswith(b"\xef\xbb\xbf# mine\r\n[server]\r\nport = 9\r\n\r\n[[providers]]\r\n")
    assert b"\n" not in once.replace(b"\r\n", b"")
    (added,) = load(file=file, environ={}).settings.providers
    assert added.name == base_url.removeprefix("http://").removesuffix("/v1").translate(
        str.maketrans(".:", "--")
    )
    assert (added.dialect, added.key) == ("vllm", Secret(env="MY_KEY"))


async def test_another_address_of_the_same_host_gets_a_name_of_its_own(tmp_path: Path) -> None:
    file = tmp_path / "causerie.toml"
    async with provider() as (base_url, _):
        name = provider_name(base_url)
        other = base_url.replace("/v1", "/other/v1")
        file.write_text(f'[[providers]]\nname = "{name}"\nbase_url = "{other}"\n')
        ended = await run(base_url, "--write", "--config", str(file))
    assert ended.exit_code == 0, ended.output
    providers = load(file=file, environ={}).settings.providers
    assert [one.name for one in providers] == [name, f"{name}-2"]
    assert [len(one.models) for one in providers] == [0, 1]


async def test_a_file_that_would_not_hold_stays(tmp_path: Path) -> None:
    """Its provider would have the name that a model of our own begins with."""
    file = tmp_path / "causerie.toml"
    async with provider() as (base_url, _):
        text = f'[[models]]\nid = "{provider_name(base_url)}/a"\nref = "pypi:a"\n'
        file.write_text(text)
        ended = await run(base_url, "--write", "--config", str(file))
    assert ended.exit_code == 3
    assert "stays as it is" in ended.stderr
    assert f"{file}:" in ended.stderr
    assert file.read_text() == text
    assert [one.name for one in tmp_path.iterdir()] == ["causerie.toml"]


async def test_what_is_written_inline_is_shown_for_the_hand(tmp_path: Path) -> None:
    file = tmp_path / "causerie.toml"
    async with provider() as (base_url, _):
        text = f'providers = [{{ name = "gpu", base_url = "{base_url}" }}]\n'
        file.write_text(text)
        ended = await run(base_url, "--write", "--config", str(file))
    assert ended.exit_code == 1
    assert '[[providers.models]]\nid = "m"' in ended.stderr
    assert file.read_text() == text


_FOUND = ProbedModel("m", None, (), None, None, date(2026, 11, 21), "")


def test_a_file_that_changed_meanwhile_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "causerie.toml"
    file.write_text("")

    def load_slowly(*, file: Path, text: str) -> None:
        (tmp_path / "causerie.toml").write_text("# somebody else\n")

    monkeypatch.setattr(provider_file, "load", load_slowly)
    with pytest.raises(CannotWrite, match="changed meanwhile"):
        provider_file.write_entries(file, provider_file.NewProvider("http://a/v1"), [_FOUND])
    assert file.read_text() == "# somebody else\n"


def test_a_link_to_the_file_stays_one(tmp_path: Path) -> None:
    """Files that the settings name are looked for next to the link, as the service does."""
    real, link = tmp_path / "real" / "a.toml", tmp_path / "causerie.toml"
    real.parent.mkdir()
    real.write_text('[[models]]\nid = "a"\nref = "pypi:a"\ntemplate = "a.jinja"\n')
    (tmp_path / "a.jinja").write_text("")
    link.symlink_to(real)
    provider_file.write_entries(link, provider_file.NewProvider("http://a/v1"), [_FOUND])
    assert link.is_symlink()
    assert load(file=link, environ={}).settings.providers[0].models[0].id == "m"


def test_what_flags_of_the_service_give_is_not_missed(tmp_path: Path) -> None:
    """Another host without keys holds only where the command line says more."""
    file = tmp_path / "causerie.toml"
    file.write_text('[server]\nhost = "0.0.0.0"\n')
    provider_file.write_entries(file, provider_file.NewProvider("http://a/v1"), [_FOUND])
    written = file.read_text()
    assert 'id = "m"' in written
    wrong = provider_file.NewProvider("http://user:word@b/v1")
    with pytest.raises(CannotWrite, match="user name") as refused:
        provider_file.write_entries(file, wrong, [_FOUND])
    assert "server.keys" not in str(refused.value)
    assert file.read_text() == written


def test_a_file_of_somebody_else_stays_theirs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "causerie.toml"
    file.write_text("")
    before, given = file.stat(), []
    monkeypatch.setattr(provider_file.os, "chown", lambda _, *owner: given.append(owner))
    provider_file.write_entries(file, provider_file.NewProvider("http://a/v1"), [_FOUND])
    assert given == [(before.st_uid, before.st_gid)]

    def not_mine(*_: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(provider_file.os, "chown", not_mine)
    after = file.read_text()
    for mode, written in ((0o640, False), (0o644, True)):
        file.chmod(mode)
        new = provider_file.NewProvider(f"http://b{mode}/v1")
        if written:
            provider_file.write_entries(file, new, [_FOUND])
        else:
            with pytest.raises(CannotWrite, match="Operation not permitted"):
                provider_file.write_entries(file, new, [_FOUND])
        assert (file.read_text() != after) is written


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
