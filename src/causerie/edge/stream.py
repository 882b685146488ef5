"""A stream of events to a client: written in order, together where they come together.

Silence is broken by a comment, so that nobody between us and the client gives
up. Writing does not wait unless the client reads too slowly.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import TracebackType

from causerie.edge.exchange import Exchange
from causerie.protocol import sse

_HEADERS = {"cache-control": "no-cache", "x-accel-buffering": "no"}


class EventStream:
    """One response of events. Use as a context manager: leaving ends its timer."""

    __slots__ = (
        "_exchange",
        "_loop",
        "_ping_seconds",
        "_scheduled",
        "_silent",
        "_timer",
        "_waiting",
    )

    def __init__(self, exchange: Exchange, *, ping_seconds: float) -> None:
        self._exchange = exchange
        self._ping_seconds = ping_seconds
        self._loop = asyncio.get_running_loop()
        self._waiting: list[bytes] = []
        self._scheduled = False
        self._silent = True
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> EventStream:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._waiting.clear()

    @property
    def started(self) -> bool:
        """Whether the head of the response has been made."""
        return self._exchange.status is not None

    def start(self, headers: Mapping[str, str]) -> None:
        """Begin the response."""
        self._exchange.start(200, "text/event-stream; charset=utf-8", {**_HEADERS, **headers})
        self._timer = self._loop.call_later(self._ping_seconds, self._tick)

    def put(self, events: bytes) -> None:
        """Add encoded events; what is added in one turn of the event loop goes out together."""
        self._waiting.append(events)
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._flush)

    @property
    def blocked(self) -> bool:
        """Whether the client reads more slowly than we write."""
        return self._exchange.blocked

    async def room(self) -> None:
        """Return when the client has read enough, or left."""
        await self._exchange.drained()

    def finish(self) -> None:
        """End the stream with ``[DONE]``."""
        self._waiting.append(sse.DONE)
        self._exchange.end(b"".join(self._waiting))
        self._waiting.clear()

    def _flush(self) -> None:
        self._scheduled = False
        if self._waiting:
            self._silent = False
            self._exchange.write(b"".join(self._waiting))
            self._waiting.clear()

    def _tick(self) -> None:
        """Once a period: a comment if nothing was said in it."""
        if self._silent and not self._exchange.blocked:
            self._exchange.write(sse.PING)
        self._silent = True
        self._timer = self._loop.call_later(self._ping_seconds, self._tick)
