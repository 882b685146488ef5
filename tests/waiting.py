"""Waiting for what nobody announces."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable


async def eventually(holds: Callable[[], Awaitable[bool]], seconds: float = 60.0) -> None:
    """Return when it holds; raises ``TimeoutError`` where it does not in time.

    For other processes, which say by their answers alone that they have noticed.
    """
    async with asyncio.timeout(seconds):
        while not await holds():  # noqa: ASYNC110 - no event of ours comes from another process
            await asyncio.sleep(0.02)
