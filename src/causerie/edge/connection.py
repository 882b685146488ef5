"""One client connection: HTTP/1.1 in, exchanges out, with bounds on what it may cost.

Bytes are parsed by httptools; requests that come one after the other are
answered in their order. A head that is too large or comes too slowly, a
connection that stays idle, and a client that stops reading each end; what is
not HTTP gets the same kind of error as everything else.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from typing import TYPE_CHECKING, cast

import httptools

from causerie.access.credential import sent_credential
from causerie.edge.errors import head_too_large, invalid_http
from causerie.edge.exchange import Exchange
from causerie.edge.head import RequestHead, check_codings, check_host, cut, declined, size
from causerie.edge.headers import NAMES, Headers
from causerie.edge.url_cache import url_cache
from causerie.errors import Overloaded, ServiceError
from causerie.runtime.traffic import without_delay

if TYPE_CHECKING:
    from causerie.edge.connections import Connections

_MAX_UNREAD = 256 * 1024  # bytes of a body that wait for a handler
_LINGER_SECONDS = 5.0  # for the next piece of a body that nobody wants
_LINGER_SECONDS_IN_ALL = 30.0
_MAX_STRANGE = 8  # heads of a connection, one after the other, until none is looked for
_FIRST_LOOK_SECONDS = 0.005  # after a client that sends no more; each later one twice as long
_LAST_LOOK_SECONDS = 0.035  # two of them are less than the time to notice that it has left
_NEVER = float("inf")
_KEEPING = frozenset({"connection", "proxy-connection"})  # headers that ask to be kept
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class Connection(asyncio.Protocol):
    """The protocol of one connection. ``full`` and ``closes`` are what exchanges ask."""

    _transport: asyncio.Transport

    def __init__(self, server: Connections) -> None:
        self._server = server
        self._parser = httptools.HttpRequestParser(self)
        self._url = b""
        self._headers = Headers()  # of the head that arrives
        self._head_bytes = 0  # of what came before its end
        self._came = 0  # bytes of what is being read
        self._strange = 0  # heads since one that had come before
        self._unknown = b""  # the digest of the last
        self._expects = False
        self._declined = b""  # a head as it is without its offer to speak something else
        self._incoming: Exchange | None = None  # whose body is arriving
        self._current: Exchange | None = None  # which is being answered
        self._waiting: deque[Exchange] = deque()
        self._paused = False
        self._deaf = False  # nothing more is read
        self._over = False  # nothing more is read or answered
        self._half_closed = False  # the client sends nothing more; whether it reads is watched
        self._deadline = _NEVER
        self._linger_end = _NEVER
        self._closing = server.closing
        self.full: asyncio.Future[None] | None = None

    # Called by exchanges.

    def closes(self) -> bool:
        """Return whether the connection ends with the next response.

        It does where a client is answered that has not been asked for its body: will it come?
        """
        return (
            self._closing
            or self._server.leaving
            or (self._half_closed and not self._waiting)
            or (self._expects and self._incoming is self._current)
        )

    @property
    def peer(self) -> str:
        name = None if self._over else self._transport.get_extra_info("peername")
        return str(name[0]) if isinstance(name, tuple) else ""

    def write(self, data: bytes) -> bool:
        if not self._over:
            self._server.traffic.send(self._transport, data)
        return self.full is None

    def finish(self, exchange: Exchange, data: bytes | memoryview) -> None:
        if self._over:
            return
        self._server.traffic.send(self._transport, data)
        if exchange.complete:
            self._next(exchange)
        else:  # Closing now would throw away the answer: the rest of the request is read first.
            self._expects = False
            self._linger_end = self._server.loop.time() + _LINGER_SECONDS_IN_ALL
            self._linger()
            self.read_on()

    def read_on(self) -> None:
        if self._over:
            return
        if self._paused:
            self._paused = False
            self._transport.resume_reading()
        if self._expects:
            self._expects = False
            self._server.traffic.send(self._transport, _CONTINUE)

    # Called by the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        without_delay(transport)
        self._server.open.add(self)
        self._deadline = self._server.loop.time() + self._server.bounds.head_seconds
        if len(self._server.open) > self._server.bounds.max_connections:
            self._refuse(Overloaded("Too many connections are open; please try again."))

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        del self._parser  # which holds this connection
        self._server.forget(self)
        self._end()
        self.resume_writing()
        for exchange in (self._current, self._incoming, *self._waiting):
            if exchange is not None:
                exchange.leave()
        self._waiting.clear()

    def eof_received(self) -> bool:
        """Keep the connection where a whole request waits for its answer.

        A client that has closed looks the same until something is sent to it.
        """
        if self._half_closed:
            return True
        current, broken = self._current, self._incoming
        if broken is not None and broken is not current:
            self._incoming = None
            self._waiting.pop()
        if current is not None and (current.ended or not current.complete):
            current = None
        if self._over or (current is None and not self._waiting):
            self._end()
            return False  # the transport closes
        self._deaf = self._half_closed = True
        self._look_after(_FIRST_LOOK_SECONDS)
        return True

    def data_received(self, data: bytes) -> None:
        self._server.traffic.came()
        if self._deaf:
            return
        busy = self._current is not None or self.full is not None or self._head_bytes
        if busy or self._strange >= _MAX_STRANGE:
            self._parse(data)
            return
        digest, body = cut(data)
        head = self._server.heads.get(digest)
        if head is not None:
            self._come_again(head, body)
        else:
            self._parse(data)
            if digest:
                self._get_to_know(digest, len(body))

    def pause_writing(self) -> None:
        self.full = self._server.loop.create_future()
        self._deadline = self._server.loop.time() + self._server.bounds.stuck_seconds

    def resume_writing(self) -> None:
        if self.full is not None:
            self.full.set_result(None)
            self.full = None
            self._deadline = _NEVER
            self._go_on()

    # Called by the parser.

    def on_url(self, url: bytes) -> None:
        self._url = self._url + url if self._url else url

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._incoming is not None:
            return  # it comes behind the body: of what nobody asks for there is no end
        key = NAMES[name]
        if key in self._headers:
            self._headers.add_again(key, value.decode("latin-1"))
        else:
            self._headers[key] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        parser, headers, most = self._parser, self._headers, self._server.bounds.max_head_bytes
        if (self._head_bytes or self._came > most) and size(self._url, headers) > most:
            raise head_too_large(most)
        self._head_bytes = 0
        if self.full is None:
            self._deadline = _NEVER
        if "upgrade" in headers and parser.should_upgrade():
            self._declined = declined(parser, self._url, headers)
            return
        self._expects = "expect" in headers and headers["expect"].lower() == "100-continue"
        if "transfer-encoding" in headers:
            check_codings(headers, parser.get_http_version())
        path, query, host = url_cache[self._url]
        method = parser.get_method().decode("ascii")
        keep_alive = parser.should_keep_alive() and not parser.should_upgrade()
        # Kept alive without having asked means 1.1; the parser would make a text of its numbers.
        unasked = keep_alive and _KEEPING.isdisjoint(headers)
        version = "1.1" if unasked else parser.get_http_version()
        if host is not None or headers.again or "host" not in headers:
            check_host(headers, version, host)
        credential = sent_credential(headers, headers.take_keys() if headers.again else ())
        head = RequestHead(method, path, version, headers, keep_alive, query, credential)
        exchange = Exchange(self, head)
        self._incoming = exchange
        if self._current is None and self.full is None:
            self._begin(exchange)
        else:
            self._waiting.append(exchange)
            self._pause()

    def on_body(self, body: bytes) -> None:
        self._expects = False  # to be asked: it comes
        if self._incoming is not None:
            self._incoming.feed(body)

    def on_message_complete(self) -> None:
        exchange, self._incoming = self._incoming, None
        self._url, self._headers = b"", Headers()  # the next one's
        if exchange is None:
            return
        exchange.feed_end()
        if exchange.ended:
            self._deadline = _NEVER  # it lingers no more
            self._next(exchange)

    # Time.

    def expire(self, now: float) -> None:
        """Close where the time for what is awaited is over."""
        if self._deadline == _NEVER and self._current is None:
            self._deadline = now + self._server.bounds.idle_seconds
        if now <= self._deadline:
            return
        if self.full is not None:
            self.abort()  # the client stopped reading
        else:
            self._close()

    def close_when_idle(self) -> None:
        """Close unless a request is being answered, and after it."""
        self._closing = True
        if self._current is None and self._incoming is None:
            self._close()

    def abort(self) -> None:
        """Close at once; what is buffered is lost."""
        self._end()
        self._transport.abort()

    # Steps.

    def _parse(self, data: bytes) -> None:
        """Bytes of requests, of one or of several, whole or not."""
        headers, self._came = self._headers, len(data)
        while True:
            try:
                self._parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                # Not taken up. With an offer the parser takes no body, behind the last nothing.
                if self._declined:
                    self._parser = httptools.HttpRequestParser(self)
                    data, self._declined = self._declined + data[upgrade.args[0] :], b""
                    continue
                self._deaf = True  # it is a tunnel that was asked for
            except httptools.HttpParserError as error:
                ours = error.__context__  # raised by what the parser called
                self._refuse(ours if isinstance(ours, ServiceError) else invalid_http())
            break
        if self._incoming is not None:
            self._bound_body(self._incoming)
        elif self._headers is headers:
            self._bound_head(len(data))
        elif self._url:
            self._bound_head(len(self._url))  # which began behind a whole request

    def _come_again(self, head: RequestHead, body: bytes) -> None:
        """A whole request, whose head needs no parser."""
        self._strange = 0
        self._deadline = _NEVER
        self._begin(Exchange(self, head, complete=True, unread=len(body), _body=[body]))

    def _get_to_know(self, digest: bytes, length: int) -> None:
        """From the second time on, know by its digest what was one request with such a body."""
        self._strange += 1
        found, again = self._current, digest == self._unknown
        if again and found is not None and found.unread == length and not self._waiting:
            self._server.heads.learn(digest, found.head)
        self._unknown = digest

    def _begin(self, exchange: Exchange) -> None:
        self._current = exchange
        self._server.workers.begin(exchange)

    def _next(self, exchange: Exchange) -> None:
        """Go on after an exchange whose request was read and whose response was sent."""
        self._current = None
        last = self._half_closed and not self._waiting
        if self._closing or last or not exchange.keep_alive:
            self._close()
        elif self._waiting:
            self._go_on()

    def _go_on(self) -> None:
        """Begin what waits, if nothing is before it: no answer, and none that nobody reads."""
        if self._waiting and self._current is None and self.full is None and not self._over:
            self._begin(self._waiting.popleft())
            self.read_on()

    def _look_after(self, seconds: float) -> None:
        """Close once a client that sends no more has answered by a reset: then it reads no more."""
        if self._over:
            return
        handle = self._transport.get_extra_info("socket")
        if handle is not None and handle.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self.abort()
            return
        if self._current is not None:
            self._current.probe()
        later = min(2 * seconds, _LAST_LOOK_SECONDS)
        self._server.loop.call_later(seconds, self._look_after, later)

    def _bound_head(self, came: int) -> None:
        """Give a head time while it arrives, and no more space than it may have."""
        if self._over:
            return
        bounds = self._server.bounds
        if not self._head_bytes and self._current is None and self.full is None:
            self._deadline = self._server.loop.time() + bounds.head_seconds
        self._head_bytes += came
        if self._head_bytes > bounds.max_head_bytes:
            self._refuse(head_too_large(bounds.max_head_bytes))

    def _bound_body(self, exchange: Exchange) -> None:
        """Read a body no faster than it is taken, nor for long where nobody wants it."""
        if exchange.ended:
            self._linger()
        elif exchange.unread > _MAX_UNREAD:
            self._pause()

    def _linger(self) -> None:
        """Give a client that is still sending time to come to the answer it has been sent."""
        self._deadline = min(self._server.loop.time() + _LINGER_SECONDS, self._linger_end)

    def _pause(self) -> None:
        if not self._paused:
            self._paused = True
            self._transport.pause_reading()

    def _close(self) -> None:
        self._end()
        self._transport.close()

    def _end(self) -> None:
        self._server.traffic.flush()
        self._over = self._deaf = self._closing = True

    def _refuse(self, failure: ServiceError) -> None:
        """Answer what never became a request, and close; or close behind the requests before it."""
        if self._over:
            return
        broken, self._incoming = self._incoming, None
        if broken is not None and broken is self._current:
            if broken.status is None:
                broken.keep_alive = False
                broken.refuse(failure)
            self._close()
            return
        if broken is not None:
            self._waiting.pop()  # what was whole before it is answered
        last = self._waiting[-1] if self._waiting else self._current
        if last is not None:
            last.keep_alive = False
            self._deaf = True
            return
        exchange = self._current = Exchange(self, RequestHead("GET", "", keep_alive=False))
        exchange.feed_end()
        exchange.refuse(failure)
