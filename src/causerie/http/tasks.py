"""Tasks that answer exchanges, and the guards by which their work ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec

from causerie.errors import SHUTDOWN, Overloaded
from causerie.http.exchange import ClientGone, Exchange

_CANCEL_AGAIN_SECONDS = 5.0


@asynccontextmanager
async def owned(work: Coroutine[Any, Any, object]) -> AsyncIterator[asyncio.Task[object]]:
    """Run ``work`` during the block; leaving cancels it and waits until it has ended.

    A task group would turn the block's own exceptions into groups, and wait for endless work. It is
    cancelled again if it goes on: ``asyncio.wait_for`` and drivers can lose a cancellation.
    """
    task = asyncio.get_running_loop().create_task(work)
    try:
        yield task
    finally:
        while not task.done():
            task.cancel()
            await asyncio.wait([task], timeout=_CANCEL_AGAIN_SECONDS)
        if not task.cancelled() and (failure := task.exception()) is not None:
            raise failure


async def happens(event: asyncio.Event, seconds: float | None) -> bool:
    """Wait for an event, for at most ``seconds``; return whether it has happened."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return event.is_set()


Handler = Callable[[Exchange], Coroutine[None, None, None]]  # ends or abandons the response

_MAX_IDLE_WORKERS = 256


class Workers:
    """One task for each running exchange, and a bounded number of idle ones for further exchanges.

    Tasks are reused because a new one costs more than the steps between it and its work.
    """

    def __init__(self, handler: Handler) -> None:
        self._handle_exchange = handler
        self._loop = asyncio.get_running_loop()
        self._worker_tasks: set[asyncio.Task[None]] = set()
        self._idle_worker_futures: list[asyncio.Future[Exchange]] = []
        self._is_ending = False

    def begin(self, exchange: Exchange) -> None:
        while self._idle_worker_futures:
            call = self._idle_worker_futures.pop()
            if not call.done():
                call.set_result(exchange)
                return
        task = self._loop.create_task(self._run_worker(exchange))
        self._worker_tasks.add(task)
        task.add_done_callback(self._worker_tasks.discard)

    async def ended(self) -> None:
        """Return when every exchange was answered and no task is left."""
        self._is_ending = True
        for call in self._idle_worker_futures:
            call.cancel()
        self._idle_worker_futures.clear()
        while self._worker_tasks:
            await asyncio.wait(self._worker_tasks)

    async def end(self, seconds: float) -> None:
        """Wait as :meth:`ended`; cancel tasks after ``seconds``, and give them as long again."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.ended()
        for task in self._worker_tasks:
            task.cancel(SHUTDOWN)
        if self._worker_tasks:
            await asyncio.wait(self._worker_tasks, timeout=seconds)

    async def _run_worker(self, exchange: Exchange) -> None:
        task = asyncio.current_task()
        assert task is not None
        idle, answer = self._idle_worker_futures, self._handle_exchange
        while True:
            exchange.task = task
            await answer(exchange)
            del exchange  # what has been answered is not kept
            if self._is_ending or task.cancelling() or len(idle) >= _MAX_IDLE_WORKERS:
                return
            call: asyncio.Future[Exchange] = self._loop.create_future()
            idle.append(call)
            exchange = await call


_LAST_WORDS_SECONDS = 5.0


class Drain(msgspec.Struct, eq=False):
    """Tracks running work, each in a :class:`WorkGuard`, and whether new work is admitted."""

    announced: bool = False  # a stop is near, but new work is still admitted
    stopping: bool = False
    running: set[WorkGuard] = set()
    idle: asyncio.Event = msgspec.field(default_factory=asyncio.Event)

    async def finish(self, seconds: float) -> None:
        """Admit no new work, and end running work after ``seconds``."""
        self.stopping = True
        if not self.running or await happens(self.idle, seconds):
            return
        for watch in tuple(self.running):
            watch.cut(_build_stopping_error())
        await happens(self.idle, _LAST_WORDS_SECONDS)


class WorkGuard(msgspec.Struct, eq=False):
    """Cancels the work of a block if the client leaves or the time of a stop is over.

    Entering raises :class:`Overloaded` at a stop. Leaving raises the reason of a cancellation:
    :class:`ClientGone` or :class:`Overloaded`.
    """

    exchange: Exchange
    drain: Drain
    reason: Exception | None = None

    def __enter__(self) -> None:
        drain, exchange = self.drain, self.exchange
        if drain.stopping:
            raise _build_stopping_error()
        drain.running.add(self)
        exchange.on_gone = self._cancel_for_gone_client
        if exchange.gone:
            self._cancel_for_gone_client()

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
        """Cancel the work; leaving the block raises ``reason``."""
        if self.reason is None and self.exchange.task is not None:
            self.reason = reason
            self.exchange.task.cancel(None if isinstance(reason, ClientGone) else SHUTDOWN)

    def _cancel_for_gone_client(self) -> None:
        self.cut(ClientGone())


def _build_stopping_error() -> Overloaded:
    failure = Overloaded("The service is stopping; please try again.", code="no_endpoint")
    failure.headers["Connection"] = "close"
    return failure
