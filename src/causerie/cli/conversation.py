"""A conversation with a provider, turn by turn, and the provider that is asked.

Knows nothing of terminals: it emits events and keeps the history, also of an answer that was
stopped half-way.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import InitVar, dataclass, field
from http import HTTPStatus
from typing import Any

import msgspec

from causerie.cli.command import HERE, CommandFailed, ExitCode
from causerie.cli.services import services
from causerie.errors import ServiceError
from causerie.http.client import HttpClient, Reach
from causerie.http.client_connection import TransportFailed
from causerie.protocol.events import (
    Event,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    ToolCallStarted,
)
from causerie.protocol.parameters import ParsingRules
from causerie.providers.dialects import GENERIC
from causerie.providers.provider import Deadlines, Provider
from causerie.providers.target import ProviderTarget
from causerie.settings.environment import CLIENT_KEY
from causerie.shapes.chat_completions.reader import parse

_RULES = ParsingRules()


@dataclass(slots=True)
class ChatAnswer:
    """The received part of an answer."""

    reasoning: str = ""
    text: str = ""
    calls: list[dict[str, Any]] = field(default_factory=list)  # as a message has them

    def take(self, event: Event) -> None:
        match event:
            case ReasoningDelta(text=text):
                self.reasoning += text
            case TextDelta(text=text):
                self.text += text
            case ToolCallStarted(id=id_, name=name):
                function = {"name": name, "arguments": ""}
                self.calls.append({"id": id_, "type": "function", "function": function})
            case ToolCallDelta(index=index, arguments=arguments) if index < len(self.calls):
                self.calls[index]["function"]["arguments"] += arguments
            case _:
                pass

    def message(self) -> dict[str, object]:
        """Return the assistant message to send back, reasoning unchanged."""
        message: dict[str, object] = {"role": "assistant", "content": self.text}
        if self.reasoning:
            message["reasoning_content"] = self.reasoning
        if self.calls:
            message["tool_calls"] = self.calls
        return message


@dataclass(eq=False)
class Conversation:
    """The messages of a chat, and the fields that every request carries."""

    _target: Callable[[str], ProviderTarget]
    first_model: InitVar[str]
    _fields: Mapping[str, object]
    _system: str | None = None

    def __post_init__(self, first_model: str) -> None:
        self.use(first_model)
        self.images: list[str] = []  # of the next message
        self.messages: list[dict[str, object]] = []
        self.clear()

    @property
    def model(self) -> str:
        return self._chat.model

    def use(self, model: str) -> None:
        self._chat = self._target(model)

    def instruct(self, system: str | None) -> None:
        said = self.messages[1:] if self._system else self.messages
        self._system = system
        self.clear()
        self.messages += said

    def markdown(self) -> str:
        """Return the conversation as Markdown, each text below its role."""
        lines = []
        for message in self.messages:
            content = message["content"]
            if isinstance(content, list):
                content = "\n\n".join(part.get("text", "(a picture)") for part in content)
            if content:
                lines.append(f"## {message['role']}\n\n{content}\n")
        return "\n".join(lines)

    def clear(self) -> None:
        self.images = []
        self.messages = [{"role": "system", "content": self._system}] if self._system else []

    def say(self, text: str) -> None:
        """Add a message of the user, after the attached pictures."""
        content: object = text
        if self.images:
            parts = [{"type": "image_url", "image_url": {"url": each}} for each in self.images]
            content, self.images = [*parts, {"type": "text", "text": text}], []
        self.messages.append({"role": "user", "content": content})

    async def answer(self, into: ChatAnswer) -> AsyncGenerator[Event, None]:
        """Ask for an answer; its pieces are kept in ``into``. Raises ``ServiceError``.

        A complete answer joins the history. One that is stopped or breaks
        joins by :meth:`keep_stopped`, if the caller wants it to.
        """
        body = {
            **self._fields,
            "model": self._chat.model,
            "messages": self.messages,
            "stream": True,
        }
        request = parse(msgspec.json.encode(body), _RULES)
        async with self._chat.generate(request) as reply:
            async for batch in reply.events:
                for event in batch:
                    into.take(event)
                    yield event
        self.keep(into)

    def keep(self, answer: ChatAnswer) -> None:
        if answer.text or answer.calls:
            self.messages.append(answer.message())

    def keep_stopped(self, answer: ChatAnswer) -> None:
        """Add the text of a stopped answer to the history, without its incomplete calls."""
        self.keep(ChatAnswer(answer.reasoning, answer.text))


_VERSION = re.compile(r"/v\d\w*/?$", re.ASCII)


@contextmanager
def explain_failures(base_url: str) -> Iterator[None]:
    """Raise failures of a provider as :class:`CommandFailed`, with advice."""
    try:
        yield
    except ServiceError as error:
        if isinstance(error.__cause__, TransportFailed):
            advised = ""
            if base_url == HERE:
                running = services()
                advised = "; start a service with `causerie serve`"
                if running:
                    advised = f"; a service runs at {running[0].base_url}"
            why = f"{base_url} cannot be reached: {error.__cause__}{advised}"
            raise CommandFailed(why, ExitCode.NETWORK) from error
        status = error.metadata.get("upstream_status")
        said = f" (status {status}{advice(status, base_url)})" if status is not None else ""
        raise CommandFailed(f"{error.message}{said}") from error


def provider_at(base_url: str, key: str | None) -> Provider:
    """Return the provider at a base URL. Raises :class:`CommandFailed` for an invalid URL."""
    try:
        client = HttpClient(base_url, Reach(connect_seconds=10))
    except ValueError as error:
        raise CommandFailed(f"{base_url} is not an address: {error}", ExitCode.USAGE) from error
    day = 24 * 3600.0  # a person ends what takes too long
    deadlines = Deadlines(first_token=day, between_chunks=day, total=day)
    provider = Provider("endpoint", client, GENERIC, credential=key, deadlines=deadlines)
    provider.candid = True
    return provider


async def first_model(provider: Provider, base_url: str) -> str:
    with explain_failures(base_url):
        found = [str(each["id"]) for each in await provider.listing()]
    if not found:
        raise CommandFailed(f"{base_url} lists no models; name one with --model")
    return found[0]


def advice(status: object, base_url: str) -> str:
    """Return what to do about a status, to be put after it; empty if unknown."""
    if status == HTTPStatus.UNAUTHORIZED:
        return f", set {CLIENT_KEY}"
    if status == HTTPStatus.NOT_FOUND and not _VERSION.search(base_url):
        return f"; is the address {base_url.rstrip('/')}/v1?"
    return ""
