"""Targets by name, and the ways of requests over them."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence

from msgspec import structs

from causerie.protocol.call_class import CallClass
from causerie.protocol.candidate import Candidate
from causerie.protocol.request import ChatRequest
from causerie.protocol.target_stats import TargetStats, TimeBucket
from causerie.routing.attempt import Attempt
from causerie.routing.circuit_breaker import CircuitBreaker
from causerie.routing.context import RetryBudget, RoutingContext
from causerie.routing.execution import Execution, ReplyObserver
from causerie.routing.explain import RankedTarget, explain
from causerie.routing.hedge import Hedges
from causerie.routing.last_targets import LastTargets
from causerie.routing.order import affinity_key
from causerie.routing.target import AdmissionQueue, Target
from causerie.routing.target_state import TargetState, TargetStatus

_BUDGET = RetryBudget()


class Router:
    """All targets. Measurements of one stay when the targets are replaced."""

    def __init__(
        self,
        targets: Mapping[str, Target],
        admission_queues: Mapping[str, AdmissionQueue] | None = None,
        *,
        budget: RetryBudget = _BUDGET,
        clock: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] | None = None,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._context = RoutingContext(
            {}, budget, Hedges(), clock, chance or random.Random().random, pause, LastTargets()
        )
        self.replace(targets, admission_queues or {})

    def replace(
        self, targets: Mapping[str, Target], admission_queues: Mapping[str, AdmissionQueue]
    ) -> None:
        """Take these targets from now on; requests under way keep theirs."""
        context = self._context
        target_states: dict[str, TargetState] = {}
        for name, target in targets.items():
            target_state = context.target_states.get(name)
            admission_queue = admission_queues.get(name)
            if (
                target_state is None
                or target_state.target is not target
                or target_state.admission_queue is not admission_queue
            ):
                breaker = CircuitBreaker(context.clock, context.chance)
                target_state = TargetState(name, target, admission_queue, breaker)
            target_states[name] = target_state
        self._context = structs.replace(context, target_states=target_states)

    def renewed(
        self, targets: Mapping[str, Target], admission_queues: Mapping[str, AdmissionQueue]
    ) -> Router:
        """A router over these targets that knows what this one has learnt of those it shares.

        This one stays as it is, for requests that have it already.
        """
        other = Router({})
        other._context = self._context
        other.replace(targets, admission_queues)
        return other

    def generate(
        self,
        candidates: Sequence[Candidate],
        request: ChatRequest,
        hedge_seconds: float | None = None,
        watch: ReplyObserver | None = None,
        tried: list[Attempt] | None = None,
    ) -> Execution:
        """The way of one request over the candidates.

        After ``hedge_seconds`` without an answer a second target is asked too, for a small
        share of all requests. ``watch`` is shown whatever is passed on. ``tried`` has who was
        asked before, on ways with budgets of their own; who is asked now is added.
        """
        context = self._context
        if hedge_seconds is not None:
            context.hedges.earn()
        execution = Execution(context, request, hedge_seconds, candidates)
        if tried is not None:
            execution.tried, execution.uncounted = tried, len(tried)
        if watch is not None:
            execution.watch = watch
        return execution

    def explain(
        self, candidates: Sequence[Candidate], request: ChatRequest
    ) -> Sequence[RankedTarget]:
        """Return the targets in the order for a request now, with reasons; nothing is sent."""
        context = self._context
        last = context.last_targets.of(affinity_key(request), context.clock())
        return explain(candidates, context.target_states, request, last)

    def target_states(self) -> Sequence[TargetState]:
        return list(self._context.target_states.values())

    def target_state(self, name: str) -> TargetState | None:
        return self._context.target_states.get(name)

    def target_stats(self, name: str) -> TargetStats | None:
        """Return the state of the target with that name, with its measurements."""
        target_state = self._context.target_states.get(name)
        return target_state.target_stats() if target_state is not None else None

    def history(self, name: str) -> Sequence[TimeBucket]:
        """The last day of the target of that name, in quarters of an hour."""
        target_state = self._context.target_states.get(name)
        return target_state.latency_stats.history.day() if target_state is not None else ()

    def requests(self, name: str) -> int:
        """Return how many requests the target of that name had in the last day."""
        target_state = self._context.target_states.get(name)
        return target_state.latency_stats.history.requests() if target_state is not None else 0

    def count_calls(self, name: str, classes: Sequence[CallClass]) -> None:
        """Count calls that the target of that name delivered."""
        target_state = self._context.target_states.get(name)
        if target_state is not None:
            target_state.call_stats.add(classes)

    def status(self) -> list[TargetStatus]:
        return [target_state.status() for target_state in self._context.target_states.values()]
