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

_UNCUT = ("stop", "tool_calls")
_At = tuple[int, int]  # choice, and index of a call there
MANY = 256  # batches that are kept as they are; more are put together, to be small
LONG = 16  # events of a batch; a longer one is put together with the others at once


class Passed(Struct):
    """The events of one reply that went out, over all targets that made it.

    Batches that are passed on are appended to ``batches``. Once these are ``MANY``, or one is
    longer than ``LONG``, they are to be put together.
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

    def shows(self, *, reasoning: bool) -> bool:
        """Return true if content has gone out, of which ``reasoning`` is a part or not."""
        together = self.put_together()
        said = any(together.text) or bool(together.calls)
        return said or (reasoning and any(together.reasoning))

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
                PartialCall(at[1], call.id, call.name, "".join(together.arguments[at]))
                for at, call in sorted(together.calls.items())
            ),
            completion=usage.completion,
            reasoning_tokens=usage.reasoning,
            trail=trail,
        )

    def calls(self) -> Sequence[tuple[str, str]]:
        """Return names and arguments of the calls of all choices that were not cut."""
        together = self.put_together()
        return [
            (call.name, "".join(together.arguments[at]))
            for at, call in sorted(together.calls.items())
            if at[0] in together.uncut
        ]

    def put_together(self) -> _Together:
        """All that has gone out; nothing is left in ``batches``."""
        if self._together is None:
            self._together = _Together()
        self._together.add(self.batches)
        self.batches.clear()
        return self._together


class _Together:
    """Events put together, which takes little more room than their text."""

    __slots__ = ("arguments", "calls", "finish", "finished", "reasoning", "text", "uncut")

    def __init__(self) -> None:
        self.reasoning: list[str] = []
        self.text: list[str] = []
        self.calls: dict[_At, ToolCallStarted] = {}
        self.arguments: dict[_At, list[str]] = {}
        self.uncut: set[int] = set()  # choices that ended by themselves
        self.finish: FinishReason | None = None
        self.finished = 0

    def add(self, batches: Sequence[Batch]) -> None:
        """Take the events of these, too."""
        reasoning: list[str] = []
        text: list[str] = []
        arguments: dict[_At, list[str]] = {}
        for batch in batches:
            for event in batch:
                match event:
                    case ReasoningDelta():
                        reasoning.append(event.text)
                    case TextDelta():
                        text.append(event.text)
                    case ToolCallStarted():
                        at = event.choice, event.index
                        self.calls[at] = event
                        self.arguments[at] = []
                    case ToolCallDelta():
                        at = event.choice, event.index
                        arguments.setdefault(at, []).append(event.arguments)
                    case Finished():
                        self.finish = event.reason
                        self.finished += 1
                        if event.reason in _UNCUT:
                            self.uncut.add(event.choice)
        self.reasoning.append("".join(reasoning))
        self.text.append("".join(text))
        for at, pieces in arguments.items():
            self.arguments.setdefault(at, []).append("".join(pieces))


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
        discarded=before.discarded + new.discarded,
        impossible=before.impossible or new.impossible,
    )
