"""``causerie chat``, run as people run it: a process, with or without a terminal."""

from __future__ import annotations

import asyncio
import os
import pty
import signal
import sys
from asyncio.subprocess import PIPE
from pathlib import Path
from typing import Any

import commandkit
import pytest
from casekit import each_of
from provider import ScriptedProvider, piece, running

from causerie.cli.chat import question_of
from causerie.cli.command import printable

THINKS = [
    piece(role="assistant", content=""),
    piece(reasoning_content="Let me see."),
    piece(content="Blue "),
    piece(content="[bold]light[/bold]."),
    piece("stop"),
]
CALLS = [
    piece(tool_calls=[{"index": 0, "id": "c1", "function": {"name": "look", "arguments": ""}}]),
    piece(tool_calls=[{"index": 0, "function": {"arguments": '{"at": "sky"}'}}]),
    piece("tool_calls"),
]


async def run(*arguments: str, stdin: str = "", **environ: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of one run without a terminal."""
    return await commandkit.run("chat", *arguments, stdin=stdin, **environ)


@pytest.fixture(autouse=True)
def no_history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was typed elsewhere is not offered, and what is typed here is kept nowhere."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


class Terminal:
    """A chat on a pseudo-terminal: what it shows, and a keyboard."""

    def __init__(self, *arguments: str, **environ: str) -> None:
        self._arguments = arguments
        self._environ = environ
        self._shown = ""
        self._more = asyncio.Event()

    async def __aenter__(self) -> Terminal:
        self._master, slave = pty.openpty()
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", "from causerie.cli import main; main()", "chat",
            *self._arguments, stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
            env={**os.environ, "TERM": "xterm", "COLUMNS": "80", "LINES": "24"}
            | self._environ,
        )  # fmt: skip
        os.close(slave)
        asyncio.get_running_loop().add_reader(self._master, self._read)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._process.returncode is None:
            self._process.kill()
            await self._process.wait()
        asyncio.get_running_loop().remove_reader(self._master)
        os.close(self._master)

    def _read(self) -> None:
        try:
            self._shown += os.read(self._master, 65536).decode()
        except OSError:  # Linux: the other side is closed
            asyncio.get_running_loop().remove_reader(self._master)
        self._more.set()

    async def shows(self, text: str) -> str:
        """Wait until the text is there; gives, and forgets, everything up to it."""
        while text not in self._shown:
            self._more.clear()
            await asyncio.wait_for(self._more.wait(), 60)
        before, _, self._shown = self._shown.partition(text)
        return before + text

    def left(self) -> str:
        """What it shows and nobody has waited for."""
        return self._shown

    def types(self, text: str) -> None:
        os.write(self._master, text.encode())

    def interrupts(self) -> None:
        """Signal the process as Ctrl-C does the one in the foreground."""
        self._process.send_signal(signal.SIGINT)

    async def ended(self) -> int:
        return await asyncio.wait_for(self._process.wait(), 60)


async def test_one_question() -> None:
    async with running(ScriptedProvider([THINKS])) as provider:
        code, out, err = await run(
            "Why?", "-u", provider.base_url, "--no-thinking", "-s", "Be brief.",
            CAUSERIE_API_KEY="ck_a_b\n",
        )  # fmt: skip
    assert (code, out, err) == (0, "Blue [bold]light[/bold].\n", "")
    assert provider.requests[0]["model"] == "m-1"
    assert provider.requests[0]["chat_template_kwargs"] == {"enable_thinking": False}
    assert provider.requests[0]["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Why?"},
    ]
    assert provider.authorizations == ["Bearer ck_a_b", "Bearer ck_a_b"]


async def test_a_pipe_is_the_question() -> None:
    async with running(ScriptedProvider([THINKS])) as provider:
        code, out, _ = await run("-u", provider.base_url, "-m", "m-2", stdin="Why?\nReally.\n")
    assert (code, out) == (0, "Blue [bold]light[/bold].\n")
    assert provider.requests[0]["messages"] == [{"role": "user", "content": "Why?\nReally."}]
    assert provider.requests[0]["model"] == "m-2"
    assert "chat_template_kwargs" not in provider.requests[0]


async def test_piped_text_goes_before_the_question() -> None:
    async with running(ScriptedProvider([THINKS, THINKS, THINKS, THINKS])) as provider:
        url = provider.base_url
        both = await run("What is it?", "-u", url, stdin="The word is BANANA.\r\nSo.\n")
        alone = await run("What is it?", "-u", url, stdin="\n")
        stdin_only = await run("-", "-u", url, stdin="Why?\n")
        between = await run("Put", "this:", "-", "into Latin", "-u", url, stdin="Why?\n")
    assert [both[0], alone[0], stdin_only[0], between[0]] == [0, 0, 0, 0]
    questions: Any = [request["messages"] for request in provider.requests]
    assert [each[-1]["content"] for each in questions] == [
        "The word is BANANA.\nSo.\n\nWhat is it?",
        "What is it?",
        "Why?",
        "Put this:\n\nWhy?\n\ninto Latin",
    ]


async def test_what_cannot_be_a_question_is_refused_before_anything_is_asked() -> None:
    binary = await run("What is it?", "-u", "http://127.0.0.1:9/v1", stdin="\x89PNG\0\0")
    large = await run("What is it?", "-u", "http://127.0.0.1:9/v1", stdin="x" * (16 * 2**20 + 1))
    assert binary == (2, "", "causerie: stdin holds binary data; pipe text\n")
    assert large == (2, "", "causerie: stdin holds more than 16 MiB; pipe less text\n")


def test_a_pipe_that_nobody_writes_to_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """A parent may keep it open for ever; what comes late is not lost."""
    reading, writing = os.pipe()
    notes: list[str] = []

    def noted(note: str, *, err: bool) -> None:
        assert err
        notes.append(note)
        os.write(writing, b"Late.")
        os.close(writing)

    with os.fdopen(reading) as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        monkeypatch.setattr("typer.echo", noted)
        assert question_of(("Why?",), 0.001) == "Late.\n\nWhy?"
    assert notes == ["causerie: waiting for the end of stdin; `< /dev/null` asks without it"]


async def test_no_question_waits_for_what_is_no_pipe() -> None:
    """As cron, CI and services start programs."""
    async with running(ScriptedProvider([THINKS, THINKS])) as provider:
        for end in ("< /dev/null", "<&-"):
            process = await asyncio.create_subprocess_exec(
                "/bin/sh", "-c",
                f'exec "$0" -m causerie chat "Why?" -u {provider.base_url} {end}',
                sys.executable, stdout=PIPE, stderr=PIPE,
            )  # fmt: skip
            out, err = await process.communicate()
            assert (process.returncode, err) == (0, b"")
            assert b"Blue" in out


@pytest.mark.parametrize("locale", ["C.UTF-8", "C"])
async def test_bytes_that_are_no_text_are_asked_too(locale: str) -> None:
    async with running(ScriptedProvider([THINKS, THINKS])) as provider:
        url, broken = provider.base_url, "caf\udce9"  # one byte, as in Latin-1
        piped = await run("-u", url, stdin=broken, LC_ALL=locale)
        given = await run(broken, "-u", url, "-s", broken, LC_ALL=locale)
    assert (piped[0], given[0]) == (0, 0), (piped, given)
    question = {"role": "user", "content": "caf\ufffd"}
    assert provider.requests[0]["messages"] == [question]
    assert provider.requests[1]["messages"] == [{**question, "role": "system"}, question]


async def test_an_output_that_knows_few_characters_gets_what_it_knows() -> None:
    async with running(ScriptedProvider([[piece(content="caf\xe9"), piece("stop")]])) as provider:
        told = await run("Where?", "-u", provider.base_url, PYTHONIOENCODING="ascii")
    assert told == (0, "caf?\n", "")


async def test_calls_are_shown_beside_the_answer(tmp_path: Path) -> None:
    file = tmp_path / "tools.json"
    file.write_text('[{"type": "function", "function": {"name": "look"}}]', encoding="utf-8")
    async with running(ScriptedProvider([CALLS])) as provider:
        code, out, err = await run("Look!", "-u", provider.base_url, "--tools", str(file))
    assert (code, out, err) == (0, "", '→ look {"at": "sky"}\n')


async def test_failures_are_one_sentence_with_a_code(tmp_path: Path) -> None:
    refusal = (404, '{"error": {"message": "No such model."}}')
    keyless = (401, '{"error": {"message": "No key was sent."}}')
    async with running(ScriptedProvider([refusal, keyless, THINKS])) as provider:
        url = provider.base_url
        lost = await run("Why?", "-u", f"{url.removesuffix('/v1')}/")
        refused = await run("Why?", "-u", url)
        unknown = await run("Why?", "-u", url)
        missing = await run("Why?", "-u", url, "--tools", str(tmp_path / "no.json"))
        silent = await run("-u", url, stdin=" \n")
    gone = await run("Why?", "-u", url)
    usage = await run("--no-such-option")
    assert lost[0] == 1
    assert lost[2].endswith(f" (status 404; is the address {url}?)\n")
    assert refused == (1, "", "causerie: No such model. (status 404)\n")
    assert unknown[0] == 1
    assert unknown[2] == "causerie: No key was sent. (status 401, set CAUSERIE_API_KEY)\n"
    assert missing[0] == 2
    assert "No such file or directory; a JSON array of tool definitions is needed" in missing[2]
    assert silent == (2, "", "causerie: stdin held no question\n")
    assert gone[0] == 4
    assert gone[2].startswith(f"causerie: {url} cannot be reached: 127.0.0.1:")
    assert gone[2].count("\n") == 1
    assert usage[0] == 2


async def test_nothing_can_be_asked_where_stdin_is_closed() -> None:
    command = (
        'exec "$0" -c "from causerie.cli import main; main()" chat -u http://127.0.0.1:9/v1 -m m'
    )
    process = await asyncio.create_subprocess_exec(
        "/bin/sh", "-c", f"{command} <&-", sys.executable, stdout=PIPE, stderr=PIPE
    )
    out, err = await process.communicate()
    assert (process.returncode, out) == (2, b"")
    assert err == b"causerie: stdin is closed; ask with an argument\n"


async def test_a_conversation_on_a_terminal() -> None:
    provider = ScriptedProvider([THINKS, THINKS, (503, "{}"), THINKS])
    async with running(provider), Terminal("-u", provider.base_url) as terminal:
        await terminal.shows("m-1 at ")
        await terminal.shows("> ")
        terminal.types("Why?\n")
        shown = await terminal.shows("> ")
        assert "\x1b[2mLet me see.\x1b[0m" in shown
        assert "Blue [bold]light[/bold]." in shown
        terminal.types("Really?\n")
        await terminal.shows("light")
        await terminal.shows("> ")
        assert provider.requests[1]["messages"] == [
            {"role": "user", "content": "Why?"},
            {
                "role": "assistant",
                "content": "Blue [bold]light[/bold].",
                "reasoning_content": "Let me see.",
            },
            {"role": "user", "content": "Really?"},
        ]
        terminal.types("Broken?\n")
        await terminal.shows("(status 503)")
        await terminal.shows("> ")
        terminal.types("/model\n")
        await terminal.shows("* m-1")
        terminal.types("/new\n")
        await terminal.shows("> ")
        terminal.types("Again?\n")
        await terminal.shows("light")
        await terminal.shows("> ")
        assert provider.requests[3]["messages"] == [{"role": "user", "content": "Again?"}]
        terminal.types("\x04")
        assert await terminal.ended() == 0


@pytest.mark.parametrize("plain", [True, False])
async def test_markdown_is_rendered_on_a_terminal(plain: bool) -> None:
    reply = [piece(content="**On"), piece(content="ce**\n\n- `upon`\n"), piece("stop")]
    option = ["--plain"] if plain else []
    provider = ScriptedProvider([reply])
    async with running(provider), Terminal("Go!", "-u", provider.base_url, *option) as terminal:
        shown = await terminal.shows("`upon`")
        assert await terminal.ended() == 0
    rest = terminal.left()
    assert "**Once**" in shown
    assert ("\x1b[1mOnce" in rest, " \u2022 " in rest) == (not plain, not plain)


async def test_lines_are_joined_and_remembered(tmp_path: Path) -> None:
    history = tmp_path / "causerie/chat_history"
    provider = ScriptedProvider([THINKS, THINKS, THINKS])
    async with running(provider):
        async with Terminal("-u", provider.base_url, XDG_STATE_HOME=str(tmp_path)) as terminal:
            await terminal.shows("> ")
            terminal.types("one \\\ntwo\n")
            await terminal.shows("light")
            await terminal.shows("> ")
            terminal.types('"""\nx\n\ny\n"""\n')
            await terminal.shows("light")
            await terminal.shows("> ")
            terminal.types("/clear\n")
            await terminal.shows("forgotten")
            await terminal.shows("> ")
            terminal.types("last\n")
            await terminal.shows("light")
        asked = [request["messages"] for request in provider.requests]
        assert history.stat().st_mode & 0o777 == 0o600
        provider.scripts.append(THINKS)
        async with Terminal("-u", provider.base_url, XDG_STATE_HOME=str(tmp_path)) as terminal:
            await terminal.shows("> ")
            terminal.types("\x1b[A\n")  # the key that goes up
            await terminal.shows("light")
        assert provider.requests[-1]["messages"] == [{"role": "user", "content": "last"}]
    assert [messages[-1]["content"] for messages in asked] == ["one \ntwo", "x\n\ny", "last"]
    assert history.read_text(encoding="utf-8").splitlines()[-2:] == ["last", "last"]


async def test_results_of_calls_are_asked_for(tmp_path: Path) -> None:
    file = tmp_path / "tools.json"
    file.write_text('[{"type": "function", "function": {"name": "look"}}]', encoding="utf-8")
    provider = ScriptedProvider([CALLS, THINKS])
    async with running(provider):
        arguments = ("-u", provider.base_url, "--tools", str(file))
        async with Terminal(*arguments) as terminal:
            await terminal.shows("> ")
            terminal.types("Look!\n")
            await terminal.shows("look")
            await terminal.shows("result of look: ")
            terminal.types("clouds\n")
            await terminal.shows("light")
    assert provider.requests[1]["messages"][2] == {
        "role": "tool",
        "tool_call_id": "c1",
        "content": "clouds",
    }


async def test_an_interrupt_stops_the_answer_and_not_the_program() -> None:
    provider = ScriptedProvider([[piece(content="Once upon")], THINKS], hold=True)
    async with running(provider), Terminal("-u", provider.base_url) as terminal:
        await terminal.shows("> ")
        terminal.types("A story!\n")
        await terminal.shows("Once upon")
        terminal.interrupts()
        await provider.gone.wait()
        await terminal.shows("stopped")
        await terminal.shows("> ")
        terminal.interrupts()
        await terminal.shows("Ctrl-D leaves")
        await terminal.shows("> ")
        terminal.types("Go on.\n")
        await terminal.shows("light")
        assert provider.requests[1]["messages"] == [
            {"role": "user", "content": "A story!"},
            {"role": "assistant", "content": "Once upon"},
            {"role": "user", "content": "Go on."},
        ]


async def test_an_interrupt_ends_a_single_question() -> None:
    provider = ScriptedProvider([[piece(content="Once upon")]], hold=True)
    async with running(provider), Terminal("A story!", "-u", provider.base_url) as terminal:
        await terminal.shows("Once upon")
        terminal.interrupts()
        assert await terminal.ended() == 130
        await provider.gone.wait()


@each_of("text", ["\x1b[2J", "\x07", "\x9b1m", "a\rb", "\u202eabc"])
def test_nothing_acts_on_the_terminal(text: str) -> None:
    assert not set("\x1b\x07\x9b\r\u202e") & set(printable(text))
    assert printable("plain\ttext\nnext ✓") == "plain\ttext\nnext ✓"
