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
    """The server's side of one client connection.

    Pipelined requests are answered in their order. The connection ends when a head is too large or
    too slow, when it stays idle, or when the client stops reading.
    """

    _transport: asyncio.Transport

    def __init__(self, server: Connections) -> None:
        self._server = server
        self._write_batcher = server.traffic
        self._parser = httptools.HttpRequestParser(self)

        # Timeouts, on the clock of the loop
        self._deadline = _NO_DEADLINE  # of what is awaited from the client now
        self._unwanted_body_deadline = _NO_DEADLINE  # of a body that nobody wants

        # Per connection
        self.peer = ""  # IP address of the other side of the connection, or empty
        self.full: asyncio.Future[None] | None = None  # done when the client reads again
        self._is_reading_paused = False
        self._is_input_ignored = False  # further input is ignored
        self._is_half_closed = False  # the client has closed its side, and may still read
        self._is_closing = server.closing  # after the current response
        self._is_closed = False
        self._unknown_head_count = 0  # in a row
        self._last_unknown_digest = b""  # of the last unknown head
        self._pipeline: deque[Exchange] = deque()  # pipelined requests

        # Per request that is being read
        self._url = b""
        self._headers = Headers()
        self._incomplete_head_size = 0  # of an incomplete head, before this read
        self._has_message_begun = False  # whether the parser is inside a request
        self._current_read_size = 0  # of this read
        self._head_without_upgrade = b""
        self._expects_continue = False  # the client waits for an interim response
        self._incoming_exchange: Exchange | None = None

        # Per response
        self._exchange: Exchange | None = None

    def closes(self) -> bool:
        """Return whether the connection ends with the next response.

        It also does if the client waits to be asked for its body, which may come or not.
        """
        return (
            self._is_closing
            or self._server.leaving
            or (self._is_half_closed and not self._pipeline)
            or (self._expects_continue and self._incoming_exchange is self._exchange)
        )

    def write(self, data: bytes) -> bool:
        if not self._is_closed:
            self._write_batcher.send(self._transport, data)
        return self.full is None

    def finish(self, exchange: Exchange, data: bytes | memoryview) -> None:
        if self._is_closed:
            return
        self._write_batcher.send(self._transport, data)
        if exchange.complete:
            self._finish_exchange(exchange)
        else:  # Closing now would throw away the answer: the rest of the request is read first.
            self._expects_continue = False
            self._unwanted_body_deadline = self._server.loop.time() + _LINGER_SECONDS_IN_ALL
            self._set_linger_timeout()
            self.read_on()

    def read_on(self) -> None:
        if self._is_closed:
            return
        if self._is_reading_paused:
            self._is_reading_paused = False
            self._transport.resume_reading()
        if self._expects_continue:
            self._expects_continue = False
            self._write_batcher.send(self._transport, b"HTTP/1.1 100 Continue\r\n\r\n")

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        name = transport.get_extra_info("peername")
        self.peer = str(name[0]) if isinstance(name, tuple) else ""
        without_delay(transport)
        self._server.open.add(self)
        self._deadline = self._server.loop.time() + self._server.limits.head_seconds
        if len(self._server.open) > self._server.limits.max_connections:
            self._refuse_and_close(Overloaded("Too many connections are open; please try again."))

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        del self._parser  # which holds this connection
        self._server.forget(self)
        self._flush_and_mark_closed()
        self.resume_writing()
        for exchange in (self._exchange, self._incoming_exchange, *self._pipeline):
            if exchange is not None:
                exchange.leave()
        self._pipeline.clear()

    def eof_received(self) -> bool:
        """Return whether to keep the connection, as a complete request waits for its answer."""
        if self._is_half_closed:
            return True
        current, broken = self._exchange, self._incoming_exchange
        if broken is not None and broken is not current:
            self._incoming_exchange = None
            self._pipeline.pop()
        if current is not None and (current.ended or not current.complete):
            current = None
        if self._is_closed or (current is None and not self._pipeline):
            self._flush_and_mark_closed()
            return False  # the transport closes
        self._is_input_ignored = self._is_half_closed = True
        self._probe_half_closed_repeatedly(_FIRST_LOOK_SECONDS)
        return True

    def data_received(self, data: bytes) -> None:
        self._write_batcher.came()
        if self._is_input_ignored:
            return
        busy = self._exchange is not None or self.full is not None or self._incomplete_head_size
        if busy or self._unknown_head_count >= _MAX_UNKNOWN_HEADS:
            self._parse_bytes(data)
            return
        digest, body = cut_head(data)
        head = self._server.heads.get(digest)
        if head is not None:
            self._unknown_head_count = 0
            self._deadline = _NO_DEADLINE
            self._exchange = exchange = Exchange(
                self, head, head.keep_alive, complete=True, unread=len(body), _unread_pieces=[body]
            )
            self._server.workers.begin(exchange)
        else:
            self._parse_bytes(data)
            if digest:
                self._remember_repeated_head(digest, len(body))

    def pause_writing(self) -> None:
        self.full = self._server.loop.create_future()
        self._deadline = self._server.loop.time() + self._server.limits.stuck_seconds

    def resume_writing(self) -> None:
        if self.full is not None:
            self.full.set_result(None)
            self.full = None
            self._deadline = _NO_DEADLINE
            self._begin_pending_exchange()

    def on_message_begin(self) -> None:
        self._has_message_begun = True

    def on_url(self, url: bytes) -> None:
        self._url = self._url + url if self._url else url

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._incoming_exchange is not None:
            return  # it comes behind the body: of what nobody asks for there is no end
        key = name.decode("latin-1").lower()
        if key in self._headers:
            self._headers.add_again(key, value.decode("latin-1"))
        else:
            self._headers[key] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        parser, headers, most = self._parser, self._headers, self._server.limits.max_head_bytes
        if (self._incomplete_head_size or self._current_read_size > most) and head_size(
            self._url, headers
        ) > most:
            raise self._build_head_size_error()
        self._incomplete_head_size = 0
        if self.full is None:
            self._deadline = _NO_DEADLINE
        if "upgrade" in headers and parser.should_upgrade():
            self._head_without_upgrade = without_upgrade(parser, self._url, headers)
            return
        self._expects_continue = "expect" in headers and headers["expect"].lower() == "100-continue"
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
        self._incoming_exchange = exchange
        if self._exchange is None and self.full is None:
            self._begin_exchange(exchange)
        else:
            self._pipeline.append(exchange)
            self._pause_reading()

    def on_body(self, body: bytes) -> None:
        self._expects_continue = False  # to be asked: it comes
        if self._incoming_exchange is not None:
            self._incoming_exchange.feed(body)

    def on_message_complete(self) -> None:
        exchange, self._incoming_exchange = self._incoming_exchange, None
        self._url, self._headers = b"", Headers()  # the next one's
        self._has_message_begun = False
        if exchange is None:
            return
        exchange.feed_end()
        if exchange.ended:
            self._deadline = _NO_DEADLINE  # it lingers no more
            self._finish_exchange(exchange)

    def expire(self, now: float) -> None:
        """Close the connection if what is awaited from the client is overdue."""
        if self._deadline == _NO_DEADLINE and self._exchange is None:
            self._deadline = now + self._server.limits.keep_alive_seconds
        if now <= self._deadline:
            return
        if self.full is not None:
            self.abort()  # the client stopped reading
        else:
            self._close_transport()

    def close_when_idle(self) -> None:
        """Close the connection now, or after the request that is being answered."""
        self._is_closing = True
        if self._exchange is None and self._incoming_exchange is None:
            self._close_transport()

    def abort(self) -> None:
        """Close the connection at once; buffered data is lost."""
        self._flush_and_mark_closed()
        self._transport.abort()

    def _parse_bytes(self, data: bytes) -> None:
        headers, self._current_read_size = self._headers, len(data)
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
                self._is_input_ignored = True  # it is a tunnel that was asked for
            except httptools.HttpParserError as error:
                ours = error.__context__  # raised by what the parser called
                self._refuse_and_close(ours if isinstance(ours, ServiceError) else invalid_http())
            break
        exchange = self._incoming_exchange
        if exchange is not None:
            if exchange.ended:
                self._set_linger_timeout()
            elif exchange.unread > _MAX_UNREAD:
                self._pause_reading()
        elif self._headers is headers:
            self._limit_head_bytes(len(data))
        elif self._has_message_begun:  # behind a whole request: a method may have no URL yet
            self._limit_head_bytes(len(self._url) + 1)

    def _remember_repeated_head(self, digest: bytes, body_length: int) -> None:
        self._unknown_head_count += 1
        exchange, again = self._exchange, digest == self._last_unknown_digest
        if again and exchange is not None and exchange.unread == body_length and not self._pipeline:
            self._server.heads.learn(digest, exchange.head)
        self._last_unknown_digest = digest

    def _begin_exchange(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._server.workers.begin(exchange)

    def _finish_exchange(self, exchange: Exchange) -> None:
        self._exchange = None
        last = self._is_half_closed and not self._pipeline
        if self._is_closing or last or not exchange.keep_alive:
            self._close_transport()
        elif self._pipeline:
            self._begin_pending_exchange()

    def _begin_pending_exchange(self) -> None:
        if self._pipeline and self._exchange is None and self.full is None and not self._is_closed:
            self._begin_exchange(self._pipeline.popleft())
            self.read_on()

    def _probe_half_closed_repeatedly(self, next_delay_seconds: float) -> None:
        # A client that closed completely answers data by a reset; one that still reads does not.
        if self._is_closed:
            return
        handle = self._transport.get_extra_info("socket")
        if handle is not None and handle.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self.abort()
            return
        if self._exchange is not None:
            self._exchange.probe()
        later = min(2 * next_delay_seconds, _LAST_LOOK_SECONDS)
        self._server.loop.call_later(next_delay_seconds, self._probe_half_closed_repeatedly, later)

    def _limit_head_bytes(self, added_bytes: int) -> None:
        if self._is_closed:
            return
        limits = self._server.limits
        if not self._incomplete_head_size and self._exchange is None and self.full is None:
            self._deadline = self._server.loop.time() + limits.head_seconds
        self._incomplete_head_size += added_bytes
        if self._incomplete_head_size > limits.max_head_bytes:
            self._refuse_and_close(self._build_head_size_error())

    def _build_head_size_error(self) -> InvalidRequest:
        return InvalidRequest(
            f"The request's head is larger than {self._server.limits.max_head_bytes} bytes.",
            code="head_too_large",
            status=431,
        )

    def _set_linger_timeout(self) -> None:
        # Closing while the client sends would reset the connection before it reads the response.
        self._deadline = min(
            self._server.loop.time() + _LINGER_SECONDS, self._unwanted_body_deadline
        )

    def _pause_reading(self) -> None:
        if not self._is_reading_paused:
            self._is_reading_paused = True
            self._transport.pause_reading()

    def _close_transport(self) -> None:
        self._flush_and_mark_closed()
        self._transport.close()

    def _flush_and_mark_closed(self) -> None:
        self._server.traffic.flush()
        self._is_closed = self._is_input_ignored = self._is_closing = True

    def _refuse_and_close(self, failure: ServiceError) -> None:
        if self._is_closed:
            return
        broken, self._incoming_exchange = self._incoming_exchange, None
        if broken is not None and broken is self._exchange:
            if broken.status is None:
                broken.keep_alive = False
                broken.refuse(failure)
            self._close_transport()
            return
        if broken is not None:
            self._pipeline.pop()  # what was whole before it is answered
        last = self._pipeline[-1] if self._pipeline else self._exchange
        if last is not None:
            last.keep_alive = False
            self._is_input_ignored = True
            return
        exchange = self._exchange = Exchange(self, RequestHead("GET", ""), keep_alive=False)
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
        self._all_closed_event = asyncio.Event()
        self.loop = asyncio.get_running_loop()
        self.traffic = traffic()

    def __call__(self) -> Connection:
        return Connection(self)

    def sweep(self) -> None:
        now = self.loop.time()
        for connection in tuple(self.open):
            connection.expire(now)

    def close(self) -> None:
        """Close all connections, each after the request that is being answered."""
        self.closing = True
        for connection in tuple(self.open):
            connection.close_when_idle()

    async def closed(self) -> None:
        """Return when every request was answered and no connection is open."""
        await self.workers.ended()
        while self.open:
            self._all_closed_event.clear()
            await self._all_closed_event.wait()

    def forget(self, connection: Connection) -> None:
        self.open.discard(connection)
        if not self.open:
            self._all_closed_event.set()

    def abort(self) -> None:
        for connection in tuple(self.open):
            connection.abort()
