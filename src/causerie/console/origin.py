"""Origin of a request: its address, and the check that this site's own pages sent it.

A form that changes something is accepted only with an ``Origin`` header that names this site:
browsers send it with every such request and pages cannot forge it. ``X-Forwarded-For`` counts only
if the connection comes from a trusted proxy; ``X-Forwarded-Proto`` decides nothing but the
attributes of the visitor's own cookie.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field

from causerie.console.branding import Branding
from causerie.console.logos import Logo
from causerie.edge.exchange import Exchange
from causerie.errors import Forbidden

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True, slots=True)
class Site:
    """The site's own addresses, and how it presents itself.

    ``address`` is its public one, like ``https://llm.example``, where that is
    known; without it a request's ``Host`` says. ``proxies`` are trusted.
    """

    address: str = ""
    proxies: tuple[Network, ...] = ()
    brand: Branding = Branding()  # noqa: RUF009 - frozen
    logos: Mapping[str, Logo] = field(default_factory=dict)
    """By the names of authors and providers."""

    def secure(self, exchange: Exchange) -> bool:
        """Return true if the visitor came by https."""
        if self.address:
            return self.address.startswith("https:")
        return exchange.headers.get("x-forwarded-proto", "").lower() == "https"

    def base(self, exchange: Exchange) -> str:
        """The address that this visitor reaches us at, without a path."""
        if self.address:
            return self.address.rstrip("/")
        scheme = "https" if self.secure(exchange) else "http"
        return f"{scheme}://{exchange.headers.get('host', '')}"

    def client(self, exchange: Exchange) -> str:
        """The visitor's address: the last one that a trusted proxy did not have itself."""
        address = exchange.peer
        hops = ",".join(exchange.headers.every("x-forwarded-for")).split(",")
        while self._trusts(address) and hops and (hop := hops.pop().strip()):
            address = _without_port(hop)
        return address[:100]

    def check(self, exchange: Exchange) -> None:
        """Raises :class:`Forbidden` for what another site's page has sent."""
        origin = exchange.headers.get("origin", "").lower()
        fetched = exchange.headers.get("sec-fetch-site", "") or "same-origin"
        own = {self.base(exchange).lower()}
        if not self.address:
            own.add(f"https://{exchange.headers.get('host', '')}".lower())  # https ends before us
        if origin not in own or fetched != "same-origin":
            raise Forbidden(
                "This form was not sent by a page of this site, so nothing was changed. "
                "Open the page anew and try again.",
                code="foreign_origin",
            )

    def _trusts(self, address: str) -> bool:
        try:
            parsed = ipaddress.ip_address(address)
        except ValueError:
            return False
        return any(parsed in network for network in self.proxies)


def _without_port(hop: str) -> str:
    """The address alone: some proxies name the port of each connection behind it."""
    host, _, port = hop.rpartition(":")
    named = port.isdecimal() and (host.endswith("]") or ":" not in host)
    return (host if named else hop).strip("[]")
