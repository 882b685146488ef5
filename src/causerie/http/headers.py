"""The headers of a request: names without case, and the hints and labels that clients send in
them.

Labels are text of strangers that people will read: made short, without control characters, and
without what an address may hold in addition to the address.
"""

from __future__ import annotations

import re
import unicodedata
from contextlib import suppress
from urllib.parse import urlsplit

from msgspec import Struct

from causerie.access.keys import KEY_HEADERS
from causerie.protocol.request import UNLABELLED, Labels

# The headers of a request: names without case, values as text.

_NEVER = re.compile(r"q=0(\.0*)?")


class Headers(dict[str, str]):
    """Values by lower-case name. A header that came twice gives its first value.

    ``again`` are the names and values of those that had come before, if there are any. What was
    read of them is kept, since the headers of a head that comes again are the same object.
    """

    again: list[tuple[str, str]] | None = None
    hints: RequestHints | None = None
    plain_json: bool | None = None

    def add_again(self, name: str, value: str) -> None:
        if self.again is None:
            self.again = []
        self.again.append((name, value))

    @property
    def take_gzip(self) -> bool:
        """Return true if ``Accept-Encoding`` accepts gzip by name (RFC 9110, 12.5.3)."""
        for part in self.get("accept-encoding", "").split(","):
            coding, _, weight = part.partition(";")
            if coding.strip() == "gzip":
                return _NEVER.fullmatch(weight.strip()) is None
        return False

    def take_keys(self) -> list[str]:
        """Take out the values of key headers that had come again, without their scheme."""
        again = self.again or []
        self.again = [(name, value) for name, value in again if name not in KEY_HEADERS]
        return [value.rpartition(" ")[2] for name, value in again if name in KEY_HEADERS]

    def every(self, name: str) -> list[str]:
        """All values of the header ``name`` (in lower case), in their order."""
        if name not in self:
            return []
        return [self[name], *(value for key, value in self.again or () if key == name)]


# The headers in which a client names its program, as the well-known router's clients do, what the
# request is for, and its place in a trace (W3C Trace Context).
#
# Names are text of strangers that people will read: made short, without control
# characters, and without what an address may hold in addition to the address.

_TITLES = ("x-openrouter-title", "x-title")
_REFERER = "http-referer"
_TAG = "x-tag"
_TRACE = ("traceparent", "tracestate")
LABEL_HEADERS = (*_TITLES, _REFERER, _TAG, *_TRACE)
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
    address, host = _label_address(referer)
    app = _label(title) or host[:_LONGEST_NAME]
    return Labels(app, address, parent, state, _label(tag))


def _label(text: str) -> str:
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


def _label_address(text: str) -> tuple[str, str]:
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


# Hints in a request's headers; most clients send none.

_SESSION = "x-session-id"
_UNKNOWN_PARAMS = "x-unknown-params"
_HINT_HEADERS = frozenset({_SESSION, _UNKNOWN_PARAMS, *LABEL_HEADERS})


class RequestHints(Struct, frozen=True):
    """``session`` is empty where none is named; ``strict``: unknown fields are to be refused."""

    labels: Labels = UNLABELLED
    session: str = ""
    strict: bool = False


NO_HINTS = RequestHints()


def hints_of(headers: Headers) -> RequestHints:
    hints = headers.hints
    if hints is None:
        hints = headers.hints = _read_hints(headers)
    return hints


def _read_hints(headers: Headers) -> RequestHints:
    if _HINT_HEADERS.isdisjoint(headers):
        return NO_HINTS
    return RequestHints(
        labels_of(headers),
        headers.get(_SESSION, ""),
        headers.get(_UNKNOWN_PARAMS, "").lower() == "reject",
    )
