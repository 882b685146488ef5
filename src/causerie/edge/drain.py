"""Work under way, and how it ends: by itself, because the client left, or at a stop.

A stop has two steps, which may be announced. First nothing new is started and what runs may finish;
after a time what still runs is cut, each piece of work seeing an
:class:`~causerie.errors.Overloaded`.
"""

from __future__ import annotations

import asyncio

import msgspec

from causerie.edge.exchange import ClientGone, Exchange
from causerie.errors import SHUTDOWN, Overloaded

_LAST_WORDS_SECONDS = 5.0


class Drain:
    """Running work, and admission of new work. Work enters by a :class:`WorkGuard`.

    ``announced``: a stop is near, and until then new work is admitted.
    """

    def __init__(self) -> None:
        self.announced = False
        self.stopping = False
        self.running: set[WorkGuard] = set()
        self.idle = asyncio.Event()

    async def finish(self, seconds: float) -> None:
        """Begin nothing new, give what runs ``seconds``, then end it."""
        self.stopping = True
        if not self.running:
            return
        if await self._becomes_idle(seconds):
            return
        for watch in tuple(self.running):
            watch.cut(_stopping())
        await self._becomes_idle(_LAST_WORDS_SECONDS)

    async def _becomes_idle(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self.idle.wait()
        except TimeoutError:
            return False
        return True


class WorkGuard(msgspec.Struct, eq=False):
    """The work on one exchange, for as long as the block runs; it can be ended from outside.

    Entering raises :class:`Overloaded` at a stop. Leaving raises what the work was cut for,
    when it has cleaned up after itself: :class:`ClientGone` where the client left,
    :class:`Overloaded` where the time of a stop is over.
    """

    exchange: Exchange
    drain: Drain
    reason: Exception | None = None

    def __enter__(self) -> None:
        drain, exchange = self.drain, self.exchange
        if drain.stopping:
            raise _stopping()
        drain.running.add(self)
        exchange.on_gone = self._client_left
        if exchange.gone:
            self._client_left()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        drain = self.drain
        drain.running.remove(self)
        if drain.stopping and not drain.running:
            drain.idle.set()
        self.exchange.on_gone = None
        if self.reason is None or self.exchange.task is None:
            return
        others = self.exchange.task.uncancel() > 0
        if not others and (kind is None or issubclass(kind, asyncio.CancelledError)):
            raise self.reason from None

    def cut(self, reason: Exception) -> None:
        """End the work; it sees a cancellation and whoever began it sees ``reason``."""
        if self.reason is None and self.exchange.task is not None:
            self.reason = reason
            self.exchange.task.cancel(None if isinstance(reason, ClientGone) else SHUTDOWN)

    def _client_left(self) -> None:
        self.cut(ClientGone())


def _stopping() -> Overloaded:
    failure = Overloaded("The service is stopping; please try again.", code="no_endpoint")
    failure.headers["Connection"] = "close"
    return failure
