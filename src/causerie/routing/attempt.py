"""One target being asked: a place there, its reply, and what is learnt of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager

from msgspec import Struct

from causerie.errors import ConstraintNotKept, ServiceError
from causerie.protocol import events
from causerie.protocol.request import ChatRequest
from causerie.routing.circuit_breaker import THRESHOLD
from causerie.routing.target import SILENCE, TargetReply
from causerie.routing.target_state import TargetState

_WORDS = (events.TextDelta, events.ReasoningDelta)
_CONTENT_EVENTS = (events.ToolCallStarted, events.Finished)


class Attempt(Struct, eq=False):
    """A request to one target: ``begin``, then ``leave``. Times are in seconds of its clock.

    ``first`` has the events until it ``began``, :meth:`upcoming` gives those after it. The tokens
    of its ``answer`` are known after a failure too.
    """

    target_state: TargetState
    request: ChatRequest
    partial: events.Partial | None
    answer: TargetReply = SILENCE
    failure: str = ""  # why it did not do; empty where it did
    first: events.Batch = ()
    started: float = 0.0
    began: float = 0.0  # when the first content was there
    queued_seconds: float = 0.0
    upstream_seconds: float = 0.0
    _queue_entry: AbstractAsyncContextManager[float] | None = None
    _reply_context: AbstractAsyncContextManager[TargetReply] | None = None
    _has_left: bool = False
    reached: bool = False  # whether the target had the request, where it failed
    resting: bool = False  # whether the target was to be left alone, after repeated failures
    _is_trial: bool = False  # whether this one finds out if the target is there again
    _has_answered: bool = False
    _ended_empty: bool = False  # whether nothing follows what has come

    @property
    def target(self) -> str:
        return self.target_state.name

    def __str__(self) -> str:
        return f"{self.target}: {self.failure or 'answered'}"

    def changes(self, request: ChatRequest, made: Sequence[str]) -> Sequence[str]:
        sent = self.request
        if sent.min_tokens != request.min_tokens:
            made = (f"min_tokens lowered to {sent.min_tokens}", *made)
        if sent.max_tokens != request.max_tokens:
            made = (f"max_tokens lowered to {sent.max_tokens}", *made)
        return made

    async def begin(self) -> None:
        """Wait for the first content-bearing event; leave the target and raise ``ServiceError``."""
        target_state = self.target_state
        breaker, latency_stats = target_state.breaker, target_state.latency_stats
        clock = breaker.clock
        target_state.in_flight += 1
        if not breaker.well:
            self.resting = breaker.failures >= THRESHOLD and not breaker.admits()
            self._is_trial = breaker.begin()
        self.started = asked = clock()
        before: list[events.Event] = []
        try:
            if target_state.admission_queue is not None:
                entry = target_state.admission_queue.enter(self.request.n)
                self.queued_seconds = await entry.__aenter__()
                self._queue_entry = entry
                asked = clock()
            latency_stats.waiting[self] = asked
            reply = target_state.target.generate(self.request, self.partial)
            answer = self.answer = await reply.__aenter__()
            self._reply_context = reply
            upcoming = answer.events.__anext__
            while not _bears_content(batch := await upcoming()):
                before += batch
            self.first = [*before, *batch] if before else batch
        except StopAsyncIteration:
            self.first, self._ended_empty = before, True  # a reply that says nothing is one, too
        except BaseException as failure:
            await self._note_failure(failure)
            raise
        self._has_answered = True
        self.began = began = clock()
        self.upstream_seconds = seconds = began - asked
        if not breaker.well:
            breaker.answers()
        target_state.answered += 1
        del latency_stats.waiting[self]
        latency_stats.answered(seconds, began)

    def upcoming(self) -> Callable[[], Awaitable[events.Batch]]:
        return (SILENCE if self._ended_empty else self.answer).events.__anext__

    async def _note_failure(self, failure: BaseException) -> None:
        self.target_state.latency_stats.waiting.pop(self, None)
        if isinstance(failure, ServiceError):
            failure.changes = failure.changes or self.answer.changes
            self.reached = "upstream_status" in failure.metadata or self.answer.usage().prompt > 0
            if not isinstance(failure, ConstraintNotKept):
                self.answer = SILENCE  # it costs nothing
            self.target_state.failed(failure)
        await self.leave()

    async def leave(self) -> None:
        if self._has_left:
            return
        self._has_left = True
        self.target_state.in_flight -= 1
        if self._is_trial and not self._has_answered:
            self.target_state.breaker.left()
        try:  # the reply first: its place is taken until it is over
            if self._reply_context is not None:
                await self._reply_context.__aexit__(None, None, None)
        finally:
            if self._queue_entry is not None:
                await self._queue_entry.__aexit__(None, None, None)


def _bears_content(batch: events.Batch) -> bool:
    for event in batch:
        if isinstance(event, _WORDS):
            if event.text:
                return True
        elif isinstance(event, _CONTENT_EVENTS):
            return True
    return False
