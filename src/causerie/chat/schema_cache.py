"""Cache of results computed from schemas.

An agent sends the same schemas with every turn. Checking them and writing their
grammar takes milliseconds during which no other request makes progress.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import TypeVar, cast

from causerie.runtime.offload import offload

_MOST = 1_000_000  # characters of schemas; of grammars there are some five times as many
_LONG = 2_000  # characters of schemas; more take so long that they go to a thread
_SLOW = "patternProperties"  # whose patterns are compared with each other

_T = TypeVar("_T")


@dataclass(slots=True)
class SchemaCache:
    """Cache of results computed from the schemas of one model; evicts the oldest first."""

    most: int = _MOST
    _known: OrderedDict[Hashable, tuple[object, int]] = field(default_factory=OrderedDict)
    _characters: int = 0

    async def of(self, text: str, what: Hashable, make: Callable[[], _T]) -> _T:
        """Return ``make()`` for ``text`` and ``what`` from the cache; exceptions are not cached."""
        key = text, what
        if (found := self._known.get(key)) is not None:
            self._known.move_to_end(key)
            return cast(_T, found[0])
        slow = len(text) > _LONG or _SLOW in text
        made = await offload(make) if slow else make()
        if key not in self._known:
            self._characters += len(text)
            self._known[key] = made, len(text)
        while self._characters > self.most:
            _, (_, characters) = self._known.popitem(last=False)
            self._characters -= characters
        return made
