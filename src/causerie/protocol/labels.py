"""A client's labels for its request. Never an identity: anybody may send any label."""

from __future__ import annotations

from msgspec import Struct


class Labels(Struct, frozen=True):
    """A client's labels; empty if it sent none."""

    app: str = ""
    """Name of the program."""
    referer: str = ""
    """Address of the program."""
    traceparent: str = ""
    """The request's place in a trace of its own, as sent; so is ``tracestate``."""
    tracestate: str = ""
    tag: str = ""
    """What the request is for; usage is summed by it."""


UNLABELLED = Labels()
