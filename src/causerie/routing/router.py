"""Targets by name, and the ways of requests over them."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence

from msgspec import structs

from causerie.protocol.candidate import Candidate
from causerie.protocol.request import ChatRequest
from causerie.protocol.standing import Standing, Stretch
from causerie.routing.breaker import Breaker
from causerie.routing.foresight import Prospect, foreseen
from causerie.routing.hedge import Hedges
from causerie.routing.journey import Journey, Watch
from causerie.routing.seat import Seat, SeatStatus
from causerie.routing.target import Gate, Target
from causerie.routing.terms import RetryBudget, Terms
from causerie.routing.visit import Visit

_BUDGET = RetryBudget()


class Router:
    """All targets. What was learnt of one stays when the targets are replaced."""

    def __init__(
        self,
        targets: Mapping[str, Target],
        gates: Mapping[str, Gate] | None = None,
        *,
        budget: RetryBudget = _BUDGET,
        clock: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] | None = None,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._terms = Terms({}, budget, Hedges(), clock, chance or random.Random().random, pause)
        self.replace(targets, gates or {})

    def replace(self, targets: Mapping[str, Target], gates: Mapping[str, Gate]) -> None:
        """Take these targets from now on; requests under way keep theirs."""
        terms = self._terms
        seats: dict[str, Seat] = {}
        for name, target in targets.items():
            seat = terms.seats.get(name)
            gate = gates.get(name)
            if seat is None or seat.target is not target or seat.gate is not gate:
                seat = Seat(name, target, gate, Breaker(terms.clock, terms.chance))
            seats[name] = seat
        self._terms = structs.replace(terms, seats=seats)

    def renewed(self, targets: Mapping[str, Target], gates: Mapping[str, Gate]) -> Router:
        """A router over these targets that knows what this one has learnt of those it shares.

        This one stays as it is, for requests that have it already.
        """
        other = Router({})
        other._terms = self._terms
        other.replace(targets, gates)
        return other

    def generate(
        self,
        candidates: Sequence[Candidate],
        request: ChatRequest,
        hedge_seconds: float | None = None,
        watch: Watch | None = None,
        tried: list[Visit] | None = None,
    ) -> Journey:
        """The way of one request over the candidates.

        After ``hedge_seconds`` without an answer a second target is asked too, for a small
        share of all requests. ``watch`` is shown whatever is passed on. ``tried`` has who was
        asked before, on ways with budgets of their own; who is asked now is added.
        """
        terms = self._terms
        if hedge_seconds is not None:
            terms.hedges.earn()
        journey = Journey(terms, request, hedge_seconds, candidates)
        if tried is not None:
            journey.tried, journey.uncounted = tried, len(tried)
        if watch is not None:
            journey.watch = watch
        return journey

    def foresee(self, candidates: Sequence[Candidate], request: ChatRequest) -> Sequence[Prospect]:
        """Who would be asked now, the first in front, and why; nobody is asked."""
        return foreseen(candidates, self._terms.seats, request)

    def seat(self, name: str) -> Seat | None:
        """The target of that name."""
        return self._terms.seats.get(name)

    def standing(self, name: str) -> Standing | None:
        """How the target of that name stands, with what was measured of it."""
        seat = self._terms.seats.get(name)
        return seat.standing() if seat is not None else None

    def history(self, name: str) -> Sequence[Stretch]:
        """The last day of the target of that name, in quarters of an hour."""
        seat = self._terms.seats.get(name)
        return seat.pace.history.day() if seat is not None else ()

    def status(self) -> list[SeatStatus]:
        """How every target stands."""
        return [seat.status() for seat in self._terms.seats.values()]
