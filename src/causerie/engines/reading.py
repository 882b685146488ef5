"""Limit on how many texts are tokenized concurrently, in an engine's child or in threads.

A text is tokenized to its end even if the client has disconnected, and it keeps
its place until then. Otherwise clients that disconnect early could occupy all
threads, which others need too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

_LONG = 65_536  # characters: a second at worst
_AT_ONCE = 12  # a child has 34 threads or more
_LONG_AT_ONCE = 4  # alongside them, so that short ones pass them by; threads here are 5 or more

T = TypeVar("T")


class Readings:
    """Texts being read; leaving one gives its place back only when it is read."""

    def __init__(self) -> None:
        self._short = asyncio.Semaphore(_AT_ONCE)
        self._long = asyncio.Semaphore(_LONG_AT_ONCE)

    async def of(self, characters: int, read: Callable[[], Awaitable[T]]) -> T:
        """Return the result of ``read`` for a text of this length, once a place is free."""
        places = self._long if characters > _LONG else self._short
        await places.acquire()

        async def reading() -> T:
            return await read()

        # Ends when the text is read, or with the child's connections.
        task = asyncio.get_running_loop().create_task(reading())
        task.add_done_callback(lambda done: _leave(places, done))
        return await asyncio.shield(task)


def _leave(places: asyncio.Semaphore, done: asyncio.Task[T]) -> None:
    places.release()
    if not done.cancelled():
        done.exception()  # told to whoever still waits
