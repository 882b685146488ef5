"""One request on its way over targets: tried in order, continued where one breaks off.

Nothing is passed on before the first content-bearing event. There is one
budget of attempts and time for the whole request, however many targets fail
before or after that event.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from types import TracebackType

from msgspec import Struct

from causerie.errors import Overloaded, RateLimited, ServiceError, UpstreamFailed
from causerie.protocol.events import (
    Batch,
    Finished,
    ReasoningDelta,
    TextDelta,
    ToolCallStarted,
    Usage,
)
from causerie.protocol.partial import Partial
from causerie.protocol.request import ChatRequest
from causerie.routing.continuation import Passed, added
from causerie.routing.seat import Seat
from causerie.routing.target import Answering, Lease


class RetryBudget(Struct, frozen=True):
    """What one request may cost: ``attempts`` in all, none begun after ``seconds``."""

    attempts: int = 4
    seconds: float = 60.0


class Attempt(Struct, frozen=True):
    """One target that was asked, and why it did not do; empty where it did."""

    target: str
    failure: str = ""


class Journey:
    """Use as an async context manager; entered, the first content-bearing event is there.

    ``tried`` lists every attempt, the last one is who serves; ``continued``
    counts how often another target went on with the reply.
    """

    def __init__(
        self,
        seats: Sequence[Seat],
        request: ChatRequest,
        budget: RetryBudget,
        clock: Callable[[], float],
    ) -> None:
        self._seats = seats
        self._request = request
        self._budget = budget
        self._clock = clock
        self._started = clock()
        self._hopeless = bool(seats) and seats[0].breaker.state() != "up"
        self._entry: AbstractAsyncContextManager[Lease] | None = None
        self._reply: AbstractAsyncContextManager[Answering] | None = None
        self._seat: Seat | None = None
        self._answer: Answering | None = None
        self._first: list[Batch] = []
        self._before = Usage(0, 0)
        self._passed = Passed()
        self._told: Usage | None = None
        self.tried: list[Attempt] = []
        self.continued = 0
        self.queued_seconds = 0.0
        self.upstream_seconds = 0.0

    async def __aenter__(self) -> Journey:
        try:
            await self._begin(self._seats, None)
        except BaseException:
            await self._leave()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._leave()

    @property
    def served_by(self) -> str:
        """Who answers, or answered last."""
        return self.tried[-1].target if self.tried else ""

    @property
    def attempts(self) -> int:
        """How many targets were asked."""
        return len(self.tried)

    @property
    def fingerprint(self) -> str:
        """Of who began the answer."""
        return self._answer.fingerprint if self._answer is not None else ""

    @property
    def changes(self) -> Sequence[str]:
        """What was dropped or rewritten for the target."""
        return self._answer.changes if self._answer is not None else ()

    def usage(self) -> Usage:
        """The tokens so far, of all targets."""
        if self._told is not None:
            return self._told
        if self._answer is None:
            return self._before
        now = self._answer.usage()
        return added(self._before, now) if self.continued else now

    async def events(self) -> AsyncGenerator[Batch, None]:
        """The reply, unbroken where it can be; raises the failure that could not be mended."""
        while True:
            try:
                for batch in self._first:
                    yield self._through(batch)
                self._first = []
                assert self._answer is not None
                async for batch in self._answer.events:
                    yield self._through(batch)
                return
            except (UpstreamFailed, Overloaded) as failure:
                usage = self.usage()
                if self._passed.finished and self._request.n == 1:
                    yield [usage]  # only the counts were missing
                    return
                await self._continue(failure, usage)

    def _through(self, batch: Batch) -> Batch:
        """A batch as the client gets it: one reply, one usage."""
        if self._request.n == 1:
            self._passed.add(batch)
        last = batch[-1]
        if type(last) is Usage:
            self._told = added(self._before, last) if self.continued else last
            if self.continued:
                return [*batch[:-1], self._told]
        return batch

    async def _continue(self, failure: ServiceError, usage: Usage) -> None:
        """Go on after what went out, or raise ``failure``."""
        assert self._answer is not None
        assert self._seat is not None
        broken = self._seat
        trail = self._answer.trail()
        self._note_failure(broken, failure)
        await self._leave()
        self._answer, self._before = None, usage
        if self._request.n > 1:
            raise failure
        partial = self._passed.partial(usage, trail)
        able = [seat for seat in self._seats if seat.target.continues(self._request, partial)]
        failed = {attempt.target for attempt in self.tried}
        self.continued += 1
        try:
            await self._begin(sorted(able, key=lambda seat: seat.name in failed), partial)
        except ServiceError as refused:
            raise failure from refused

    async def _begin(self, seats: Sequence[Seat], partial: Partial | None) -> None:
        """Find a seat whose first content-bearing event comes."""
        failure: ServiceError | None = None
        for seat in seats:
            if self._spent():
                break
            try:
                await self._ask(seat, partial)
            except ServiceError as failed:
                self._note_failure(seat, failed)
                await self._leave()
                if not _elsewhere(failed):
                    raise
                failure = failed
            else:
                self.tried.append(Attempt(seat.name))
                return
        raise self._exhausted(failure)

    async def _ask(self, seat: Seat, partial: Partial | None) -> None:
        self._seat = seat
        seat.in_flight += 1
        seat.breaker.begin()
        if seat.gate is not None:
            entry = seat.gate.enter(self._request.n)
            self.queued_seconds += (await entry.__aenter__()).waited
            self._entry = entry
        started = self._clock()
        try:
            target = seat.target
            reply = (
                target.generate(self._request)
                if partial is None
                else target.generate(self._request, partial)
            )
            answer = await reply.__aenter__()
            self._reply = reply
            first = []
            async for batch in answer.events:
                first.append(batch)
                if _bears_content(batch):
                    break
        finally:
            self.upstream_seconds += self._clock() - started
        self._answer = answer
        self._first = first
        seat.breaker.succeeded()

    async def _leave(self) -> None:
        """Free whatever answers now."""
        seat, self._seat = self._seat, None
        reply, self._reply = self._reply, None
        entry, self._entry = self._entry, None
        try:
            if reply is not None:
                await reply.__aexit__(None, None, None)
        finally:
            if entry is not None:
                await entry.__aexit__(None, None, None)
            if seat is not None:
                seat.in_flight -= 1
                seat.breaker.left()

    def _note_failure(self, seat: Seat, failure: ServiceError) -> None:
        seat.failed(failure)
        if self.tried and self.tried[-1].target == seat.name and not self.tried[-1].failure:
            self.tried.pop()  # it had begun
        self.tried.append(Attempt(seat.name, failure.code))

    def _exhausted(self, failure: ServiceError | None) -> ServiceError:
        """What the client is told when nobody answers."""
        if failure is None or (self._hopeless and isinstance(failure, UpstreamFailed)):
            wait = min((seat.breaker.wait() for seat in self._seats), default=1.0)
            return Overloaded(
                "No endpoint serves this model now; please try again.",
                code="no_endpoint",
                retry_after=max(1, round(wait)),
            )
        if self.attempts > 1:
            failure.metadata["attempts"] = self.attempts
        return failure

    def _spent(self) -> bool:
        return (
            self.attempts >= self._budget.attempts
            or self._clock() - self._started > self._budget.seconds
        )


def _bears_content(batch: Batch) -> bool:
    for event in batch:
        match event:
            case TextDelta() | ReasoningDelta():
                if event.text:
                    return True
            case ToolCallStarted() | Finished():
                return True
    return False


def _elsewhere(failure: ServiceError) -> bool:
    """Whether another target may do better: not where the request itself is wrong."""
    return isinstance(failure, (Overloaded, RateLimited, UpstreamFailed))
