"""Opening a connection: names, sockets, a proxy on the way, TLS."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any, cast

from causerie.runtime.public_addresses import Network, is_public
from causerie.transport.address import Address
from causerie.transport.connection import ClientConnection
from causerie.transport.errors import TransportFailed

_MAX_ANSWER_BYTES = 16 * 1024
_STATUS_DIGITS = 3


@dataclass(frozen=True, slots=True)
class DialOptions:
    """Options of the way to a host."""

    proxy: Address | None = None
    networks: Sequence[Network] | None = None
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
    async with _told(address.place, seconds):
        if proxy is not None and address.tls:
            await _through(connection, address, tls, server_name, proxy)
            return
        first = address if proxy is None else proxy
        context = tls if first.tls else None
        hosts: Sequence[str] = (first.host,)
        if proxy is None and options.networks is not None:
            hosts = await _allowed(address, options.networks)
        await _connect(
            connection,
            hosts,
            first.port,
            ssl=context or (ssl.create_default_context() if first.tls else None),
            server_hostname=(server_name or first.host) if first.tls else None,
        )


async def _connect(
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


async def _allowed(address: Address, networks: Sequence[Network]) -> Sequence[str]:
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
            raise _failed("private", f"{words}, and in none of `server.private_networks`")
    return hosts


async def dial_socket(connection: ClientConnection, path: str, place: str, seconds: float) -> None:
    """Connect to a Unix socket, which is called ``place``; raises :class:`TransportFailed`."""
    async with _told(place, seconds):
        await asyncio.get_running_loop().create_unix_connection(lambda: connection, path)


@asynccontextmanager
async def _told(place: str, seconds: float) -> AsyncIterator[None]:
    """At most ``seconds``; what goes wrong in the words of the transport."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise _failed("connect_timeout", f"{place} did not answer within {seconds:g} s") from None
    except (socket.gaierror, UnicodeError) as error:
        raise _failed("dns", f"the host name of {place} cannot be resolved") from error
    except ssl.SSLCertVerificationError as error:
        raise _failed("tls", f"{place}: {error.verify_message}") from error
    except ssl.SSLError as error:
        raise _failed("tls", f"{place} does not speak TLS as it should") from error
    except ConnectionRefusedError as error:
        raise _failed("refused", f"{place} refused the connection") from error
    except OSError as error:
        reason = error.strerror or "no way there"
        raise _failed("refused", f"{place} cannot be reached: {reason}") from error


def _failed(kind: str, words: str) -> TransportFailed:
    return TransportFailed(kind, words, sent=False)  # type: ignore[arg-type]  # from the list above


async def _through(
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
            raise _failed("proxy", f"the proxy {proxy.place} answered {status}")
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
