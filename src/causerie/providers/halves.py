"""Characters that a server has cut in two, put together again.

JSON may escape a character beyond the first 65,536 as a pair of surrogates. Servers whose strings
are made of such halves can cut between them, so that a chunk ends in one half and the next begins
with the other; neither can be read alone.
"""

from __future__ import annotations

import re

_ESCAPES = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}(?P<whole>\\u[dD][c-fC-F][0-9a-fA-F]{2})?"
    rb"|(?P<second>u[dD][c-fC-F][0-9a-fA-F]{2})"
    rb"|(?P<other>.))",
    re.DOTALL,
)
_UNKNOWN = rb"\ufffd"


class Halves:
    """The halves of one reply that wait for the others, in the order in which they came."""

    __slots__ = ("_first",)

    def __init__(self) -> None:
        self._first: list[bytes] = []

    def put_together(self, data: bytes) -> bytes:
        """The same JSON with whole characters only.

        The first half at the end of a string is kept for the beginning of one that follows;
        a half that stands elsewhere cannot be known.
        """

        def put(found: re.Match[bytes]) -> bytes:
            half = found[0]
            if found["whole"] or found["other"]:
                return half
            if found["second"]:
                begins = data[found.start() - 1 : found.start()] == b'"'
                return self._first.pop(0) + half if begins and self._first else _UNKNOWN
            if data[found.end() : found.end() + 1] != b'"':
                return _UNKNOWN
            self._first.append(half)
            return b""

        return _ESCAPES.sub(put, data)
