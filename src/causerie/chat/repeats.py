"""Calls of one message, without those that say again what an earlier one said.

Models that may write several calls sometimes write the same one up to the limit. A call
is held back while it equals the beginning of an earlier one, so that a repeated call is
never delivered, however its text is cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from causerie.protocol.events import ContentEvent, ToolCallDelta, ToolCallStarted


@dataclass(slots=True)
class Repeats:
    """The calls of one message so far."""

    _earlier: list[tuple[str, str]] = field(default_factory=list)
    """Name and arguments of each complete call."""
    _name: str = ""
    _arguments: str = ""
    _held: list[ContentEvent] = field(default_factory=list)

    def start(self, event: ToolCallStarted) -> Sequence[ContentEvent]:
        """Begin a call; return the events to deliver now."""
        self._name, self._arguments, self._held = event.name, "", []
        return self._delivered(event)

    def add(self, event: ToolCallDelta) -> Sequence[ContentEvent]:
        """Add to its arguments; return the events to deliver now."""
        self._arguments += event.arguments
        return self._delivered(event)

    def end(self) -> Sequence[ContentEvent] | None:
        """End the call; return the events left to deliver, or ``None`` if it is a repetition."""
        call = self._name, self._arguments
        if call in self._earlier:
            return None
        self._earlier.append(call)
        held, self._held = self._held, []
        return held

    def _delivered(self, event: ContentEvent) -> Sequence[ContentEvent]:
        self._held.append(event)
        if any(
            name == self._name and arguments.startswith(self._arguments)
            for name, arguments in self._earlier
        ):
            return ()
        ready, self._held = self._held, []
        return ready
