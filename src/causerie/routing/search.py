"""Finding a target that answers: one after the other, within one budget a request.

Knows nothing of what becomes of the reply once it has begun.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct

from causerie.errors import Overloaded, RateLimited, ServiceError, UpstreamFailed
from causerie.protocol.partial import Partial
from causerie.protocol.request import ChatRequest
from causerie.routing.hedge import Hedging, race
from causerie.routing.seat import Seat
from causerie.routing.visit import Visit

SLOWER = "slower"
_OF_THE_TARGET = frozenset({"unsupported_parameter", "context_length_exceeded"})


class RetryBudget(Struct, frozen=True):
    """What one request may cost, over all targets and before and after its first event.

    ``attempts`` requests are sent; none is sent once ``seconds`` have gone by
    in which nobody answered. ``wait_seconds`` of these may be spent waiting
    until somebody can go on with a reply that broke off.
    """

    attempts: int = 4
    seconds: float = 300.0
    wait_seconds: float = 30.0


class Attempt(Struct, frozen=True):
    """One target that was asked, and why it did not do; empty where it did."""

    target: str
    failure: str = ""

    def __str__(self) -> str:
        return f"{self.target}: {self.failure or 'answered'}"


class Search:
    """``tried`` lists who was asked. ``hedged``: a second one because the first was slow."""

    __slots__ = (
        "_budget", "_clock", "_hedging", "_request", "_seconds", "_sent", "hedged",
        "queued_seconds", "tried", "upstream_seconds",
    )  # fmt: skip

    def __init__(
        self,
        request: ChatRequest,
        budget: RetryBudget,
        clock: Callable[[], float],
        hedging: Hedging | None,
    ) -> None:
        self._request = request
        self._budget = budget
        self._clock = clock
        self._hedging = hedging if request.n == 1 else None
        self._seconds = 0.0
        self._sent = 0
        self.tried: list[Attempt] = []
        self.hedged = False
        self.queued_seconds = 0.0
        self.upstream_seconds = 0.0

    @property
    def spent(self) -> bool:
        """Whether the budget is used up."""
        return self._sent >= self._budget.attempts or self._seconds >= self._budget.seconds

    def waited(self, seconds: float) -> None:
        """Time went by in which nobody was asked."""
        self._seconds += seconds

    def broke(self, failure: ServiceError) -> None:
        """Who answered last has broken off."""
        self.tried[-1] = Attempt(self.tried[-1].target, failure.code)

    async def find(self, seats: Sequence[Seat], partial: Partial | None = None) -> Visit:
        """The first that answers, its first content-bearing event at hand; else its failure.

        Raises a failure at once that no other could do better at, else what
        tells the client most when all have failed.
        """
        hopeless = bool(seats) and seats[0].breaker.state() != "up"
        failure: ServiceError | None = None
        asked: list[Seat] = []
        for seat in seats:
            if self.spent:
                break
            if seat in asked:
                continue
            failures: list[tuple[Seat, ServiceError]] = []
            answering: Visit | None = None
            visit = Visit(seat, self._request, partial, self._clock)
            started = self._clock()
            try:
                if self._hedging is None or asked or len(seats) == 1:
                    await visit.begin()
                    answering = visit
                else:
                    answering = await self._raced(visit, seats[1:], partial, failures)
            except ServiceError as refused:
                self._note(seat, refused)
                failures.append((seat, refused))
            finally:
                self._seconds += self._clock() - started
            if answering is not None:
                self._sent += 1
                self.tried.append(Attempt(answering.seat.name))
                self.queued_seconds += answering.queued_seconds
                self.upstream_seconds += answering.upstream_seconds
                return answering
            for one, failed in failures:
                asked.append(one)
                if partial is None and not _elsewhere(failed):
                    raise failed
                if failure is None or not _unable(failed):
                    failure = failed
        raise self._exhausted(seats, failure, hopeless=hopeless)

    async def _raced(
        self,
        visit: Visit,
        others: Sequence[Seat],
        partial: Partial | None,
        failures: list[tuple[Seat, ServiceError]],
    ) -> Visit | None:
        """The visit that answers, this one or a second; else why none does is in ``failures``."""
        assert self._hedging is not None
        found = await race(visit, lambda: self._second(others, partial), self._hedging.seconds)
        for loser, failure in found.losers:
            self._note(loser.seat, failure)
            if failure is not None:
                failures.append((loser.seat, failure))
        return found.winner

    def _second(self, others: Sequence[Seat], partial: Partial | None) -> Visit | None:
        assert self._hedging is not None
        able = [seat for seat in others if seat.breaker.state() == "up"]
        if not able or self._sent + 2 > self._budget.attempts or not self._hedging.hedges.spend():
            return None
        self.hedged = True
        return Visit(able[0], self._request, partial, self._clock)

    def _note(self, seat: Seat, failure: ServiceError | None) -> None:
        """One that did not answer; what was sent away before it was sent costs nothing."""
        self.tried.append(Attempt(seat.name, SLOWER if failure is None else failure.code))
        at_once = isinstance(failure, Overloaded) and "upstream_status" not in failure.metadata
        self._sent += not at_once

    def _exhausted(
        self, seats: Sequence[Seat], failure: ServiceError | None, *, hopeless: bool
    ) -> ServiceError:
        """What the client is told when nobody answers."""
        if failure is None or (hopeless and isinstance(failure, UpstreamFailed)):
            wait = min((seat.breaker.wait() for seat in seats), default=1.0)
            return Overloaded(
                "No endpoint serves this model now; please try again.",
                code="no_endpoint",
                retry_after=max(1, round(wait)),
            )
        if len(self.tried) > 1:
            failure.metadata["attempts"] = len(self.tried)
        return failure


def _elsewhere(failure: ServiceError) -> bool:
    """Whether another target may do better: not where the request itself is wrong."""
    return isinstance(failure, (Overloaded, RateLimited, UpstreamFailed)) or _unable(failure)


def _unable(failure: ServiceError) -> bool:
    """Whether a target only lacks a parameter or the context, which another one may have."""
    return failure.code in _OF_THE_TARGET
