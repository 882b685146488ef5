"""Checks a finished document against its rewritten schema.

Work is counted: a check that is too long for the event loop runs in a thread, and one of more
than :data:`MOST_STEPS` is given up.
"""

from __future__ import annotations

import datetime
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import TypeVar

from causerie.chat.call_syntax.base import json_value
from causerie.chat.schema.compiled import Work, WorkExceeded, follows_rule
from causerie.chat.schema.keywords import Schema, as_list, as_mapping, one_or_several, step
from causerie.chat.schema.normal import Rewriter
from causerie.chat.schema.values import canonical, is_number, json_type_name
from causerie.http.event_loop import offload

MOST_STEPS = 50_000  # of one check: a second
AT_ONCE = 500  # steps that may be taken in the event loop: 10 ms
_LARGE = 64 * 1024  # characters of a text that is decoded beside the loop
_CONSTANTS_A_STEP = 50
_NAMES_A_STEP = 50
_CHARACTERS_A_STEP = 200  # of items that are compared
_T = TypeVar("_T")


class _Wrong(Exception):
    pointer: str | None = None  # of the innermost value that is not as it should be


@dataclass(frozen=True, slots=True)
class Fault:
    """The first rule that a document breaks."""

    reason: str
    pointer: str  # of the value that breaks it, in the document


@dataclass(frozen=True, slots=True, eq=False)
class CheckedSchema:
    """A rewritten schema (:class:`Rewriter`) by which documents are checked."""

    rules: Mapping[str, object]

    def fault(self, value: object, work: Work) -> Fault | None:
        """Return the first rule broken by a document, or ``None``; raise :class:`WorkExceeded`."""
        known = as_mapping(self.rules.get("$defs"))
        try:
            _Checker(known, work).check(value, self.rules, "#")
        except _Wrong as wrong:
            return Fault(str(wrong), wrong.pointer or "#")
        except RecursionError:
            raise WorkExceeded from None
        return None

    def fault_of_text(self, text: str, work: Work) -> str | None:
        """Return a sentence on the rule that a text breaks, or ``None``; raise as :meth:`fault`."""
        try:
            value = json_value(text)
        except (ValueError, RecursionError) as error:
            return f"The answer is not valid JSON: {error}"
        fault = self.fault(value, work)
        return fault.reason if fault is not None else None


async def decided(check: Callable[[Work], _T], characters: int) -> _T:
    """Return the result of a check of a text of so many characters; run a long one in a thread.

    Raises :class:`WorkExceeded` if it takes more than :data:`MOST_STEPS`.
    """
    if characters <= _LARGE:
        try:
            return check(Work(AT_ONCE))
        except WorkExceeded:
            pass
    return await offload(check, Work(MOST_STEPS))


def following(values: Iterable[object], schema: Schema) -> list[object]:
    """Return those values that are valid by a schema, which has no references."""
    checked = CheckedSchema(Rewriter(schema, "schema").rewrite())
    return [value for value in values if checked.fault(value, Work(MOST_STEPS)) is None]


@dataclass(slots=True)
class _Checker:
    definitions: Mapping[str, object]
    work: Work

    def check(self, value: object, schema: object, at: str) -> None:
        self.work.spend(1)
        try:
            self._raise_on_first_broken_rule(value, schema, at)
        except _Wrong as wrong:
            wrong.pointer = wrong.pointer or at
            raise

    def _raise_on_first_broken_rule(self, value: object, schema: object, pointer: str) -> None:
        if not isinstance(schema, Mapping):
            if schema is False:
                raise _Wrong(f"Nothing may stand at {pointer}.")
            return
        self._raise_on_bad_type_or_constant(value, schema, pointer)
        self._raise_on_bad_combination(value, schema, pointer)
        if isinstance(value, str):
            self._raise_on_bad_string(value, schema, pointer)
        elif isinstance(value, dict):
            self._raise_on_bad_object(value, schema, pointer)
        elif isinstance(value, list):
            self._raise_on_bad_array(value, schema, pointer)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            for keyword, holds in _NUMBERS.items():
                bound = schema.get(keyword)
                if isinstance(bound, int | float) and not holds(value, bound):
                    raise _Wrong(f"The number at {pointer} does not keep to {keyword} {bound}.")

    def _raise_on_bad_type_or_constant(self, value: object, schema: Schema, pointer: str) -> None:
        names = [str(name) for name in one_or_several(schema["type"])] if "type" in schema else []
        kinds = {json_type_name(value)}
        if is_number(value) and (isinstance(value, int) or value.is_integer()):
            kinds.add("integer")
        if names and kinds.isdisjoint(names):
            raise _Wrong(f"The value at {pointer} is not of the type {' or '.join(names)}.")
        if "const" in schema and not self._are_equal_json(value, schema["const"]):
            raise _Wrong(f"The value at {pointer} is not the constant.")
        options = schema.get("enum")
        if not isinstance(options, list):
            return
        if isinstance(value, str):
            self.work.spend(len(options) // _CONSTANTS_A_STEP)
            is_listed = value in options
        else:
            is_listed = any(self._are_equal_json(value, option) for option in options)
        if not is_listed:
            raise _Wrong(f"The value at {pointer} is none of those listed.")

    def _are_equal_json(self, a: object, b: object) -> bool:
        self.work.spend(1)
        if isinstance(a, bool) or isinstance(b, bool):
            return a is b
        if isinstance(a, dict) and isinstance(b, dict):
            return a.keys() == b.keys() and all(self._are_equal_json(a[key], b[key]) for key in a)
        if isinstance(a, list) and isinstance(b, list):
            return len(a) == len(b) and all(map(self._are_equal_json, a, b))
        return a == b

    def _raise_on_bad_combination(self, value: object, schema: Schema, pointer: str) -> None:
        if "$ref" in schema:
            self.check(value, self._resolve_reference(schema["$ref"]), pointer)
        for part in as_list(schema.get("allOf")):
            self.check(value, part, pointer)
        options = as_list(schema.get("anyOf"))
        if options and not any(self.holds(value, option, pointer) for option in options):
            raise _Wrong(f"The value at {pointer} follows none of the alternatives.")
        exclusive = as_list(schema.get("oneOf"))
        if exclusive and sum(self.holds(value, option, pointer) for option in exclusive) != 1:
            raise _Wrong(f"The value at {pointer} does not follow exactly one of the alternatives.")
        if "not" in schema and self.holds(value, schema["not"], pointer):
            raise _Wrong(f"The value at {pointer} is what `not` excludes.")
        if "if" in schema:
            branch = "then" if self.holds(value, schema["if"], pointer) else "else"
            self.check(value, schema.get(branch, True), pointer)

    def _resolve_reference(self, reference: object) -> object:
        # One that no finite document satisfies has been removed.
        return self.definitions.get(str(reference).removeprefix("#/$defs/"), False)

    def holds(self, value: object, schema: object, at: str) -> bool:
        try:
            self.check(value, schema, at)
        except _Wrong:
            return False
        return True

    def _raise_on_bad_string(self, value: str, schema: Schema, pointer: str) -> None:
        _raise_if_count_out_of_bounds(len(value), schema, "Length", pointer, "characters")
        for keyword in ("pattern", "format"):
            rule = schema.get(keyword)
            if isinstance(rule, str) and not follows_rule(value, keyword, rule, self.work):
                raise _Wrong(f"The string at {pointer} does not follow its {keyword}.")
        if schema.get("format") in ("date", "date-time") and not _is_calendar_day(value[:10]):
            raise _Wrong(f"The string at {pointer} names a day that does not exist.")

    def _raise_on_bad_array(self, value: list[object], schema: Schema, pointer: str) -> None:
        _raise_if_count_out_of_bounds(len(value), schema, "Items", pointer, "items")
        first = as_list(schema.get("prefixItems"))
        for index, item in enumerate(value):
            rule = first[index] if index < len(first) else schema.get("items", True)
            self.check(item, rule, step(pointer, index))
        if schema.get("uniqueItems") is True and self._has_equal_items(value):
            raise _Wrong(f"Items at {pointer} are equal.")
        if "contains" in schema:
            self._raise_on_bad_contains(value, schema, pointer)
        if "unevaluatedItems" in schema:
            for index in sorted({*range(len(value))} - self._find_evaluated_keys(value, schema)):
                self.check(value[index], schema["unevaluatedItems"], step(pointer, index))

    def _raise_on_bad_contains(self, value: list[object], schema: Schema, pointer: str) -> None:
        found = [n for n, item in enumerate(value) if self.holds(item, schema["contains"], "#")]
        try:
            rules = {"minContains": 1, **schema}
            _raise_if_count_out_of_bounds(len(found), rules, "Contains", pointer, "matching items")
        except _Wrong as wrong:
            most = schema.get("maxContains")
            if isinstance(most, int) and len(found) > most:
                wrong.pointer = step(pointer, found[most])  # the first item too many
            raise

    def _has_equal_items(self, items: list[object]) -> bool:
        texts = set()
        for item in items:
            text = canonical(item)
            self.work.spend(1 + len(text) // _CHARACTERS_A_STEP)
            texts.add(text)
        return len(texts) < len(items)

    def _find_evaluated_keys(
        self, value: dict[str, object] | list[object], schema: Schema
    ) -> set[str | int]:
        # The names, or positions, that are spoken of alongside ``unevaluatedProperties`` or -Items.
        self.work.spend(1 + len(value) // _NAMES_A_STEP)
        known: set[str | int] = set()
        if isinstance(value, dict):
            every: set[str | int] = {*value}
            others, unevaluated = "additionalProperties", "unevaluatedProperties"
            known |= as_mapping(schema.get("properties")).keys() & every
            for pattern in as_mapping(schema.get("patternProperties")):
                holds = partial(follows_rule, keyword="pattern", rule=pattern, work=self.work)
                known |= set(filter(holds, value))
        else:
            every = {*range(len(value))}
            others, unevaluated = "items", "unevaluatedItems"
            known |= {*range(len(as_list(schema.get("prefixItems"))))} & every
            if "contains" in schema:
                found = schema["contains"]
                known |= {at for at, item in enumerate(value) if self.holds(item, found, "#")}
        if others in schema:
            known |= every
        for part in self._find_valid_subschemas(value, schema):
            known |= every if unevaluated in part else self._find_evaluated_keys(value, part)
        return known

    def _find_valid_subschemas(self, value: object, schema: Schema) -> Iterator[Schema]:
        parts = as_list(schema.get("allOf"))
        if "$ref" in schema:
            parts = [*parts, self._resolve_reference(schema["$ref"])]
        options = [*as_list(schema.get("anyOf")), *as_list(schema.get("oneOf"))]
        parts = [*parts, *(each for each in options if self.holds(value, each, "#"))]
        if "if" in schema:
            holds = self.holds(value, schema["if"], "#")
            branch = schema.get("then" if holds else "else")
            parts = [*parts, *([schema["if"]] if holds else []), branch]
        yield from (part for part in parts if isinstance(part, Mapping))

    def _raise_on_bad_object(self, value: dict[str, object], schema: Schema, pointer: str) -> None:
        _raise_if_count_out_of_bounds(len(value), schema, "Properties", pointer, "properties")
        required = as_list(schema.get("required"))
        self.work.spend(len(required) // _CONSTANTS_A_STEP)
        for name in required:
            if name not in value:
                raise _Wrong(f"The object at {pointer} lacks the property {str(name)[:100]!r}.")
        named = as_mapping(schema.get("properties"))
        patterns = as_mapping(schema.get("patternProperties"))
        for name, item in value.items():
            known = name in named
            if known:
                self.check(item, named[name], step(pointer, name))
            for pattern, rule in patterns.items():
                if follows_rule(name, "pattern", pattern, self.work):
                    known = True
                    self.check(item, rule, step(pointer, name))
            if not known:
                self.check(item, schema.get("additionalProperties", True), step(pointer, name))
        self._raise_on_bad_name_or_unevaluated(value, schema, pointer)

    def _raise_on_bad_name_or_unevaluated(
        self, value: dict[str, object], schema: Schema, pointer: str
    ) -> None:
        for name in value if "propertyNames" in schema else ():
            self.check(name, schema["propertyNames"], step(pointer, name))
        if "unevaluatedProperties" in schema:
            for name in value.keys() - self._find_evaluated_keys(value, schema):
                self.check(value[name], schema["unevaluatedProperties"], step(pointer, name))


def _raise_if_count_out_of_bounds(
    count: int, schema: Schema, keyword_suffix: str, pointer: str, unit: str
) -> None:
    low, high = schema.get(f"min{keyword_suffix}", 0), schema.get(f"max{keyword_suffix}", math.inf)
    if isinstance(low, int | float) and count < low:
        raise _Wrong(f"The value at {pointer} has fewer than {low} {unit}.")
    if isinstance(high, int | float) and count > high:
        raise _Wrong(f"The value at {pointer} has more than {high} {unit}.")


def _is_multiple(number: float, divisor: float) -> bool:
    # Exact, as the numbers are written: 0.3 is a multiple of 0.1.
    return math.isfinite(number) and Fraction(str(number)) % Fraction(str(divisor)) == 0


_NUMBERS: Mapping[str, Callable[[float, float], bool]] = {
    "minimum": operator.ge,
    "maximum": operator.le,
    "exclusiveMinimum": operator.gt,
    "exclusiveMaximum": operator.lt,
    "multipleOf": _is_multiple,
}


def _is_calendar_day(date_text: str) -> bool:
    # The year 0 is read as a leap year.
    try:
        year, month, day = map(int, date_text.split("-"))
        datetime.date(year or 400, month, day)
    except ValueError:
        return False
    return True
