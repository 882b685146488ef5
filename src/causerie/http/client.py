"""The HTTP client: requests to one base URL over connections that are opened (names, sockets, a
proxy, TLS) and kept.

Redirects are not followed and no compression is asked for. Of time limits only that of
connecting is held here; the others belong to whoever waits.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from ipaddress import ip_address
from time import monotonic
from typing import Any, cast

from causerie.http.addresses import Address, IpNetwork, is_public
from causerie.http.client_connection import ClientConnection, HttpResponse, Stale, TransportFailed

# Opening a connection: names, sockets, a proxy on the way, TLS.

_MAX_ANSWER_BYTES = 16 * 1024
_STATUS_DIGITS = 3


@dataclass(frozen=True, slots=True)
class DialOptions:
    """Options of the way to a host."""

    proxy: Address | None = None
    networks: Sequence[IpNetwork] | None = None
    """Networks that may be dialled apart from public addresses; ``None``: any address. A proxy
    resolves names itself, so it decides in their place.
    """


async def dial(
    connection: ClientConnection,
    address: Address,
    *,
    tls: ssl.SSLContext | None,
    server_name: str | None,
    options: DialOptions,
    seconds: float,
) -> None:
    """Connect ``connection`` within ``seconds``; raises :class:`TransportFailed`."""
    proxy = options.proxy
    async with _failing_in_words(address.place, seconds):
        if proxy is not None and address.tls:
            await _through_proxy(connection, address, tls, server_name, proxy)
            return
        first = address if proxy is None else proxy
        context = tls if first.tls else None
        hosts: Sequence[str] = (first.host,)
        if proxy is None and options.networks is not None:
            hosts = await _allowed_hosts(address, options.networks)
        await _connect_to_first(
            connection,
            hosts,
            first.port,
            ssl=context or (ssl.create_default_context() if first.tls else None),
            server_hostname=(server_name or first.host) if first.tls else None,
        )


async def _connect_to_first(
    connection: ClientConnection, hosts: Sequence[str], port: int, **options: Any
) -> None:
    """Connect to the first host that accepts."""
    loop = asyncio.get_running_loop()
    for left, host in enumerate(hosts, 1 - len(hosts)):
        try:
            await loop.create_connection(lambda: connection, host, port, **options)
        except ssl.SSLError:
            raise
        except OSError:
            if not left:
                raise
        else:
            return


async def _allowed_hosts(address: Address, networks: Sequence[IpNetwork]) -> Sequence[str]:
    """Return the IP addresses of a host, all of which must be allowed.

    They are dialled as they were checked, so that no second look-up can lead elsewhere.
    """
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    hosts = list(dict.fromkeys(str(place[0]) for *_, place in found))
    for host in hosts:
        number = ip_address(host.partition("%")[0])
        if not is_public(number) and not any(number in network for network in networks):
            words = f"{address.place} leads to an address that is not public"
            raise _dial_failed("private", f"{words}, and in none of `server.private_networks`")
    return hosts


async def dial_socket(connection: ClientConnection, path: str, place: str, seconds: float) -> None:
    """Connect to a Unix socket, which is called ``place``; raises :class:`TransportFailed`."""
    async with _failing_in_words(place, seconds):
        await asyncio.get_running_loop().create_unix_connection(lambda: connection, path)


@asynccontextmanager
async def _failing_in_words(place: str, seconds: float) -> AsyncIterator[None]:
    """At most ``seconds``; what goes wrong in the words of the transport."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise _dial_failed(
            "connect_timeout", f"{place} did not answer within {seconds:g} s"
        ) from None
    except (socket.gaierror, UnicodeError) as error:
        raise _dial_failed("dns", f"the host name of {place} cannot be resolved") from error
    except ssl.SSLCertVerificationError as error:
        raise _dial_failed("tls", f"{place}: {error.verify_message}") from error
    except ssl.SSLError as error:
        raise _dial_failed("tls", f"{place} does not speak TLS as it should") from error
    except ConnectionRefusedError as error:
        raise _dial_failed("refused", f"{place} refused the connection") from error
    except OSError as error:
        reason = error.strerror or "no way there"
        raise _dial_failed("refused", f"{place} cannot be reached: {reason}") from error


def _dial_failed(kind: str, words: str) -> TransportFailed:
    return TransportFailed(kind, words, sent=False)  # type: ignore[arg-type]  # from the list above


async def _through_proxy(
    connection: ClientConnection,
    address: Address,
    tls: ssl.SSLContext | None,
    server_name: str | None,
    proxy: Address,
) -> None:
    """A tunnel through a proxy, by ``CONNECT`` (RFC 9110, 9.3.6)."""
    loop = asyncio.get_running_loop()
    answered: asyncio.Future[int] = loop.create_future()
    transport, _ = await loop.create_connection(
        lambda: _Tunnel(answered),
        proxy.host,
        proxy.port,
        ssl=ssl.create_default_context() if proxy.tls else None,
    )
    authority = f"{address.place}"
    credentials = f"proxy-authorization: {proxy.authorization}\r\n" if proxy.authorization else ""
    transport.write(
        f"CONNECT {authority} HTTP/1.1\r\nhost: {authority}\r\n{credentials}\r\n".encode("latin-1")
    )
    try:
        status = await answered
        if not 200 <= status < 300:
            raise _dial_failed("proxy", f"the proxy {proxy.place} answered {status}")
        secured = await loop.start_tls(
            transport,
            connection,
            tls or ssl.create_default_context(),
            server_hostname=server_name or address.host,
        )
    except BaseException:
        transport.abort()
        raise
    connection.connection_made(cast(asyncio.Transport, secured))


class _Tunnel(asyncio.Protocol):
    """Reads the proxy's answer."""

    def __init__(self, answered: asyncio.Future[int]) -> None:
        self._answered = answered
        self._held = b""

    def data_received(self, data: bytes) -> None:
        self._held += data
        if self._answered.done():
            return
        if b"\r\n\r\n" in self._held:
            parts = self._held.split(b" ", 2)
            valid = len(parts) > 1 and len(parts[1]) == _STATUS_DIGITS and parts[1].isdigit()
            self._answered.set_result(int(parts[1]) if valid else 0)
        elif len(self._held) > _MAX_ANSWER_BYTES:
            self._answered.set_result(0)

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        if not self._answered.done():
            self._answered.set_result(0)


# The HTTP client: requests to one base URL over connections that are kept.
#
# Redirects are not followed and no compression is asked for. Of time limits only
# that of connecting is held here; the others belong to whoever waits.

_WATCH_SECONDS = 0.25
_NEVER = float("inf")

RequestListener = Callable[[HttpResponse], None]
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
    networks: Sequence[IpNetwork] | None = None
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
        asked: RequestListener | None = None,
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
