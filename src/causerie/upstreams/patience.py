"""How long a body is waited for: one timer a reply, however many pieces come.

A timer a piece would cost more than reading the piece. This one is set again
only when it rings early; only waiting counts, not the time in which whoever
reads does something else.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable

from causerie.transport.errors import TransportFailed
from causerie.transport.response import HttpResponse


class Patience:
    """``passed`` is set when it took too long; reading then raises ``TransportFailed``.

    The first piece is waited for until ``due``, and nothing later than ``end``, which
    is no earlier (both on the loop's clock).
    """

    __slots__ = ("_due", "_end", "_loop", "_response", "_rings", "_seconds", "_timer", "passed")

    def __init__(self, response: HttpResponse, due: float, end: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._response = response
        self._end = end
        self._due: float | None = due  # unset: so many seconds from when it is waited for
        self._seconds = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._rings = math.inf
        self.passed = False

    def piece(self) -> Awaitable[bytes]:
        """The next piece of the body, ``b""`` at its end; raises :class:`TransportFailed`."""
        now, due = self._loop.time(), self._due
        if now >= self._end:
            self._give_up()
            return self._response.piece()
        if due is None:
            due = self._due = min(now + self._seconds, self._end)
        if due < self._rings and self._response.waits:
            self._set(due)
        return self._response.piece()

    def within(self, seconds: float) -> None:
        """From when the next piece is waited for, it must come within ``seconds``."""
        self._seconds = seconds
        self._due = None

    def close(self) -> None:
        """Give up what has not come."""
        if self._timer is not None:
            self._timer.cancel()
        self._response.close()

    def _set(self, due: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(due, self._ring)
        self._rings = due

    def _ring(self) -> None:
        self._timer = None
        self._rings = math.inf
        if not self._response.awaited:
            return
        if self._due is not None and self._loop.time() < self._due:
            self._set(self._due)
            return
        self._give_up()

    def _give_up(self) -> None:
        self.passed = True
        self._response.close()
        self._response.fail(TransportFailed("closed", "nothing came for too long", sent=True))
