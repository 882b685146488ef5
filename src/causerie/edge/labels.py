"""The headers in which a client names its program, as the well-known router's clients do, what the
request is for, and its place in a trace (W3C Trace Context).

Names are text of strangers that people will read: made short, without control
characters, and without what an address may hold in addition to the address.
"""

from __future__ import annotations

import unicodedata
from contextlib import suppress
from urllib.parse import urlsplit

from causerie.edge.headers import Headers
from causerie.protocol.labels import UNLABELLED, Labels

_TITLES = ("x-openrouter-title", "x-title")
_REFERER = "http-referer"
_TAG = "x-tag"
_TRACE = ("traceparent", "tracestate")
HEADERS = (*_TITLES, _REFERER, _TAG, *_TRACE)
_LONGEST_NAME = 80
_LONGEST_ADDRESS = 200


def labels_of(headers: Headers) -> Labels:
    """Read the labels in headers; without a title the program is named by its address's host."""
    referer = headers.get(_REFERER, "")
    title = headers.get(_TITLES[0], "") or headers.get(_TITLES[1], "")
    tag = headers.get(_TAG, "")
    parent, state = (headers.get(name, "") for name in _TRACE)
    if not (referer or title or tag or parent):
        return UNLABELLED
    address, host = _address(referer)
    app = _name(title) or host[:_LONGEST_NAME]
    return Labels(app, address, parent, state, _name(tag))


def _name(text: str) -> str:
    return _readable(text)[:_LONGEST_NAME].rstrip()


def _readable(text: str) -> str:
    """In one line, of characters that show; sent as UTF-8 it is read as that."""
    with suppress(UnicodeDecodeError):  # else it was latin-1 after all
        text = text.encode("latin-1").decode("utf-8")
    seen = "".join(one if _shows(one) else " " for one in text)
    return " ".join(seen.split())


def _shows(character: str) -> bool:
    """Not what controls a terminal, or turns the writing around, or nobody has assigned."""
    return not unicodedata.category(character).startswith("C")


def _address(text: str) -> tuple[str, str]:
    """The address without user, query and fragment, and its host; empty where it is none."""
    try:
        parts = urlsplit(_readable(text))
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return "", ""
    if not parts.scheme or not host:
        return "", ""
    named = f"[{host}]" if ":" in host else host
    place = named if port is None else f"{named}:{port}"
    return f"{parts.scheme}://{place}{parts.path}"[:_LONGEST_ADDRESS], named
