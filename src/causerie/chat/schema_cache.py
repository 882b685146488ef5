"""What was made of schemas, remembered.

An agent sends the same ones with every turn, and to check them and to write their
grammar takes milliseconds in which nobody else's tokens get on.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import TypeVar, cast

from causerie.offload import offload

_MOST = 1_000_000  # characters of schemas; of grammars there are some five times as many
_LONG = 10_000  # characters of schemas; more take so long that they go to a thread

_T = TypeVar("_T")


@dataclass(slots=True)
class SchemaCache:
    """What was made of schemas for one model; the oldest are forgotten first."""

    most: int = _MOST
    _known: OrderedDict[Hashable, tuple[object, int]] = field(default_factory=OrderedDict)
    _characters: int = 0

    async def of(self, text: str, what: Hashable, make: Callable[[], _T]) -> _T:
        """What ``make`` makes of ``text`` in this way; what it raises is not remembered."""
        key = text, what
        if (found := self._known.get(key)) is not None:
            self._known.move_to_end(key)
            return cast(_T, found[0])
        made = make() if len(text) <= _LONG else await offload(make)
        if key not in self._known:
            self._characters += len(text)
            self._known[key] = made, len(text)
        while self._characters > self.most:
            _, (_, characters) = self._known.popitem(last=False)
            self._characters -= characters
        return made
