"""A cache with a bound on the total size of its values; the least recently used ones go first."""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


class BoundedCache(Generic[Key, Value]):
    """Cache of values whose sizes total ``most`` at most; one above ``largest`` is not kept."""

    def __init__(self, most: int, largest: int | None = None) -> None:
        self._max_total_size = most
        self._max_entry_size = most if largest is None else largest
        self.size = 0
        self._entries: OrderedDict[Key, tuple[Value, int]] = OrderedDict()

    def get(self, key: Key) -> Value | None:
        if key not in self._entries:
            return None
        self._entries.move_to_end(key)
        return self._entries[key][0]

    def keep(self, key: Key, value: Value, size: int) -> None:
        if key in self._entries:
            self.size -= self._entries.pop(key)[1]
        if size > self._max_entry_size:
            return
        self._entries[key] = value, size
        self.size += size
        while self.size > self._max_total_size:
            _, (_, oldest) = self._entries.popitem(last=False)
            self.size -= oldest
