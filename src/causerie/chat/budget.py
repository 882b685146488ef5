"""Limits of one rendering of a chat template: time, turns, and sizes of its results.

Sizes are charged before the value is created. A template that doubles a text
thirty times fails at the first doubling over the limit and never fills the
memory. A size is in characters; any other value counts as roughly as many
characters as it has bytes.
"""

from __future__ import annotations

import time
from collections.abc import ItemsView, Iterable, Iterator, KeysView, Mapping, ValuesView
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from jinja2 import TemplateError
from jinja2.runtime import Undefined
from jinja2.utils import Namespace

from causerie.chat.arguments import Verbatim

POINTER = 8  # what one more place in a list counts
ELEMENT = 64  # what one more object counts

_LATENCY_STATS = 256  # turns between two looks at the clock
_LARGE = 2**16  # characters that take long enough to look at the clock
_PUNCTUATION = 8  # around a value that is printed
_GROUPS = (list, tuple, set, frozenset, KeysView, ValuesView, ItemsView)


@dataclass(frozen=True, slots=True)
class RenderLimits:
    """Limits of one rendering."""

    seconds: float = 2.0
    """CPU time."""
    turns: int = 10_000_000
    """Loop iterations and calls."""
    characters: int = 64 * 2**20
    """Length of the prompt, and of each single intermediate text or list."""
    made: int = 2**30
    """Total length of all intermediate texts and lists."""


class TooMuch(TemplateError):
    """The rendering went over its limits."""


class RenderBudget:
    """Remaining limits of the rendering in progress."""

    def __init__(self, limits: RenderLimits) -> None:
        self.limits = limits
        self.turns = 0
        self.made = 0
        self._deadline = time.thread_time() + limits.seconds
        self._written = 0
        self._next_look = _LATENCY_STATS

    def turn(self, count: int = 1) -> None:
        """Count turns of a loop, calls, or parts of a value that are looked at one by one."""
        self.turns += count
        if self.turns > self._next_look:
            self._look()
        if self.turns > self.limits.turns:
            raise TooMuch(f"it took more than {self.limits.turns:,} turns of loops and calls")

    def write(self, characters: int) -> None:
        """Count characters of the prompt."""
        self._written += characters
        if self._written > self.limits.characters:
            raise TooMuch(f"it gave more than {self.limits.characters:,} characters")

    def make(self, size: int) -> None:
        """Count a text or a list before it is created."""
        if size > self.limits.characters:
            raise TooMuch(f"it makes a value of more than {self.limits.characters:,} characters")
        self.pass_over(size)

    def pass_over(self, size: int) -> None:
        """Count what goes through many small objects, no one of which is large."""
        self.made += size
        if self.made > self.limits.made:
            raise TooMuch(f"it makes more than {self.limits.made:,} characters in all")
        if size > _LARGE:
            self._look()

    def weigh(self, value: object, *, each: int = _PUNCTUATION, deeper: int = 0) -> int:
        """Count a value as it is printed, and return its size.

        An object that is reached in several ways is printed, and counted,
        several times. ``each`` is what goes around every part, ``deeper`` what
        is added for every level that it is deep.
        """
        size = _weight(value, self, each, deeper)
        self.make(size)
        return size

    def _look(self) -> None:
        self._next_look = self.turns + _LATENCY_STATS
        if time.thread_time() > self._deadline:
            raise TooMuch(f"it took more than {self.limits.seconds:g} seconds of work")


current_budget: ContextVar[RenderBudget] = ContextVar("budget")


def paced(items: Any) -> Any:
    """Return the items, counted during iteration, so that no loop runs for ever."""
    if isinstance(items, Undefined):
        return items
    budget = current_budget.get()
    return _Paced(items, budget) if hasattr(items, "__len__") else _ticking(items, budget)


def text_of(value: object) -> str:
    """Return the value as text; its size is charged before it is created."""
    if isinstance(value, str):
        return value
    current_budget.get().weigh(value)
    return str(value)


def compared(value: Any) -> Any:
    """Return the value; charge its size if comparing it reads all its content."""
    if not isinstance(value, str) and isinstance(value, (Mapping, *_GROUPS)):
        current_budget.get().weigh(value)
    return value


def sliced(value: Any) -> Any:
    """Return the value; charge the size before a part of it is copied."""
    if isinstance(value, str | bytes):
        current_budget.get().make(len(value))
    elif isinstance(value, list | tuple):
        current_budget.get().make(len(value) * POINTER)
    return value


def _weight(value: object, budget: RenderBudget, each: int, deeper: int) -> int:
    size, most, left = 0, budget.limits.characters, [(value, 0)]
    while left:
        one, depth = left.pop()
        size += each + depth * deeper
        if isinstance(one, Verbatim):
            size += len(one.source)
        elif isinstance(one, str | bytes):
            size += len(one)
        elif isinstance(one, int):
            size += one.bit_length() // 3
        elif isinstance(one, (Mapping, Namespace, *_GROUPS)):
            parts = _parts(one)
            size += len(parts) * each
            budget.turn(len(parts))
            if size <= most:
                left += [(part, depth + 1) for part in parts]
        if size > most:
            raise TooMuch(f"it makes a value of more than {most:,} characters")
    return size


def _parts(value: object) -> list[object]:
    if isinstance(value, Namespace):
        value = value._Namespace__attrs  # which it prints
    if isinstance(value, Mapping):
        return [*value.keys(), *value.values()]
    assert isinstance(value, _GROUPS)
    return list(value)


def _ticking(items: Iterable[object], budget: RenderBudget) -> Iterator[object]:
    for item in items:
        budget.turn()
        yield item


class _Paced:
    """A counted collection; its length stays known, as ``loop.length`` needs it."""

    def __init__(self, items: Any, budget: RenderBudget) -> None:
        self._items, self._budget = items, budget

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[object]:
        return _ticking(self._items, self._budget)
