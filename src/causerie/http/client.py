"""The HTTP client: requests to one base URL over kept connections, and how these are opened."""

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
from causerie.http.client_connection import (
    ClientConnection,
    FailureKind,
    HttpResponse,
    Stale,
    TransportFailed,
)

_MAX_PROXY_ANSWER_BYTES = 16 * 1024


async def _connect_to_first(
    connection: ClientConnection, hosts: Sequence[str], port: int, **options: Any
) -> None:
    loop = asyncio.get_running_loop()
    for host in hosts:
        try:
            await loop.create_connection(lambda: connection, host, port, **options)
            return
        except OSError as failure:
            if host == hosts[-1] or isinstance(failure, ssl.SSLError):
                raise


async def _resolve_allowed_host(address: Address, networks: Sequence[IpNetwork]) -> Sequence[str]:
    # All must be allowed; they are dialled as checked, so no second look-up leads elsewhere.
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    hosts = list(dict.fromkeys(str(place[0]) for *_, place in found))
    for host in hosts:
        number = ip_address(host.partition("%")[0])
        if not is_public(number) and not any(number in network for network in networks):
            words = f"{address.place} leads to an address that is not public"
            raise _new_dial_failure("private", f"{words}, and in none of `server.private_networks`")
    return hosts


@asynccontextmanager
async def _translate_dial_errors(place: str, timeout_seconds: float) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(timeout_seconds):
            yield
    except TimeoutError:
        raise _new_dial_failure(
            "connect_timeout", f"{place} did not answer within {timeout_seconds:g} s"
        ) from None
    except (socket.gaierror, UnicodeError) as error:
        raise _new_dial_failure("dns", f"the host name of {place} cannot be resolved") from error
    except ssl.SSLCertVerificationError as error:
        raise _new_dial_failure("tls", f"{place}: {error.verify_message}") from error
    except ssl.SSLError as error:
        raise _new_dial_failure("tls", f"{place} does not speak TLS as it should") from error
    except ConnectionRefusedError as error:
        raise _new_dial_failure("refused", f"{place} refused the connection") from error
    except OSError as error:
        reason = error.strerror or "no way there"
        raise _new_dial_failure("refused", f"{place} cannot be reached: {reason}") from error


def _new_dial_failure(kind: FailureKind, message: str) -> TransportFailed:
    return TransportFailed(kind, message, sent=False)


async def _dial_via_proxy(
    connection: ClientConnection,
    address: Address,
    tls: ssl.SSLContext | None,
    server_name: str | None,
    proxy: Address,
) -> None:
    # By CONNECT (RFC 9110, 9.3.6).
    loop = asyncio.get_running_loop()
    answer = asyncio.StreamReader(limit=_MAX_PROXY_ANSWER_BYTES)
    transport, _ = await loop.create_connection(
        lambda: asyncio.StreamReaderProtocol(answer),
        proxy.host,
        proxy.port,
        ssl=ssl.create_default_context() if proxy.tls else None,
    )
    authority = address.place
    credentials = f"proxy-authorization: {proxy.authorization}\r\n" if proxy.authorization else ""
    transport.write(
        f"CONNECT {authority} HTTP/1.1\r\nhost: {authority}\r\n{credentials}\r\n".encode("latin-1")
    )
    try:
        status = await _read_proxy_status(answer)
        if not 200 <= status < 300:
            raise _new_dial_failure("proxy", f"the proxy {proxy.place} answered {status}")
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


async def _read_proxy_status(reader: asyncio.StreamReader) -> int:
    try:
        parts = (await reader.readuntil(b"\r\n\r\n")).split(b" ", 2)
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError):
        return 0
    valid = len(parts) > 1 and len(parts[1]) == 3 and parts[1].isdigit()
    return int(parts[1]) if valid else 0


_WATCH_SECONDS = 0.25
_NEVER = float("inf")

RequestListener = Callable[[HttpResponse], None]  # called when a request is on its connection


@dataclass(frozen=True, slots=True)
class Reach:
    """Options of the connections to an address."""

    tls: ssl.SSLContext | None = None  # `None`: trust the certificates that the system trusts
    server_name: str | None = None  # name that the certificate must have, if it is not the host's
    host: str | None = None  # IP address to dial instead; requests and certificates keep the name
    proxy: str | None = field(default=None, repr=False)  # address of an HTTP proxy
    connect_seconds: float = 5.0
    max_connections: int = 1024  # limit on open connections; further requests wait for one
    idle_seconds: float = 30.0  # after which idle connections are closed; 0: after each response
    networks: Sequence[IpNetwork] | None = None
    """Allowed apart from public addresses; ``None``: any. A proxy, if any, decides instead."""
    socket: str | None = None  # path of the server's Unix socket, used in place of host and port


class HttpClient:
    """Sends requests to one server. Raises :class:`ValueError` for an invalid base URL."""

    def __init__(self, base_url: str, reach: Reach = Reach()) -> None:
        self.address = Address.parse(base_url)
        self._options = reach
        self._proxy = Address.parse(reach.proxy) if reach.proxy is not None else None
        self._tls_context = reach.tls
        if self.address.tls and self._tls_context is None:
            self._tls_context = ssl.create_default_context()
        self._open_connections: set[ClientConnection] = set()
        self._dialing_count = 0
        self._idle_connections: deque[ClientConnection] = deque()
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._expiry_timer: asyncio.TimerHandle | None = None
        self._is_closed = False
        self._reuses_connections = reach.idle_seconds > 0
        self._coarse_clock_time = 0.0  # when it was last watched, on the monotonic clock
        self._fixed_header_text = f"host: {self.address.authority}\r\naccept-encoding: identity\r\n"
        if reach.idle_seconds <= 0:
            self._fixed_header_text += "connection: close\r\n"
        if self._proxy is not None and not self.address.tls and self._proxy.authorization:
            self._fixed_header_text += f"proxy-authorization: {self._proxy.authorization}\r\n"

    async def send(
        self,
        method: str,
        path: str,
        headers: Sequence[tuple[str, str]] = (),
        body: bytes = b"",
        *,
        due: float = _NEVER,
    ) -> HttpResponse:
        """Send a request; return the response once its head has arrived.

        ``path`` follows the path of the base URL. ``due`` is when the response must be complete, on
        the monotonic clock and to a quarter of a second. If the server has closed a kept
        connection, a new one is used. Raises :class:`TransportFailed`.
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
        """Send a head made by :meth:`head`, and a body; with ``anew`` on a new connection.

        Raises :class:`Stale` too: the body is not kept, so only the caller can send it again.
        ``asked`` is called with the response once the request is on its way.
        """
        if anew:
            connection = await self._open_connection()
        else:
            connection = (
                self._idle_connections.pop()
                if self._idle_connections
                else await self._acquire_connection(due)
            )
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
        """Close every connection; responses under way fail."""
        self._is_closed = True
        self._reuses_connections = False
        if self._expiry_timer is not None:
            self._expiry_timer.cancel()
        for connection in tuple(self._open_connections):
            connection.drop()
        self._idle_connections.clear()
        await asyncio.sleep(0)  # the transports tell their protocols

    def retire(self) -> None:
        """Close idle connections now, and others after their response."""
        self._reuses_connections = False
        while self._idle_connections:
            self._idle_connections.popleft().close()

    @property
    def open_connections(self) -> int:
        return len(self._open_connections)

    def _expire_responses_and_connections(self) -> None:
        # One timer for everything: a timer per request would cost more than the request.
        now = self._coarse_clock_time = monotonic()
        due = [connection.expire(now) for connection in tuple(self._open_connections)]
        oldest = now - self._options.idle_seconds
        while self._idle_connections and self._idle_connections[0].idle_since <= oldest:
            self._idle_connections.popleft().close()
        watched = any(due) or (self._reuses_connections and self._open_connections)
        self._expiry_timer = None
        if watched:
            self._expiry_timer = asyncio.get_running_loop().call_later(
                _WATCH_SECONDS, self._expire_responses_and_connections
            )

    def idle(self, connection: ClientConnection) -> None:
        if not self._reuses_connections:
            connection.close()
            return
        connection.idle_since = self._coarse_clock_time
        self._idle_connections.append(connection)
        if self._waiters:
            self._wake_waiter()

    def gone(self, connection: ClientConnection) -> None:
        self._open_connections.discard(connection)
        if connection in self._idle_connections:
            self._idle_connections.remove(connection)
        self._wake_waiter()

    async def _acquire_connection(self, deadline: float) -> ClientConnection:
        while True:
            while self._idle_connections:
                if not (kept := self._idle_connections.pop()).closed:
                    return kept
            if len(self._open_connections) + self._dialing_count < self._options.max_connections:
                return await self._open_connection()
            await self._wait_for_connection(deadline)

    async def _wait_for_connection(self, deadline: float) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(turn)
        try:
            async with asyncio.timeout(None if deadline == _NEVER else deadline - monotonic()):
                await turn
        except (TimeoutError, asyncio.CancelledError) as end:
            if turn.done() and not turn.cancelled():
                self._wake_waiter()
            if isinstance(end, TimeoutError):
                words = f"no connection to {self.address.place} became free in time"
                raise TransportFailed("timeout", words, sent=False) from None
            raise

    async def _open_connection(self) -> ClientConnection:
        if self._is_closed:
            raise TransportFailed("closed", "the client is closed", sent=False)
        connection = ClientConnection(self, self.address.place)
        self._dialing_count += 1
        try:
            await self._dial_connection(connection)
        except BaseException:
            connection.drop()
            self._wake_waiter()
            raise
        finally:
            self._dialing_count -= 1
        self._open_connections.add(connection)
        if self._expiry_timer is None:
            self._coarse_clock_time = monotonic()
            later = connection.loop.call_later
            self._expiry_timer = later(_WATCH_SECONDS, self._expire_responses_and_connections)
        return connection

    async def _dial_connection(self, connection: ClientConnection) -> None:
        reach, proxy, address = self._options, self._proxy, self.address
        server_name = reach.server_name or (address.host if reach.host else None)
        if reach.host is not None:
            address = replace(address, host=reach.host)
        async with _translate_dial_errors(address.place, reach.connect_seconds):
            if reach.socket is not None:
                loop = asyncio.get_running_loop()
                await loop.create_unix_connection(lambda: connection, reach.socket)
                return
            if proxy is not None and address.tls:
                await _dial_via_proxy(connection, address, self._tls_context, server_name, proxy)
                return
            first = proxy or address
            hosts: Sequence[str] = (first.host,)
            if proxy is None and reach.networks is not None:
                hosts = await _resolve_allowed_host(address, reach.networks)
            context = self._tls_context or ssl.create_default_context() if first.tls else None
            name = (server_name or first.host) if first.tls else None
            await _connect_to_first(
                connection, hosts, first.port, ssl=context, server_hostname=name
            )

    def _wake_waiter(self) -> None:
        while self._waiters:
            turn = self._waiters.popleft()
            if not turn.done():
                turn.set_result(None)
                return

    def head(self, method: str, path: str, headers: Sequence[tuple[str, str]]) -> bytes:
        """Return an encoded request head, without the body's length, for any number of requests."""
        lines = "".join([f"{name}: {value}\r\n" for name, value in headers])
        if lines.count("\n") != len(headers) or lines.count("\r") != len(headers):
            raise ValueError("a header holds a line break")
        target = self.address.path + path
        if self._proxy is not None and not self.address.tls:
            target = f"http://{self.address.authority}{target}"
        return f"{method} {target} HTTP/1.1\r\n{self._fixed_header_text}{lines}".encode("latin-1")
