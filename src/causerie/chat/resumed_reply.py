"""A reply that has started elsewhere: what its reader has of it, while it is read once more.

Knows events and nothing of where they come from.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from msgspec import structs

from causerie.protocol.events import (
    ContentEvent,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    ToolCallStarted,
)
from causerie.protocol.partial import Partial


@dataclass(frozen=True, slots=True)
class ResumedReply:
    """A reply so far, from which generation continues."""

    tokens: tuple[int, ...]
    texts: tuple[str, ...]
    """Texts that the model's parser reads."""
    partial: Partial
    """The part that was sent."""
    made: int
    """Tokens that count towards the limits; another model may have counted them in its own."""


class Diverged(Exception):
    """The reply says something else than what has been given out."""


class Given:
    """The reply so far; ``new`` tells what goes beyond it."""

    def __init__(self, partial: Partial) -> None:
        self._reasoning = partial.reasoning
        self._text = partial.text
        self._started = [call.name for call in partial.calls]
        self._arguments = {call.index: call.arguments for call in partial.calls}

    @property
    def all_seen(self) -> bool:
        """Return whether the model has repeated everything that was already sent."""
        return not (self._reasoning or self._text or self._started or any(self._arguments.values()))

    def new(self, events: Iterable[ContentEvent]) -> list[ContentEvent]:
        """Return the events beyond the known reply; raise :class:`Diverged` if they differ."""
        return [left for event in events if (left := self._unknown(event)) is not None]

    def _unknown(self, event: ContentEvent) -> ContentEvent | None:
        match event:
            case ReasoningDelta(text):
                self._reasoning, left = _behind(self._reasoning, text)
                return structs.replace(event, text=left) if left else None
            case TextDelta(text):
                self._text, left = _behind(self._text, text)
                return structs.replace(event, text=left) if left else None
            case ToolCallDelta(index, text):
                self._arguments[index], left = _behind(self._arguments.get(index, ""), text)
                return structs.replace(event, arguments=left) if left else None
            case ToolCallStarted():
                if not self._started:
                    return event
                if self._started.pop(0) != event.name:
                    raise Diverged
                return None


def _behind(known: str, text: str) -> tuple[str, str]:
    """Return the rest of ``known`` after ``text``, and the part of ``text`` that is new."""
    if known.startswith(text):
        return known[len(text) :], ""
    if text.startswith(known):
        return "", text[len(known) :]
    raise Diverged
