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


class Passed:
    """The events of one reply that went out, over all targets that made it."""

    __slots__ = ("_batches", "finished")

    def __init__(self) -> None:
        self._batches: list[Batch] = []
        self.finished = False

    def add(self, batch: Batch) -> None:
        """More has gone out."""
        self._batches.append(batch)
        for event in batch:
            if type(event) is Finished:
                self.finished = True

    def partial(self, usage: Usage, trail: Trail | None) -> Partial:
        """The reply so far; ``usage`` counts all its tokens."""
        reasoning: list[str] = []
        text: list[str] = []
        calls: dict[int, tuple[ToolCallStarted, list[str]]] = {}
        for batch in self._batches:
            for event in batch:
                match event:
                    case ReasoningDelta():
                        reasoning.append(event.text)
                    case TextDelta():
                        text.append(event.text)
                    case ToolCallStarted():
                        calls[event.index] = (event, [])
                    case ToolCallDelta():
                        calls[event.index][1].append(event.arguments)
        return Partial(
            reasoning="".join(reasoning),
            text="".join(text),
            calls=tuple(
                PartialCall(index, started.id, started.name, "".join(arguments))
                for index, (started, arguments) in sorted(calls.items())
            ),
            completion=usage.completion,
            reasoning_tokens=usage.reasoning,
            trail=trail,
        )


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
