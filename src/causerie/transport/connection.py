"""One connection to another server: a request at a time, responses parsed by httptools."""

from __future__ import annotations

import asyncio
import socket
import struct
import sys
from contextlib import suppress
from typing import Protocol, cast

import httptools

from causerie.runtime.traffic import traffic, without_delay
from causerie.transport.errors import Kind, TransportFailed
from causerie.transport.response import HttpResponse

_MAX_HEAD_BYTES = 128 * 1024
_TURNS = 2  # one for what traffic holds, one for what the loop gathers
_RESET = struct.pack("hh" if sys.platform == "win32" else "ii", 1, 0)  # linger for no time


class ConnectionPool(Protocol):
    """Whoever opened a connection, as the connection sees it."""

    def idle(self, connection: ClientConnection) -> None:
        """The connection can take another request."""

    def gone(self, connection: ClientConnection) -> None:
        """The connection is closed."""


class ClientConnection(asyncio.Protocol):
    """The protocol of one connection.

    ``idle_since`` is when it was last left idle, as its home says; 0 before its first response.
    """

    def __init__(self, home: ConnectionPool, place: str) -> None:
        self._home = home
        self._place = place
        self.loop = asyncio.get_running_loop()
        self._traffic = traffic()
        self._near = False  # whether the server runs on this machine, at a Unix socket
        self._transport: asyncio.Transport | None = None
        self._pieces: list[bytes] = []  # of a body, from what is being read
        self.on_body = self._pieces.append  # what the parser calls
        self._parser = httptools.HttpResponseParser(self)
        self._response: HttpResponse | None = None  # until it is complete
        self.idle_since = 0.0

    @property
    def closed(self) -> bool:
        """Return true if no request can be sent on it."""
        return self._transport is None or self._transport.is_closing()

    async def unsent(self) -> bool:
        """Return whether a part of the request stays here, as the other side takes no more now.

        Data that only waits for the end of a turn of the event loop is written then, also if the
        connection is closed in that turn, so turns are waited for.
        """
        for _ in range(_TURNS):
            if not self._holds():
                return False
            await asyncio.sleep(0)
        return self._holds()

    def _holds(self) -> bool:
        transport = self._transport
        if transport is None:
            return False
        return transport.get_write_buffer_size() > 0 or self._traffic.holds(transport)

    def ask(self, request: bytes, due: float) -> HttpResponse:
        """Send a request; its response fails where the connection does.

        ``due`` is when it must be complete, on the monotonic clock.
        """
        head: asyncio.Future[bytes] = self.loop.create_future()
        response = HttpResponse(self, due, head, head)
        transport = self._transport
        if transport is None or transport.is_closing():
            response.fail(self._failed("closed", "closed the connection", sent=False))
        else:
            self._response = response
            self._traffic.send(transport, request)
        return response

    # Called by responses.

    def pause(self) -> None:
        if self._transport is not None:
            self._transport.pause_reading()

    def read_on(self) -> None:
        if self._transport is not None:
            self._transport.resume_reading()

    def drop(self) -> None:
        """Close at once, so that already the next write of the other side fails."""
        transport, self._transport = self._transport, None
        if transport is None:
            return
        handle = transport.get_extra_info("socket")
        if handle is not None:
            with suppress(OSError, ValueError):  # it may be closed already; uvloop says so thus
                handle.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        transport.abort()

    def expire(self, now: float) -> bool:
        """Give up a response that is overdue; says whether there is one that may be later."""
        response = self._response
        if response is None:
            return False
        if response.is_late(now):
            self._break("timeout", "did not answer in time")
            return False
        return True

    def close(self) -> None:
        """Close an idle connection."""
        if self._transport is not None:
            self._transport.close()

    # Called by the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._near = not without_delay(transport)

    def data_received(self, data: bytes) -> None:
        response = self._response
        taker = None if response is None else response.taker
        if taker is None:
            # Behind a token of a stream the next one is milliseconds away.
            streams = response is not None and response.status > 0
            self._traffic.came(slow=self._near or streams)
        if response is None:
            self.drop()  # nobody asked
            return
        if not response.status:
            response.opening += data
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._break("protocol", "switched to another protocol")
        except httptools.HttpParserError:
            self._break("protocol", "sent what is not HTTP/1.1")
        if self._pieces:
            piece = b"".join(self._pieces)
            self._pieces.clear()
            if taker is not None:
                if response.takes(piece):
                    return
                self._traffic.came(slow=True)
            response.feed(piece)
        elif not response.status and len(response.opening) > _MAX_HEAD_BYTES:
            self._break("too_large", "sent a head without end")

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        response = self._response
        if exc is not None:
            self._break("reset", "broke the connection off")
        elif response is not None and response.status and not _framed(response):
            self._response = None
            response.end(b"")  # this body ends where the connection does
        else:
            self._break("closed", "closed the connection before its response was complete")
        self._home.gone(self)

    # Called by the parser.

    def on_message_begin(self) -> None:
        if self._response is None:
            raise ValueError("a second response, which nobody asked for")

    def on_headers_complete(self) -> None:
        response = self._response
        assert response is not None
        status = self._parser.get_status_code()
        if status >= 200:
            response.status = status
            if not response.head.done():
                response.head.set_result(b"")

    def on_message_complete(self) -> None:
        response = self._response
        if response is None or not response.status:
            return
        self._response = None
        if response.taker is not None:
            self._traffic.came(slow=True)
        response.end(b"".join(self._pieces))
        self._pieces.clear()
        if self._parser.should_keep_alive():
            self._home.idle(self)
        else:
            self.close()

    # Steps.

    def _break(self, kind: Kind, words: str) -> None:
        response, self._response = self._response, None
        if response is not None:
            if self._pieces:  # what came before it broke
                response.feed(b"".join(self._pieces))
                self._pieces.clear()
            response.fail(self._failed(kind, words, sent=True))
        self.drop()

    def _failed(self, kind: Kind, words: str, *, sent: bool) -> TransportFailed:
        return TransportFailed(kind, f"{self._place} {words}", sent=sent)


def _framed(response: HttpResponse) -> bool:
    """Return true if the end of the body does not depend on the end of the connection."""
    headers = response.headers
    return "content-length" in headers or "chunked" in headers.get("transfer-encoding", "").lower()
