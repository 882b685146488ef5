"""Finds the line of the instructions that differs from the last request, and what it may hold.

Clients write the date, or the id of a session, at the head of a system prompt, and the whole
prompt is computed again whenever it changes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_MOST_LINES = 64
_MOST_CHARACTERS = 10_000  # of a line that are looked at
_DATE = re.compile(
    r"\b\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\b\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4}\b|\b\d{1,2}:\d{2}\b"
    r"|\b(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.?\s+\d|\b(?:mon|tues|wednes|thurs"
    r"|fri|satur|sun)day\b",
    re.IGNORECASE,
)
_ID = re.compile(r"\b(?=[a-f]*\d)[0-9a-f]{6,}\b", re.IGNORECASE)  # of a UUID, its first part


def line_hashes(text: str) -> tuple[int, ...]:
    """Return a number for each of the first lines; they mean nothing in another process."""
    return tuple(map(hash, text.split("\n", _MOST_LINES)[:_MOST_LINES]))


def changed_line(before: Sequence[int], text: str) -> str:
    """Return the number of the first line that differs, and what it seems to hold; or nothing."""
    lines = text.split("\n", _MOST_LINES)[:_MOST_LINES]
    pairs = enumerate(zip(before, map(hash, lines), strict=False))
    at = next((at for at, (old, new) in pairs if old != new), None)
    if at is None:
        return ""
    kinds = (("a date or time", _DATE), ("an id", _ID))
    line = lines[at][:_MOST_CHARACTERS]
    held = next((kind for kind, pattern in kinds if pattern.search(line)), None)
    return f"line {at + 1}" + (f", {held}" if held else "")
