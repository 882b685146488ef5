"""``causerie chat``: talk to a model, here or behind any base URL.

Ctrl-C stops the answer and not the program: each answer runs in its own task
on one runner, which an interrupt cancels.
"""

from __future__ import annotations

import asyncio
import select
import sys
import time
from contextlib import aclosing
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import msgspec
import typer
from rich.console import Console

from causerie.chat.separation import Separation
from causerie.cli.answer_view import AnswerView
from causerie.cli.asking import explained, first_model, provider_at
from causerie.cli.chat_commands import ChatCommands
from causerie.cli.conversation import ChatAnswer, ChatCall, Conversation
from causerie.cli.exits import CommandFailed, ExitCode
from causerie.cli.keyboard import Keyboard
from causerie.cli.terminal import printable
from causerie.protocol.events import Usage
from causerie.providers.provider import Deadlines, Provider
from causerie.providers.target import ProviderTarget
from causerie.settings.environment import client_key, state_folder, variables
from causerie.settings.problems import SettingsError

_LONG = 24 * 3600.0  # a person ends what takes too long
_MOST_PIPED = 16 * 2**20  # bytes; no service takes more by default
_PATIENCE_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class ChatWishes:
    """Wishes for a conversation."""

    thinking: bool | None
    system: str | None
    tools: Path | None
    plain: bool


def asked(question: str | None, patience: float = _PATIENCE_SECONDS) -> str | None:
    """Return the one question, or ``None`` for a conversation.

    What is piped goes before the question of the command line. A pipe is read to its end, however
    long that takes; after ``patience`` seconds without anything in it a note says so.
    """
    given = None if question is None or question == "-" else _text(question)
    if sys.stdin is None:
        if given is None:
            raise CommandFailed("stdin is closed; ask with an argument", ExitCode.USAGE)
        return given
    if sys.stdin.isatty() and question != "-":
        return given
    parts = [part for part in (_piped(patience), given) if part]
    if not parts:
        raise CommandFailed("stdin held no question", ExitCode.USAGE)
    return "\n\n".join(parts)


def talk(question: str | None, base_url: str, model: str | None, wishes: ChatWishes) -> None:
    """Ask one question, as :func:`asked` returns it, or talk until the person leaves."""
    with asyncio.Runner() as runner:
        long = Deadlines(first_token=_LONG, between_chunks=_LONG, total=_LONG)
        provider = provider_at(base_url, long, client_key())
        try:
            fields = _fields(wishes.thinking, wishes.tools)
            name = model or runner.run(first_model(provider, base_url))
            target = partial(ProviderTarget, provider, separators=Separation())
            system = _text(wishes.system) if wishes.system else None
            says = Conversation(target, name, fields, system)
            made = _Talk(runner, says, provider, base_url, plain=wishes.plain)
            if question is not None:
                made.once(question)
            else:
                made.at_length(f"{name} at {base_url}")
        finally:
            runner.run(provider.close())


class _Talk:
    """A person at the terminal, and the conversation."""

    def __init__(
        self,
        runner: asyncio.Runner,
        conversation: Conversation,
        provider: Provider,
        base_url: str,
        *,
        plain: bool,
    ) -> None:
        self._runner = runner
        self._base_url = base_url
        self._provider = provider
        self._conversation = conversation
        self._out = Console(highlight=False)
        self._notes = Console(stderr=True, highlight=False)
        self._plain = plain

    @cached_property
    def _keyboard(self) -> Keyboard:
        return Keyboard(self._out, _history())

    def once(self, question: str) -> None:
        """One question; failures and interrupts end the program."""
        self._conversation.say(question)
        view = AnswerView(self._out, self._notes, plain=self._plain)
        try:
            self._runner.run(self._answer(view, ChatAnswer()))
        finally:
            view.end()

    def at_length(self, title: str) -> None:
        """Questions until the end of the input."""
        self._out.print(
            f"{printable(title)} · Ctrl-D leaves, /help lists more", style="dim", markup=False
        )
        commands = ChatCommands(self._conversation, self._models)
        while (line := self._keyboard.question()) is not None:
            if line in ("/exit", "/quit", "/bye"):
                return
            if (said := self._command(commands, line)) is not None:
                self._out.print(printable(said), style="dim", markup=False, soft_wrap=True)
            elif line:
                mark = self._conversation.mark()
                self._conversation.say(line)
                self._turn(mark)

    @staticmethod
    def _command(commands: ChatCommands, line: str) -> str | None:
        try:
            return commands.said(line)
        except CommandFailed as error:
            return str(error)

    def _models(self) -> dict[str, dict[str, Any]]:
        async def listed() -> dict[str, dict[str, Any]]:
            with explained(self._base_url):
                return {str(entry["id"]): entry for entry in await self._provider.listing()}

        return self._runner.run(listed())

    def _turn(self, mark: int) -> None:
        """An answer, and further ones while the model asks for results."""
        while True:
            answer = ChatAnswer()
            view = AnswerView(self._out, self._notes, plain=self._plain)
            try:
                self._runner.run(self._answer(view, answer))
            except KeyboardInterrupt:
                view.stopped()
                self._conversation.keep_stopped(answer)
                return
            except CommandFailed as error:
                view.end()
                self._notes.print(f"causerie: {printable(str(error))}", markup=False)
                self._conversation.rewind(mark)
                return
            if not answer.calls:
                return
            if not self._results(answer.calls):
                self._conversation.rewind(mark)
                return

    def _results(self, calls: list[ChatCall]) -> bool:
        """Ask the person for the result of each call; false at the end of the input."""
        for call in calls:
            result = self._keyboard.line(f"result of {printable(call.name)}: ")
            if result is None:
                return False
            self._conversation.result(call, result)
        return True

    async def _answer(self, view: AnswerView, answer: ChatAnswer) -> None:
        began = time.monotonic()
        first: float | None = None
        usage: Usage | None = None
        with explained(self._base_url):
            async with aclosing(self._conversation.answer(answer)) as events:
                async for event in events:
                    if first is None:
                        first = time.monotonic() - began
                    if isinstance(event, Usage):
                        usage = event
                    view.show(event)
        view.end()
        view.summary(usage, time.monotonic() - began, first)


def _history() -> Path | None:
    """The file of the lines that were typed; ``None`` for a user without a home."""
    try:
        return state_folder(variables()) / "chat_history"
    except SettingsError:
        return None


def _fields(thinking: bool | None, tools: Path | None) -> dict[str, object]:
    fields: dict[str, object] = {}
    if thinking is not None:
        fields["chat_template_kwargs"] = {"enable_thinking": thinking}
    if tools is not None:
        fields["tools"] = _tools(tools)
    return fields


def _tools(file: Path) -> list[object]:
    advice = "a JSON array of tool definitions is needed"
    try:
        return msgspec.json.decode(file.read_bytes(), type=list[object])
    except OSError as error:
        raise CommandFailed(f"{file}: {error.strerror}; {advice}", ExitCode.USAGE) from error
    except msgspec.MsgspecError as error:
        raise CommandFailed(f"{file}: {error}; {advice}", ExitCode.USAGE) from error


def _text(argument: str) -> str:
    """An argument as text that can be sent; its bytes need not be any."""
    return argument.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _piped(patience: float) -> str:
    """Return the text on stdin."""
    if not sys.stdin.isatty() and not _has_input(patience):
        typer.echo(
            "causerie: waiting for the end of stdin; `< /dev/null` asks without it", err=True
        )
    raw = sys.stdin.buffer.read(_MOST_PIPED + 1)
    if len(raw) > _MOST_PIPED:
        size = f"{_MOST_PIPED // 2**20} MiB"
        raise CommandFailed(f"stdin holds more than {size}; pipe less text", ExitCode.USAGE)
    if b"\0" in raw:  # as git and grep tell
        raise CommandFailed("stdin holds binary data; pipe text", ExitCode.USAGE)
    return raw.decode("utf-8", "replace").replace("\r\n", "\n").strip()


def _has_input(patience: float) -> bool:
    """Return true once there is input, or its end; false if nothing comes in time."""
    try:
        return bool(select.select([sys.stdin], [], [], patience)[0])
    except (OSError, ValueError):  # no file, or one that cannot be waited for
        return True
