"""The constants and numbers of a schema, and how much of everything it may hold.

Knows values, not keywords.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeGuard

from causerie.chat.schema.keywords import SchemaRefused, step

MAX_DEPTH = 64
MAX_SUBSCHEMAS = 10_000
MAX_VALUES = 20_000  # constants in const and enum
MAX_CHARACTERS = 400_000  # of names, patterns and constants

LEAKY_RANGE = "in a range less than 1 wide it does not hold; name the least value with minimum."

_EXACT = 2**53
_BOUNDS = (10**18, 10**17, 10**16, _EXACT)  # beyond ±2^53 the engine holds these alone
_LEAST = 1e-12  # the engine writes out each digit of a bound
_MOST_REMAINDERS = 20_000  # of which the engine keeps one for each text of digits
_MOST_MULTIPLES = 64  # on each side of 0, in place of a multiple with too many remainders


@dataclass(slots=True)
class Values:
    """Rewrites the values of one schema and counts; ``refuse`` takes a pointer and a reason."""

    refuse: Callable[[str, str], SchemaRefused]
    _subschemas: int = 0
    _values: int = 0
    _characters: int = 0

    def count(self, pointer: str, *, subschemas: int = 0, values: int = 0, text: int = 0) -> None:
        """Add to what the schema holds; refuses where it is too much."""
        self._subschemas += subschemas
        self._values += values
        self._characters += text
        for have, limit, what in (
            (self._subschemas, MAX_SUBSCHEMAS, "subschemas"),
            (self._values, MAX_VALUES, "constants"),
            (self._characters, MAX_CHARACTERS, "characters of names, patterns and constants"),
        ):
            if have > limit:
                raise self.refuse(pointer, f"the schema has more than {limit} {what}.")

    def constant(self, value: object, pointer: str, depth: int = 0) -> object:
        """Count a constant against the limits and return it; refuse inexact numbers."""
        self.count(pointer, values=1)
        if depth > MAX_DEPTH:
            raise self.refuse(pointer, f"it nests deeper than {MAX_DEPTH} levels.")
        if isinstance(value, str):
            self.count(pointer, text=len(value))
            return value
        if isinstance(value, Mapping):
            self.count(pointer, text=sum(map(len, value)))
            return {
                key: self.constant(item, step(pointer, key), depth + 1)
                for key, item in value.items()
            }
        if isinstance(value, list):
            return [
                self.constant(item, step(pointer, index), depth + 1)
                for index, item in enumerate(value)
            ]
        if value is None or isinstance(value, bool):
            return value
        return self.number(value, pointer)

    def number(self, value: object, pointer: str) -> int | float:
        """Return a number that the engines hold exactly; refuse any other."""
        number = self.finite(value, pointer)
        if is_far(number) and (isinstance(value, float) or abs(number) not in _BOUNDS):
            raise self.refuse(
                pointer, "numbers beyond ±2^53 are not supported: engines round them."
            )
        if number and abs(number) < _LEAST:
            raise self.refuse(pointer, f"numbers below {_LEAST} are not supported.")
        return number

    def finite(self, value: object, pointer: str) -> int | float:
        """Return a number as Python reads it; refuses what is none."""
        if not is_number(value):
            raise self.refuse(pointer, "it must be a number.")
        if isinstance(value, float) and not math.isfinite(value):
            raise self.refuse(pointer, "it must be a finite number.")
        return int(value) if isinstance(value, float) and value.is_integer() else value

    def bound(self, key: str, value: int | float, pointer: str) -> tuple[str, int | float]:
        """Return keyword and bound that a grammar has: within ``value``, where that is too far."""
        upper = key in ("maximum", "exclusiveMaximum")
        if not is_far(value) or (value > 0) is not upper:
            return key, self.number(value, pointer)
        inner = abs(value) - 1 if key.startswith("exclusive") else abs(value)
        held = next(each for each in _BOUNDS if each <= inner)
        return ("maximum", held) if upper else ("minimum", -held)


def multiples(of: int | float, *, whole: bool) -> tuple[int | float, list[int | float] | None]:
    """Return ``multipleOf`` as a grammar has it, and the few multiples that stand in its place.

    They do where it has too many remainders to keep apart. Of ``whole`` numbers only those of the
    numerator are multiples of a fraction.
    """
    exact = Fraction(str(of))
    if whole:
        of, exact = exact.numerator, Fraction(exact.numerator)
    remainders = exact.numerator
    if remainders <= _MOST_REMAINDERS:
        return of, None
    found = [exact * count for count in range(-_MOST_MULTIPLES, _MOST_MULTIPLES + 1)]
    exact_ones = [each for each in found if not is_far(each)]
    return of, [int(each) if each.denominator == 1 else float(each) for each in exact_ones]


def is_far(value: int | float | Fraction) -> bool:
    """Return whether floating-point numbers do not tell a number from its neighbours."""
    return not -_EXACT <= value <= _EXACT


def is_leaky_range(schema: Mapping[str, object]) -> bool:
    """Return whether the grammar of a range would admit its excluded integer lower bound.

    All versions of llguidance show this if the range lies between two consecutive
    integers: above 0 and at most 0.5 admits 0.
    """
    low = schema.get("exclusiveMinimum")
    tops = [schema.get(name) for name in ("maximum", "exclusiveMaximum")]
    highs = [top for top in tops if is_number(top)]
    if not isinstance(low, int) or not highs or schema.get("type") == "integer":
        return False
    floor = schema.get("minimum")
    return low < min(highs) < low + 1 and not (is_number(floor) and floor > low)


def is_number(value: object) -> TypeGuard[int | float]:
    """Return whether the value is a JSON number; a boolean is not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def canonical(value: object) -> str:
    """Return a text that equal JSON values share: 1 and 1.0 are equal, and the order of keys."""
    return json.dumps(_plain(value), sort_keys=True)


def _plain(value: object) -> object:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return value
