"""Networks from which a door or key may be used."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache, partial
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from causerie.errors import Forbidden, InvalidRequest

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network
_MOST = 200


def tidy_networks(given: Sequence[str] | None) -> tuple[str, ...] | None:
    """Return networks in their usual form, ``None`` for all; raise :class:`InvalidRequest`."""
    if not given:
        return None
    if len(given) > _MOST:
        raise InvalidRequest(f"At most {_MOST} networks can be listed.", param="networks")
    try:
        return tuple(str(ip_network(each.strip())) for each in given)
    except ValueError as failure:
        raise InvalidRequest(
            f"A network is an address, or one like 10.0.0.0/8: {failure}.", param="networks"
        ) from failure


class NetworkList:
    """Lists of networks, compiled; an address has to be in one of each list."""

    def __init__(self, lists: Sequence[Sequence[str]]) -> None:
        compiled = [[ip_network(each) for each in networks] for networks in lists]
        self._allows_address = lru_cache(maxsize=4096)(partial(_is_in_every_list, compiled))

    @staticmethod
    def of(*lists: Sequence[str] | None) -> NetworkList | None:
        """Return the compiled lists of those that are given; ``None`` if all are ``None``."""
        found = [each for each in lists if each is not None]
        return NetworkList(found) if found else None

    def check(self, address: str, what: str) -> None:
        """Raise :class:`Forbidden`, which names ``what``, for an address outside a list."""
        if not self._allows_address(address):
            raise Forbidden(
                f"{what} may not be used from the address {address[:64] or 'unknown'}.",
                code="network_not_allowed",
            )


def _is_in_every_list(network_lists: Sequence[Sequence[Network]], address_text: str) -> bool:
    try:
        address = ip_address(address_text)
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    address = mapped or address
    return all(any(address in network for network in networks) for networks in network_lists)


def client_address(peer: str, forwarded: Iterable[str], proxies: Sequence[Network]) -> str:
    """Return the client's address: going back from ``peer``, the first of no trusted proxy."""
    address = peer
    hops = ",".join(forwarded).split(",") if proxies else []
    while hops and _is_trusted_proxy(proxies, address) and (hop := hops.pop().strip()):
        # Some proxies name the port of each connection behind the address.
        host, _, port = hop.rpartition(":")
        named = port.isdecimal() and (host.endswith("]") or ":" not in host)
        address = (host if named else hop).strip("[]")
    return address[:100]


def _is_trusted_proxy(proxies: Sequence[Network], address: str) -> bool:
    try:
        number = ip_address(address)
    except ValueError:
        return False
    return any(number in network for network in proxies)
