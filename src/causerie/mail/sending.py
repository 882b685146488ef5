"""Blocking work on letters alongside the event loop, in a thread that no stop waits for.

Threads of the loop's own pool are joined when a process ends: a server of letters that does not
answer would hold a stop for as long as its time-out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from threading import Thread
from typing import TypeVar

STOP_SECONDS = 3.0
"""That a stop waits for a letter which is on its way."""
_T = TypeVar("_T")


async def in_thread(work: Callable[[], _T], stop_seconds: float = STOP_SECONDS) -> _T:
    """Return what ``work`` returns, or raise what it raises.

    When cancelled, wait ``stop_seconds`` for its end. An outcome that comes by then is returned, so
    that it can be noted, and the cancellation comes again at the next ``await``; else the work is
    left to itself.
    """
    made: Future[_T] = Future()
    Thread(target=_carry_out, args=(work, made), name="letters", daemon=True).start()
    outcome = asyncio.wrap_future(made)
    try:
        return await asyncio.shield(outcome)
    except asyncio.CancelledError:
        await asyncio.wait([outcome], timeout=stop_seconds)
        task = asyncio.current_task()
        if not outcome.done() or task is None:
            raise
        task.cancel()
        return outcome.result()


def _carry_out(work: Callable[[], _T], made: Future[_T]) -> None:
    try:
        made.set_result(work())
    except Exception as error:  # noqa: BLE001 - raised again where somebody waits
        made.set_exception(error)
