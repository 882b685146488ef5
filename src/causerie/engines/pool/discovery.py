"""The servers behind the names of a pool, which may come and go.

A host name stands for its IP addresses, of one family; the name of a service (RFC 2782, such as
``_http._tcp.example.org``) for its targets. A lookup that fails, or finds nothing, keeps the
servers that were known.
"""

from __future__ import annotations

import asyncio
import ipaddress
import random
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import structlog

from causerie.engines.supervised import end_task
from causerie.http.addresses import Address

log = structlog.get_logger(__name__)

_SECONDS = 5.0  # between two lookups of a name
_LOOKUP_SECONDS = 10.0
_FAMILIES = (socket.AF_INET, socket.AF_INET6)
_MISSING = "dnspython is not installed; in a clone of Causerie: pip install '.[pool]'"


class Unresolved(Exception):
    """A name that stands for no server, as far as can be found out now."""


@dataclass(frozen=True, slots=True)
class MemberAddress:
    """Base URL of a server, and the IP address to dial in place of its host.

    One that is started here has a name in place of the URL.
    """

    url: str
    host: str | None = None

    @property
    def name(self) -> str:
        if self.host is None:
            return self.url
        parts = urlsplit(self.url)
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = f":{parts.port}" if parts.port else ""
        return parts._replace(netloc=host + port).geturl()


async def lookup(url: str) -> Sequence[MemberAddress]:
    """Ask the system for the servers of a base URL; raise :class:`Unresolved`."""
    address = Address.parse(url)
    try:
        async with asyncio.timeout(_LOOKUP_SECONDS):
            if address.host.startswith("_"):
                return await targets(url)
            loop = asyncio.get_running_loop()
            found = await loop.getaddrinfo(address.host, None, type=socket.SOCK_STREAM)
    except TimeoutError:
        why = f"no answer within {_LOOKUP_SECONDS:g} s"
        raise Unresolved(f"{address.host} cannot be resolved: {why}") from None
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or "it is no host name"
        raise Unresolved(f"{address.host} cannot be resolved: {why}") from error
    by_family = [{one[4][0] for one in found if one[0] == family} for family in _FAMILIES]
    return [MemberAddress(url, str(host)) for host in sorted(by_family[0] or by_family[1])]


async def targets(url: str, server: tuple[str, int] | None = None) -> Sequence[MemberAddress]:
    """Return the targets of a service of the best priority; raise :class:`Unresolved`.

    Weights are left out: the choice among members goes by their load. ``server`` is the name
    server to ask, by its IP address and port; without it, those of the system are asked.
    """
    try:  # Imported here: few pools have such a name.
        from dns.asyncresolver import Resolver  # noqa: PLC0415 - see above
        from dns.exception import DNSException  # noqa: PLC0415 - see above
        from dns.resolver import NXDOMAIN, NoAnswer  # noqa: PLC0415 - see above
    except ImportError:
        raise Unresolved(_MISSING) from None
    parts = urlsplit(url)
    name = parts.hostname or ""
    try:
        resolver = Resolver(configure=server is None)
        if server is not None:
            resolver.nameservers, resolver.port = [server[0]], server[1]
        answer = await resolver.resolve(name, "SRV", search=True, lifetime=_LOOKUP_SECONDS / 2)
    except NXDOMAIN:
        raise Unresolved(f"{name} cannot be resolved: there is no such name") from None
    except NoAnswer:
        raise Unresolved(f"{name} cannot be resolved: it has no SRV records") from None
    except DNSException as error:
        raise Unresolved(f"{name} cannot be resolved: no name server answered") from error
    there = [one for one in answer if str(one.target) != "."]
    best = min((one.priority for one in there), default=0)
    hosts = sorted(
        f"{str(one.target).rstrip('.')}:{one.port}" for one in there if one.priority == best
    )
    return [MemberAddress(parts._replace(netloc=host).geturl()) for host in hosts]


@dataclass(eq=False)
class Discovery:
    """Calls ``_found`` with all servers whenever they have changed."""

    _found: Callable[[Sequence[MemberAddress]], None]
    _known: dict[str, Sequence[MemberAddress]] = field(default_factory=dict)  # by URL, in order
    _failures: dict[str, str] = field(default_factory=dict)
    _last: Sequence[MemberAddress] | None = None
    _running: bool = False
    _task: asyncio.Task[None] | None = None
    _names: Sequence[str] = ()

    @property
    def detail(self) -> str:
        return next(iter(self._failures.values()), "")

    def renew(self, urls: Sequence[str]) -> None:
        """Replace the base URLs; members stay until the new names are looked up.

        Where a name is new, those before are kept until it has been looked up.
        """
        names = [url for url in urls if not _is_literal(url)]
        unknown = [url for url in names if url not in self._known]
        self._known = {
            url: self._known.get(url, ()) if url in names else [MemberAddress(url)] for url in urls
        }
        self._failures = {url: why for url, why in self._failures.items() if url in names}
        self._names = names
        if not unknown:
            self._publish_members()
        if self._running:
            self._watch_names()

    def start(self) -> None:
        self._running = True
        self._watch_names()

    async def stop(self) -> None:
        self._running = False
        task, self._task = self._task, None
        await end_task(task)

    def _watch_names(self) -> None:
        if self._task is not None:
            self._task.cancel()
        self._task = asyncio.get_running_loop().create_task(self._watch()) if self._names else None

    async def _watch(self) -> None:
        while True:
            await asyncio.gather(*(self._look_up(url) for url in self._names))
            self._publish_members()
            await asyncio.sleep(_SECONDS * random.uniform(0.8, 1.2))

    async def _look_up(self, url: str) -> None:
        try:
            found = await lookup(url)
            if not found:
                raise Unresolved(f"{urlsplit(url).hostname} stands for no server")
        except Unresolved as failure:
            if url not in self._failures:
                log.warning("servers of a pool cannot be looked up", why=str(failure))
            self._failures[url] = str(failure)
            return
        self._failures.pop(url, None)
        self._known[url] = found

    def _publish_members(self) -> None:
        by_name = {one.name: one for each in self._known.values() for one in each}
        members = list(by_name.values())
        if members != self._last:
            self._last = members
            self._found(members)


def _is_literal(url: str) -> bool:
    with suppress(ValueError):
        return "://" not in url or bool(ipaddress.ip_address(Address.parse(url).host))
    return False
