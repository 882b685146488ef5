"""Calls of one message, without those that say again what an earlier one said.

Models that may write several calls sometimes write the same one up to the limit. A call
is held back while it equals the beginning of an earlier one, so that a repeated call is
never delivered, however its text is cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from causerie.chat.growing_text import GrowingText
from causerie.protocol.events import ContentEvent, ToolCallDelta, ToolCallStarted


@dataclass(slots=True)
class Repeats:
    """The calls of one message so far."""

    _earlier: list[tuple[str, str]] = field(default_factory=list)
    """Name and arguments of each complete call."""
    _name: str = ""
    _arguments: GrowingText = field(default_factory=GrowingText)
    _alike: list[str] = field(default_factory=list)
    """Arguments of the earlier calls that this one is equal to so far."""
    _held: list[ContentEvent] = field(default_factory=list)

    def start(self, event: ToolCallStarted) -> Sequence[ContentEvent]:
        """Begin a call; return the events to deliver now."""
        self._name, self._arguments, self._held = event.name, GrowingText(), []
        self._alike = [arguments for name, arguments in self._earlier if name == event.name]
        return self._delivered(event)

    def add(self, event: ToolCallDelta) -> Sequence[ContentEvent]:
        """Add to its arguments; return the events to deliver now."""
        text, size = event.arguments, self._arguments.size
        self._alike = [one for one in self._alike if one.startswith(text, size)]
        self._arguments.add(text)
        return self._delivered(event)

    def end(self) -> Sequence[ContentEvent] | None:
        """End the call; return the events left to deliver, or ``None`` if it is a repetition."""
        arguments = str(self._arguments)
        if arguments in self._alike:
            return None
        self._earlier.append((self._name, arguments))
        held, self._held = self._held, []
        return held

    def _delivered(self, event: ContentEvent) -> Sequence[ContentEvent]:
        self._held.append(event)
        if self._alike:
            return ()
        ready, self._held = self._held, []
        return ready
