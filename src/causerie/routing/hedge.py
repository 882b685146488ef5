"""Asking a second target where the first is slow, for a bounded share of all requests.

The technique is that of hedged requests (Dean, Barroso: The Tail at Scale,
2013): whoever answers first serves, the other is left at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from msgspec import Struct

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


class Outcome(Struct, frozen=True):
    """Who answered first, and who did not: with its failure, or ``None`` where it was slower."""

    winner: Visit | None
    losers: Sequence[tuple[Visit, ServiceError | None]]


async def race(
    first: Visit,
    second: Callable[[], Visit | None],
    seconds: float,
    is_last_word: Callable[[ServiceError], bool],
) -> Outcome:
    """Begin ``first``; after ``seconds`` without an answer begin ``second`` too.

    ``second`` is not waited for where the failure of ``first`` is the last word. All but the
    winner have been left when it returns, also where it raises.
    """
    loop = asyncio.get_running_loop()
    asking = loop.create_task(first.begin())
    begun = {asking: first}
    try:
        await asyncio.wait(begun, timeout=seconds)
        if all(not task.done() for task in begun):
            other = second()
            if other is not None:
                begun[loop.create_task(other.begin())] = other
        while (winner := _answered(begun)) is None and any(not task.done() for task in begun):
            if (failure := _failure(asking)) is not None and is_last_word(failure):
                break
            await asyncio.wait(
                [task for task in begun if not task.done()],
                return_when=asyncio.FIRST_COMPLETED,
            )
        losers = [(visit, _failure(task)) for task, visit in begun.items() if visit is not winner]
        await _leave(begun, winner)
    except BaseException:
        await _leave(begun, None)
        raise
    return Outcome(winner, losers)


def _answered(begun: dict[asyncio.Task[None], Visit]) -> Visit | None:
    for task, visit in begun.items():
        if task.done() and not task.cancelled() and _failure(task) is None:
            return visit
    return None


def _failure(task: asyncio.Task[None]) -> ServiceError | None:
    """Why a visit came to nothing; raises what is no failure of a target."""
    if not task.done():
        return None
    failure = task.exception()
    if failure is None or isinstance(failure, ServiceError):
        return failure
    raise failure


async def _leave(begun: dict[asyncio.Task[None], Visit], winner: Visit | None) -> None:
    """Leave all but the winner; each is left once."""
    for task in begun:
        task.cancel()  # which does nothing to one that is done
    while unwanted := [task for task, visit in begun.items() if visit is not winner]:
        await asyncio.wait(unwanted)
        if (left := begun.pop(unwanted[0]).leave()) is not None:
            await left
