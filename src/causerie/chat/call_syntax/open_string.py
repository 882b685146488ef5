"""Tells whether a place in a growing JSON value is within one of its strings."""

from __future__ import annotations

import re

from causerie.chat.call_syntax.base import Unreadable
from causerie.chat.call_syntax.relaxed import RelaxedReader

_COUNTED = re.compile(r'\\.|"', re.DOTALL)  # an escape, or a quote that counts


class OpenString:
    """Answers for places of one text in their order; nothing of it is read twice."""

    def __init__(self) -> None:
        self._at = 0  # the last place
        self._escapes = False  # what stands there is escaped
        self._odd = False  # as many quotes as would leave a string open
        self._literal: RelaxedReader | None = RelaxedReader(parameters=("value",))

    def holds(self, text: str, place: int) -> bool:
        """Return whether ``text`` begins a list or an object and ``place`` is in a string of it.

        Quotes may be Python's: a literal that is complete there has no open string.
        """
        if text.lstrip()[:1] not in ("[", "{"):
            return False
        self._count(text, place)
        self._read(text[self._at : place])
        self._at = place
        return self._odd and not (self._literal is not None and self._literal.whole)

    def _count(self, text: str, place: int) -> None:
        at = min(self._at + self._escapes, place)
        for found in _COUNTED.finditer(text, at, place):
            at = found.end()
            self._odd ^= found.group() == '"'
        self._escapes = text.endswith("\\", at, place)

    def _read(self, piece: str) -> None:
        if self._literal is not None:
            try:
                self._literal.feed(piece)
            except Unreadable:
                self._literal = None
