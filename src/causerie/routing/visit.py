"""One target being asked: a place there, its reply, and what is learnt of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager

from causerie.errors import ServiceError
from causerie.protocol.events import (
    Batch,
    Finished,
    ReasoningDelta,
    TextDelta,
    ToolCallStarted,
)
from causerie.protocol.partial import Partial
from causerie.protocol.request import ChatRequest
from causerie.routing.seat import Seat
from causerie.routing.target import Answering, Lease, Target


class Visit:
    """``begin`` and, if it began, ``leave``. Times are in seconds.

    ``first`` is what has come until then, ``next`` gives what comes after it.
    """

    __slots__ = (
        "_began", "_clock", "_entry", "_left", "_partial", "_reply", "_request", "_trial", "answer",
        "first", "next", "queued_seconds", "seat", "upstream_seconds",
    )  # fmt: skip

    def __init__(
        self, seat: Seat, request: ChatRequest, partial: Partial | None, clock: Callable[[], float]
    ) -> None:
        self.seat = seat
        self.answer: Answering | None = None
        self.first: list[Batch] = []
        self.next: Callable[[], Awaitable[Batch]]
        self.queued_seconds = 0.0
        self.upstream_seconds = 0.0
        self._request = request
        self._partial = partial
        self._clock = clock
        self._entry: AbstractAsyncContextManager[Lease] | None = None
        self._reply: AbstractAsyncContextManager[Answering] | None = None
        self._began = 0.0  # when the first content was there
        self._left = False
        self._trial = False  # whether this one finds out if the target is there again
        seat.in_flight += 1

    async def begin(self) -> None:
        """Wait for the first content-bearing event; raises ``ServiceError`` where none comes.

        The target has been left then.
        """
        seat, breaker, first = self.seat, self.seat.breaker, self.first
        self._trial = breaker.begin()
        started = 0.0
        try:
            if seat.gate is not None:
                entry = seat.gate.enter(self._request.n)
                self.queued_seconds = (await entry.__aenter__()).waited
                self._entry = entry
            started = self._clock()
            seat.pace.asked(self)
            reply = self._asked(seat.target)
            answer = await reply.__aenter__()
            self._reply = reply
            events = self.next = answer.events.__anext__
            while not first or not _bears_content(first[-1]):
                first.append(await events())
        except StopAsyncIteration:
            pass  # a reply that says nothing is one, too
        except BaseException as failure:
            seat.pace.left(self)
            if isinstance(failure, ServiceError):
                seat.failed(failure)
            await self.leave()
            raise
        self._began = self._clock()
        self.upstream_seconds = self._began - started
        self.answer = answer
        breaker.answers()
        seat.answered += 1
        seat.pace.left(self)
        seat.pace.answered(self.upstream_seconds)

    def _asked(self, target: Target) -> AbstractAsyncContextManager[Answering]:
        if self._partial is None:
            return target.generate(self._request)
        return target.generate(self._request, self._partial)

    def wrote(self, tokens: int) -> None:
        """The whole reply is there, of so many tokens."""
        self.seat.pace.wrote(tokens, self._clock() - self._began)

    async def leave(self) -> None:
        """Free the target; only the first time does something."""
        if self._left:
            return
        self._left = True
        reply, self._reply = self._reply, None
        entry, self._entry = self._entry, None
        try:
            if reply is not None:
                await reply.__aexit__(None, None, None)
        finally:
            if entry is not None:
                await entry.__aexit__(None, None, None)
            self.seat.in_flight -= 1
            if self._trial and self.answer is None:
                self.seat.breaker.left()


def _bears_content(batch: Batch) -> bool:
    for event in batch:
        match event:
            case TextDelta() | ReasoningDelta():
                if event.text:
                    return True
            case ToolCallStarted() | Finished():
                return True
    return False
