"""Text that comes in pieces and is kept: adding one copies nothing of what is there."""

from __future__ import annotations

from bisect import bisect_left, bisect_right


class GrowingText:
    """Pieces of one text in their order."""

    def __init__(self, text: str = "") -> None:
        self._pieces: list[str] = []
        self._starts: list[int] = []
        self.size = 0
        """Characters."""
        self.add(text)

    def add(self, text: str) -> None:
        """Add the next piece."""
        if text:
            self._pieces.append(text)
            self._starts.append(self.size)
            self.size += len(text)

    def between(self, start: int, end: int) -> str:
        """Return the characters from ``start`` up to ``end``; copies no more than these pieces."""
        first = max(bisect_right(self._starts, start) - 1, 0)
        last = bisect_left(self._starts, end)
        offset = self._starts[first] if self._starts else 0
        return "".join(self._pieces[first:last])[start - offset : end - offset]

    def __str__(self) -> str:
        return "".join(self._pieces)
