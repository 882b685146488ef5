"""One connection to another server: a request at a time, responses parsed by httptools."""

from __future__ import annotations

import asyncio
import socket
import struct
import sys
from contextlib import suppress
from typing import Protocol, cast

import httptools

from causerie.transport.errors import Kind, TransportFailed
from causerie.transport.response import HttpResponse

_MAX_HEAD_BYTES = 128 * 1024
_MAX_NAMES = 256
_names: dict[bytes, str] = {}  # of headers, as they came to as they are read
_RESET = struct.pack("hh" if sys.platform == "win32" else "ii", 1, 0)  # linger for no time


class Home(Protocol):
    """Whoever keeps the connections."""

    def idle(self, connection: Connection) -> None:
        """The connection can take another request."""
        ...

    def gone(self, connection: Connection) -> None:
        """The connection is closed."""
        ...


class Connection(asyncio.Protocol):
    """The protocol of one connection. ``fresh`` until its first response has begun.

    ``due`` is when the response must be complete, on the clock of ``loop``.
    """

    def __init__(self, home: Home, place: str) -> None:
        self._home = home
        self._place = place
        self.loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._awaited: asyncio.Future[HttpResponse] | None = None
        self._response: HttpResponse | None = None
        self._headers: dict[str, str] = {}
        self._head_bytes = 0
        self._interim = False
        self._reusable = True
        self.fresh = True
        self.idle_since = 0.0
        self.due = float("inf")

    @property
    def closed(self) -> bool:
        """Whether no request can be sent on it."""
        return self._transport is None or self._transport.is_closing()

    async def exchange(self, request: bytes) -> HttpResponse:
        """Send a request, return when the head of its response is there.

        Raises :class:`TransportFailed`. Cancelled, it closes the connection.
        """
        if self._transport is None:
            raise self._failed("closed", "closed the connection", sent=False)
        self._head_bytes = 0
        self._headers = {}
        # Held here: when it is done, the connection may already serve somebody else.
        awaited: asyncio.Future[HttpResponse] = self.loop.create_future()
        self._awaited = awaited
        self._transport.write(request)
        try:
            return await awaited
        except asyncio.CancelledError:
            if self._awaited is awaited:
                self.drop()
            elif awaited.done() and not awaited.cancelled() and awaited.exception() is None:
                awaited.result().close()
            raise

    # What responses call.

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
            with suppress(OSError):
                handle.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        transport.abort()

    def expire(self, now: float) -> None:
        """Give up a response that is overdue."""
        if now >= self.due:
            self.due = float("inf")
            self._break("timeout", "did not answer in time")

    def close(self) -> None:
        """Close an idle connection."""
        if self._transport is not None:
            self._transport.close()

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        handle = transport.get_extra_info("socket")
        if handle is not None and handle.family in (socket.AF_INET, socket.AF_INET6):
            handle.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def data_received(self, data: bytes) -> None:
        if self._response is None:
            if self._awaited is None:
                self.drop()  # nobody asked
                return
            self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._break("protocol", "switched to another protocol")
        except httptools.HttpParserError:
            self._break("protocol", "sent what is not HTTP/1.1")
        if self._response is None and self._head_bytes > _MAX_HEAD_BYTES:
            self._break("too_large", "sent a head without end")

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._reusable = False
        response = self._response
        if response is not None and exc is None and not self._framed:
            self._response = None
            response.end()  # this body ends where the connection does
        elif exc is None:
            self._break("closed", "closed the connection before its response was complete")
        else:
            self._break("reset", "broke the connection off")
        self._home.gone(self)

    # What the parser calls.

    def on_header(self, name: bytes, value: bytes) -> None:
        key, text = _names.get(name) or _read(name), value.decode("latin-1")
        headers = self._headers
        headers[key] = f"{headers[key]}, {text}" if key in headers else text

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        self._interim = status < 200
        if self._interim or self._awaited is None:
            self._headers = {}
            return
        self.fresh = False
        awaited, self._awaited = self._awaited, None
        self._response = HttpResponse(status, self._headers, self)
        if not awaited.done():
            awaited.set_result(self._response)

    def on_body(self, body: bytes) -> None:
        if self._response is not None:
            self._response.feed(body)

    def on_message_complete(self) -> None:
        if self._interim:
            return
        response, self._response = self._response, None
        self.due = float("inf")
        if response is None:
            return
        self._reusable = self._reusable and self._framed and self._parser.should_keep_alive()
        response.end()
        if self._reusable:
            self._home.idle(self)
        else:
            self.close()

    @property
    def _framed(self) -> bool:
        """Whether the end of the body does not need the end of the connection."""
        headers = self._headers
        return "content-length" in headers or "chunked" in headers.get("transfer-encoding", "")

    def _break(self, kind: Kind, words: str) -> None:
        failure = self._failed(kind, words, sent=True)
        response, self._response = self._response, None
        if response is not None:
            response.fail(failure)
        elif self._awaited is not None and not self._awaited.done():
            self._awaited.set_exception(failure)
            self._awaited = None
        self.drop()

    def _failed(self, kind: Kind, words: str, *, sent: bool) -> TransportFailed:
        return TransportFailed(kind, f"{self._place} {words}", sent=sent)


def _read(name: bytes) -> str:
    key = name.decode("latin-1").lower()
    if len(name) <= 64 and len(_names) < _MAX_NAMES:
        _names[name] = key
    return key
