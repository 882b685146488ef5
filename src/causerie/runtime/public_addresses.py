"""Tell public IP addresses from those of private networks and of clouds."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

Number = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

_PUBLIC_SIX = IPv6Network("2000::/3")
# Ranges that count as public, and lead elsewhere: relays and tunnels, a cloud's own services.
_NOT_PUBLIC: tuple[Network, ...] = (
    IPv4Network("192.0.0.0/24"),
    IPv4Network("192.88.99.0/24"),
    IPv4Network("168.63.129.16/32"),
    IPv6Network("2001::/23"),
    IPv6Network("2002::/16"),
    IPv6Network("3fff::/20"),
)


def is_public(number: Number) -> bool:
    """Return whether an address is public: not private, loopback, link-local or a cloud's own."""
    if isinstance(number, IPv6Address) and number not in _PUBLIC_SIX:
        return False
    public = number.is_global and not number.is_multicast and not number.is_reserved
    return public and not any(number in network for network in _NOT_PUBLIC)
