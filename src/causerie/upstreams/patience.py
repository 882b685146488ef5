"""How long a body is waited for: one timer a reply, however many pieces come.

A timer a piece would cost more than reading the piece. This one is set again
only when it rings early; only waiting counts, not the time in which whoever
reads does something else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from causerie.transport.errors import TransportFailed
from causerie.transport.response import HttpResponse


class Patience:
    """``passed`` is set when the wait was too long; reading then raises ``TransportFailed``.

    The first piece is waited for until ``due``, and nothing later than ``end``, which
    is no earlier (both on the loop's clock).
    """

    __slots__ = ("_due", "_end", "_loop", "_response", "_seconds", "_timer", "passed")

    def __init__(self, response: HttpResponse, due: float, end: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._response = response
        self._end = end
        self._due = due
        self._seconds = due - self._loop.time()
        self._timer: asyncio.TimerHandle | None = None
        self.passed = False

    def piece(self) -> Awaitable[bytes]:
        """The next piece of the body, ``b""`` at its end; raises :class:`TransportFailed`."""
        if self._response.waits:
            now = self._loop.time()
            if self._due <= now:  # whoever reads was slow, not the server
                self._due = min(now + self._seconds, self._end)
            if self._timer is None or self._due < self._timer.when():
                self._set()
        return self._response.piece()

    def until(self, seconds: float) -> None:
        """The next piece must come within ``seconds``; sets ``passed`` where it is all too late."""
        now = self._loop.time()
        self._seconds = seconds
        self._due = min(now + seconds, self._end)
        self.passed = now >= self._end

    def close(self) -> None:
        """Give up what has not come."""
        if self._timer is not None:
            self._timer.cancel()
        self._response.close()

    def _set(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(self._due, self._ring)

    def _ring(self) -> None:
        self._timer = None
        if not self._response.awaited:
            return
        if self._loop.time() < self._due:
            self._set()
            return
        self.passed = True
        self._response.close()
        self._response.fail(TransportFailed("closed", "nothing came for too long", sent=True))
