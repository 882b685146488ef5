"""What of a reply has been passed on, so that another target can go on after it."""

from __future__ import annotations

from causerie.protocol.events import (
    Batch,
    Finished,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    ToolCallStarted,
    Usage,
)
from causerie.protocol.partial import Partial, PartialCall, Trail

_MANY = 256  # batches that are kept as they are; more are put together, to be small


class Passed:
    """The events of one reply that went out, over all targets that made it.

    ``finished`` counts the choices that have ended.
    """

    __slots__ = ("_arguments", "_batches", "_reasoning", "_started", "_text", "finished")

    def __init__(self) -> None:
        self._batches: list[Batch] = []
        self._reasoning: list[str] = []
        self._text: list[str] = []
        self._started: dict[int, ToolCallStarted] = {}
        self._arguments: dict[int, list[str]] = {}
        self.finished = 0

    def add(self, batch: Batch) -> None:
        """More has gone out."""
        self._batches.append(batch)
        for event in batch:
            if type(event) is Finished:
                self.finished += 1
        if len(self._batches) >= _MANY:
            self._put_together()

    def partial(self, usage: Usage, trail: Trail | None) -> Partial:
        """The reply so far, which has one choice; ``usage`` counts all its tokens."""
        self._put_together()
        return Partial(
            reasoning="".join(self._reasoning),
            text="".join(self._text),
            calls=tuple(
                PartialCall(index, started.id, started.name, "".join(self._arguments[index]))
                for index, started in sorted(self._started.items())
            ),
            completion=usage.completion,
            reasoning_tokens=usage.reasoning,
            trail=trail,
        )

    def _put_together(self) -> None:
        reasoning: list[str] = []
        text: list[str] = []
        arguments: dict[int, list[str]] = {}
        for batch in self._batches:
            for event in batch:
                match event:
                    case ReasoningDelta():
                        reasoning.append(event.text)
                    case TextDelta():
                        text.append(event.text)
                    case ToolCallStarted():
                        self._started[event.index] = event
                        self._arguments[event.index] = []
                    case ToolCallDelta():
                        arguments.setdefault(event.index, []).append(event.arguments)
        self._batches.clear()
        self._reasoning.append("".join(reasoning))
        self._text.append("".join(text))
        for index, pieces in arguments.items():
            self._arguments[index].append("".join(pieces))


def added(before: Usage, new: Usage) -> Usage:
    """The usage of a reply that was begun by one target and ended by another.

    The prompt is the first one's: what the others read again was not the
    client's doing.
    """
    return Usage(
        prompt=before.prompt or max(new.prompt - before.completion, 0),
        completion=before.completion + new.completion,
        cached=before.cached,
        reasoning=before.reasoning + new.reasoning,
    )
