"""A client's labels for the program that asks. Never an identity: anybody may send any label."""

from __future__ import annotations

from msgspec import Struct


class Labels(Struct, frozen=True):
    """``app`` is the program's name, ``referer`` its address; empty where nothing was said.

    ``traceparent`` and ``tracestate`` are the request's place in a trace of its own, as sent.
    """

    app: str = ""
    referer: str = ""
    traceparent: str = ""
    tracestate: str = ""


UNLABELLED = Labels()
