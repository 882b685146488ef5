"""Headers of every answer: what a browser may do with our pages, which is little.

Scripts and styles come from our own files only, never from a page's text, so
that what somebody wrote into a name cannot run. Nobody may frame a page, and
addresses are told to no other site.
"""

from __future__ import annotations

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
