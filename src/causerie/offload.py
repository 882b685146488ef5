"""Long work of one request, done off the event loop so that the other requests go on.

There is one thread for it, however many requests are large. Python runs one thread at a time:
alongside one busy thread the event loop waits a few milliseconds for its turn, alongside several of
them it would wait as much for each. A single native call keeps the turn to itself, so each
must be bounded by whoever makes it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
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

    Work that has started ends also where nobody waits for it any more.
    """
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(_thread, partial(work, *args, **kwargs))


class Turns:
    """Long work on the event loop itself, in turns: for what other threads must not touch."""

    def __init__(self) -> None:
        self._until = monotonic() + _TURN_SECONDS

    async def pause(self) -> None:
        """Let others have their turn where this one has lasted long enough."""
        if monotonic() > self._until:
            await asyncio.sleep(0)
            self._until = monotonic() + _TURN_SECONDS
