"""Tells whether a place in a growing JSON value is within one of its strings."""

from __future__ import annotations

import re

from causerie.chat.call_syntax.base import Unreadable
from causerie.chat.call_syntax.relaxed import RelaxedReader

_COUNTED = re.compile(r'\\.|"', re.DOTALL)  # an escape, or a quote that counts


class OpenString:
    """Reads a value up to the places that are asked about; nothing of it is read twice."""

    def __init__(self) -> None:
        self._passed: list[str] = []  # and not read
        self._first = ""  # character of the value
        self._escapes = False  # what comes next is escaped
        self._odd = False  # as many quotes as would leave a string open
        self._literal: RelaxedReader | None = RelaxedReader(parameters=("value",))

    def add(self, text: str) -> None:
        """Take the next text of the value."""
        self._passed.append(text)

    @property
    def holds(self) -> bool:
        """Return whether the value so far is a list or an object that ends in a string of it.

        Quotes may be Python's: a literal that is complete there has no open string.
        """
        piece, self._passed = "".join(self._passed), []
        self._first = self._first or piece.lstrip()[:1]
        if self._first not in ("[", "{"):
            return False
        self._count(piece)
        self._read(piece)
        return self._odd and not (self._literal is not None and self._literal.whole)

    def _count(self, piece: str) -> None:
        at = min(int(self._escapes), len(piece))
        for found in _COUNTED.finditer(piece, at):
            at = found.end()
            self._odd ^= found.group() == '"'
        self._escapes = piece.endswith("\\", at) if piece else self._escapes

    def _read(self, piece: str) -> None:
        if self._literal is not None:
            try:
                self._literal.feed(piece)
            except Unreadable:
                self._literal = None
