"""Long work of one request, done off the event loop so that the other requests go on.

There is one thread for it, however many requests are large. Python runs one thread at a time:
alongside one busy thread the event loop waits a few milliseconds for its turn, alongside several of
them it would wait as much for each. A single native call keeps the turn to itself, so each
must be bounded by whoever makes it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import ParamSpec, TypeVar

LARGE = 128 * 1024  # bytes of a body from which on the work on it belongs here
_TURN_SECONDS = 0.005

_Given = ParamSpec("_Given")
_Made = TypeVar("_Made")
_thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="offload")


async def offload(
    work: Callable[_Given, _Made], *args: _Given.args, **kwargs: _Given.kwargs
) -> _Made:
    """Return what ``work`` returns, done in the thread for long work; raises what it raises.

    Whoever is cancelled meanwhile goes on once work that has started has ended, so that the two
    never touch the same things at once.
    """
    job = _thread.submit(partial(work, *args, **kwargs))
    try:
        return await asyncio.wrap_future(job)
    except asyncio.CancelledError:
        await _ended(job)
        raise


async def _ended(job: Future[_Made]) -> None:
    """Wait until a job has ended, cancelled or not."""
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    job.add_done_callback(lambda _: loop.call_soon_threadsafe(ended.set))
    while not ended.is_set():
        with suppress(asyncio.CancelledError):  # which the caller raises afterwards
            await ended.wait()


class Turns:
    """Long work on the event loop itself, in turns: for what other threads must not touch."""

    def __init__(self) -> None:
        self._until = monotonic() + _TURN_SECONDS

    async def pause(self) -> None:
        """Let others have their turn where this one has lasted long enough."""
        if monotonic() > self._until:
            await asyncio.sleep(0)
            self._until = monotonic() + _TURN_SECONDS
