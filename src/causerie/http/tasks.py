"""Work under way: tasks that answer exchanges, the guards by which that work ends, and tasks that
end with the block that began them.

A stop has two steps, which may be announced. First nothing new is started and what runs may
finish; after a time what still runs is cut, each piece of work seeing an
:class:`~causerie.errors.Overloaded`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec

from causerie.errors import SHUTDOWN, Overloaded
from causerie.http.exchange import ClientGone, Exchange

# Tasks that end with the block that began them.


@asynccontextmanager
async def owned(work: Coroutine[Any, Any, None]) -> AsyncIterator[asyncio.Task[None]]:
    """Run ``work`` alongside the block; leaving cancels it and waits until it has ended.

    A task group would turn the block's own exceptions into groups, and wait
    for work that has no end.
    """
    task = asyncio.get_running_loop().create_task(work)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait([task])
        if not task.cancelled() and (failure := task.exception()) is not None:
            raise failure


# Tasks that answer exchanges, one after the other.
#
# A task costs more than the steps between it and its work, so one that has
# answered waits for the next exchange. Knows nothing of connections, nor of what
# an answer is.

Handler = Callable[[Exchange], Coroutine[None, None, None]]
"""Answers an exchange; ends its response, or abandons it."""

_MAX_IDLE_WORKERS = 256


class Workers:
    """As many tasks as there are exchanges under way, and a bounded number that wait for more."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._idle: list[asyncio.Future[Exchange]] = []
        self._ending = False

    def begin(self, exchange: Exchange) -> None:
        """See to it that this exchange is answered; ``exchange.task`` is the task that does."""
        while self._idle:
            call = self._idle.pop()
            if not call.done():  # nobody has ended this one while it waited
                call.set_result(exchange)
                return
        task = self._loop.create_task(self._work(exchange))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def ended(self) -> None:
        """Return when every exchange has been answered and no task is left."""
        self._ending = True
        for call in self._idle:
            call.cancel()
        self._idle.clear()
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def end(self, seconds: float) -> None:
        """Like :meth:`ended`; what goes on after ``seconds`` is cancelled and has as long again."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.ended()
        for task in self._tasks:
            task.cancel(SHUTDOWN)
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)

    async def _work(self, exchange: Exchange) -> None:
        task = asyncio.current_task()
        assert task is not None
        idle, answer = self._idle, self._handler
        while True:
            exchange.task = task
            await answer(exchange)
            del exchange  # what has been answered is not kept
            if self._ending or task.cancelling() or len(idle) >= _MAX_IDLE_WORKERS:
                return
            call: asyncio.Future[Exchange] = self._loop.create_future()
            idle.append(call)
            exchange = await call


# Work under way, and how it ends: by itself, because the client left, or at a stop.
#
# A stop has two steps, which may be announced. First nothing new is started and what runs may
# finish; after a time what still runs is cut, each piece of work seeing an
# :class:`~causerie.errors.Overloaded`.

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
            watch.cut(_service_stopping())
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
            raise _service_stopping()
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


def _service_stopping() -> Overloaded:
    failure = Overloaded("The service is stopping; please try again.", code="no_endpoint")
    failure.headers["Connection"] = "close"
    return failure
