"""A count that can be waited for."""

from __future__ import annotations

import asyncio


class Tally:
    """Counts upwards."""

    def __init__(self) -> None:
        self.count = 0
        self._waiting: list[tuple[int, asyncio.Event]] = []

    def add(self) -> None:
        """One more."""
        self.count += 1
        for wanted, event in self._waiting:
            if self.count >= wanted:
                event.set()

    async def reach(self, wanted: int) -> None:
        """Wait until there are that many."""
        if self.count >= wanted:
            return
        event = asyncio.Event()
        self._waiting.append((wanted, event))
        await event.wait()
