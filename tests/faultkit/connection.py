"""One connection of a client: requests in, raw bytes out, and when the client left.

Knows HTTP/1.1 as far as it must be kept and broken.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable
from typing import cast

import httptools

_RESET = struct.pack("ii", 1, 0)  # linger for no time: closing sends a reset
_NOT_UNDERSTOOD = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
Arrived = Callable[["Connection", str, str, dict[str, str], bytes], None]


class Connection(asyncio.Protocol):
    """``made`` is called when it stands, ``arrived`` with each request."""

    def __init__(self, made: Callable[[Connection], None], arrived: Arrived) -> None:
        self._made = made
        self.closed_at: float | None = None
        self.by_client = False
        self._arrived = arrived
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpRequestParser(self)
        self._gone = asyncio.Event()
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._ours = False
        self._path = b""
        self._headers: dict[str, str] = {}
        self._body = b""

    # What is seen of the client.

    @property
    def open(self) -> bool:
        """Return true until one side has closed it."""
        return not self._gone.is_set()

    async def left(self) -> float:
        """Wait until it is closed, by whomever; the loop's time of that."""
        await self._gone.wait()
        assert self.closed_at is not None
        return self.closed_at

    # What can be done to it.

    async def write(self, data: bytes) -> None:
        """Send bytes, return when the kernel has them. Raises :class:`ConnectionError`."""
        if not self.open:
            raise ConnectionResetError("the client has left")
        self._transport.write(data)
        await self._flowing.wait()

    def finish_sending(self) -> None:
        """Close our side only; over TLS there is no such thing, there it closes."""
        if self._transport.can_write_eof():
            self._transport.write_eof()
        else:
            self.close()

    def close(self) -> None:
        """Close in good order, after what was written."""
        self._ours = True
        self._transport.close()

    def reset(self) -> None:
        """Break it off."""
        self._ours = True
        handle = self._transport.get_extra_info("socket")
        if handle is not None and handle.fileno() >= 0:
            handle.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self._transport.abort()

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if transport.get_extra_info("ssl_object") is None:  # over TLS asyncio would never resume
            self._transport.set_write_buffer_limits(0)
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._made(self)

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._transport.write(_NOT_UNDERSTOOD)
            self.close()

    def eof_received(self) -> bool:
        self._note_end()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._note_end()

    def pause_writing(self) -> None:
        self._flowing.clear()

    def resume_writing(self) -> None:
        self._flowing.set()

    # What the parser calls.

    def on_message_begin(self) -> None:
        self._path, self._headers, self._body = b"", {}, b""

    def on_url(self, url: bytes) -> None:
        self._path += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        method = self._parser.get_method().decode("latin-1")
        self._arrived(self, method, self._path.decode("latin-1"), self._headers, self._body)

    def _note_end(self) -> None:
        if self.closed_at is None:
            self.closed_at = self._loop.time()
            self.by_client = not self._ours
        self._gone.set()
        self._flowing.set()
