"""One timer that reports the end of each period to all of its listeners."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from causerie.edge.answers import StreamedAnswer


class KeepAlive:
    """Periods of ``seconds``, for as long as anybody listens."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._listeners: set[StreamedAnswer] = set()
        self._timer: asyncio.TimerHandle | None = None

    def enter(self, listener: StreamedAnswer) -> None:
        """Tell this one from now on."""
        self._listeners.add(listener)
        if self._timer is None:
            self._begin()

    def leave(self, listener: StreamedAnswer) -> None:
        """Tell this one no more; nothing where it did not listen."""
        self._listeners.discard(listener)

    def _begin(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._seconds, self._over)

    def _over(self) -> None:
        self._timer = None
        for listener in tuple(self._listeners):
            listener.period_over()
        if self._listeners:
            self._begin()
