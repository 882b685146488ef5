"""Shared parts of the readers and grammars of all segments.

A *reader* consumes the model's text in pieces of any size and reports its
meaning. A *grammar* is a Lark expression (llguidance dialect) that admits
exactly the texts that the reader understands. Both are created per call: they
know the function's schema, and nothing about streams, engines or messages.
"""

from __future__ import annotations

import json
import re
from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import Protocol

Schema = Mapping[str, object]


def json_value(text: str) -> object:
    """Return the value of a JSON text; raise ``ValueError`` for Python's extensions (``NaN``)."""
    return json.loads(text, parse_constant=_no_constant)


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is no JSON value")


def offered_name(name: str, names: Container[str]) -> str:
    """Return the offered function that ``name`` means; itself if it means none.

    Models write a namespace before it: ``functions``, or the name once more.
    """
    namespace, _, own = name.rpartition(".")
    is_known = name not in names and own in names
    return own if is_known and namespace in ("functions", own) else name


class Unreadable(Exception):
    """The text is not what the format declares; whoever feeds gives it out as plain text."""


@dataclass(frozen=True, slots=True)
class Read:
    """Meaning of one piece of text."""

    arguments: str = ""
    """Next part of the JSON text of the arguments."""
    value: str = ""
    """Complete name or id; set once, with ``rest``."""
    rest: str | None = None
    """Text after the segment, or ``None`` while the segment is incomplete."""


LONGEST_WORD = 4096
"""Most characters of a key, name, number or constant; a longer one is not read."""


class Reader(Protocol):
    """Reads one segment. After a ``Read`` with ``rest`` it is not fed again."""

    def feed(self, text: str) -> Read:
        """Take the next piece; raise :class:`Unreadable` where it cannot be this segment."""
        ...


def spelled(text: str) -> str:
    """Return ``text`` as a regular expression for use between slashes (Rust's dialect)."""
    return re.sub(r"([\\.+*?()|\[\]{}^$#&\-~/])", r"\\\1", text).replace("\n", "\\n")


def without(marker: str) -> str:
    """Return a terminal for any text that does not hold ``marker``."""
    return f"/(.|\\n)*/ & ~/(.|\\n)*{spelled(marker)}(.|\\n)*/"


def text_overlap(text: str, marker: str) -> int:
    """Return how many characters at the end of ``text`` could be the beginning of ``marker``."""
    for size in range(min(len(text), len(marker) - 1), 0, -1):
        if text.endswith(marker[:size]):
            return size
    return 0
