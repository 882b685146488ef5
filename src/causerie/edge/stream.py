"""A stream of events to a client: written in order, together where they come together.

What is put in while a write is under way goes out in the next one. Silence is
broken by a comment, so that nobody between us and the client gives up. A
client that stops reading is given up after a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from types import TracebackType

from causerie.edge.exchange import ClientGone, Exchange
from causerie.edge.ownership import owned
from causerie.protocol import sse

_HEADERS = {"cache-control": "no-cache", "x-accel-buffering": "no"}
_MAX_WAITING = 256


class EventStream:
    """One response of events. ``async with`` owns its writer."""

    def __init__(self, exchange: Exchange, *, ping_seconds: float, stuck_seconds: float) -> None:
        self._exchange = exchange
        self._ping_seconds = ping_seconds
        self._stuck_seconds = stuck_seconds
        self._waiting: list[bytes] = []
        self._ready = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._closed = False
        self._written: asyncio.Task[None] | None = None
        self._on_stuck: Callable[[Exception], None] | None = None
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> EventStream:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._stack.aclose()

    @property
    def started(self) -> bool:
        return self._written is not None

    async def start(
        self, headers: Mapping[str, str], on_stuck: Callable[[Exception], None]
    ) -> None:
        """Send the head; ``on_stuck`` is called once where the client stops reading."""
        self._on_stuck = on_stuck
        head = _HEADERS | dict(headers)
        await self._exchange.start(200, "text/event-stream; charset=utf-8", head)
        self._written = await self._stack.enter_async_context(owned(self._write()))

    async def put(self, data: bytes) -> None:
        """Add one event; waits while too many are waiting to be written."""
        while len(self._waiting) >= _MAX_WAITING:
            self._room.clear()
            await self._room.wait()
        self._waiting.append(sse.encode(data))
        self._ready.set()

    async def finish(self) -> None:
        """End the stream with ``[DONE]``; returns when it is written."""
        self._waiting.append(sse.DONE)
        self._closed = True
        self._ready.set()
        if self._written is not None:
            await asyncio.wait([self._written])

    async def _write(self) -> None:
        while not (self._closed and not self._waiting):
            try:
                async with asyncio.timeout(self._ping_seconds):
                    await self._ready.wait()
            except TimeoutError:
                piece = sse.PING
            else:
                piece = b"".join(self._waiting)
                self._waiting.clear()
                self._ready.clear()
                self._room.set()
            if not await self._sent(piece):
                return
        await self._exchange.write(b"", last=True)

    async def _sent(self, piece: bytes) -> bool:
        try:
            async with asyncio.timeout(self._stuck_seconds):
                await self._exchange.write(piece)
        except TimeoutError:
            self._waiting.clear()
            self._room.set()
            if self._on_stuck is not None:
                self._on_stuck(ClientGone())
            return False
        return True
