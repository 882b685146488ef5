"""The client connections of one server: HTTP/1.1 in, exchanges out, within limits."""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from typing import cast

import httptools
from msgspec import Struct

from causerie.access.keys import sent_credential
from causerie.errors import InvalidRequest, Overloaded, ServiceError
from causerie.http.event_loop import traffic, without_delay
from causerie.http.exchange import Exchange
from causerie.http.head import (
    Headers,
    RequestHead,
    RequestHeads,
    check_codings,
    check_host,
    cut_head,
    head_size,
    hints_of,
    invalid_http,
    parse_target,
    without_upgrade,
)
from causerie.http.tasks import Handler, Workers

_MAX_UNREAD = 256 * 1024  # bytes of a body that wait for a handler
_LINGER_SECONDS = 5.0  # for the next piece of a body that nobody wants
_LINGER_SECONDS_IN_ALL = 30.0
_MAX_UNKNOWN_HEADS = 8  # in a row on one connection; then its heads are only parsed
_FIRST_LOOK_SECONDS = 0.005  # after a client that sends no more; each later one twice as long
_LAST_LOOK_SECONDS = 0.035  # two of them are less than the time to notice that it has left
_NO_DEADLINE = float("inf")
_KEEP_ALIVE_HEADERS = frozenset({"connection", "proxy-connection"})  # headers that ask to be kept


class Listen(Struct, frozen=True):
    """Options of the listener. Times are in seconds, sizes in bytes; port 0 is any free one."""

    host: str = "127.0.0.1"
    port: int = 8000
    drain_seconds: float = 30.0
    shutdown_delay_seconds: float = 0.0
    head_seconds: float = 15.0
    keep_alive_seconds: float = 75.0
    stuck_seconds: float = 60.0
    max_head_bytes: int = 64 * 1024
    max_connections: int = 4096
    busy_poll_seconds: float = 0.0


class Connection(asyncio.Protocol):
    """The protocol of one connection.

    Pipelined requests are answered in their order. The connection ends when a head is too large or
    too slow, when it stays idle, or when the client stops reading.
    """

    _transport: asyncio.Transport

    def __init__(self, server: Connections) -> None:
        self._server = server
        self._traffic = server.traffic
        self._parser = httptools.HttpRequestParser(self)

        # Timeouts, on the clock of the loop
        self._deadline = _NO_DEADLINE  # of what is awaited from the client now
        self._linger_deadline = _NO_DEADLINE  # of a body that nobody wants

        # Per connection
        self.peer = ""  # IP address of the other side of the connection, or empty
        self.full: asyncio.Future[None] | None = None  # done when the client reads again
        self._read_paused = False
        self._read_closed = False  # further input is ignored
        self._half_closed = False  # the client has closed its side, and may still read
        self._closing = server.closing  # after the current response
        self._closed = False
        self._unknown_heads = 0  # in a row
        self._last_digest = b""  # of the last unknown head
        self._pending: deque[Exchange] = deque()  # pipelined requests

        # Per request that is being read
        self._url = b""
        self._headers = Headers()
        self._head_bytes = 0  # of an incomplete head, before this read
        self._read_bytes = 0  # of this read
        self._head_without_upgrade = b""
        self._continue_pending = False  # the client waits for an interim response
        self._incoming: Exchange | None = None

        # Per response
        self._current: Exchange | None = None

    def closes(self) -> bool:
        """Return whether the connection ends with the next response.

        It also does if the client waits to be asked for its body, which may come or not.
        """
        return (
            self._closing
            or self._server.leaving
            or (self._half_closed and not self._pending)
            or (self._continue_pending and self._incoming is self._current)
        )

    def write(self, data: bytes) -> bool:
        if not self._closed:
            self._traffic.send(self._transport, data)
        return self.full is None

    def finish(self, exchange: Exchange, data: bytes | memoryview) -> None:
        if self._closed:
            return
        self._traffic.send(self._transport, data)
        if exchange.complete:
            self._finish_exchange(exchange)
        else:  # Closing now would throw away the answer: the rest of the request is read first.
            self._continue_pending = False
            self._linger_deadline = self._server.loop.time() + _LINGER_SECONDS_IN_ALL
            self._linger_until_read()
            self.read_on()

    def read_on(self) -> None:
        if self._closed:
            return
        if self._read_paused:
            self._read_paused = False
            self._transport.resume_reading()
        if self._continue_pending:
            self._continue_pending = False
            self._traffic.send(self._transport, b"HTTP/1.1 100 Continue\r\n\r\n")

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        name = transport.get_extra_info("peername")
        self.peer = str(name[0]) if isinstance(name, tuple) else ""
        without_delay(transport)
        self._server.open.add(self)
        self._deadline = self._server.loop.time() + self._server.limits.head_seconds
        if len(self._server.open) > self._server.limits.max_connections:
            self._refuse_connection(Overloaded("Too many connections are open; please try again."))

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        del self._parser  # which holds this connection
        self._server.forget(self)
        self._mark_closed()
        self.resume_writing()
        for exchange in (self._current, self._incoming, *self._pending):
            if exchange is not None:
                exchange.leave()
        self._pending.clear()

    def eof_received(self) -> bool:
        """Keep the connection while a complete request waits for its answer."""
        if self._half_closed:
            return True
        current, broken = self._current, self._incoming
        if broken is not None and broken is not current:
            self._incoming = None
            self._pending.pop()
        if current is not None and (current.ended or not current.complete):
            current = None
        if self._closed or (current is None and not self._pending):
            self._mark_closed()
            return False  # the transport closes
        self._read_closed = self._half_closed = True
        self._probe_half_closed(_FIRST_LOOK_SECONDS)
        return True

    def data_received(self, data: bytes) -> None:
        self._traffic.came()
        if self._read_closed:
            return
        busy = self._current is not None or self.full is not None or self._head_bytes
        if busy or self._unknown_heads >= _MAX_UNKNOWN_HEADS:
            self._parse_bytes(data)
            return
        digest, body = cut_head(data)
        head = self._server.heads.get(digest)
        if head is not None:
            self._unknown_heads = 0
            self._deadline = _NO_DEADLINE
            self._current = exchange = Exchange(
                self, head, head.keep_alive, complete=True, unread=len(body), _unread_pieces=[body]
            )
            self._server.workers.begin(exchange)
        else:
            self._parse_bytes(data)
            if digest:
                self._learn_head(digest, len(body))

    def pause_writing(self) -> None:
        self.full = self._server.loop.create_future()
        self._deadline = self._server.loop.time() + self._server.limits.stuck_seconds

    def resume_writing(self) -> None:
        if self.full is not None:
            self.full.set_result(None)
            self.full = None
            self._deadline = _NO_DEADLINE
            self._begin_pending_exchange()

    def on_url(self, url: bytes) -> None:
        self._url = self._url + url if self._url else url

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._incoming is not None:
            return  # it comes behind the body: of what nobody asks for there is no end
        key = name.decode("latin-1").lower()
        if key in self._headers:
            self._headers.add_again(key, value.decode("latin-1"))
        else:
            self._headers[key] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        parser, headers, most = self._parser, self._headers, self._server.limits.max_head_bytes
        if (self._head_bytes or self._read_bytes > most) and head_size(self._url, headers) > most:
            raise self._head_too_large()
        self._head_bytes = 0
        if self.full is None:
            self._deadline = _NO_DEADLINE
        if "upgrade" in headers and parser.should_upgrade():
            self._head_without_upgrade = without_upgrade(parser, self._url, headers)
            return
        self._continue_pending = "expect" in headers and headers["expect"].lower() == "100-continue"
        if "transfer-encoding" in headers:
            check_codings(headers, parser.get_http_version())
        path, query, host = parse_target(self._url)
        method = parser.get_method().decode("ascii")
        keep_alive = parser.should_keep_alive() and not parser.should_upgrade()
        # Kept alive without having asked means 1.1; the parser would make a text of its numbers.
        unasked = keep_alive and _KEEP_ALIVE_HEADERS.isdisjoint(headers)
        version = "1.1" if unasked else parser.get_http_version()
        if host is not None or headers.again or "host" not in headers:
            check_host(headers, version, host)
        credential = sent_credential(headers, headers.take_keys() if headers.again else ())
        hints = hints_of(headers)
        head = RequestHead(method, path, version, headers, keep_alive, query, credential, hints)
        exchange = Exchange(self, head, keep_alive)
        self._incoming = exchange
        if self._current is None and self.full is None:
            self._begin_exchange(exchange)
        else:
            self._pending.append(exchange)
            self._pause_reading()

    def on_body(self, body: bytes) -> None:
        self._continue_pending = False  # to be asked: it comes
        if self._incoming is not None:
            self._incoming.feed(body)

    def on_message_complete(self) -> None:
        exchange, self._incoming = self._incoming, None
        self._url, self._headers = b"", Headers()  # the next one's
        if exchange is None:
            return
        exchange.feed_end()
        if exchange.ended:
            self._deadline = _NO_DEADLINE  # it lingers no more
            self._finish_exchange(exchange)

    def expire(self, now: float) -> None:
        """Close the connection if what is awaited from the client is overdue."""
        if self._deadline == _NO_DEADLINE and self._current is None:
            self._deadline = now + self._server.limits.keep_alive_seconds
        if now <= self._deadline:
            return
        if self.full is not None:
            self.abort()  # the client stopped reading
        else:
            self._close_transport()

    def close_when_idle(self) -> None:
        """Close now, or after the request that is being answered."""
        self._closing = True
        if self._current is None and self._incoming is None:
            self._close_transport()

    def abort(self) -> None:
        """Close at once; buffered data is lost."""
        self._mark_closed()
        self._transport.abort()

    def _parse_bytes(self, data: bytes) -> None:
        headers, self._read_bytes = self._headers, len(data)
        while True:
            try:
                self._parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                # Not taken up. With an offer the parser takes no body, behind the last nothing.
                if self._head_without_upgrade:
                    self._parser = httptools.HttpRequestParser(self)
                    data = self._head_without_upgrade + data[upgrade.args[0] :]
                    self._head_without_upgrade = b""
                    continue
                self._read_closed = True  # it is a tunnel that was asked for
            except httptools.HttpParserError as error:
                ours = error.__context__  # raised by what the parser called
                self._refuse_connection(ours if isinstance(ours, ServiceError) else invalid_http())
            break
        exchange = self._incoming
        if exchange is not None:
            if exchange.ended:
                self._linger_until_read()
            elif exchange.unread > _MAX_UNREAD:
                self._pause_reading()
        elif self._headers is headers:
            self._limit_head(len(data))
        elif self._url:
            self._limit_head(len(self._url))  # which began behind a whole request

    def _learn_head(self, digest: bytes, length: int) -> None:
        self._unknown_heads += 1
        exchange, again = self._current, digest == self._last_digest
        if again and exchange is not None and exchange.unread == length and not self._pending:
            self._server.heads.learn(digest, exchange.head)
        self._last_digest = digest

    def _begin_exchange(self, exchange: Exchange) -> None:
        self._current = exchange
        self._server.workers.begin(exchange)

    def _finish_exchange(self, exchange: Exchange) -> None:
        self._current = None
        last = self._half_closed and not self._pending
        if self._closing or last or not exchange.keep_alive:
            self._close_transport()
        elif self._pending:
            self._begin_pending_exchange()

    def _begin_pending_exchange(self) -> None:
        if self._pending and self._current is None and self.full is None and not self._closed:
            self._begin_exchange(self._pending.popleft())
            self.read_on()

    def _probe_half_closed(self, seconds: float) -> None:
        # A client that closed completely answers data by a reset; one that still reads does not.
        if self._closed:
            return
        handle = self._transport.get_extra_info("socket")
        if handle is not None and handle.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self.abort()
            return
        if self._current is not None:
            self._current.probe()
        later = min(2 * seconds, _LAST_LOOK_SECONDS)
        self._server.loop.call_later(seconds, self._probe_half_closed, later)

    def _limit_head(self, length: int) -> None:
        if self._closed:
            return
        limits = self._server.limits
        if not self._head_bytes and self._current is None and self.full is None:
            self._deadline = self._server.loop.time() + limits.head_seconds
        self._head_bytes += length
        if self._head_bytes > limits.max_head_bytes:
            self._refuse_connection(self._head_too_large())

    def _head_too_large(self) -> InvalidRequest:
        return InvalidRequest(
            f"The request's head is larger than {self._server.limits.max_head_bytes} bytes.",
            code="head_too_large",
            status=431,
        )

    def _linger_until_read(self) -> None:
        # Closing while the client sends would reset the connection before it reads the response.
        self._deadline = min(self._server.loop.time() + _LINGER_SECONDS, self._linger_deadline)

    def _pause_reading(self) -> None:
        if not self._read_paused:
            self._read_paused = True
            self._transport.pause_reading()

    def _close_transport(self) -> None:
        self._mark_closed()
        self._transport.close()

    def _mark_closed(self) -> None:
        self._server.traffic.flush()
        self._closed = self._read_closed = self._closing = True

    def _refuse_connection(self, failure: ServiceError) -> None:
        if self._closed:
            return
        broken, self._incoming = self._incoming, None
        if broken is not None and broken is self._current:
            if broken.status is None:
                broken.keep_alive = False
                broken.refuse(failure)
            self._close_transport()
            return
        if broken is not None:
            self._pending.pop()  # what was whole before it is answered
        last = self._pending[-1] if self._pending else self._current
        if last is not None:
            last.keep_alive = False
            self._read_closed = True
            return
        exchange = self._current = Exchange(self, RequestHead("GET", ""), keep_alive=False)
        exchange.feed_end()
        exchange.refuse(failure)


class Connections:
    """All connections of one server."""

    def __init__(self, handler: Handler, limits: Listen) -> None:
        self.workers = Workers(handler)
        self.limits = limits
        self.heads = RequestHeads()
        self.open: set[Connection] = set()
        self.leaving = False  # whether each connection closes with its next response
        self.closing = False
        self._none_open = asyncio.Event()
        self.loop = asyncio.get_running_loop()
        self.traffic = traffic()

    def __call__(self) -> Connection:
        return Connection(self)

    def sweep(self) -> None:
        now = self.loop.time()
        for connection in tuple(self.open):
            connection.expire(now)

    def close(self) -> None:
        """Refuse further requests on all connections."""
        self.closing = True
        for connection in tuple(self.open):
            connection.close_when_idle()

    async def closed(self) -> None:
        """Return when every request was answered and no connection is open."""
        await self.workers.ended()
        while self.open:
            self._none_open.clear()
            await self._none_open.wait()

    def forget(self, connection: Connection) -> None:
        self.open.discard(connection)
        if not self.open:
            self._none_open.set()

    def abort(self) -> None:
        for connection in tuple(self.open):
            connection.abort()
