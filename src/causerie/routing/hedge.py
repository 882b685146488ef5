"""Asking a second target where the first is slow, for a bounded share of all requests.

The technique is that of hedged requests (Dean, Barroso: The Tail at Scale,
2013): whoever answers first serves, the other is left at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from causerie.errors import ServiceError
from causerie.routing.visit import Visit

SHARE = 0.05
_BURST = 2.0


class Hedges:
    """How many second requests may still be sent: a share of all, and a few at the start."""

    __slots__ = ("_allowed",)

    def __init__(self) -> None:
        self._allowed = _BURST

    def earn(self) -> None:
        """One more request has come."""
        self._allowed = min(self._allowed + SHARE, _BURST)

    def spend(self) -> bool:
        """Whether one may be sent now."""
        if self._allowed < 1:
            return False
        self._allowed -= 1
        return True


async def race(first: Visit, second: Callable[[], Visit | None], seconds: float) -> Visit:
    """Begin ``first``; after ``seconds`` without an answer begin ``second`` too.

    Gives the visit that answered; the other has been left. Raises the first
    one's ``ServiceError`` where none answers, with both left.
    """
    loop = asyncio.get_running_loop()
    begun = {loop.create_task(first.begin()): first}
    try:
        await asyncio.wait(begun, timeout=seconds)
        if not _answered(begun) and all(not task.done() for task in begun):
            other = second()
            if other is not None:
                begun[loop.create_task(other.begin())] = other
        while (winner := _answered(begun)) is None and any(not task.done() for task in begun):
            await asyncio.wait(
                [task for task in begun if not task.done()],
                return_when=asyncio.FIRST_COMPLETED,
            )
    except BaseException:
        await _leave(begun)
        raise
    if winner is None:
        failures = [task.exception() for task in begun]
        await _leave(begun)
        raise next(failure for failure in failures if failure is not None)
    await _leave({task: visit for task, visit in begun.items() if visit is not winner})
    return winner


def _answered(begun: dict[asyncio.Task[None], Visit]) -> Visit | None:
    for task, visit in begun.items():
        if task.done() and not task.cancelled():
            failure = task.exception()
            if failure is None:
                return visit
            if not isinstance(failure, ServiceError):
                raise failure
    return None


async def _leave(begun: dict[asyncio.Task[None], Visit]) -> None:
    for task in begun:
        task.cancel()
    if begun:
        await asyncio.wait(begun)
    for visit in begun.values():
        await visit.leave()
