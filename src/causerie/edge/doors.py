"""Doors: which policy a request comes under, by its host name and path.

A door is data; nothing else in the edge asks by which address a request came.
A host name only ever chooses among doors that exist: what a door allows does
not depend on it.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from causerie.access.keys import KeyDigest
from causerie.edge.origins import NO_ORIGINS, Origins
from causerie.errors import InvalidRequest, NotFound

Kind = Literal["endpoint", "gateway", "router", "hosted"]
_BASE = "/v1"
_CONTAINERS_HOST = "host.docker.internal"  # the machine, as its containers call it
_HOST = re.compile(
    r"(?P<name>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,252}[A-Za-z0-9_])?\.?)(?::[0-9]{0,5})?",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class MountedDoor:
    """A door."""

    name: str
    prefix: str
    """Path of its base URL on every host."""
    kind: Kind = "endpoint"
    hosts: frozenset[str] = frozenset()
    """Host names whose ``/v1`` leads here."""
    keys: tuple[KeyDigest, ...] | None = None
    """``None`` admits everybody, unless it is a door for keys of ``accounts``."""
    accounts: bool = False
    models: frozenset[str] | None = None
    """``None`` means all."""
    reasoning_object: bool = False
    """Accept the router's ``reasoning`` parameter."""
    reject_unknown: bool = False
    """Reject unknown fields instead of dropping them."""
    reject_long_output: bool = False
    """Reject an output limit that does not fit beside the prompt instead of lowering it."""
    open_catalog: bool = False
    """The models can be listed without a key."""
    origins: Origins = NO_ORIGINS
    """Pages that may call from a browser."""
    separate_caches: bool = False
    """Projects reuse nothing of each other's prompts."""

    @property
    def open(self) -> bool:
        """Return true if no key is needed."""
        return self.keys is None and not self.accounts


class DoorTable:
    """All doors; ``default`` is the one behind plain ``/v1``.

    ``domains`` are host names below which every name belongs to this service
    (``localhost`` is always one): a name there that no door has leads nowhere.
    ``names`` are further host names of the service itself. A ``private`` address also has the
    names of a local network.
    """

    def __init__(
        self,
        doors: Iterable[MountedDoor],
        *,
        default: str,
        domains: Iterable[str] = (),
        names: Iterable[str] = (),
        private: bool = True,
    ) -> None:
        self.doors = tuple(doors)
        by_name = {door.name: door for door in self.doors}
        self._default = by_name[default]
        self._private = private
        self._domains = ("localhost", *(domain.lower() for domain in domains))
        self._names = frozenset((*self._domains, *(name.lower() for name in names)))
        self._by_host = {host.lower(): door for door in self.doors for host in door.hosts}
        self._by_prefix = sorted(
            ((door.prefix, door) for door in self.doors),
            key=lambda pair: len(pair[0]),
            reverse=True,
        )

    def find(self, host: str | None, path: str) -> tuple[MountedDoor, str]:
        """The door and the rest of the path; ``host`` is the header, ``None`` without one.

        Raises :class:`NotFound` where no door is, and :class:`InvalidRequest`
        for a host header that names no host.
        """
        name = host_name(host)
        named = self._by_host.get(name)
        if named is not None:
            rest = _below(_BASE, path)
            if rest is None:
                raise nothing_at(path)
            return named, rest
        self._check_below(name)
        for prefix, door in [*self._by_prefix, (_BASE, self._default)]:
            rest = _below(prefix, path)
            if rest is not None:
                if door.open and not self._trusted(name):
                    raise NotFound(
                        f"This door has no keys and does not answer to the host name {name}; "
                        "add it to the door's `hosts` or to `server.hosts`, or give the door keys."
                    )
                return door, rest
        raise nothing_at(path)

    def own_name(self, host: str | None) -> str:
        """Return the name in a host header if it is one of the service.

        That is a door's, one that it was told of, or one that no page from elsewhere can have
        made a browser send. Raises :class:`NotFound` for any other, and :class:`InvalidRequest`
        for a host header that names no host.
        """
        name = host_name(host)
        if name not in self._by_host:
            self._check_below(name)
            if not self._trusted(name):
                raise NotFound(
                    f"The service does not answer to the host name {name} here; "
                    "add it to `server.hosts`."
                )
        return name

    def named(self, name: str) -> MountedDoor:
        """The door of this name; raises :class:`NotFound`."""
        for door in self.doors:
            if door.name == name:
                return door
        raise NotFound(f"There is no door {name}.")

    def has_host(self, host: str | None) -> bool:
        """Return true if the name in a host header belongs to a door.

        Raises :class:`InvalidRequest` for a host header that names no host.
        """
        return host_name(host) in self._by_host

    def _check_below(self, name: str) -> None:
        """Reject a name below a domain of the service that nothing has."""
        below = any(name.endswith(f".{domain}") for domain in self._domains)
        if below and name not in self._names:
            raise NotFound(
                f"No door has the host name {name}; add it to the `hosts` of a door or to "
                "`server.hosts`."
            )

    def _trusted(self, name: str) -> bool:
        """Return true if no page from elsewhere can have made a browser send this host name.

        Such a page can let a public name of its own point at this machine; it
        cannot do so with an address, a name without dots, or one that no public name server
        has (RFC 6762, section 3; ``.internal`` is reserved).
        """
        if "." not in name or name in self._names or _is_address(name):
            return True
        return self._private and (name == _CONTAINERS_HOST or name.endswith(".local"))


def host_name(host: str | None) -> str:
    """The name in a host header, in lower case, without port and final dot."""
    if host is None or host == "":
        return ""
    match = _HOST.fullmatch(host)
    if match is None or (host[0] == "[" and not _is_address(match["name"])):
        raise InvalidRequest(
            "The host in the `Host` header, or in an absolute request target, is not a host name "
            "with an optional port."
        )
    return match["name"].lower().removesuffix(".")


def _is_address(name: str) -> bool:
    kind = ipaddress.IPv6Address if name[:1] == "[" else ipaddress.IPv4Address
    try:
        kind(name.strip("[]"))
    except ValueError:
        return False
    return True


def _below(prefix: str, path: str) -> str | None:
    """Return the path behind the prefix, with a leading slash; ``None`` without that prefix."""
    rest = path.removeprefix(prefix)
    if len(rest) == len(path) or not (rest == "" or rest.startswith("/")):
        return None
    return rest or "/"


def nothing_at(path: str) -> NotFound:
    return NotFound(
        f"There is nothing at {path[:200]}; the operations are GET {_BASE}/models and "
        f"POST {_BASE}/chat/completions, below the base URL of a door."
    )
