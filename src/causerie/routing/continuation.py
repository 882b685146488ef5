"""The part of a reply that was passed on, so that another target can continue it."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from causerie.protocol.events import (
    Batch,
    Finished,
    FinishReason,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    ToolCallStarted,
    Usage,
)
from causerie.protocol.partial import Partial, PartialCall, Trail

MANY = 256  # batches that are kept as they are; more are put together, to be small


class Passed(Struct):
    """The events of one reply that went out, over all targets that made it.

    Batches that are passed on are appended to ``batches``; once these are ``MANY`` they are to be
    put together.
    """

    batches: list[Batch] = []
    _together: _Together | None = None

    @property
    def finished(self) -> int:
        """Return the number of choices that have ended."""
        return self.put_together().finished

    @property
    def finish(self) -> FinishReason | None:
        """Return the finish reason of the choice that ended last."""
        for batch in reversed(self.batches):
            for event in reversed(batch):
                if type(event) is Finished:
                    return event.reason
        return None if self._together is None else self._together.finish

    @property
    def is_unsaid(self) -> bool:
        """Return true if none of it is answer: neither text nor calls nor an end."""
        together = self.put_together()
        return not (any(together.text) or together.calls or together.finished)

    def forget(self) -> None:
        """Nothing has gone out."""
        self._together = None
        self.batches.clear()

    def partial(self, usage: Usage, trail: Trail | None) -> Partial:
        """The reply so far, which has one choice; ``usage`` counts all its tokens."""
        together = self.put_together()
        return Partial(
            reasoning="".join(together.reasoning),
            text="".join(together.text),
            calls=tuple(
                PartialCall(index, call.id, call.name, "".join(together.arguments[index]))
                for index, call in sorted(together.calls.items())
            ),
            completion=usage.completion,
            reasoning_tokens=usage.reasoning,
            trail=trail,
        )

    def put_together(self) -> _Together:
        """All that has gone out; nothing is left in ``batches``."""
        if self._together is None:
            self._together = _Together()
        self._together.add(self.batches)
        self.batches.clear()
        return self._together


class _Together:
    """Events put together, which takes little more room than their text."""

    __slots__ = ("arguments", "calls", "finish", "finished", "reasoning", "text")

    def __init__(self) -> None:
        self.reasoning: list[str] = []
        self.text: list[str] = []
        self.calls: dict[int, ToolCallStarted] = {}
        self.arguments: dict[int, list[str]] = {}
        self.finish: FinishReason | None = None
        self.finished = 0

    def add(self, batches: Sequence[Batch]) -> None:
        """Take the events of these, too."""
        reasoning: list[str] = []
        text: list[str] = []
        arguments: dict[int, list[str]] = {}
        for batch in batches:
            for event in batch:
                match event:
                    case ReasoningDelta():
                        reasoning.append(event.text)
                    case TextDelta():
                        text.append(event.text)
                    case ToolCallStarted():
                        self.calls[event.index] = event
                        self.arguments[event.index] = []
                    case ToolCallDelta():
                        arguments.setdefault(event.index, []).append(event.arguments)
                    case Finished():
                        self.finish = event.reason
                        self.finished += 1
        self.reasoning.append("".join(reasoning))
        self.text.append("".join(text))
        for index, pieces in arguments.items():
            self.arguments.setdefault(index, []).append("".join(pieces))


def added(before: Usage, new: Usage) -> Usage:
    """The usage of a reply that was started by one target and ended by another.

    The prompt is the first one's: what the others read again was not the
    client's doing.
    """
    return Usage(
        prompt=before.prompt or max(new.prompt - before.completion, 0),
        completion=before.completion + new.completion,
        cached=before.cached,
        reasoning=before.reasoning + new.reasoning,
        estimated=before.estimated or new.estimated,
    )
