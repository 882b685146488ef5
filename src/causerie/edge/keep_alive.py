"""One timer that reports the end of each period to all of its listeners."""

from __future__ import annotations

import asyncio
from itertools import takewhile
from time import monotonic
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from causerie.edge.answers import StreamedAnswer


class KeepAlive:
    """Reports the end of each period of ``seconds`` to each listener, from its entry on."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._ends: dict[StreamedAnswer, float] = {}  # of periods; the next one is the first
        self._timer: asyncio.TimerHandle | None = None

    def enter(self, listener: StreamedAnswer) -> None:
        """Report the ends of periods to this one from now on."""
        self._ends[listener] = monotonic() + self._seconds
        if self._timer is None:
            self._wait(self._seconds)

    def leave(self, listener: StreamedAnswer) -> None:
        """Stop reporting to this one, if it listens."""
        self._ends.pop(listener, None)

    def _wait(self, seconds: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, self._over)

    def _over(self) -> None:
        self._timer = None
        now, ends = monotonic(), self._ends
        over = list(takewhile(lambda listener: ends[listener] <= now, ends))
        for listener in over:
            del ends[listener]
            ends[listener] = now + self._seconds
            listener.period_over()
        if ends:
            self._wait(next(iter(ends.values())) - now)
