"""The headers of a request, with the hints and labels that clients send in them."""

from __future__ import annotations

import re
import unicodedata
from contextlib import suppress
from urllib.parse import urlsplit

from msgspec import Struct

from causerie.access.keys import KEY_HEADERS
from causerie.protocol.request import UNLABELLED, Labels

_NEVER = re.compile(r"q=0(\.0*)?")


class Headers(dict[str, str]):
    """Values by lower-case name; ``again`` has the further values of repeated headers.

    Parsed values are kept here, since a head that comes again has the same headers object.
    """

    again: list[tuple[str, str]] | None = None
    hints: RequestHints | None = None
    plain_json: bool | None = None

    def add_again(self, name: str, value: str) -> None:
        if self.again is None:
            self.again = []
        self.again.append((name, value))

    def accepts(self, coding: str) -> bool:
        """Return true if ``Accept-Encoding`` accepts this coding by name (RFC 9110, 12.5.3)."""
        for part in self.get("accept-encoding", "").split(","):
            name, _, weight = part.partition(";")
            if name.strip() == coding:
                return _NEVER.fullmatch(weight.strip()) is None
        return False

    def take_keys(self) -> list[str]:
        """Remove the second and later key headers; return their values without the scheme."""
        again = self.again or []
        self.again = [(name, value) for name, value in again if name not in KEY_HEADERS]
        return [value.rpartition(" ")[2] for name, value in again if name in KEY_HEADERS]

    def every(self, name: str) -> list[str]:
        """Return all values of a header in their order; ``name`` is in lower case."""
        if name not in self:
            return []
        return [self[name], *(value for key, value in self.again or () if key == name)]


_TITLES = ("x-openrouter-title", "x-title")
_REFERER = "http-referer"
_TAG = "x-tag"
_TRACE = ("traceparent", "tracestate")
_LONGEST_NAME = 80
_LONGEST_ADDRESS = 200


def labels_of(headers: Headers) -> Labels:
    """Read the labels of a request: program (by title or host), tag, and trace (W3C Trace Context).

    People will read this text of strangers: it is cut and has no control characters.
    """
    referer = headers.get(_REFERER, "")
    title = headers.get(_TITLES[0], "") or headers.get(_TITLES[1], "")
    tag = headers.get(_TAG, "")
    parent, state = (headers.get(name, "") for name in _TRACE)
    if not (referer or title or tag or parent):
        return UNLABELLED
    address, host = _label_address(referer)
    app, named = (_readable(text)[:_LONGEST_NAME].rstrip() for text in (title, tag))
    return Labels(app or host[:_LONGEST_NAME], address, parent, state, named)


def _readable(text: str) -> str:
    with suppress(UnicodeDecodeError):  # else it was latin-1 after all
        text = text.encode("latin-1").decode("utf-8")
    # Without controls of terminals and of writing direction, and unassigned characters.
    seen = "".join(" " if unicodedata.category(one)[0] == "C" else one for one in text)
    return " ".join(seen.split())


def _label_address(text: str) -> tuple[str, str]:
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


_SESSION = "x-session-id"
_UNKNOWN_PARAMS = "x-unknown-params"
_HINT_HEADERS = frozenset({_SESSION, _UNKNOWN_PARAMS, *_TITLES, _REFERER, _TAG, *_TRACE})


class RequestHints(Struct, frozen=True):
    """``session`` may be empty; ``strict`` refuses unknown fields."""

    labels: Labels = UNLABELLED
    session: str = ""
    strict: bool = False


NO_HINTS = RequestHints()


def hints_of(headers: Headers) -> RequestHints:
    hints = headers.hints
    if hints is None:
        hints = NO_HINTS
        if not _HINT_HEADERS.isdisjoint(headers):
            strict = headers.get(_UNKNOWN_PARAMS, "").lower() == "reject"
            hints = RequestHints(labels_of(headers), headers.get(_SESSION, ""), strict)
        headers.hints = hints
    return hints
