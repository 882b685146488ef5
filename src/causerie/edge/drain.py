"""Work under way, and how it ends: by itself, because the client left, or at a stop.

A stop has two steps. First nothing new is begun and what runs may finish;
after a time what still runs is cut, each piece of work seeing an
:class:`~causerie.errors.Overloaded`.
"""

from __future__ import annotations

import asyncio
from types import TracebackType

from causerie.edge.exchange import ClientGone, Exchange
from causerie.errors import Overloaded

_LAST_WORDS_SECONDS = 5.0


class Watch:
    """Work that can be ended from outside, for as long as the block runs.

    Leaving raises the first reason it was cut for, when the work has cleaned up
    after itself.
    """

    __slots__ = ("_cancelling", "_exchange", "_reason", "_running", "_task")

    def __init__(self, exchange: Exchange, running: set[Watch]) -> None:
        self._exchange = exchange
        self._running = running
        self._reason: Exception | None = None
        self._task: asyncio.Task[object] | None = None
        self._cancelling = 0

    def cut(self, reason: Exception) -> None:
        """End the work; it sees a cancellation and whoever began it sees ``reason``."""
        if self._reason is None and self._task is not None:
            self._reason = reason
            self._task.cancel()

    def __enter__(self) -> Watch:
        task = self._task = self._exchange.task or asyncio.current_task()
        assert task is not None
        self._cancelling = task.cancelling()
        self._running.add(self)
        self._exchange.on_gone = self._client_left
        if self._exchange.gone:
            self._client_left()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._exchange.on_gone = None
        self._running.discard(self)
        task, self._task = self._task, None
        if self._reason is None or task is None:
            return
        others = task.uncancel() > self._cancelling
        if not others and (kind is None or issubclass(kind, asyncio.CancelledError)):
            raise self._reason from None

    def _client_left(self) -> None:
        self.cut(ClientGone())


class Drain:
    """Counts requests: each enters, which raises :class:`Overloaded` at a stop."""

    def __init__(self) -> None:
        self.stopping = False
        self._running: set[Watch] = set()
        self._open = 0
        self._idle = asyncio.Event()

    def __enter__(self) -> Drain:
        if self.stopping:
            raise _stopping()
        self._open += 1
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._open -= 1
        if self.stopping and not self._open:
            self._idle.set()

    def watched(self, exchange: Exchange) -> Watch:
        """Work that ends when the client leaves or the time of a stop is over.

        The block raises :class:`ClientGone` or :class:`Overloaded` then.
        """
        return Watch(exchange, self._running)

    async def finish(self, seconds: float) -> None:
        """Begin nothing new, give what runs ``seconds``, then end it."""
        self.stopping = True
        if not self._open:
            return
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
