"""Hints in a request's headers; most clients send none."""

from __future__ import annotations

from msgspec import Struct

from causerie.edge import labels
from causerie.edge.headers import Headers
from causerie.protocol.labels import UNLABELLED, Labels

_SESSION = "x-session-id"
_UNKNOWN = "x-unknown-params"
_NAMES = frozenset({_SESSION, _UNKNOWN, *labels.HEADERS})


class RequestHints(Struct, frozen=True):
    """``session`` is empty where none is named; ``strict``: unknown fields are to be refused."""

    labels: Labels = UNLABELLED
    session: str = ""
    strict: bool = False


NO_HINTS = RequestHints()


def hints_of(headers: Headers) -> RequestHints:
    hints = headers.hints
    if hints is None:
        hints = headers.hints = _read(headers)
    return hints


def _read(headers: Headers) -> RequestHints:
    if _NAMES.isdisjoint(headers):
        return NO_HINTS
    return RequestHints(
        labels.labels_of(headers),
        headers.get(_SESSION, ""),
        headers.get(_UNKNOWN, "").lower() == "reject",
    )
