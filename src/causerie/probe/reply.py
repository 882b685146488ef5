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
    """One reply. ``status`` is 0 where none came.

    ``ended`` says how: whole; left by us; ``late`` (over the time limit),
    ``broken`` (the connection) or ``large`` (over the size limit), each with
    ``trouble`` in words. ``headers`` are by lower-case name, ``seconds`` is the
    time it took.
    """

    status: int = 0
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    ended: Ended = "whole"
    trouble: str = ""
    seconds: float = 0.0

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
