"""Replies of a provider, unmodified."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from causerie.protocol import bounded_json

Ended = Literal["whole", "left", "late", "broken", "large"]


def dig(value: object, *path: str | int) -> object:
    """Return the value at the path in decoded JSON; ``None`` if there is none."""
    for step in path:
        if isinstance(step, str) and isinstance(value, dict):
            value = value.get(step)
        elif isinstance(step, int) and isinstance(value, list) and -len(value) <= step < len(value):
            value = value[step]
        else:
            return None
    return value


@dataclass(frozen=True, slots=True)
class ProbeReply:
    """One reply."""

    status: int = 0
    """0 if none came."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """By lower-case name."""
    body: bytes = b""
    ended: Ended = "whole"
    """Whole; left by us; ``late`` (over the time limit), ``broken`` (the connection) or ``large``
    (over the size limit).
    """
    trouble: str = ""
    """Text of the failure."""
    seconds: float = 0.0
    """Time that it took."""

    @property
    def content_type(self) -> str:
        """Return the media type alone."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    def document(self) -> object:
        """Return the body as JSON; ``None`` if it is none."""
        try:
            return bounded_json.decode(self.body, Any, bounded_json.REPLY)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None
