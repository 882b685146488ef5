"""Somebody who waits for an answer of the server, and may leave before it comes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

from causerie.distributed.line import ConnectionLost, Reply

Answer = TypeVar("Answer")


class PendingCommand(Generic[Answer]):
    """``read`` makes the answer of a reply, or raises :class:`ConnectionLost` to begin anew.

    ``undo`` is called with an answer that nobody was there to take.
    """

    __slots__ = ("_outcome", "_read", "_undo")

    def __init__(
        self, read: Callable[[Reply], Answer], undo: Callable[[Answer], None] | None = None
    ) -> None:
        self._read = read
        self._undo = undo
        self._outcome: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

    async def outcome(self) -> Answer:
        """Raises :class:`ConnectionLost`. Cancelled, it leaves nothing done."""
        try:
            return await self._outcome
        except asyncio.CancelledError:
            if not self._outcome.cancelled() and self._outcome.exception() is None:
                self._forget(self._outcome.result())
            raise

    def answered(self, reply: Reply) -> None:
        """The server has answered; raises :class:`ConnectionLost` where it does not know us."""
        answer = self._read(reply)
        if self._outcome.done():
            self._forget(answer)  # whoever asked has left meanwhile
        else:
            self._outcome.set_result(answer)

    def failed(self, failure: ConnectionLost) -> None:
        """There will be no answer."""
        if not self._outcome.done():
            self._outcome.set_exception(failure)

    def _forget(self, answer: Answer) -> None:
        if self._undo is not None:
            self._undo(answer)
