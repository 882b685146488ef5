"""Finding a target that answers: one after the other, within one budget a request.

Knows nothing of what becomes of the reply once it has begun.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from causerie.errors import (
    Overloaded,
    RateLimited,
    ServiceError,
    TemplateFailed,
    UpstreamFailed,
)
from causerie.protocol.candidate import Candidate
from causerie.protocol.partial import Partial
from causerie.protocol.request import ChatRequest
from causerie.routing.hedge import race
from causerie.routing.order import order
from causerie.routing.seat import Seat, wait_of
from causerie.routing.terms import Terms
from causerie.routing.visit import Visit

SLOWER = "slower"
_LEFT = "left"
_NAMED = 4
_NEXT_STEP = (
    "if it goes on, the operator finds the cause in the service's log and at `/health`, and can "
    "test the server with `causerie probe`."
)
_OF_THE_TARGET = frozenset({"unsupported_parameter", "context_length_exceeded"})


class Search(Struct, eq=False):
    """Over ``candidates``, as they stand at the moment.

    ``tried`` lists who was asked, ``visit`` is who answers now, if anybody does.
    The seconds are those of all that answered: spent waiting for a place there, and until
    the first content.
    """

    terms: Terms
    request: ChatRequest
    hedge_seconds: float | None
    candidates: Sequence[Candidate]
    visit: Visit | None = None
    served_by: str = ""  # who answers, or answered last; if nobody did, who was asked last
    tried: list[Visit] = []
    queued_seconds: float = 0.0
    upstream_seconds: float = 0.0
    uncounted: int = 0  # of those tried, who cost nothing of the budget
    _seconds: float = 0.0  # in which nobody answered
    _hedge: Visit | None = None  # the second who was asked, where the first was slow

    @property
    def routed_seconds(self) -> float:
        """How long it took to come to who answers, by way of those who did not."""
        if self.visit is None or len(self.tried) == 1:
            return 0.0
        return self.visit.started - min(one.started for one in self.tried)

    def spent(self) -> bool:
        """Whether the budget is used up."""
        return self._left < 1 or self._seconds >= self.terms.budget.seconds

    @property
    def _left(self) -> int:
        """How many requests may still be sent."""
        return self.terms.budget.attempts - len(self.tried) + self.uncounted

    def waited(self, seconds: float) -> None:
        """Time went by in which nobody was asked."""
        self._seconds += seconds

    def broke(self, visit: Visit, failure: ServiceError) -> None:
        """Who answered has broken off."""
        self._seconds += visit.began - visit.started
        visit.failure = failure.code

    def seats(self) -> Sequence[Seat]:
        """Who may be asked now, in this order."""
        terms = self.terms
        return order(self.candidates, terms.seats, self.request, terms.chance)

    async def find(self, seats: Sequence[Seat], partial: Partial | None = None) -> Visit:
        """Who answers, the ``visit`` from now on, its first content-bearing event at hand.

        Raises a failure at once that no other could do better at, else what
        tells the client most when all have failed.
        """
        hopeless = False
        failures: dict[Seat, ServiceError] = {}
        for seat in seats:
            if seat in failures:
                continue
            visit = Visit(seat, self._request(seat), partial)
            try:
                if self.hedge_seconds is None or failures or len(seats) == 1:
                    await visit.begin()
                else:
                    visit = await self._raced(visit, self.hedge_seconds, seats[1:], failures)
            except ServiceError as refused:
                if seat not in failures:
                    self._note(visit, refused)
                    failures[seat] = refused
            except BaseException:
                self._abandoned(visit)
                raise
            else:
                self.visit = visit
                self.served_by = visit.seat.name
                self.tried.append(visit)
                self.queued_seconds += visit.queued_seconds
                self.upstream_seconds += visit.upstream_seconds
                return visit
            self._seconds += self.terms.clock() - visit.started
            if partial is None:
                _raise_last_word(failures.values())
            hopeless = hopeless or (seat is seats[0] and visit.resting)
            if self.spent():
                break
        raise self._exhausted(seats, list(failures.values()), hopeless=hopeless)

    async def _raced(
        self,
        visit: Visit,
        seconds: float,
        others: Sequence[Seat],
        failures: dict[Seat, ServiceError],
    ) -> Visit:
        """The visit that answers, this one or a second; raises a failure, and notes all."""
        self._hedge = None
        found = await race(
            visit,
            lambda: self._second(visit, others),
            seconds,
            lambda failure: visit.partial is None and not _elsewhere(failure),
        )
        for loser, failure in found.losers:
            self._note(loser, failure)
            if failure is not None:
                failures[loser.seat] = failure
        if found.winner is None:
            raise failures[visit.seat]
        self._seconds += found.winner.started - visit.started
        return found.winner

    def _second(self, first: Visit, others: Sequence[Seat]) -> Visit | None:
        able = [seat for seat in others if seat.breaker.admits()]
        if not able or self._left < 2 or not self.terms.hedges.spend():
            return None
        self._hedge = Visit(able[0], self._request(able[0]), first.partial)
        return self._hedge

    def _request(self, seat: Seat) -> ChatRequest:
        """The request as this one gets it."""
        for one in self.candidates:
            if one.name == seat.name:
                return self.request.within(one.bounds)
        return self.request

    def _abandoned(self, visit: Visit) -> None:
        """Take who has the request, where nobody waits for it any more, as who served it.

        Of two who have it that is the first: the second was asked for the service's own sake.
        """
        for one in (visit, self._hedge):
            if one is not None and (used := one.answer.usage()).prompt + used.completion:
                one.failure = _LEFT
                self.tried.append(one)
                self.visit, self.served_by = one, one.target
                self.queued_seconds += one.queued_seconds
                return

    def _note(self, visit: Visit, failure: ServiceError | None) -> None:
        """One that did not answer; what was sent away before it was sent costs nothing."""
        visit.failure = SLOWER if failure is None else failure.code
        if failure is not None:
            failure.changes = visit.changes(self.request, failure.changes)
        self.tried.append(visit)
        at_once = isinstance(failure, Overloaded) and "upstream_status" not in failure.metadata
        self.uncounted += at_once
        if visit.partial is None:
            self.served_by = visit.target  # nobody has answered yet

    def _exhausted(
        self, seats: Sequence[Seat], failures: Sequence[ServiceError], *, hopeless: bool
    ) -> ServiceError:
        """What the client is told when nobody answers."""
        telling = [one for one in failures if not _unable(one)]
        failure = telling[-1] if telling else next(iter(failures), None)
        rests = {one.name: self.terms.seats[one.name].breaker.wait() for one in self.candidates}
        if failure is None or (hopeless and isinstance(failure, UpstreamFailed)):
            wait = max(1, round(min(rests.values(), default=1.0)))
            why = f" {_last(failure)}" if isinstance(failure, UpstreamFailed) else ""
            return Overloaded(
                f"No target of this model answers now ({_listed(self.candidates)}).{why} "
                f"Try again in {wait} s; {_NEXT_STEP}",
                code="no_endpoint",
                retry_after=wait,
            )
        if isinstance(failure, Overloaded):  # of those that are full, who has room first
            failure = min((one for one in telling if isinstance(one, Overloaded)), key=wait_of)
            for seat in seats:
                rests.pop(seat.name, None)
            sooner = max(1, round(min(rests.values(), default=wait_of(failure))))
            if sooner < wait_of(failure):  # of those that rest only one was asked
                failure.headers["Retry-After"] = str(sooner)
        if isinstance(failure, UpstreamFailed):
            failure.message = (
                f"No target of this model answered ({_listed(self.candidates)}). {_last(failure)} "
                f"Try again later; {_NEXT_STEP}"
            )
        if len(self.tried) > 1:
            failure.metadata["attempts"] = len(self.tried)
        return failure


def _listed(candidates: Sequence[Candidate]) -> str:
    """Return the names of the targets; of many, the first ones and the number of the others."""
    names = [one.name for one in candidates[:_NAMED]]
    others = len(candidates) - len(names)
    return ", ".join([*names, f"and {others} more"] if others else names)


def _last(failure: UpstreamFailed) -> str:
    """Return the failure's own words, with the target they are about."""
    target = failure.metadata.get("target")
    return f"{target}: {failure!s}" if target else str(failure)


def _raise_last_word(failures: Iterable[ServiceError]) -> None:
    """Raise the failure that no other target could do better at, if there is one."""
    for failure in failures:
        if not _elsewhere(failure):
            raise failure


def _elsewhere(failure: ServiceError) -> bool:
    """Whether another target may do better: not where the request itself is wrong."""
    of_the_target = (Overloaded, RateLimited, TemplateFailed, UpstreamFailed)
    return isinstance(failure, of_the_target) or _unable(failure)


def _unable(failure: ServiceError) -> bool:
    """Whether a target only lacks a parameter or the context, which another one may have."""
    return failure.code in _OF_THE_TARGET
