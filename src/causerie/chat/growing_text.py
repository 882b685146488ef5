"""A list, a set and a text that only grow, and whose copies share their content.

Copying takes constant time. The first copy that is added to keeps the shared content; another one
copies it when it is added to.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import islice
from typing import Generic, TypeVar

_T = TypeVar("_T")


class GrowingList(Generic[_T]):
    """A list to whose end items are added."""

    __slots__ = ("_items", "size")

    def __init__(self) -> None:
        self._items: list[_T] = []
        self.size = 0
        """Items; those behind them belong to another copy."""

    def __copy__(self) -> GrowingList[_T]:
        other = GrowingList[_T]()
        other._items, other.size = self._items, self.size
        return other

    def append(self, item: _T) -> None:
        """Add an item."""
        if len(self._items) > self.size:
            self._items = self._items[: self.size]
        self._items.append(item)
        self.size += 1

    def behind(self, start: int) -> list[_T]:
        """Return the items from an index on."""
        return self._items[start : self.size]


class GrowingSet(Generic[_T]):
    """A set to which items are added."""

    __slots__ = ("_items", "_size")

    def __init__(self) -> None:
        self._items: dict[_T, int] = {}  # with their numbers
        self._size = 0  # items; those with higher numbers belong to another copy

    def __copy__(self) -> GrowingSet[_T]:
        other = GrowingSet[_T]()
        other._items, other._size = self._items, self._size
        return other

    def has(self, item: _T) -> bool:
        """Return whether an item is in the set."""
        return self._items.get(item, self._size) < self._size

    def add(self, item: _T) -> None:
        """Add an item that is not in the set."""
        if len(self._items) > self._size:
            self._items = dict(islice(self._items.items(), self._size))
        self._items[item] = self._size
        self._size += 1


class GrowingText:
    """Pieces of one text in their order: adding one copies nothing of what is there."""

    __slots__ = ("_count", "_pieces", "_starts", "size")

    def __init__(self, text: str = "") -> None:
        self._pieces: list[str] = []
        self._starts: list[int] = []
        self._count = 0  # pieces; those behind them belong to another copy
        self.size = 0
        """Characters."""
        self.add(text)

    def __copy__(self) -> GrowingText:
        other = GrowingText()
        other._pieces, other._starts = self._pieces, self._starts
        other._count, other.size = self._count, self.size
        return other

    def add(self, text: str) -> None:
        """Add the next piece."""
        if not text:
            return
        if len(self._pieces) > self._count:
            self._pieces = self._pieces[: self._count]
            self._starts = self._starts[: self._count]
        self._pieces.append(text)
        self._starts.append(self.size)
        self._count += 1
        self.size += len(text)

    def between(self, start: int, end: int) -> str:
        """Return the characters from ``start`` up to ``end``; copies no more than these pieces."""
        first = max(bisect_right(self._starts, start, 0, self._count) - 1, 0)
        last = bisect_left(self._starts, end, 0, self._count)
        offset = self._starts[first] if self._count else 0
        return "".join(self._pieces[first:last])[start - offset : end - offset]

    def __str__(self) -> str:
        return "".join(self._pieces[: self._count])
