"""Whole numbers beyond ±2^53, which the engines' own grammar of JSON rounds.

They are written digit by digit. Knows values and bounds, and no notation.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping

from causerie.chat.call_syntax.base import Schema
from causerie.chat.call_syntax.choices import choices, definitions, kinds_of
from causerie.chat.call_syntax.conjunction import constants
from causerie.chat.schema.keywords import is_annotation
from causerie.chat.schema.values import MOST_DIGITS, holds_far, is_number, multiples
from causerie.chat.validation import following

_WORDS: Mapping[str, list[object]] = {"null": [None], "boolean": [True, False]}
_BOUNDS = ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum")


def far_numbers(schema: Schema) -> str | None:
    """Return a terminal for the values; ``None`` where the engine's grammar has to be used.

    It has to unless the schema has such a number, and admits nothing but constants and whole
    numbers within bounds.
    """
    if not holds_far({key: of for key, of in schema.items() if key not in definitions(schema)}):
        return None
    found: list[str] = []
    for choice in choices(schema):
        ways = _written(constants(choice) or []) or _whole(choice)
        if not ways:
            return None
        found += ways
    return " | ".join(found) or None


def _written(values: list[object]) -> list[str]:
    """Return the texts of constants, in one line."""
    texts = (json.dumps(each, ensure_ascii=False).replace("\x7f", "\\u007f") for each in values)
    return [json.dumps(text, ensure_ascii=False) for text in texts]


def _whole(choice: Schema) -> list[str]:
    """Return whole numbers within bounds, and words; none if the choice has other values or rules.

    Bounds say nothing of the words.
    """
    rules = {key for key in choice if not is_annotation(key)} - definitions(choice).keys()
    kinds = kinds_of(choice)
    others = kinds - {"integer", *_WORDS}
    if "integer" not in kinds or others or rules - {"type", "multipleOf", *_BOUNDS}:
        return []
    words = _written([word for kind in sorted(kinds & _WORDS.keys()) for word in _WORDS[kind]])
    numbers = _numbers(choice)
    return [*numbers, *words] if numbers else []


def _numbers(choice: Schema) -> list[str]:
    bounds = {key: of for key in _BOUNDS if is_number(of := choice.get(key))}
    if is_number(of := choice.get("multipleOf")) and of != 1:
        few = multiples(of, whole=True)[1]
        return _written(following(few, bounds)) if few else []
    low = max(_lows(bounds), default=None)
    high = min(_highs(bounds), default=None)
    if any(abs(each) >= 10**MOST_DIGITS for each in (low, high) if each is not None):
        return []
    return list(_ranges(low, high))


def _lows(bounds: dict[str, int | float]) -> Iterator[int]:
    if "minimum" in bounds:
        yield math.ceil(bounds["minimum"])
    if "exclusiveMinimum" in bounds:
        yield math.floor(bounds["exclusiveMinimum"]) + 1


def _highs(bounds: dict[str, int | float]) -> Iterator[int]:
    if "maximum" in bounds:
        yield math.floor(bounds["maximum"])
    if "exclusiveMaximum" in bounds:
        yield math.ceil(bounds["exclusiveMaximum"]) - 1


def _ranges(low: int | None, high: int | None) -> Iterator[str]:
    """Yield terminals of the numbers from ``low`` to ``high`` that are not, and are, negative."""
    if low is not None and high is not None and low > high:
        return
    if high is None or high >= 0:
        yield _range("", max(low or 0, 0), high)
    if low is None or low < 0:
        least = 1 if high is None else max(-high, 1)
        yield _range("-", least, None if low is None else -low)


def _range(sign: str, low: int, high: int | None) -> str:
    """Return a terminal of the numbers whose digits say ``low`` to ``high``."""
    least = f"/{sign}({_at_least(str(low))})/"
    return least if high is None else f"({least} & /{sign}({_at_most(str(high))})/)"


def _at_least(digits: str) -> str:
    """Return a regular expression of the numbers without a sign from this one on."""
    if digits == "0":
        return "0|[1-9][0-9]*"
    more = [f"[1-9][0-9]{{{len(digits)},}}", digits]
    for at, digit in enumerate(digits):
        if digit != "9":
            more.append(f"{digits[:at]}[{int(digit) + 1}-9][0-9]{{{len(digits) - at - 1}}}")
    return "|".join(more)


def _at_most(digits: str) -> str:
    """Return a regular expression of the numbers without a sign up to this one."""
    less = ["0", digits]
    if len(digits) > 1:
        less.append(f"[1-9][0-9]{{0,{len(digits) - 2}}}")
    for at, digit in enumerate(digits):
        least = 0 if at else 1
        if int(digit) > least:
            less.append(f"{digits[:at]}[{least}-{int(digit) - 1}][0-9]{{{len(digits) - at - 1}}}")
    return "|".join(less)
