"""What a client says of the program that asks. Never who is asking: anybody may say anything."""

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
