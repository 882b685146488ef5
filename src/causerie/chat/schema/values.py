"""Checks the constants and numbers of a schema, and limits how much it may hold.

Knows values, not keywords.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeGuard

from causerie.chat.schema.keywords import Schema, SchemaRefused, step

MAX_DEPTH = 64
MAX_SUBSCHEMAS = 10_000
MAX_VALUES = 20_000  # constants in const and enum
MAX_CHARACTERS = 400_000  # of names, patterns and constants

LEAKY_RANGE = "in a range less than 1 wide it does not hold; name the least value with minimum."

_EXACT = 2**53
_LEAST = 1e-12  # the engine writes out each digit of a bound
_MOST_REMAINDERS = 20_000  # of which the engine keeps one for each text of digits


@dataclass(slots=True)
class Values:
    """Checks and counts the values of one schema; ``refuse`` makes the error of a refusal."""

    refuse: Callable[[str, str], SchemaRefused]
    _subschema_count: int = 0
    _constant_count: int = 0
    _character_count: int = 0

    def count(self, pointer: str, *, subschemas: int = 0, values: int = 0, text: int = 0) -> None:
        """Add to the counts of subschemas, constants and characters; refuse beyond the limits."""
        self._subschema_count += subschemas
        self._constant_count += values
        self._character_count += text
        for have, limit, what in (
            (self._subschema_count, MAX_SUBSCHEMAS, "subschemas"),
            (self._constant_count, MAX_VALUES, "constants"),
            (self._character_count, MAX_CHARACTERS, "characters of names, patterns and constants"),
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
        inner = depth + 1
        if isinstance(value, Mapping):
            self.count(pointer, text=sum(map(len, value)))
            return {key: self.constant(of, step(pointer, key), inner) for key, of in value.items()}
        if isinstance(value, list):
            return [self.constant(of, step(pointer, at), inner) for at, of in enumerate(value)]
        if value is None or isinstance(value, bool):
            return value
        return self.number(value, pointer)

    def number(self, value: object, pointer: str) -> int | float:
        """Return a number that the engines hold exactly; refuse any other."""
        number = self.finite(value, pointer)
        if is_far(number):
            raise self.refuse(
                pointer, "numbers beyond ±2^53 are not supported: engines round them."
            )
        if number and abs(number) < _LEAST:
            raise self.refuse(pointer, f"numbers below {_LEAST} are not supported.")
        return number

    def finite(self, value: object, pointer: str) -> int | float:
        """Return a finite number, as ``int`` if it is whole; refuse any other value."""
        if not is_number(value):
            raise self.refuse(pointer, "it must be a number.")
        if isinstance(value, float) and not math.isfinite(value):
            raise self.refuse(pointer, "it must be a finite number.")
        return int(value) if isinstance(value, float) and value.is_integer() else value

    def bound(self, key: str, value: int | float, pointer: str) -> tuple[str, int | float]:
        """Return keyword and bound for a grammar: ±2^53 for a limit that is farther from zero."""
        upper = key in ("maximum", "exclusiveMaximum")
        if not is_far(value) or (value > 0) is not upper:
            return key, self.number(value, pointer)
        return ("maximum", _EXACT) if upper else ("minimum", -_EXACT)

    def multiple(self, of: int | float, pointer: str, *, whole: bool) -> int | float:
        """Return the ``multipleOf`` for a grammar: a fraction's numerator for ``whole`` numbers."""
        numerator = Fraction(str(self.number(of, pointer))).numerator
        if numerator > _MOST_REMAINDERS:
            reason = f"a numerator above {_MOST_REMAINDERS:,} is not supported."
            raise self.refuse(pointer, reason)
        return numerator if whole else of


def is_far(value: int | float) -> bool:
    """Return whether a number is beyond ±2^53, where floating-point numbers skip integers."""
    return not -_EXACT <= value <= _EXACT


def is_leaky_range(schema: Schema) -> bool:
    """Return whether the grammar of a range would admit its excluded integer lower bound.

    All versions of llguidance do so between neighbours: above 0 and at most 0.5 admits 0.
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


def json_type_name(value: object) -> str:
    """Return the name of a value's JSON type, ``number`` for integers too."""
    for kind, types in (("boolean", bool), ("string", str), ("array", list), ("object", Mapping)):
        if isinstance(value, types):
            return kind
    return "null" if value is None else "number"


def canonical(value: object) -> str:
    """Return a text that equal JSON values share: 1 equals 1.0; the order of keys is ignored."""
    return json.dumps(_convert_whole_floats(value), sort_keys=True)


def _convert_whole_floats(json_value: object) -> object:
    if isinstance(json_value, float) and json_value.is_integer():
        return int(json_value)
    if isinstance(json_value, list):
        return [_convert_whole_floats(item) for item in json_value]
    if isinstance(json_value, Mapping):
        return {key: _convert_whole_floats(item) for key, item in json_value.items()}
    return json_value
