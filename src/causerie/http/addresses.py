"""Addresses: base URLs, parsed once; which IP addresses are public; and which hosts the address of
an image may name.

A server that fetches an image reads, for the client, whatever its own network lets it read. So
an address is refused unless its host is a public name or a public number, in the one way in
which every reader of addresses reads it alike. Nothing is resolved: a public name may lead
inside.
"""

from __future__ import annotations

import re
import unicodedata
from base64 import b64encode
from collections.abc import Iterable
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network
from urllib.parse import unquote, urlsplit

# Destination of requests: a base URL, parsed once.


@dataclass(frozen=True, slots=True)
class Address:
    """``path`` is what stands before every path of a request; it does not end in a slash.

    ``authorization`` is the header value of a user name and password in the
    address (those of proxies have them), else empty.
    """

    tls: bool
    host: str
    port: int
    path: str = ""
    authorization: str = field(default="", repr=False)

    @staticmethod
    def parse(url: str) -> Address:
        """From ``http://`` or ``https://``; raises :class:`ValueError` that says what is wrong."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https"):
            raise ValueError("an address begins with http:// or https://")
        if not parts.hostname:
            raise ValueError("the address names no host")
        if parts.query or parts.fragment:
            raise ValueError("an address has no `?` and no `#`")
        tls = parts.scheme == "https"
        authorization = ""
        if parts.username is not None:
            pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            authorization = "Basic " + b64encode(pair.encode()).decode("ascii")
        return Address(
            tls=tls,
            host=parts.hostname,
            port=parts.port or (443 if tls else 80),
            path=parts.path.rstrip("/"),
            authorization=authorization,
        )

    @property
    def place(self) -> str:
        """Host and port, for people."""
        return f"{self._name}:{self.port}"

    @property
    def authority(self) -> str:
        usual = 443 if self.tls else 80
        return self._name if self.port == usual else self.place

    @property
    def _name(self) -> str:
        return f"[{self.host}]" if ":" in self.host else self.host


# Tell public IP addresses from those of private networks and of clouds.

IpAddress = IPv4Address | IPv6Address
IpNetwork = IPv4Network | IPv6Network

_PUBLIC_SIX = IPv6Network("2000::/3")
# Ranges that count as public, and lead elsewhere: relays and tunnels, a cloud's own services.
_NOT_PUBLIC: tuple[IpNetwork, ...] = (
    IPv4Network("192.0.0.0/24"),
    IPv4Network("192.88.99.0/24"),
    IPv4Network("168.63.129.16/32"),
    IPv6Network("2001::/23"),
    IPv6Network("2002::/16"),
    IPv6Network("3fff::/20"),
)


def is_public(number: IpAddress) -> bool:
    """Return whether an address is public: not private, loopback, link-local or a cloud's own."""
    if isinstance(number, IPv6Address) and number not in _PUBLIC_SIX:
        return False
    public = number.is_global and not number.is_multicast and not number.is_reserved
    return public and not any(number in network for network in _NOT_PUBLIC)


# Hosts in the addresses of images: those that lie in somebody's network, and may not be named.
#
# A server that fetches an image reads, for the client, whatever its own network lets it read. So an
# address is refused unless its host is a public name or a public number, in the one way in which
# every reader of addresses reads it alike. Nothing is resolved: a public name may lead inside.

_IMAGE_ADDRESS = re.compile(
    r"https://(?:\[(?P<six>[0-9A-Fa-f:.]+)\]|(?P<name>[A-Za-z0-9_.-]+))"
    r"(?::(?P<port>[0-9]{1,5}))?(?:[/?#][^\\\s]*)?",
    re.ASCII,
)
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?", re.ASCII)
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*", re.ASCII)  # as browsers read the last label
_FOUR = re.compile(r"(?:0|[1-9][0-9]{0,2})(?:\.(?:0|[1-9][0-9]{0,2})){3}", re.ASCII)
_INSIDE_ENDINGS = frozenset(
    {
        "alt", "arpa", "corp", "home", "internal", "intranet", "invalid", "lan", "local",
        "localdomain", "localhost", "mail", "onion", "private", "svc", "test", "workgroup",
    }
)  # fmt: skip
_DOTS = frozenset(".\u3002")  # the latter separates labels, too


@dataclass(frozen=True, slots=True)
class InsideHosts:
    """Hosts of one's own network that images may come from.

    ``names`` are whole names in lower case, ``suffixes`` begin with a dot.
    """

    names: frozenset[str] = frozenset()
    suffixes: tuple[str, ...] = ()
    networks: tuple[IpNetwork, ...] = ()

    @classmethod
    def parse(cls, hosts: Iterable[str]) -> InsideHosts:
        """Read names, suffixes (``.example.net``), addresses and networks.

        Raises :class:`ValueError` for what is none of them.
        """
        names, suffixes, networks = set(), [], []
        for host in hosts:
            if ":" in host or "/" in host or _ends_in_number(host.split(".")):
                networks.append(ip_network(host))
            elif not all(map(_LABEL.fullmatch, host.removeprefix(".").split("."))):
                raise ValueError(f"{host!r} is no host name in lower case, and no address")
            elif host.startswith("."):
                suffixes.append(host)
            else:
                names.add(host)
        return cls(frozenset(names), tuple(suffixes), tuple(networks))

    def __contains__(self, host: str | IpAddress) -> bool:
        if isinstance(host, str):
            return host in self.names or host.endswith(self.suffixes)
        return any(host in network for network in self.networks)


NO_INSIDE_HOSTS = InsideHosts()


def host_refusal(url: str, inside: InsideHosts) -> str | None:
    """Return why the host of this ``https`` address may not be named, ``None`` where it may."""
    found = _IMAGE_ADDRESS.fullmatch(url)
    if found is None or int(found["port"] or 1) not in range(1, 65_536):
        return "is not plainly one host, with a port or none: no user, no escapes, no backslash"
    host = _six(found["six"]) if found["name"] is None else _host(found["name"].lower())
    if host is None:
        return "has a host that is no name and no address in its usual form"
    if host in inside:
        return None
    if isinstance(host, str):
        return _name_refusal(host)
    return None if is_public(host) else "names a host inside a network, by its number"


def _name_refusal(name: str) -> str | None:
    labels = name.split(".")
    if len(labels) == 1 or labels[-1] in _INSIDE_ENDINGS:
        return "names a host inside a network"
    return None


def _host(name: str) -> str | IPv4Address | None:
    """Return the name, or the number in its usual form; ``None`` for other spellings."""
    name = name.removesuffix(".")
    labels = name.split(".")
    if _ends_in_number(labels):
        try:
            return IPv4Address(name) if _FOUR.fullmatch(name) else None
        except ValueError:
            return None
    if len(name) > 253 or not all(_LABEL.fullmatch(one) and _is_itself(one) for one in labels):
        return None
    return name


def _six(text: str) -> IPv6Address | None:
    try:
        return IPv6Address(text)
    except ValueError:
        return None


def _ends_in_number(labels: list[str]) -> bool:
    """Return whether some reader takes it for a number: ``127.1``, ``0x7f``, ``2130706433``."""
    return _NUMBER.fullmatch(labels[-1]) is not None


def _is_itself(label: str) -> bool:
    """Return whether the label means itself, not plain letters or digits behind ``xn--``."""
    if not label.startswith("xn--"):
        return True
    try:
        meant = label.removeprefix("xn--").encode().decode("punycode")
        plain = unicodedata.normalize("NFKC", meant)
    except (UnicodeError, ValueError, OverflowError):
        return False
    return not plain.isascii() and _DOTS.isdisjoint(plain)


def is_host_rule(text: str) -> bool:
    """Return whether it is a name, a suffix, an address or a network that may be an exception."""
    try:
        InsideHosts.parse([text])
    except ValueError:
        return False
    return True
