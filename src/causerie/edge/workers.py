"""Tasks that answer exchanges, one after the other.

A task costs more than the steps between it and its work, so one that has
answered waits for the next exchange. Knows nothing of connections, nor of what
an answer is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress

from causerie.edge.exchange import Exchange
from causerie.errors import SHUTDOWN

Handler = Callable[[Exchange], Coroutine[None, None, None]]
"""Answers an exchange; ends its response, or abandons it."""

_MAX_IDLE = 256


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
            if self._ending or task.cancelling() or len(idle) >= _MAX_IDLE:
                return
            call: asyncio.Future[Exchange] = self._loop.create_future()
            idle.append(call)
            exchange = await call
