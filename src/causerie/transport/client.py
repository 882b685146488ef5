"""The HTTP client: requests to one base URL over connections that are kept.

Redirects are not followed and no compression is asked for. Of time limits only
that of connecting is held here; the others belong to whoever waits.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from time import monotonic

from causerie.runtime.public_addresses import Network
from causerie.transport.address import Address
from causerie.transport.connection import ClientConnection
from causerie.transport.dialing import DialOptions, dial, dial_socket
from causerie.transport.errors import Stale, TransportFailed
from causerie.transport.response import HttpResponse

_WATCH_SECONDS = 0.25
_NEVER = float("inf")

Asked = Callable[[HttpResponse], None]
"""Who is told that a request has been handed to its connection."""


@dataclass(frozen=True, slots=True)
class Reach:
    """Options of the connections to an address."""

    tls: ssl.SSLContext | None = None
    """``None``: trust the certificates that the system trusts."""
    server_name: str | None = None
    """Name that the certificate must have, if it is not the host's."""
    host: str | None = None
    """IP address that is dialled in place of the host; requests and certificates keep its name."""
    proxy: str | None = field(default=None, repr=False)
    """Address of an HTTP proxy."""
    connect_seconds: float = 5.0
    max_connections: int = 1024
    """Limit on open connections; further requests wait for one."""
    idle_seconds: float = 30.0
    """Idle connections are closed after this time; with 0 after every response."""
    networks: Sequence[Network] | None = None
    """Networks that may be dialled apart from public addresses; ``None``: any address."""
    socket: str | None = None
    """Path of the server's Unix socket; nothing is sent to host and port of the address then."""


class HttpClient:
    """Requests to one server. Raises :class:`ValueError` for a base URL that is none."""

    def __init__(self, base_url: str, reach: Reach = Reach()) -> None:
        self.address = Address.parse(base_url)
        self._reach = reach
        self._proxy = Address.parse(reach.proxy) if reach.proxy is not None else None
        self._dial_options = DialOptions(self._proxy, reach.networks)
        self._tls = reach.tls
        if self.address.tls and self._tls is None:
            self._tls = ssl.create_default_context()
        self._open: set[ClientConnection] = set()
        self._dialing = 0
        self._idle: deque[ClientConnection] = deque()
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False
        self._keeps = reach.idle_seconds > 0
        self._now = 0.0  # when it was last watched, on the monotonic clock
        self._fixed = self._fixed_lines()

    async def send(
        self,
        method: str,
        path: str,
        headers: Sequence[tuple[str, str]] = (),
        body: bytes = b"",
        *,
        due: float = _NEVER,
    ) -> HttpResponse:
        """Send a request; returns when the head of the response is there.

        ``path`` follows the path of the base URL. ``due`` is when the
        response must be complete, on the monotonic clock and to a quarter of a
        second. Raises :class:`TransportFailed`. A kept connection that the server
        has closed meanwhile is replaced by a new one, once.
        """
        head, given = self.head(method, path, headers), body if body or method == "POST" else None
        try:
            return await self.send_body(head, given, due)
        except Stale:
            return await self.send_body(head, given, due, anew=True)

    async def send_body(
        self,
        head: bytes,
        body: bytes | None,
        due: float = _NEVER,
        *,
        anew: bool = False,
        asked: Asked | None = None,
    ) -> HttpResponse:
        """As :meth:`send`, with what :meth:`head` has made before; ``anew``: on a new connection.

        The body is not kept until there is an answer, so that :class:`Stale` is for the caller to
        handle. ``asked`` gets the response once the request is on its way.
        """
        if anew:
            connection = await self._dialled()
        else:
            connection = self._idle.pop() if self._idle else await self._connection(due)
        if body is None:
            request = head + b"\r\n"
        else:
            request = b"%bcontent-length: %d\r\n\r\n%b" % (head, len(body), body)
        response = connection.ask(request, due)
        del request, body
        if asked is not None:
            asked(response)
        try:
            await response.head
        except TransportFailed as failure:
            if connection.idle_since and failure.kind in ("closed", "reset"):
                raise Stale(failure.kind, str(failure), sent=failure.sent) from failure
            raise
        except asyncio.CancelledError:
            try:
                response.unsent = await connection.unsent()
            finally:
                response.close()
            raise
        return response

    async def close(self) -> None:
        """Close every connection; responses under way break."""
        self._closed = True
        self._keeps = False
        if self._timer is not None:
            self._timer.cancel()
        for connection in tuple(self._open):
            connection.drop()
        self._idle.clear()
        await asyncio.sleep(0)  # the transports tell their protocols

    def retire(self) -> None:
        """Keep no connection from now on: idle ones are closed, others after their response."""
        self._keeps = False
        while self._idle:
            self._idle.popleft().close()

    @property
    def open_connections(self) -> int:
        """Connections that are open now, idle ones too."""
        return len(self._open)

    def _watch(self) -> None:
        """One timer for all that is due or idle: one a request would cost more than the request."""
        now = self._now = monotonic()
        due = [connection.expire(now) for connection in tuple(self._open)]
        oldest = now - self._reach.idle_seconds
        while self._idle and self._idle[0].idle_since <= oldest:
            self._idle.popleft().close()
        watched = any(due) or (self._keeps and self._open)
        self._timer = None
        if watched:
            self._timer = asyncio.get_running_loop().call_later(_WATCH_SECONDS, self._watch)

    # Called by connections.

    def idle(self, connection: ClientConnection) -> None:
        if not self._keeps:
            connection.close()
            return
        connection.idle_since = self._now
        self._idle.append(connection)
        if self._waiting:
            self._call_next()

    def gone(self, connection: ClientConnection) -> None:
        self._open.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)
        self._call_next()

    # Steps.

    def _kept(self) -> ClientConnection | None:
        while self._idle:
            kept = self._idle.pop()
            if not kept.closed:
                return kept
        return None

    async def _connection(self, due: float) -> ClientConnection:
        while True:
            if (kept := self._kept()) is not None:
                return kept
            if len(self._open) + self._dialing < self._reach.max_connections:
                return await self._dialled()
            await self._turn(due)

    async def _turn(self, due: float) -> None:
        """Wait until a connection may be free."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            async with asyncio.timeout(None if due == _NEVER else due - monotonic()):
                await turn
        except (TimeoutError, asyncio.CancelledError) as end:
            if turn.done() and not turn.cancelled():
                self._call_next()
            if isinstance(end, TimeoutError):
                words = f"no connection to {self.address.place} became free in time"
                raise TransportFailed("timeout", words, sent=False) from None
            raise

    async def _dialled(self) -> ClientConnection:
        if self._closed:
            raise TransportFailed("closed", "the client is closed", sent=False)
        connection = ClientConnection(self, self.address.place)
        self._dialing += 1
        try:
            await self._dial(connection)
        except BaseException:
            connection.drop()
            self._call_next()
            raise
        finally:
            self._dialing -= 1
        self._open.add(connection)
        if self._timer is None:
            self._now = monotonic()
            self._timer = connection.loop.call_later(_WATCH_SECONDS, self._watch)
        return connection

    async def _dial(self, connection: ClientConnection) -> None:
        reach = self._reach
        if reach.socket is not None:
            place = self.address.place
            await dial_socket(connection, reach.socket, place, reach.connect_seconds)
            return
        address = self.address
        await dial(
            connection,
            address if reach.host is None else replace(address, host=reach.host),
            tls=self._tls,
            server_name=reach.server_name or (address.host if reach.host else None),
            options=self._dial_options,
            seconds=reach.connect_seconds,
        )

    def _call_next(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return

    def _fixed_lines(self) -> str:
        lines = f"host: {self.address.authority}\r\naccept-encoding: identity\r\n"
        if self._reach.idle_seconds <= 0:
            lines += "connection: close\r\n"
        if self._proxy is not None and not self.address.tls and self._proxy.authorization:
            lines += f"proxy-authorization: {self._proxy.authorization}\r\n"
        return lines

    def head(self, method: str, path: str, headers: Sequence[tuple[str, str]]) -> bytes:
        """The head but for the body's length; good for as many requests as are to have it."""
        lines = "".join([f"{name}: {value}\r\n" for name, value in headers])
        if lines.count("\n") != len(headers) or lines.count("\r") != len(headers):
            raise ValueError("a header holds a line break")
        target = self.address.path + path
        if self._proxy is not None and not self.address.tls:
            target = f"http://{self.address.authority}{target}"
        return f"{method} {target} HTTP/1.1\r\n{self._fixed}{lines}".encode("latin-1")
