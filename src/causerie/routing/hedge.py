"""Asking a second target where the first is slow, for a bounded share of all requests.

The technique is that of hedged requests (Dean, Barroso: The Tail at Scale,
2013): whoever answers first serves, the other is left at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from msgspec import Struct

from causerie.errors import ServiceError
from causerie.routing.attempt import Attempt

SHARE = 0.05
_BURST = 2.0


class Hedges:
    """Allowance of second requests: a share of all requests, and a few at the start."""

    __slots__ = ("_allowed",)

    def __init__(self) -> None:
        self._allowed = _BURST

    def earn(self) -> None:
        """One more request has come."""
        self._allowed = min(self._allowed + SHARE, _BURST)

    def spend(self) -> bool:
        """Use one of the allowance; return false if none is left."""
        if self._allowed < 1:
            return False
        self._allowed -= 1
        return True


class RaceResult(Struct, frozen=True):
    """Winner and losers of a race; a loser has its failure, or ``None`` if it was slower."""

    winner: Attempt | None
    losers: Sequence[tuple[Attempt, ServiceError | None]]


async def race(
    first: Attempt,
    second: Callable[[], Attempt | None],
    seconds: float,
    is_last_word: Callable[[ServiceError], bool],
) -> RaceResult:
    """Begin ``first``; after ``seconds`` without an answer begin ``second`` too.

    ``second`` is not waited for where the failure of ``first`` is the last word. All but the
    winner have been left when it returns, also where it raises.
    """
    loop = asyncio.get_running_loop()
    asking = loop.create_task(first.begin())
    started = {asking: first}
    try:
        await asyncio.wait(started, timeout=seconds)
        if all(not task.done() for task in started):
            other = second()
            if other is not None:
                started[loop.create_task(other.begin())] = other
        while (winner := _answered(started)) is None and any(not task.done() for task in started):
            if (failure := _failure(asking)) is not None and is_last_word(failure):
                break
            await asyncio.wait(
                [task for task in started if not task.done()], return_when=asyncio.FIRST_COMPLETED
            )
        losers = [
            (attempt, _failure(task)) for task, attempt in started.items() if attempt is not winner
        ]
        await _leave(started, winner)
    except BaseException:
        await _leave(started, None)
        raise
    return RaceResult(winner, losers)


def _answered(started: dict[asyncio.Task[None], Attempt]) -> Attempt | None:
    for task, attempt in started.items():
        if task.done() and not task.cancelled() and _failure(task) is None:
            return attempt
    return None


def _failure(task: asyncio.Task[None]) -> ServiceError | None:
    """Return the reason an attempt came to nothing; raise what is no failure of a target."""
    if not task.done():
        return None
    failure = task.exception()
    if failure is None or isinstance(failure, ServiceError):
        return failure
    raise failure


async def _leave(started: dict[asyncio.Task[None], Attempt], winner: Attempt | None) -> None:
    """Leave all but the winner; each is left once."""
    for task in started:
        task.cancel()  # which does nothing to one that is done
    while unwanted := [task for task, attempt in started.items() if attempt is not winner]:
        await asyncio.wait(unwanted)
        if (left := started.pop(unwanted[0]).leave()) is not None:
            await left
