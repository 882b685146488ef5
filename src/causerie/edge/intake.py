"""Source of the connections of a server."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol

from causerie.edge.connections import Connections
from causerie.edge.handover import HandOver


class Intake(Protocol):
    """Source of connections. ``hand_over`` gives one to another process, if there is any.

    ``gives_back``: connections that came from another process return there after each response.
    """

    @property
    def hand_over(self) -> HandOver | None: ...
    @property
    def gives_back(self) -> bool: ...

    def taking(self, connections: Connections) -> AbstractAsyncContextManager[None]:
        """Take connections while the block runs."""

    async def ready(self) -> None:
        """Return when the other processes answer."""

    def leave(self) -> None:
        """Have the connections of other processes end with an answer that says so."""

    async def drained(self, hurry: asyncio.Event) -> None:
        """Wait at a stop until the other processes have answered; ``hurry`` ends their work."""


class Listener:
    """Accepts connections itself."""

    hand_over = None
    gives_back = False

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener

    @asynccontextmanager
    async def taking(self, connections: Connections) -> AsyncIterator[None]:
        """Accept while the block runs."""
        loop = asyncio.get_running_loop()
        server = await loop.create_server(connections, sock=self._listener, backlog=2048)
        try:
            yield
        finally:
            server.close()

    async def ready(self) -> None:
        """There are no other processes."""

    def leave(self) -> None:
        """There are no other processes."""

    async def drained(self, hurry: asyncio.Event) -> None:
        """There are no other processes."""
