"""Cross-origin requests (CORS): which pages of other origins may call a door from a browser.

A page that may not gets no header of this, so its browser keeps the response from it. Cookies are
never allowed, and paths that are not a door's own (the console, management, metrics) have no part
in this.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from causerie.edge.headers import Headers

_MAX_AGE_SECONDS = 7200  # the most that Chromium keeps
_EXPOSED = (
    "retry-after",
    "server-timing",
    "www-authenticate",
    "x-attempts",
    "x-cache",
    "x-ratelimit-limit-requests",
    "x-ratelimit-limit-requests-day",
    "x-ratelimit-limit-tokens",
    "x-ratelimit-remaining-requests",
    "x-ratelimit-remaining-requests-day",
    "x-ratelimit-remaining-tokens",
    "x-ratelimit-reset-requests",
    "x-ratelimit-reset-requests-day",
    "x-ratelimit-reset-tokens",
    "x-request-changes",
    "x-request-id",
    "x-served-by",
    "x-served-model",
)
_EXPOSE = ", ".join(_EXPOSED)
_TOKENS = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~, -]{1,4096}", re.ASCII)
_LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")
_DESKTOP = frozenset({"app", "tauri", "vscode-file", "vscode-webview"})
_WEB = frozenset({"http", "https"})
_REQUESTED = "access-control-request-"
_VARY = "Origin, Access-Control-Request-Method, Access-Control-Request-Headers"


@dataclass(frozen=True, slots=True)
class Origins:
    """Origins whose pages may call: exact ones, or whole schemes of programs (``app://``)."""

    exact: frozenset[str] = frozenset()
    schemes: frozenset[str] = frozenset()
    every: bool = False
    local: bool = False
    """Pages of this machine and desktop programs may call too."""

    @staticmethod
    def of(listed: Iterable[str], *, local: bool = False) -> Origins:
        """Return the origins that a setting lists."""
        names = {each.lower() for each in listed}
        schemes = {each.removesuffix("://") for each in names if each.endswith("://")}
        exact = frozenset(each for each in names if not each.endswith("://"))
        return Origins(exact - {"*"}, frozenset(schemes), "*" in names, local)

    def allow(self, origin: str) -> bool:
        """Return true if pages of this origin may call."""
        origin = origin.lower()
        if self.every or origin in self.exact:
            return True
        scheme, separator, _ = origin.partition("://")
        return (separator != "" and scheme in self.schemes) or (self.local and _is_local(origin))


NO_ORIGINS = Origins()


def _is_local(origin: str) -> bool:
    """Return true for an origin that no page of the web has."""
    try:
        parts = urlsplit(origin)
        name = parts.hostname or ""
    except ValueError:
        return False
    if parts.scheme in _WEB:
        return name in _LOCAL_NAMES or name.endswith(".localhost")
    return parts.scheme in _DESKTOP


def is_preflight(method: str, headers: Headers) -> bool:
    """Return true for the question that a browser asks before a request (Fetch, 3.2.2)."""
    return method == "OPTIONS" and f"{_REQUESTED}method" in headers


def response_headers(origin: str) -> Mapping[str, str]:
    """Return the headers of a response to a page of an allowed origin."""
    return {
        "access-control-allow-origin": origin,
        "access-control-expose-headers": _EXPOSE,
        "vary": "Origin",
    }


def preflight_headers(origin: str, asked: Headers) -> Mapping[str, str]:
    """Return the headers of the answer to a preflight of an allowed origin."""
    headers = {
        "access-control-allow-origin": origin,
        "access-control-max-age": str(_MAX_AGE_SECONDS),
        "vary": _VARY,
    }
    for what, name in (("method", "methods"), ("headers", "headers")):
        value = asked.get(f"{_REQUESTED}{what}", "")
        if _TOKENS.fullmatch(value):
            headers[f"access-control-allow-{name}"] = value
    if asked.get(f"{_REQUESTED}private-network") == "true":
        headers["access-control-allow-private-network"] = "true"
    return headers
