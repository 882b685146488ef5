"""Parse base URLs, tell public IP addresses from private ones, and check hosts of images."""

from __future__ import annotations

import re
import unicodedata
from base64 import b64encode
from collections.abc import Iterable
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network
from urllib.parse import unquote, urlsplit


@dataclass(frozen=True, slots=True)
class Address:
    """A parsed base URL."""

    tls: bool
    host: str
    port: int
    path: str = ""  # without a slash at its end
    authorization: str = field(default="", repr=False)  # header of the address's user and password

    @staticmethod
    def parse(url: str) -> Address:
        """Parse an ``http`` or ``https`` URL; raise :class:`ValueError` for any other."""
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
        return f"{self._url_host}:{self.port}"

    @property
    def authority(self) -> str:
        usual = 443 if self.tls else 80
        return self._url_host if self.port == usual else self.place

    @property
    def _url_host(self) -> str:
        return f"[{self.host}]" if ":" in self.host else self.host


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


# A server that fetches an image reads whatever its own network lets it read. So the host must be a
# public name or address, spelled in the one way that every reader of addresses reads alike. Names
# are not resolved: a public name may still lead inside.

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
    """Private hosts that images may come from; ``suffixes`` begin with a dot."""

    names: frozenset[str] = frozenset()
    suffixes: tuple[str, ...] = ()
    networks: tuple[IpNetwork, ...] = ()

    @classmethod
    def parse(cls, hosts: Iterable[str]) -> InsideHosts:
        """Parse names, suffixes (``.a.net``), addresses and networks; raise :class:`ValueError`."""
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
    """Return why an image's URL is refused for its form or host; ``None`` if it is allowed."""
    found = _IMAGE_ADDRESS.fullmatch(url)
    if found is None or int(found["port"] or 1) not in range(1, 65_536):
        return "is no `https://` address of plainly one host: no user, no escapes, no backslash"
    try:
        six, name = found["six"], found["name"]
        host: str | IpAddress = _parse_host_of_image_url(name.lower()) if name else IPv6Address(six)
    except ValueError:
        return "has a host that is no name and no address in its usual form"
    if host in inside:
        return None
    if not isinstance(host, str):
        return None if is_public(host) else "names a host inside a network, by its number"
    _, dot, ending = host.rpartition(".")
    return None if dot and ending not in _INSIDE_ENDINGS else "names a host inside a network"


def _parse_host_of_image_url(host: str) -> str | IPv4Address:
    host = host.removesuffix(".")
    labels = host.split(".")
    if _ends_in_number(labels):
        if _FOUR.fullmatch(host):
            return IPv4Address(host)
    elif len(host) <= 253 and all(_LABEL.fullmatch(one) and _is_valid_idn(one) for one in labels):
        return host
    raise ValueError


def _ends_in_number(labels: list[str]) -> bool:
    # Some readers take `127.1`, `0x7f` and `2130706433` for addresses.
    return _NUMBER.fullmatch(labels[-1]) is not None


def _is_valid_idn(label: str) -> bool:
    # Plain letters or digits behind `xn--` would name another host.
    if not label.startswith("xn--"):
        return True
    try:
        meant = label.removeprefix("xn--").encode().decode("punycode")
        plain = unicodedata.normalize("NFKC", meant)
    except (UnicodeError, ValueError, OverflowError):
        return False
    return not plain.isascii() and _DOTS.isdisjoint(plain)
