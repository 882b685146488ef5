"""One connection of the HTTP client: a request at a time, its response piece by piece."""

from __future__ import annotations

import asyncio
import socket
import struct
import sys
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from time import monotonic
from typing import Literal, Protocol, cast

import httptools
from msgspec import Struct

from causerie.http.event_loop import traffic, without_delay

FailureKind = (
    Literal["dns", "refused", "private", "tls", "proxy", "connect_timeout"]
    | Literal["timeout", "reset", "closed", "protocol", "too_large", "compressed"]
)


class TransportFailed(Exception):
    """A response did not come whole. The text names host and port, never a path or a header."""

    def __init__(self, kind: FailureKind, words: str, *, sent: bool) -> None:
        super().__init__(words)
        self.kind: FailureKind = kind
        self.sent = sent  # the other side may have received the request


class Stale(TransportFailed):
    """The server has closed a kept connection meanwhile; a new one may work."""


_MAX_UNREAD = 1024 * 1024
_NEVER = float("inf")


class IncomingBody:
    """Base of a response's body, decoded or not: reads its pieces, its beginning, or all of it."""

    __slots__ = ()

    @abstractmethod
    def piece(self) -> Awaitable[bytes]:
        """Return the next bytes of the body, ``b""`` at its end; raise :class:`TransportFailed`."""

    @abstractmethod
    def unread(self, piece: bytes) -> None:
        """Put a piece back, to be returned first."""

    @abstractmethod
    def close(self) -> None:
        """Give up the rest of the body."""

    async def beginning(self, enough: Callable[[bytes], bool] = bool) -> bytes:
        """Peek at the first bytes until ``enough`` accepts them; raise :class:`TransportFailed`."""
        begun = await self.piece()
        while begun and not enough(begun) and (piece := await self.piece()):
            begun += piece
        self.unread(begun)
        return begun

    async def read(self, max_bytes: int) -> bytes:
        """Return the whole body; raise :class:`TransportFailed`, also above ``max_bytes``."""
        pieces: list[bytes] = []
        size = 0
        while piece := await self.piece():
            size += len(piece)
            if size > max_bytes:
                self.close()
                raise TransportFailed(
                    "too_large", f"the response has more than {max_bytes} bytes", sent=True
                )
            pieces.append(piece)
        return b"".join(pieces)


class HttpResponse(IncomingBody, Struct, eq=False):
    """A response that arrives piece by piece."""

    _connection: ClientConnection
    due: float  # deadline of the whole response, on the monotonic clock; infinite without one
    head: asyncio.Future[bytes]  # done when `status` and the headers are there
    waiting: asyncio.Future[bytes]  # the head, then a piece; done, where nobody waits
    status: int = 0  # 0 until the head is complete
    opening: bytes = b""  # bytes that arrived until the head was complete
    late: float = _NEVER  # deadline of the awaited head or piece, on the monotonic clock
    unsent: bool = False  # whether it was given up before its request had been sent whole
    taker: Callable[[bytes], bool] | None = None
    """Called with an awaited piece on arrival; true keeps the waiting task asleep."""
    _unread_pieces: list[bytes] = []  # that nobody waited for
    _unread_byte_count: int = 0
    _reply_outcome: TransportFailed | bool = False  # nothing more comes: it is complete, or broken

    @property
    def headers(self) -> Mapping[str, str]:
        """Return the header values by lower-case name; values of a repeated header are joined."""
        headers: dict[str, str] = {}
        for line in _extract_final_head(self.opening).split(b"\r\n")[1:]:
            name, _, value = line.decode("latin-1").partition(":")
            name, value = name.lower(), value.strip(" \t")
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
        return headers

    @property
    def media_type(self) -> bytes:
        """Return the media type in lower case without parameters, or empty."""
        return self._find_lower_case_value(b"content-type").partition(b";")[0].strip()

    @property
    def coding(self) -> bytes:
        """Return ``Content-Encoding`` in lower case, or empty."""
        return self._find_lower_case_value(b"content-encoding").strip()

    def _find_lower_case_value(self, name: bytes) -> bytes:
        _, _, value = _extract_final_head(self.opening).lower().partition(b"\r\n" + name + b":")
        return value.partition(b"\r\n")[0]

    def piece(self, late: float = _NEVER) -> asyncio.Future[bytes]:
        """Return a future of all bytes that have arrived, ``b""`` at the end; await it at once.

        Raises :class:`TransportFailed`, also if nothing has come by ``late`` (monotonic clock). If
        cancelled while waiting, the bytes may be lost.
        """
        source = self._connection
        piece: asyncio.Future[bytes] = source.loop.create_future()
        if not self._reply_outcome and not self._unread_pieces:
            self.late = late
            self.waiting = piece
            return piece
        if not self._unread_pieces and isinstance(self._reply_outcome, TransportFailed):
            raise self._reply_outcome
        piece.set_result(b"".join(self._unread_pieces))
        self._unread_pieces.clear()
        if self._unread_byte_count > _MAX_UNREAD and not self._reply_outcome:
            source.resume()
        self._unread_byte_count = 0
        return piece

    def at_hand(self) -> bytes:
        """Return the whole body without consuming it, or ``b""`` if it is not complete."""
        return b"".join(self._unread_pieces) if self._reply_outcome is True else b""

    def unread(self, piece: bytes) -> None:
        self._unread_pieces.insert(0, piece)
        self._unread_byte_count += len(piece)

    async def finish(self, seconds: float) -> None:
        """Discard the rest of the body within ``seconds``, so that the connection can be reused."""
        try:
            if not self._reply_outcome:
                self.due = monotonic() + seconds
            while not self._reply_outcome:
                await self.piece()
        except TransportFailed:
            pass  # nobody wanted it
        finally:
            self.close()

    def close(self) -> None:
        """Give up the rest of the body; if there is more to come, close the connection at once."""
        if not self._reply_outcome:
            self._connection.drop()

    # Called by the connection.

    def is_late(self, now: float) -> bool:
        """Return true if the response, or the awaited piece, is overdue."""
        return now >= self.due or (now >= self.late and not self.waiting.done())

    def feed(self, piece: bytes) -> None:
        waiting = self.waiting
        if not waiting.done():
            waiting.set_result(piece)
            return
        self._unread_pieces.append(piece)
        self._unread_byte_count += len(piece)
        if self._unread_byte_count > _MAX_UNREAD:
            self._connection.pause()

    def end(self, piece: bytes) -> None:
        self._reply_outcome = True
        waiting = self.waiting
        if not waiting.done():
            waiting.set_result(piece)
        else:
            self._unread_pieces.append(piece)
        if self._unread_byte_count > _MAX_UNREAD:
            self._connection.resume()  # for the next request

    def fail(self, failure: TransportFailed) -> None:
        if self._reply_outcome:
            return
        self._reply_outcome = failure
        if not self.waiting.done():
            self.waiting.set_exception(failure)
            self.waiting.exception()  # no report of asyncio if the waiting task is cancelled


def _extract_final_head(received: bytes) -> bytes:
    head, _, rest = received.lstrip(b"\r\n").partition(b"\r\n\r\n")
    while head[9:10] == b"1":  # "HTTP/1.1 1…": an interim response came before (RFC 9110, 15.2)
        head, _, rest = rest.partition(b"\r\n\r\n")
    return head


_MAX_HEAD_BYTES = 128 * 1024
_TURNS = 2  # of the event loop: one for data in Traffic, one for data in the transport
_RESET = struct.pack("hh" if sys.platform == "win32" else "ii", 1, 0)  # linger for no time


class ConnectionPool(Protocol):
    """The owner of connections, which is told when one of them becomes idle or is closed."""

    def idle(self, connection: ClientConnection) -> None: ...
    def gone(self, connection: ClientConnection) -> None: ...


class ClientConnection(asyncio.Protocol):
    """The protocol of one connection; ``idle_since`` is set by its pool, 0 before the first use."""

    def __init__(self, home: ConnectionPool, place: str) -> None:
        self._connection_pool = home
        self._server_host_port = place
        self.loop = asyncio.get_running_loop()
        self._write_batcher = traffic()
        self._is_unix_socket = False  # whether the server runs on this machine, at a Unix socket
        self._transport: asyncio.Transport | None = None
        self._parsed_body_pieces: list[bytes] = []  # of a body, from what is being read
        self.on_body = self._parsed_body_pieces.append  # what the parser calls
        self._parser = httptools.HttpResponseParser(self)
        self._current_response: HttpResponse | None = None  # until it is complete
        self.idle_since = 0.0

    @property
    def closed(self) -> bool:
        return self._transport is None or self._transport.is_closing()

    async def unsent(self) -> bool:
        """Return whether a part of the request is unsent because the server takes no more bytes.

        Waits some turns of the event loop, at whose end data is written anyway.
        """
        for _ in range(_TURNS):
            if not self._has_unsent_bytes():
                return False
            await asyncio.sleep(0)
        return self._has_unsent_bytes()

    def _has_unsent_bytes(self) -> bool:
        transport = self._transport
        if transport is None:
            return False
        return transport.get_write_buffer_size() > 0 or self._write_batcher.holds(transport)

    def ask(self, request: bytes, due: float) -> HttpResponse:
        """Send a request; return its response, ``due`` at that time of the monotonic clock."""
        head: asyncio.Future[bytes] = self.loop.create_future()
        response = HttpResponse(self, due, head, head)
        transport = self._transport
        if transport is None or transport.is_closing():
            response.fail(self._new_failure("closed", "closed the connection", sent=False))
        else:
            self._current_response = response
            self._write_batcher.send(transport, request)
        return response

    def pause(self) -> None:
        if self._transport is not None:
            self._transport.pause_reading()

    def resume(self) -> None:
        if self._transport is not None:
            self._transport.resume_reading()

    def drop(self) -> None:
        """Reset the connection at once, so that already the server's next write fails."""
        transport, self._transport = self._transport, None
        if transport is None:
            return
        handle = transport.get_extra_info("socket")
        if handle is not None:
            with suppress(OSError, ValueError):  # it may be closed already; uvloop says so thus
                handle.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        transport.abort()

    def expire(self, now: float) -> bool:
        """Fail an overdue response; return whether a response is awaited that is not overdue."""
        response = self._current_response
        if response is None:
            return False
        if response.is_late(now):
            self._fail_response("timeout", "did not answer in time")
            return False
        return True

    def close(self) -> None:
        """Close an idle connection."""
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._is_unix_socket = not without_delay(transport)

    def data_received(self, data: bytes) -> None:
        response = self._current_response
        if response is None:
            self.drop()  # nobody asked
            return
        taker = response.taker
        if taker is None:
            # Behind a token of a stream the next one is milliseconds away.
            self._write_batcher.came(slow=self._is_unix_socket or response.status > 0)
            if not response.status:
                response.opening += data
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            is_other = isinstance(error, httptools.HttpParserUpgrade)
            words = "switched to another protocol" if is_other else "sent what is not HTTP/1.1"
            self._fail_response("protocol", words)
        if pieces := self._parsed_body_pieces:
            piece = pieces.pop()
            if pieces:
                piece = b"".join(pieces) + piece
                pieces.clear()
            if taker is not None:
                if not response.waiting.done() and taker(piece):
                    return
                self._write_batcher.came(slow=True)
            response.feed(piece)
        elif not response.status and len(response.opening) > _MAX_HEAD_BYTES:
            self._fail_response("too_large", "sent a head without end")

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        response = self._current_response
        if exc is not None:
            self._fail_response("reset", "broke the connection off")
        elif response is not None and response.status and not _has_framing(response):
            self._current_response = None
            response.end(b"")  # this body ends where the connection does
        else:
            self._fail_response("closed", "closed the connection before its response was complete")
        self._connection_pool.gone(self)

    def on_message_begin(self) -> None:
        if self._current_response is None:
            raise ValueError("a second response, which nobody asked for")

    def on_headers_complete(self) -> None:
        response = self._current_response
        assert response is not None
        status = self._parser.get_status_code()
        if status >= 200:
            response.status = status
            if not response.head.done():
                response.head.set_result(b"")

    def on_message_complete(self) -> None:
        response = self._current_response
        if response is None or not response.status:
            return
        self._current_response = None
        if response.taker is not None:
            self._write_batcher.came(slow=True)
        response.end(b"".join(self._parsed_body_pieces))
        self._parsed_body_pieces.clear()
        if self._parser.should_keep_alive():
            self._connection_pool.idle(self)
        else:
            self.close()

    def _fail_response(self, kind: FailureKind, message: str) -> None:
        response, self._current_response = self._current_response, None
        if response is not None:
            if self._parsed_body_pieces:  # what came before it broke
                response.feed(b"".join(self._parsed_body_pieces))
                self._parsed_body_pieces.clear()
            response.fail(self._new_failure(kind, message, sent=True))
        self.drop()

    def _new_failure(self, kind: FailureKind, message: str, *, sent: bool) -> TransportFailed:
        return TransportFailed(kind, f"{self._server_host_port} {message}", sent=sent)


def _has_framing(response: HttpResponse) -> bool:
    headers = response.headers
    return "content-length" in headers or "chunked" in headers.get("transfer-encoding", "").lower()
