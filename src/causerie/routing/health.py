"""Asking endpoints whether they are there, besides the requests they get.

An endpoint that is gone is found before a request does, and one that is back
is tried at once. Where requests are answered nothing needs to be asked.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, suppress
from types import TracebackType
from typing import Self

from msgspec import Struct

from causerie.errors import Overloaded, ServiceError
from causerie.routing.seat import Seat


class Check(Struct, frozen=True):
    """``ask`` raises ``ServiceError`` where the place of these targets does not answer."""

    ask: Callable[[], Awaitable[None]]
    interval_seconds: float
    targets: Sequence[str]


class Health:
    """Carries out checks while the block runs; ``seats`` finds the seat of a target."""

    def __init__(
        self,
        seats: Callable[[str], Seat | None],
        checks: Sequence[Check],
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._seats = seats
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

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._stack.aclose()

    async def _watch(self, check: Check) -> None:
        answered = -1
        there = True
        while True:
            seats = [seat for name in check.targets if (seat := self._seats(name)) is not None]
            total = sum(seat.answered for seat in seats)
            if total == answered or any(seat.breaker.failures for seat in seats):
                there = await examine(check, seats, was_there=there)
            answered = total
            await self._pause(check.interval_seconds * self._chance.uniform(0.8, 1.2))


async def examine(check: Check, seats: Sequence[Seat], *, was_there: bool) -> bool:
    """Ask once, and tell the seats; whether it is there.

    Whatever it refuses us counts against it, for the question is our own. An
    answer tells something new only after one that failed: a target may have
    failed its requests while it went on answering questions like this.
    """
    try:
        await check.ask()
    except Overloaded as full:
        for seat in seats:
            seat.failed(full)
        return was_there
    except ServiceError as failure:
        for seat in seats:
            seat.absent(failure)
        return False
    if not was_there:
        for seat in seats:
            seat.breaker.back()
    return True


async def _end(tasks: Sequence[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    for task in tasks:
        with suppress(asyncio.CancelledError):
            await task
