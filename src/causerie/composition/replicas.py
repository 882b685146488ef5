"""Engines that run a model in several processes on this machine, as a pool."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from causerie.engines.machine_part import MachinePart
from causerie.engines.pool.discovery import MemberAddress
from causerie.engines.pool.pool import EnginePool
from causerie.engines.supervised import SupervisedEngine


def parts_of(replicas: int, devices: Sequence[str] = ()) -> Sequence[MachinePart]:
    """Return the part of the machine that each replica has, on its ``devices`` if any are named."""
    named = devices or (None,) * replicas
    return [MachinePart(number, replicas, each) for number, each in enumerate(named)]


def replicated(
    model: str, parts: Sequence[MachinePart], make: Callable[[MachinePart], SupervisedEngine[Any]]
) -> SupervisedEngine[Any] | EnginePool:
    """Return the engine of the only part, or a pool of the engines of all, not started.

    Raises what ``make`` raises. Blocks.
    """
    engines = {f"replica-{part.number + 1}": make(part) for part in parts}
    if len(engines) == 1:
        return next(iter(engines.values()))

    def member(address: MemberAddress) -> SupervisedEngine[Any]:
        return engines[address.url]

    return EnginePool(model, list(engines), member)
