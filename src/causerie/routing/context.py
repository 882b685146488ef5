"""What the ways of all requests over the same targets have in common."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from msgspec import Struct

from causerie.routing.hedge import Hedges
from causerie.routing.target_state import TargetState


class RetryBudget(Struct, frozen=True):
    """What one request may cost, over all targets and before and after its first event.

    ``attempts`` requests are sent; none is sent once ``seconds`` have gone by
    in which nobody answered. ``wait_seconds`` of these may be spent waiting
    until somebody can go on with a reply that broke off.
    """

    attempts: int = 4
    seconds: float = 300.0
    wait_seconds: float = 30.0


class RoutingContext(Struct, frozen=True):
    """``clock`` gives seconds, ``chance`` a number from 0 to 1; ``pause`` waits so many seconds."""

    target_states: Mapping[str, TargetState]
    budget: RetryBudget
    hedges: Hedges
    clock: Callable[[], float]
    chance: Callable[[], float]
    pause: Callable[[float], Awaitable[None]]
