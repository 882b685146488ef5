"""Targets by name, the ways of requests over them, and their explanation."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Literal

import structlog
from msgspec import Struct, structs

from causerie.errors import InvalidRequest, ServiceError
from causerie.protocol.request import ChatRequest
from causerie.protocol.targets import CallClass, Candidate, TargetStats
from causerie.routing import target_selector as selector
from causerie.routing.attempt import Attempt
from causerie.routing.circuit_breaker import CircuitBreaker
from causerie.routing.execution import Execution, ReplyObserver
from causerie.routing.target import AdmissionQueue, Target
from causerie.routing.target_state import TargetState, TargetStatus

log = structlog.get_logger(__name__)

Decided = Literal["alone", "home", "overflow", "load", "last"]
"""Reason of a target's place.

``alone``: no other has this priority; ``home``: the conversation belongs there; ``overflow``: the
next one if that is full; ``load``: by its running requests; ``last``: it is not available.
"""


class RankedTarget(Struct, frozen=True):
    """A target in the order for a request.

    ``share`` is its share of conversations among targets of its priority; ``tied`` are targets
    with an equal place, among which the order is random.
    """

    candidate: Candidate
    status: TargetStatus
    decided: Decided
    share: float
    tied: tuple[str, ...] = ()


def _ranked_target(
    one: Candidate,
    group: Sequence[Candidate],
    target_states: Mapping[str, TargetState],
    conversation: str,
    last: str,
) -> RankedTarget:
    status = target_states[one.name].status()
    if one not in group:
        return RankedTarget(one, status, "last", 0.0)
    if len(group) == 1:
        return RankedTarget(one, status, "alone", 1.0)
    share = one.weight / sum(each.weight for each in group)
    at_affinity_target = selector.affinity_target(group, target_states, conversation, last)
    if at_affinity_target == one:
        first = selector.preferred(group, conversation, last)[0] == one
        return RankedTarget(one, status, "home" if first else "overflow", share)
    tied = tuple(
        each.name
        for each in group
        if each not in (one, at_affinity_target)
        and selector.load(each, target_states) == selector.load(one, target_states)
    )
    return RankedTarget(one, status, "load", share, tied)


_BUDGET = selector.RetryBudget()


class Router:
    """All targets; their measurements stay when the targets are replaced."""

    def __init__(
        self,
        targets: Mapping[str, Target],
        admission_queues: Mapping[str, AdmissionQueue] | None = None,
        *,
        budget: selector.RetryBudget = _BUDGET,
        clock: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] | None = None,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._context = selector.RoutingContext(
            {}, budget, clock, chance or random.Random().random, pause, selector.LastTargets()
        )
        self.replace(targets, admission_queues or {})

    def replace(
        self, targets: Mapping[str, Target], admission_queues: Mapping[str, AdmissionQueue]
    ) -> None:
        """Use these targets from now on; running requests keep theirs."""
        context = self._context
        target_states: dict[str, TargetState] = {}
        for name, target in targets.items():
            state, queue = context.target_states.get(name), admission_queues.get(name)
            if state is None or state.target is not target or state.admission_queue is not queue:
                breaker = CircuitBreaker(context.clock, context.chance)
                state = TargetState(name, target, queue, breaker)
            target_states[name] = state
        self._context = structs.replace(context, target_states=target_states)

    def renewed(
        self, targets: Mapping[str, Target], admission_queues: Mapping[str, AdmissionQueue]
    ) -> Router:
        """Return a router over these targets, with the measurements of those they share."""
        other = Router({})
        other._context = self._context
        other.replace(targets, admission_queues)
        return other

    def generate(
        self,
        candidates: Sequence[Candidate],
        request: ChatRequest,
        watch: ReplyObserver | None = None,
        tried: list[Attempt] | None = None,
    ) -> Execution:
        """Return the execution of a request over the candidates.

        ``watch`` sees everything that is passed on. ``tried`` has earlier attempts with budgets of
        their own, and gets the new ones.
        """
        tried = [] if tried is None else tried
        return Execution(
            self._context, request, candidates, tried=tried, uncounted=len(tried), watch=watch
        )

    async def count_tokens(
        self, candidates: Sequence[Candidate], request: ChatRequest
    ) -> int | None:
        """Return the tokens of the prompt at the first target that can take it, if it counts."""
        context = self._context
        last = context.last_target(request)
        refused: list[InvalidRequest] = []
        for one in selector.order(candidates, context.target_states, request, context.chance, last):
            try:
                return await one.target.count_tokens(request)
            except InvalidRequest as failure:
                if failure.code != "unsupported_parameter":
                    raise
                refused.append(failure)
            except ServiceError as failure:
                log.info("tokens not counted", target=one.name, reason=str(failure))
                return None
        raise refused[0]

    def explain(
        self, candidates: Sequence[Candidate], request: ChatRequest
    ) -> Sequence[RankedTarget]:
        """Return the targets in the order for a request now, with reasons; nothing is sent."""
        context, conversation = self._context, selector.affinity_key(request)
        target_states = context.target_states
        last = context.last_target(request)
        groups = selector.available(candidates, target_states)
        weighted = (one for group in groups.values() for one in group)
        by_name = {one.name: one for one in (*candidates, *weighted)}
        # Ties are in the configured order.
        ordered = selector.order(candidates, target_states, request, lambda: 0.0, last)
        return [
            _ranked_target(one, groups.get(one.priority, ()), target_states, conversation, last)
            for one in (by_name[target_state.name] for target_state in ordered)
        ]

    def target_states(self) -> Sequence[TargetState]:
        return list(self._context.target_states.values())

    def target_state(self, name: str) -> TargetState | None:
        return self._context.target_states.get(name)

    def target_stats(self, name: str) -> TargetStats | None:
        state = self.target_state(name)
        return None if state is None else state.target_stats()

    def count_calls(self, name: str, classes: Sequence[CallClass]) -> None:
        if (state := self.target_state(name)) is not None:
            state.call_stats.add(classes)

    def status(self) -> list[TargetStatus]:
        return [target_state.status() for target_state in self._context.target_states.values()]
