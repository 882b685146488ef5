"""Connections that are passed on, or held for a while as in a partition."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
_PIECE = 64 * 1024


class TcpProxy:
    """Passes bytes on. While ``cut`` nothing passes and nothing is closed, as in a partition.

    ``connect`` opens the other side; where it fails the client is disconnected.
    """

    def __init__(self, connect: Callable[[], Awaitable[Streams]]) -> None:
        self._connect = connect
        self._passes = asyncio.Event()
        self._passes.set()
        self._running: set[asyncio.Task[None]] = set()
        self.port = 0

    def cut(self) -> None:
        """Let nothing pass from now on."""
        self._passes.clear()

    def mend(self) -> None:
        """Let everything pass again, also what waited."""
        self._passes.set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Accept connections while the block runs."""
        server = await asyncio.start_server(self._accepted, "127.0.0.1", 0, backlog=1024)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield
        finally:
            server.close()
            for task in self._running:
                task.cancel()
            await asyncio.gather(*self._running, return_exceptions=True)

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._served(reader, writer))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _served(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._passes.wait()
            there, back = await self._connect()
            try:
                await asyncio.gather(self._pass(reader, back), self._pass(there, writer))
            finally:
                back.close()
        except OSError:
            writer.transport.abort()
        finally:
            writer.close()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while piece := await reader.read(_PIECE):
                await self._passes.wait()
                writer.write(piece)
                await writer.drain()
        writer.close()
