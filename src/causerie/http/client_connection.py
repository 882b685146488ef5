"""One connection to another server: a request at a time, its response piece by piece, and why it
failed, in kinds that callers tell apart.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from time import monotonic
from typing import Literal, Protocol, cast

import httptools
from msgspec import Struct

from causerie.http.event_loop import traffic, without_delay

# Why an exchange with another server failed, in kinds that callers tell apart.

FailureKind = Literal[
    "dns",
    "refused",
    "private",
    "tls",
    "proxy",
    "connect_timeout",
    "timeout",
    "reset",
    "closed",
    "protocol",
    "too_large",
    "compressed",
]


class TransportFailed(Exception):
    """No response, or only a part of one. The text names host and port, never a path or a header.

    ``sent`` says whether the other side may have got the request.
    """

    def __init__(self, kind: FailureKind, words: str, *, sent: bool) -> None:
        super().__init__(words)
        self.kind: FailureKind = kind
        self.sent = sent


class Stale(TransportFailed):
    """A connection that had been kept was closed by the server meanwhile; another may be asked."""


# A response whose body arrives piece by piece, from the moment it was asked for.

_MAX_UNREAD = 1024 * 1024
_NEVER = float("inf")


class HttpResponse(Struct, eq=False):
    """A response, as it arrives."""

    _source: ClientConnection
    due: float
    """Deadline of the whole response, on the monotonic clock and to a quarter of a second; infinite
    without one.
    """
    head: asyncio.Future[bytes]
    """Done when ``status`` and the headers are there."""
    _waiting: asyncio.Future[bytes]  # the head, then a piece; done, where nobody waits
    status: int = 0
    """0 until the head is complete."""
    opening: bytes = b""
    """Bytes that arrived until the head was complete."""
    late: float = _NEVER
    """When the awaited head or piece has taken too long."""
    unsent: bool = False  # whether it was given up before its request had been sent whole
    taker: Callable[[bytes], bool] | None = None
    """Offered a piece that is awaited in the moment in which it arrives; if it returns true, the
    piece is handled, and whoever awaits one is not woken.
    """
    _pieces: list[bytes] = []  # that nobody waited for
    _size: int = 0
    _end: TransportFailed | bool = False  # nothing more comes: it is complete, or broken

    @property
    def headers(self) -> Mapping[str, str]:
        """By lower-case name; of one that came twice, the values are joined."""
        headers: dict[str, str] = {}
        for line in _head_lines(self.opening).split(b"\r\n")[1:]:
            name, _, value = line.decode("latin-1").partition(":")
            name, value = name.lower(), value.strip(" \t")
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
        return headers

    @property
    def media_type(self) -> bytes:
        """Of the body, in lower case and without its parameters; empty where it has none."""
        return self._header(b"content-type").partition(b";")[0].strip()

    @property
    def coding(self) -> bytes:
        """``Content-Encoding`` of the body, in lower case; empty where it has none."""
        return self._header(b"content-encoding").strip()

    def _header(self, name: bytes) -> bytes:
        _, _, value = _head_lines(self.opening).lower().partition(b"\r\n" + name + b":")
        return value.partition(b"\r\n")[0]

    def piece(self, late: float = _NEVER) -> asyncio.Future[bytes]:
        """Return all bytes that have arrived; ``b""`` at the end. To be awaited at once.

        Raises :class:`TransportFailed`, also if nothing has come when it is ``late`` (on the clock
        of ``due``). If cancelled while waiting, the bytes may be lost.
        """
        source = self._source
        piece: asyncio.Future[bytes] = source.loop.create_future()
        if not self._end and not self._pieces:
            self.late = late
            self._waiting = piece
            return piece
        if not self._pieces and isinstance(self._end, TransportFailed):
            raise self._end
        piece.set_result(b"".join(self._pieces))
        self._pieces.clear()
        if self._size > _MAX_UNREAD and not self._end:
            source.read_on()
        self._size = 0
        return piece

    def at_hand(self) -> bytes:
        """The whole body where it has come before somebody read, else ``b""``; it stays there."""
        return b"".join(self._pieces) if self._end is True else b""

    async def beginning(self, enough: Callable[[bytes], bool] = bool) -> bytes:
        """Return what comes first until it is ``enough``; it stays there.

        Raises :class:`TransportFailed`.
        """
        begun = await self.piece()
        while begun and not enough(begun) and (piece := await self.piece()):
            begun += piece
        self._pieces.insert(0, begun)
        self._size += len(begun)
        return begun

    async def read(self, max_bytes: int) -> bytes:
        """The whole body. Raises :class:`TransportFailed`, for a larger one too."""
        return await read_whole(self, max_bytes)

    async def finish(self, seconds: float) -> None:
        """Pass over the rest, so that the connection can be used again; else it is closed.

        It is given so many ``seconds``.
        """
        try:
            if not self._end:
                self.due = monotonic() + seconds
            while not self._end:
                await self.piece()
        except TransportFailed:
            pass  # nobody wanted it
        finally:
            self.close()

    def close(self) -> None:
        """Give up what has not come: a connection in the middle of a body is closed at once."""
        if not self._end:
            self._source.drop()

    # Called by the connection.

    def is_late(self, now: float) -> bool:
        """Return true if the response, or the awaited piece, is overdue."""
        return now >= self.due or (now >= self.late and not self._waiting.done())

    def takes(self, piece: bytes) -> bool:
        """Return true if the taker has handled a piece that has arrived."""
        return self.taker is not None and not self._waiting.done() and self.taker(piece)

    def feed(self, piece: bytes) -> None:
        waiting = self._waiting
        if not waiting.done():
            waiting.set_result(piece)
            return
        self._pieces.append(piece)
        self._size += len(piece)
        if self._size > _MAX_UNREAD:
            self._source.pause()

    def end(self, piece: bytes) -> None:
        """The body is complete with this last piece, which may be empty."""
        self._end = True
        waiting = self._waiting
        if not waiting.done():
            waiting.set_result(piece)
        else:
            self._pieces.append(piece)
        if self._size > _MAX_UNREAD:
            self._source.read_on()  # for whoever asks next

    def fail(self, failure: TransportFailed) -> None:
        """The rest will not come."""
        if self._end:
            return
        self._end = failure
        if not self._waiting.done():
            self._waiting.set_exception(failure)
            self._waiting.exception()  # no complaint where who waits is cancelled just now


class BodyReader(Protocol):
    """A body that arrives."""

    def piece(self) -> Awaitable[bytes]:
        """Return what has arrived; ``b""`` at the end."""

    def close(self) -> None:
        """Give up what has not come."""


async def read_whole(body: BodyReader, max_bytes: int) -> bytes:
    """Return the whole body; raises :class:`TransportFailed`, for a larger one too."""
    pieces: list[bytes] = []
    size = 0
    while piece := await body.piece():
        size += len(piece)
        if size > max_bytes:
            body.close()
            raise TransportFailed(
                "too_large", f"the response has more than {max_bytes} bytes", sent=True
            )
        pieces.append(piece)
    return b"".join(pieces)


def _head_lines(opening: bytes) -> bytes:
    """The status and header lines of a response, in the form that the parser insists on."""
    head, _, rest = opening.lstrip(b"\r\n").partition(b"\r\n\r\n")
    while head[9:10] == b"1":  # "HTTP/1.1 1…": an interim response came before (RFC 9110, 15.2)
        head, _, rest = rest.partition(b"\r\n\r\n")
    return head


# One connection to another server: a request at a time, responses parsed by httptools.

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

    def _break(self, kind: FailureKind, words: str) -> None:
        response, self._response = self._response, None
        if response is not None:
            if self._pieces:  # what came before it broke
                response.feed(b"".join(self._pieces))
                self._pieces.clear()
            response.fail(self._failed(kind, words, sent=True))
        self.drop()

    def _failed(self, kind: FailureKind, words: str, *, sent: bool) -> TransportFailed:
        return TransportFailed(kind, f"{self._place} {words}", sent=sent)


def _framed(response: HttpResponse) -> bool:
    """Return true if the end of the body does not depend on the end of the connection."""
    headers = response.headers
    return "content-length" in headers or "chunked" in headers.get("transfer-encoding", "").lower()
