"""Questions of a worker process to its parent, and the answers that it waits for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import count

from causerie.errors import StoreUnavailable
from causerie.workers.messages import ParentAnswer, WorkerQuestion


class Questions:
    """Those that wait for an answer; ``send`` sends one to the parent."""

    def __init__(self, send: Callable[[WorkerQuestion], None]) -> None:
        self._send = send
        self._waiting: dict[int, asyncio.Future[bytes]] = {}
        self._numbers = count(1)
        self._loop = asyncio.get_running_loop()

    @property
    def waiting(self) -> int:
        """Return how many wait."""
        return len(self._waiting)

    def ask(self, body: bytes) -> Awaitable[bytes]:
        """Ask; the result raises :class:`StoreUnavailable` if the parent goes before it answers."""
        number = next(self._numbers)
        waiting = self._waiting[number] = self._loop.create_future()
        waiting.add_done_callback(lambda _: self._waiting.pop(number, None))
        self._send(WorkerQuestion(number, body))
        return waiting

    def tell(self, body: bytes) -> None:
        """Send what has no answer."""
        self._send(WorkerQuestion(0, body))

    def answered(self, answer: ParentAnswer) -> None:
        """The parent has answered."""
        waiting = self._waiting.get(answer.number)
        if waiting is not None and not waiting.done():  # else nobody waits for it any more
            waiting.set_result(answer.body)

    def end(self) -> None:
        """The parent has gone."""
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(StoreUnavailable("The service ends. Try again."))
