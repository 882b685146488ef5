"""All client connections of one server: started, swept, closed, and waited for together."""

from __future__ import annotations

import asyncio

import msgspec

from causerie.edge.connection import Connection
from causerie.edge.head import RequestHeads
from causerie.edge.workers import Handler, Workers
from causerie.runtime.traffic import traffic


class ConnectionLimits(msgspec.Struct, frozen=True):
    """Bounds on one connection. Times are in seconds, sizes in bytes."""

    head_seconds: float
    idle_seconds: float
    stuck_seconds: float
    max_head_bytes: int
    max_connections: int


class Connections:
    """All connections of one server."""

    def __init__(self, handler: Handler, bounds: ConnectionLimits) -> None:
        self.workers = Workers(handler)
        self.bounds = bounds
        self.heads = RequestHeads()
        self.open: set[Connection] = set()
        self.leaving = False
        self.closing = False
        self._none_open = asyncio.Event()
        self.loop = asyncio.get_running_loop()
        self.traffic = traffic()

    def __call__(self) -> Connection:
        return Connection(self)

    def sweep(self) -> None:
        """Close what has waited too long."""
        now = self.loop.time()
        for connection in tuple(self.open):
            connection.expire(now)

    def leave(self) -> None:
        """End every connection with an answer that says so; until then it stays."""
        self.leaving = True

    def close(self) -> None:
        """Take no further request on any connection."""
        self.closing = True
        for connection in tuple(self.open):
            connection.close_when_idle()

    async def ended(self) -> None:
        """Return when every request has been answered."""
        await self.workers.ended()

    async def left(self) -> None:
        """Return when no connection is open: every client has all of its answer."""
        while self.open:
            self._none_open.clear()
            await self._none_open.wait()

    def forget(self, connection: Connection) -> None:
        self.open.discard(connection)
        if not self.open:
            self._none_open.set()

    def abort(self) -> None:
        """Close every connection at once."""
        for connection in tuple(self.open):
            connection.abort()
