"""Work under way, and how it ends: by itself, because the client left, or at a stop.

A stop has two steps. First nothing new is begun and what runs may finish;
after a time what still runs is cut, each piece of work seeing an
:class:`~causerie.errors.Overloaded`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from causerie.edge.exchange import ClientGone, Exchange
from causerie.errors import Overloaded

_LAST_WORDS_SECONDS = 5.0


class Watch:
    """Ends one piece of work from outside; the first reason counts."""

    __slots__ = ("_reason", "_scope")

    def __init__(self, scope: asyncio.Timeout) -> None:
        self._scope = scope
        self._reason: Exception | None = None

    def cut(self, reason: Exception) -> None:
        """End the work; it sees a cancellation and whoever began it sees ``reason``."""
        if self._reason is None and not self._scope.expired():
            self._reason = reason
            self._scope.reschedule(0)

    @property
    def reason(self) -> Exception | None:
        return self._reason


class Drain:
    """Counts the work under way."""

    def __init__(self) -> None:
        self.stopping = False
        self._running: set[Watch] = set()
        self._open = 0
        self._idle = asyncio.Event()
        self._idle.set()

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Count one request; raises :class:`Overloaded` at a stop."""
        if self.stopping:
            raise _stopping()
        self._open += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._open -= 1
            if not self._open:
                self._idle.set()

    @asynccontextmanager
    async def watched(self, exchange: Exchange) -> AsyncIterator[Watch]:
        """Work that ends when the client leaves or the time of a stop is over.

        Raises :class:`ClientGone` or :class:`Overloaded` then, when the work has
        cleaned up after itself.
        """
        scope = asyncio.timeout(None)
        watch = Watch(scope)
        self._running.add(watch)
        exchange.on_gone = lambda: watch.cut(ClientGone())
        try:
            async with scope:
                if exchange.gone:
                    watch.cut(ClientGone())
                yield watch
        except TimeoutError:
            if watch.reason is None:
                raise
            raise watch.reason from None
        finally:
            exchange.on_gone = None
            self._running.discard(watch)

    async def finish(self, seconds: float) -> None:
        """Begin nothing new, give what runs ``seconds``, then end it."""
        self.stopping = True
        if await self._becomes_idle(seconds):
            return
        for watch in tuple(self._running):
            watch.cut(_stopping())
        await self._becomes_idle(_LAST_WORDS_SECONDS)

    async def _becomes_idle(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True


def _stopping() -> Overloaded:
    failure = Overloaded("The service is stopping; please try again.", code="no_endpoint")
    failure.headers["Connection"] = "close"
    return failure
