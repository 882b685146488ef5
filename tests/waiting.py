"""Waiting for what nobody announces."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable


async def eventually(holds: Callable[[], Awaitable[bool]], seconds: float = 60.0) -> None:
    """Return when it holds; raises ``TimeoutError`` where it does not in time.

    For other processes, which say by their answers alone that they have noticed.
    """
    async with asyncio.timeout(seconds):
        while not await holds():  # noqa: ASYNC110 - no event of ours comes from another process
            await asyncio.sleep(0.02)


async def gone(pid: int) -> None:
    """Return once that process has ended."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(handle, ended.set)
    try:
        async with asyncio.timeout(60):
            await ended.wait()
    finally:
        loop.remove_reader(handle)
        os.close(handle)
