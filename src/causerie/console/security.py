"""Headers of answers: what a browser may do with our pages, which is little.

Scripts and styles come from our own files only, never from a page's text, so
that what somebody wrote into a name cannot run. Nobody may frame a page, and
addresses are told to no other site.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

_POLICY = (
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "img-src 'self' data:",
    "font-src 'self'",
    "connect-src 'self'",
    "form-action 'self'",
    "base-uri 'none'",
    "frame-ancestors 'none'",
)
HEADERS = MappingProxyType(
    {
        "content-security-policy": "; ".join(_POLICY),
        "cross-origin-opener-policy": "same-origin",
        "cross-origin-resource-policy": "same-origin",
        "permissions-policy": "camera=(), geolocation=(), microphone=()",
        "referrer-policy": "same-origin",
        "x-content-type-options": "nosniff",
        "x-frame-options": "DENY",
    }
)
"""Of pages."""
FILE_HEADERS: Mapping[str, str] = MappingProxyType(
    {
        "content-security-policy": "default-src 'none'",
        "cross-origin-resource-policy": "same-origin",
        "x-content-type-options": "nosniff",
    }
)
"""Of styles, scripts and pictures. A page that loads them has said the rest; opened by themselves
they are text, or a picture that runs nothing."""

_OWN_SITE = ("same-origin", "none")


def asked_by_person(headers: Mapping[str, str]) -> bool:
    """Return true if the browser states that a page is opened from this site or by its user.

    No other site has chosen what such a request says, so the length of its answer tells nobody
    what a guess would: it may be compressed.
    """
    opens = headers.get("sec-fetch-mode") == "navigate"
    return opens and headers.get("sec-fetch-site") in _OWN_SITE
