"""A conversation with a provider, turn by turn, as the wire wants it.

Knows nothing of terminals: it hands out events and keeps the history, also of
an answer that was stopped half-way.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, field

import msgspec

from causerie.protocol.events import (
    Event,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    ToolCallStarted,
)
from causerie.protocol.parsing import ParsingRules, parse
from causerie.providers.target import ProviderTarget

_RULES = ParsingRules()


@dataclass(slots=True)
class ChatCall:
    """A call that the model asks for; ``arguments`` is JSON text."""

    id: str
    name: str
    arguments: str = ""


@dataclass(slots=True)
class ChatAnswer:
    """The part of an answer that has arrived."""

    reasoning: str = ""
    text: str = ""
    calls: list[ChatCall] = field(default_factory=list)

    def take(self, event: Event) -> None:
        match event:
            case ReasoningDelta(text=text):
                self.reasoning += text
            case TextDelta(text=text):
                self.text += text
            case ToolCallStarted(id=id_, name=name):
                self.calls.append(ChatCall(id_, name))
            case ToolCallDelta(index=index, arguments=arguments) if index < len(self.calls):
                self.calls[index].arguments += arguments
            case _:
                pass

    def message(self) -> dict[str, object]:
        """The assistant message to send back, reasoning unchanged."""
        message: dict[str, object] = {"role": "assistant", "content": self.text}
        if self.reasoning:
            message["reasoning_content"] = self.reasoning
        if self.calls:
            message["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments},
                }
                for call in self.calls
            ]
        return message


class Conversation:
    """The messages so far, and the fields that every request carries."""

    def __init__(
        self,
        target: Callable[[str], ProviderTarget],
        model: str,
        fields: Mapping[str, object],
        system: str | None = None,
    ) -> None:
        self._target = target
        self._chat = target(model)
        self._fields = fields
        self._system = system
        self._images: list[str] = []
        self.messages: list[dict[str, object]] = []
        self.clear()

    @property
    def model(self) -> str:
        """The id of the model that answers."""
        return self._chat.model

    def use(self, model: str) -> None:
        """Let another model answer; it is told what was said before."""
        self._chat = self._target(model)

    def instruct(self, system: str | None) -> None:
        """Put another system message before the conversation, or none."""
        said = self.messages[1:] if self._system else self.messages
        self._system = system
        self.clear()
        self.messages += said

    def markdown(self) -> str:
        """The texts of the conversation, each below who said it."""
        return "\n".join(
            f"## {message['role']}\n\n{_text(message['content'])}\n"
            for message in self.messages
            if message["content"]
        )

    def clear(self) -> None:
        """Forget everything but the system message."""
        self._images = []
        self.messages = [{"role": "system", "content": self._system}] if self._system else []

    def attach(self, image: str) -> None:
        """Send the picture of a ``data:`` address with what the person says next."""
        self._images.append(image)

    def say(self, text: str) -> None:
        """Add what the person says, behind the pictures that were attached."""
        content: object = text
        if self._images:
            parts = [{"type": "image_url", "image_url": {"url": each}} for each in self._images]
            content, self._images = [*parts, {"type": "text", "text": text}], []
        self.messages.append({"role": "user", "content": content})

    def result(self, call: ChatCall, text: str) -> None:
        self.messages.append({"role": "tool", "tool_call_id": call.id, "content": text})

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
        """Put a complete answer into the history."""
        if answer.text or answer.calls:
            self.messages.append(answer.message())

    def keep_stopped(self, answer: ChatAnswer) -> None:
        """Put the text of a stopped answer into the history; its calls are not complete."""
        self.keep(ChatAnswer(answer.reasoning, answer.text))

    def mark(self) -> int:
        """Return the end of the history, for :meth:`rewind`."""
        return len(self.messages)

    def rewind(self, mark: int) -> None:
        """Forget what came after the mark: a request with it failed."""
        del self.messages[mark:]


def _text(content: object) -> str:
    """Return the text of a message, which marks its pictures."""
    if not isinstance(content, list):
        return str(content)
    return "\n\n".join(part.get("text", "(a picture)") for part in content)
