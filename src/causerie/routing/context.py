"""Shared state of all requests over the same targets."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from msgspec import Struct

from causerie.routing.last_targets import LastTargets
from causerie.routing.target_state import TargetState


class RetryBudget(Struct, frozen=True):
    """Bounds on one request, over all targets and before and after its first event.

    At most ``attempts`` requests are sent, and none after ``seconds`` without an answer.
    ``wait_seconds`` of these may be spent waiting for a target that can continue a broken reply.
    """

    attempts: int = 4
    seconds: float = 300.0
    wait_seconds: float = 30.0


class RoutingContext(Struct, frozen=True):
    """``clock`` gives seconds, ``chance`` a number from 0 to 1; ``pause`` waits so many seconds."""

    target_states: Mapping[str, TargetState]
    budget: RetryBudget
    clock: Callable[[], float]
    chance: Callable[[], float]
    pause: Callable[[float], Awaitable[None]]
    last_targets: LastTargets
