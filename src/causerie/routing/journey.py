"""One request on its way over targets: tried in order, continued where one breaks off.

Nothing is passed on before the first content-bearing event. There is one
budget of attempts and time for the whole request, however many targets fail
before or after that event.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType

from msgspec import Struct

from causerie.errors import Overloaded, RateLimited, ServiceError, UpstreamFailed
from causerie.protocol.events import Batch, Usage
from causerie.protocol.partial import Partial
from causerie.protocol.request import ChatRequest
from causerie.routing.continuation import Passed, added
from causerie.routing.hedge import Hedges, race
from causerie.routing.seat import Seat
from causerie.routing.target import Answering
from causerie.routing.visit import Visit


class RetryBudget(Struct, frozen=True):
    """What one request may cost: ``attempts`` in all, none begun after ``seconds``."""

    attempts: int = 4
    seconds: float = 60.0


class Hedging(Struct, frozen=True):
    """A second target is asked after ``seconds``, as often as ``hedges`` allow."""

    seconds: float
    hedges: Hedges


class Attempt(Struct, frozen=True):
    """One target that was asked, and why it did not do; empty where it did."""

    target: str
    failure: str = ""


class Journey:
    """Use as an async context manager; entered, the first content-bearing event is there.

    Iterating gives the reply in batches of events.

    ``tried`` lists every attempt, the last one is who serves; ``continued``
    counts how often another target went on with the reply, ``hedged`` says that
    a second one was asked because the first was slow.
    """

    def __init__(
        self,
        seats: Sequence[Seat],
        request: ChatRequest,
        budget: RetryBudget,
        clock: Callable[[], float],
        hedging: Hedging | None = None,
    ) -> None:
        self._seats = seats
        self._request = request
        self._budget = budget
        self._clock = clock
        self._started = clock()
        self._hopeless = bool(seats) and seats[0].breaker.state() != "up"
        self._hedging = hedging
        self._visit: Visit | None = None
        self._before = Usage(0, 0)
        self._passed = Passed()
        self._told: Usage | None = None
        self._over = False
        self.tried: list[Attempt] = []
        self.continued = 0
        self.hedged = False
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
    def _answer(self) -> Answering | None:
        return self._visit.answer if self._visit is not None else None

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
        answer = self._answer
        if answer is None:
            return self._before
        now = answer.usage()
        return added(self._before, now) if self.continued else now

    def __aiter__(self) -> Journey:
        return self

    async def __anext__(self) -> Batch:
        """The reply, unbroken where it can be; raises the failure that could not be mended."""
        while not self._over:
            visit = self._visit
            assert visit is not None
            assert visit.answer is not None
            if visit.first:
                return self._through(visit.first.pop(0))
            try:
                return self._through(await visit.answer.events.__anext__())
            except (UpstreamFailed, Overloaded) as failure:
                usage = self.usage()
                if self._passed.finished and self._request.n == 1:
                    self._over = True
                    return [usage]  # only the counts were missing
                await self._continue(failure, usage)
        raise StopAsyncIteration

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
        broken = self._visit
        assert broken is not None
        assert broken.answer is not None
        trail = broken.answer.trail()
        broken.seat.failed(failure)
        self.tried[-1] = Attempt(broken.seat.name, failure.code)
        await self._leave()
        self._before = usage
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
        for number, seat in enumerate(seats):
            if self._spent():
                break
            others = seats[number + 1 :] if number == 0 else ()
            try:
                visit = self._visit = await self._visited(seat, others, partial)
            except ServiceError as failed:
                self.tried.append(Attempt(seat.name, failed.code))
                if not _elsewhere(failed):
                    raise
                if failure is None or not _unable(failed):
                    failure = failed
            else:
                self.tried.append(Attempt(visit.seat.name))
                self.queued_seconds += visit.queued_seconds
                self.upstream_seconds += visit.upstream_seconds
                return
        raise self._exhausted(failure)

    async def _visited(self, seat: Seat, others: Sequence[Seat], partial: Partial | None) -> Visit:
        """A seat that answers: this one, or another where this one is slow and that is allowed."""
        visit = Visit(seat, self._request, partial, self._clock)
        if self._hedging is not None and others and self._request.n == 1:
            return await race(visit, lambda: self._second(others, partial), self._hedging.seconds)
        try:
            await visit.begin()
        except BaseException:
            await visit.leave()
            raise
        return visit

    def _second(self, others: Sequence[Seat], partial: Partial | None) -> Visit | None:
        able = [seat for seat in others if seat.breaker.state() == "up"]
        if not able or self._hedging is None or not self._hedging.hedges.spend():
            return None
        self.hedged = True
        return Visit(able[0], self._request, partial, self._clock)

    async def _leave(self) -> None:
        """Free whatever answers now."""
        visit, self._visit = self._visit, None
        if visit is not None:
            await visit.leave()

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


def _elsewhere(failure: ServiceError) -> bool:
    """Whether another target may do better: not where the request itself is wrong."""
    return isinstance(failure, (Overloaded, RateLimited, UpstreamFailed)) or _unable(failure)


def _unable(failure: ServiceError) -> bool:
    """Whether a target only lacks a parameter, which another one may have."""
    return failure.code == "unsupported_parameter"
