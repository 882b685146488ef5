"""Doors: find the policy of a request by host name and path, and check its origin (CORS)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

from msgspec import Struct

from causerie.access.keys import KeyDigest
from causerie.access.networks import Network, NetworkList
from causerie.errors import NotFound
from causerie.http.head import Headers, host_name, is_address

_MAX_AGE_SECONDS = 7200  # the most that Chromium keeps
_LIMIT_HEADERS = [
    f"x-ratelimit-{value}-{what}"
    for value in ("limit", "remaining", "reset")
    for what in ("requests", "requests-day", "tokens")
]
_EXPOSED = ", ".join(
    [
        *("request-id", "retry-after", "server-timing", "www-authenticate", "x-attempts"),
        *("x-cache", *_LIMIT_HEADERS, "x-request-changes", "x-request-id", "x-served-by"),
        *("x-served-model", "x-should-retry", "x-token-count"),
    ]
)
_HEADER_TOKENS = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~, -]{1,4096}", re.ASCII)
_REQUESTED = "access-control-request-"


class Origins(Struct, frozen=True):
    """Origins whose pages may call: exact ones, or schemes of desktop programs (``app``)."""

    exact: frozenset[str] = frozenset()
    schemes: frozenset[str] = frozenset()
    every: bool = False
    local: bool = False  # pages of this machine and desktop programs may call too

    @staticmethod
    def of(listed: Iterable[str], *, local: bool = False) -> Origins:
        names = {each.lower() for each in listed}
        schemes = {each.removesuffix("://") for each in names if each.endswith("://")}
        exact = frozenset(each for each in names if not each.endswith("://"))
        return Origins(exact - {"*"}, frozenset(schemes), "*" in names, local)

    def allow(self, origin: str) -> bool:
        origin = origin.lower()
        if self.every or origin in self.exact:
            return True
        scheme, separator, _ = origin.partition("://")
        named = separator != "" and scheme in self.schemes
        return named or (self.local and _is_local_or_desktop_origin(origin))


NO_ORIGINS = Origins()


def _is_local_or_desktop_origin(origin: str) -> bool:
    # No page of the web has such an origin.
    try:
        parts = urlsplit(origin)
        name = parts.hostname or ""
    except ValueError:
        return False
    if parts.scheme in ("http", "https"):
        return name in ("localhost", "127.0.0.1", "::1") or name.endswith(".localhost")
    return parts.scheme in frozenset({"app", "tauri", "vscode-file", "vscode-webview"})


def cors_headers(origin: str) -> Mapping[str, str]:
    return {
        "access-control-allow-origin": origin,
        "access-control-expose-headers": _EXPOSED,
        "vary": "Origin",
    }


def preflight_headers(origin: str, asked: Headers) -> Mapping[str, str]:
    headers = {
        "access-control-allow-origin": origin,
        "access-control-max-age": str(_MAX_AGE_SECONDS),
        "vary": "Origin, Access-Control-Request-Method, Access-Control-Request-Headers",
    }
    for what, name in (("method", "methods"), ("headers", "headers")):
        value = asked.get(f"{_REQUESTED}{what}", "")
        if _HEADER_TOKENS.fullmatch(value):
            headers[f"access-control-allow-{name}"] = value
    if asked.get(f"{_REQUESTED}private-network") == "true":
        headers["access-control-allow-private-network"] = "true"
    return headers


DoorKind = Literal["endpoint", "gateway", "router", "hosted"]
_BASE = "/v1"
_CONTAINERS_HOST = "host.docker.internal"  # the machine, as its containers call it


@dataclass(frozen=True, slots=True)
class MountedDoor:
    """A base URL of the service with its own keys, models and rules."""

    name: str
    prefix: str  # path of its base URL on every host
    kind: DoorKind = "endpoint"
    hosts: frozenset[str] = frozenset()  # host names whose `/v1` leads here
    keys: tuple[KeyDigest, ...] | None = None  # `None` admits everybody, unless it takes `accounts`
    accounts: bool = False
    models: frozenset[str] | None = None  # `None` means all
    reasoning_object: bool = False  # accept the router's `reasoning` parameter
    reject_unknown: bool = False  # reject unknown fields instead of dropping them
    reject_long_output: bool = False  # reject an output limit that does not fit, not lower it
    open_catalog: bool = False  # the models can be listed without a key
    origins: Origins = NO_ORIGINS  # pages that may call from a browser
    separate_caches: bool = False  # projects reuse nothing of each other's prompts
    networks: NetworkList | None = None  # networks from which it may be used; `None` for all
    proxies: tuple[Network, ...] = ()  # proxies that are trusted to name the client's address

    @property
    def open(self) -> bool:
        return self.keys is None and not self.accounts


class DoorTable:
    """Finds the door of a request by host and path; ``default`` is the door at plain ``/v1``.

    Every host name below one of ``domains`` or ``localhost`` belongs to this service: one that no
    door has is not found. ``names`` are further host names of the service. A service with a
    ``private`` address also answers to names of a local network.
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
        self._doors_by_name = {door.name: door for door in self.doors}
        self._default_door = self._doors_by_name[default]
        self._trusts_local_names = private
        self._own_domains = ("localhost", *(domain.lower() for domain in domains))
        self._own_host_names = frozenset((*self._own_domains, *(name.lower() for name in names)))
        self._doors_by_host = {host.lower(): door for door in self.doors for host in door.hosts}
        self._prefixes_and_doors = sorted(
            ((door.prefix, door) for door in self.doors),
            key=lambda pair: len(pair[0]),
            reverse=True,
        )

    def find(self, host: str | None, path: str) -> tuple[MountedDoor, str]:
        """Return door and rest of the path; raise :class:`NotFound` or :class:`InvalidRequest`."""
        name = host_name(host)
        named = self._doors_by_host.get(name)
        if named is not None:
            rest = _path_below(_BASE, path)
            if rest is None:
                raise nothing_at(path)
            return named, rest
        self._reject_unknown_subdomain(name)
        for prefix, door in [*self._prefixes_and_doors, (_BASE, self._default_door)]:
            rest = _path_below(prefix, path)
            if rest is not None:
                if door.open and not self._is_trusted_host(name):
                    raise NotFound(
                        f"This door has no keys and does not answer to the host name {name}; "
                        "add it to the door's `hosts` or to `server.hosts`, or give the door keys."
                    )
                return door, rest
        raise nothing_at(path)

    def own_name(self, host: str | None) -> str:
        """Return the name in a ``Host`` header; raise :class:`NotFound` if it is not trusted."""
        name = host_name(host)
        if name not in self._doors_by_host:
            self._reject_unknown_subdomain(name)
            if not self._is_trusted_host(name):
                raise NotFound(
                    f"The service does not answer to the host name {name} here; "
                    "add it to `server.hosts`."
                )
        return name

    def named(self, name: str) -> MountedDoor:
        if name not in self._doors_by_name:
            raise NotFound(f"There is no door {name}.")
        return self._doors_by_name[name]

    def has_host(self, host: str | None) -> bool:
        return host_name(host) in self._doors_by_host

    def _reject_unknown_subdomain(self, host: str) -> None:
        below = any(host.endswith(f".{domain}") for domain in self._own_domains)
        if below and host not in self._own_host_names:
            raise NotFound(
                f"No door has the host name {host}; add it to the `hosts` of a door or to "
                "`server.hosts`."
            )

    def _is_trusted_host(self, host: str) -> bool:
        # A page from elsewhere can point a public name of its own at this machine, but not an
        # address, a name without dots, or one that no public name server has (RFC 6762, section 3;
        # `.internal` is reserved).
        if "." not in host or host in self._own_host_names or is_address(host):
            return True
        return self._trusts_local_names and (host == _CONTAINERS_HOST or host.endswith(".local"))


def _path_below(prefix: str, path: str) -> str | None:
    rest = path.removeprefix(prefix)
    if len(rest) == len(path) or not (rest == "" or rest.startswith("/")):
        return None
    return rest or "/"


def nothing_at(path: str) -> NotFound:
    return NotFound(
        f"There is nothing at {path[:200]}; the operations are GET {_BASE}/models and "
        f"POST {_BASE}/chat/completions, below the base URL of a door."
    )
