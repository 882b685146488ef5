"""Asking providers whether they are there, in addition to the requests they get.

A provider that is gone is found before a request does, and one that is back is tried at once. A
target that answers requests needs no check.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, suppress
from typing import Self

from msgspec import Struct

from causerie.errors import Overloaded, ServiceError
from causerie.routing.target_state import TargetState


class Check(Struct, frozen=True):
    """``ask`` raises ``ServiceError`` where the place of these targets does not answer.

    Otherwise the first one comes after an interval; with ``at_start`` at once.
    """

    ask: Callable[[], Awaitable[None]]
    interval_seconds: float
    targets: Sequence[str]
    at_start: bool = False


class HealthChecker:
    """Carries out checks while the block runs; ``target_states`` finds the target of a target."""

    def __init__(
        self,
        target_states: Callable[[str], TargetState | None],
        checks: Sequence[Check],
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._target_states = target_states
        self._checks = checks
        self._pause = pause
        self._chance = random.Random()
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        tasks = [
            asyncio.get_running_loop().create_task(self._watch(check)) for check in self._checks
        ]
        self._stack.push_async_callback(_end, tasks)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def _watch(self, check: Check) -> None:
        answered = -1
        due, there = check.at_start, True
        while True:
            target_states = [
                target_state
                for name in check.targets
                if (target_state := self._target_states(name)) is not None
            ]
            total = sum(target_state.answered for target_state in target_states)
            troubled = any(target_state.breaker.failures for target_state in target_states)
            if due or troubled or total == answered:
                there = await examine(check, target_states, was_there=there)
            due, answered = False, total
            await self._pause(check.interval_seconds * self._chance.uniform(0.8, 1.2))


async def examine(check: Check, target_states: Sequence[TargetState], *, was_there: bool) -> bool:
    """Ask once, and tell the targets; whether it is there.

    A refusal of the check counts against it, for the question is our own. An answer tells something
    new only after one that failed: a target may have failed its requests while it went on answering
    questions like this.
    """
    try:
        await check.ask()
    except Overloaded as full:
        for target_state in target_states:
            target_state.failed(full)
        return was_there
    except ServiceError as failure:
        for target_state in target_states:
            target_state.absent(failure)
        return False
    if not was_there:
        for target_state in target_states:
            target_state.breaker.back()
    return True


async def _end(tasks: Sequence[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    for task in tasks:
        with suppress(asyncio.CancelledError):
            await task
