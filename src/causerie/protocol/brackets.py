"""The end of a JSON object or array whose text arrives in pieces."""

from __future__ import annotations

import re

_STRUCTURE = re.compile(r'[{}\[\]"]')
_END_OF_STRING = re.compile(r'(?:[^"\\]|\\.)*+"', re.DOTALL)


class Brackets:
    """Finds the end of one object or array; each piece is read once."""

    __slots__ = ("_depth", "_escaped", "closed", "empty", "quoted")

    def __init__(self) -> None:
        self._depth = 0
        self.quoted = False  # in the middle of a string
        self._escaped = False  # behind a backslash in one
        self.closed = False  # the last bracket has been read
        self.empty = True  # nothing but white space has been read

    def read(self, text: str) -> int:
        """Read up to the end of the value, or of the text; return how much that is."""
        at = 0
        while at < len(text) and not self.closed:
            at = self._string(text, at) if self.quoted else self._outside(text, at)
        return at

    def _string(self, text: str, at: int) -> int:
        """Read a string up to its end, or to that of the text."""
        if self._escaped:
            self._escaped = False
            return at + 1
        end = _END_OF_STRING.match(text, at)
        if end is not None:
            self.quoted = False
            return end.end()
        self._escaped = (len(text) - len(text[at:].rstrip("\\")) - at) % 2 == 1
        return len(text)

    def _outside(self, text: str, at: int) -> int:
        """Read up to behind the next bracket or the beginning of a string."""
        found = _STRUCTURE.search(text, at)
        if self.empty:
            self.empty = found is None and text[at:].isspace()
        if found is None:
            return len(text)
        mark = found.group()
        self.quoted = mark == '"'
        self._depth += (mark in "{[") - (mark in "}]")
        self.closed = mark in "}]" and self._depth <= 0
        return found.end()
