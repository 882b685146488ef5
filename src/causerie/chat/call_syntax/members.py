"""Grammars of objects, lists and bounded strings, for notations that work key by key."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Generic, TypeVar

from msgspec import Struct

from causerie.chat.call_syntax.base import Schema, spelled
from causerie.chat.call_syntax.choices import choices, definitions, kinds_of, part_of, refused
from causerie.chat.grammar_text import GrammarText
from causerie.chat.schema.disjoint import MOST_MATCHED, matches
from causerie.chat.schema.keywords import FORMATS, SPELLED, as_list, as_mapping, constants
from causerie.chat.schema.pattern import Refused, anywhere, between_slashes, searches


def text_terminal(schema: Schema) -> str | None:
    """Return the regex of a bounded string, or ``None`` without bounds; raise ``SchemaRefused``."""
    low, high = schema.get("minLength", 0), schema.get("maxLength", "")
    parts = [f"/(?s:.){{{low},{high}}}/"] if low or high != "" else []
    for rules in (schema, *as_list(schema.get("allOf"))):
        pattern, form = rules.get("pattern"), rules.get("format")
        if isinstance(pattern, str):
            try:
                parts += map(between_slashes, anywhere(pattern))
            except Refused as reason:
                raise refused(schema, str(reason), "pattern") from None
        if form in FORMATS or form in SPELLED:
            parts.append(between_slashes(FORMATS.get(form) or SPELLED[form]))
    return " & ".join(dict.fromkeys(parts)) or None


# Rules are written one after the other, not one within the other, so no schema is too deep.

Place = TypeVar("Place", bound=Hashable)

_NUMERIC = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "allOf")
_MOST_CHARACTERS = 150_000  # of all schemas; those that hold at once grow with each reference


class ArgumentRules(ABC, Generic[Place]):
    """Writes the grammar of one function's arguments; subclasses write the single values."""

    def __init__(self, grammar: GrammarText) -> None:
        self.grammar = grammar
        self._rule_by_schema_and_place: dict[tuple[str, Place], str] = {}
        self._remaining_schema_characters = _MOST_CHARACTERS
        self._unwritten_rules: list[tuple[str, Schema, Place]] = []

    @abstractmethod
    def ways(self, schema: Schema, place: Place) -> Iterable[str | None]:
        """Return an expression for each alternative of a value; none if no value is possible."""

    def value(self, schema: Schema, place: Place) -> str:
        shared = definitions(schema)
        own = {name: of for name, of in schema.items() if name not in shared}
        key = (json.dumps(own, sort_keys=True), place)
        if key not in self._rule_by_schema_and_place:
            self._remaining_schema_characters -= len(key[0])
            if self._remaining_schema_characters < 0:
                raise refused(schema, "its alternatives are too many to be combined.")
            self._rule_by_schema_and_place[key] = self.grammar.reserve()
            self._unwritten_rules.append((self._rule_by_schema_and_place[key], schema, place))
        return self._rule_by_schema_and_place[key]

    def finish(self, schema: Schema, ways: Iterable[str | None]) -> str:
        """Write the rule of a whole value and all rules that it refers to; return its name."""
        top = self.grammar.rule(either(schema, ways))
        while self._unwritten_rules:
            name, of, place = self._unwritten_rules.pop()
            self.grammar.define(name, either(of, self.ways(of, place)))
        return top


class JsonLikeRules(ArgumentRules[None]):
    """Writes values of a notation with lists in ``brackets`` and ``comma`` between items."""

    null = '"null"'
    brackets = ('"["', '"]"')
    comma = '","'

    def ways(self, schema: Schema, place: None) -> Iterator[str | None]:
        for choice in choices(schema):
            values = constants(choice)
            if values is None:
                yield from (self._write_value(kind, choice) for kind in sorted(kinds_of(choice)))
            else:
                yield from self.constants(choice, values)

    @abstractmethod
    def constants(self, choice: Schema, values: Sequence[object]) -> Iterable[str]:
        """Return the expressions of the constants that one alternative of a schema lists."""

    @abstractmethod
    def string(self, choice: Schema) -> str:
        """Return the expression of the strings that one alternative of a schema admits."""

    @abstractmethod
    def object(self, choice: Schema) -> str | None:
        """Return the expression of the objects that one alternative admits, or ``None``."""

    def item(self, schema: Schema) -> str:
        return self.value(schema, None)

    def _write_value(self, type_name: str, choice: Schema) -> str | None:
        match type_name:
            case "string":
                return self.string(choice)
            case "boolean":
                return '("true" | "false")'
            case "null":
                return self.null
            case "array":
                begin, end = self.brackets
                inside = items_of(choice).grammar(self.item, self.comma)
                return None if inside is None else f"{begin} {inside} {end}"
            case "object":
                return self.object(choice)
        return number_of(type_name, choice, self.grammar)


def number_of(kind: str, choice: Schema, grammar: GrammarText) -> str:
    """Return the expression for a number, or another value that is written as JSON."""
    return grammar.json({"type": kind, **{key: choice[key] for key in _NUMERIC if key in choice}})


def either(schema: Schema, ways: Iterable[str | None]) -> str:
    """Join the possible ``ways`` of a value by ``|``; raise ``SchemaRefused`` if there are none."""
    possible = dict.fromkeys(way for way in ways if way is not None)
    if not possible:
        raise refused(schema, "nothing can follow it.")
    return " | ".join(possible)


class Items(Struct, frozen=True):
    """Schemas of an array's items: the ``first`` by position, then ``rest`` (``None``: no more)."""

    first: tuple[Schema, ...]
    rest: Schema | None
    least: int
    most: int | None

    def grammar(self, write: Callable[[Schema], str], separator: str) -> str | None:
        """Return the expression of all items, each by ``write``; ``None`` if too few can exist."""
        first = self.first if self.most is None else self.first[: self.most]
        rest = self.rest if self.most is None or self.most > len(first) else None
        if not first and rest is not None:
            first, rest = (rest,), None if self.most == 1 else rest
        if self.least > len(first) and rest is None:
            return None
        out = ""
        if rest is not None:
            most = "" if self.most is None else self.most - len(first)
            fewest = max(self.least - len(first), 0)
            out = f"({separator} {write(rest)}){{{fewest},{most}}}"
        for at, schema in reversed(list(enumerate(first))):
            one = f"{separator if at else ''} {write(schema)} {out}"
            out = one if at < self.least else f"({one})?"
        return out.strip() or '""'


def items_of(choice: Schema) -> Items:
    """Return the items that an array schema admits; the list ends at an item that cannot exist."""
    items, possible = choice.get("items", True), list[Schema]()
    for schema in as_list(choice.get("prefixItems")):
        of = part_of(choice, schema)
        if of is None or not choices(of):
            items = False
            break
        possible.append(of)
    rest = part_of(choice, items)
    low, high = choice.get("minItems", 0), choice.get("maxItems")
    return Items(
        tuple(possible),
        rest if rest is not None and choices(rest) else None,
        low if isinstance(low, int) else 0,
        high if isinstance(high, int) else None,
    )


def item_in(schema: Schema, at: int) -> Schema:
    """Return the schema of the item at index ``at``, united over the alternatives of ``schema``."""
    every = map(items_of, choices(schema))
    return _unite_schemas(each.first[at] if at < len(each.first) else each.rest for each in every)


def _unite_schemas(schemas: Iterable[Schema | None]) -> Schema:
    found: list[Schema] = []
    for of in schemas:
        if of is not None and of not in found:
            found.append(of)
    return any_of(found) if found else {}


def any_of(options: Sequence[Schema]) -> Schema:
    """Return a schema whose values follow one of the schemas, which have the same definitions."""
    if len(options) == 1:
        return options[0]
    return {"anyOf": options, **definitions(options[0])}


class NamedProperty(Struct, frozen=True):
    name: str
    schema: Schema
    required: bool


class ObjectMembers(Struct, frozen=True):
    """An object's members: those ``named`` in order, then ``least`` to ``most`` ``free`` keys."""

    named: tuple[NamedProperty, ...]
    free: tuple[tuple[str, Schema], ...]
    least: int
    most: int | None  # ``None``: any number

    def how_many(self, but: int = 0) -> str:
        """Return the quantifier of the free keys in a grammar that follow ``but`` earlier ones."""
        most = "" if self.most is None else self.most - but
        return f"{{{max(self.least - but, 0)},{most}}}"


def members_of(choice: Schema, key: str, writable: Callable[[str], bool]) -> ObjectMembers | None:
    """Return the members that the object may hold; ``None`` if no object is possible.

    ``key`` is the regex (between slashes) of a notation's free keys; ``writable`` tells whether it
    can write a name. Raises ``SchemaRefused`` for constraints that cannot be enforced.
    """
    required = as_list(choice.get("required"))
    declared = _collect_property_names(choice)
    unnamed = declared.keys() - as_mapping(choice.get("properties")).keys()
    if len(unnamed) * len(patterns_of(choice)) > MOST_MATCHED:
        raise refused(choice, "too many required names for so many patterns.", "patternProperties")
    named = []
    for name in declared:
        of = property_of(choice, name)
        possible = bool(choices(of)) if of is not None else False
        if name in required and not possible:
            return None
        if of is not None and possible:
            if not writable(name):
                raise refused(of, f"the model's notation cannot write the name {name[:60]!r}.")
            named.append(NamedProperty(name, of, name in required))
    free = _list_free_keys_with_schemas(choice, key, declared)
    least, most = _compute_free_key_bounds(choice, len(required), len(named), bool(free))
    return ObjectMembers(tuple(named), () if most == 0 else tuple(free), least, most)


def property_of(choice: Schema, name: str) -> Schema | None:
    """Return the schema of a property, with its definitions; ``None`` if it is not allowed."""
    named = as_mapping(choice.get("properties"))
    if name in named:
        return part_of(choice, named[name])
    for pattern, of in patterns_of(choice).items():
        if all(matches(each, name) for each in searches(pattern)):
            return part_of(choice, of)
    return part_of(choice, choice.get("additionalProperties", True))


def property_in(schema: Schema, name: str) -> Schema:
    """Return the schema of a property, united over the alternatives of ``schema``."""
    return _unite_schemas(property_of(choice, name) or None for choice in choices(schema))


def patterns_of(choice: Schema) -> Mapping[str, object]:
    return as_mapping(choice.get("patternProperties"))


def names_in(schema: Schema) -> tuple[str, ...]:
    found = (_collect_property_names(choice) for choice in choices(schema))
    return tuple(dict.fromkeys(name for names in found for name in names))


def _collect_property_names(choice: Schema) -> dict[str, None]:
    required = (str(name) for name in as_list(choice.get("required")))
    return dict.fromkeys([*as_mapping(choice.get("properties")), *required])


def _list_free_keys_with_schemas(
    choice: Schema, any_key: str, declared_names: Mapping[str, object]
) -> list[tuple[str, Schema]]:
    patterns = patterns_of(choice)
    known = as_mapping(choice.get("properties")).values()
    silent = all(of is False for of in known) or bool(patterns)
    others = part_of(choice, choice.get("additionalProperties", silent))
    taken = [f"~/{'|'.join(map(spelled, declared_names))}/"] if declared_names else []
    keys = {pattern: text_terminal({"pattern": pattern}) or "" for pattern in patterns}
    found = []
    for pattern, of in patterns.items():
        rivals = [f"~({keys[other]})" for other in patterns if other != pattern]
        schema = part_of(choice, of)
        if schema is not None and choices(schema):
            found.append((" & ".join([f"({keys[pattern]})", any_key, *taken, *rivals]), schema))
    if others is not None and choices(others):
        rivals = [f"~({text})" for text in keys.values()]
        found.append((" & ".join([any_key, *taken, *rivals]), others))
    return found


def _compute_free_key_bounds(
    choice: Schema, required_count: int, named: int, has_free_keys: bool
) -> tuple[int, int | None]:
    low, high = choice.get("minProperties", 0), choice.get("maxProperties")
    least = max(low - required_count, 0) if isinstance(low, int) else 0
    most = high - named if isinstance(high, int) else None
    if least and (named > required_count or least > 1 or not has_free_keys):
        reason = "that there are enough of the optional properties is not held."
        raise refused(choice, reason, "minProperties")
    if most is not None and most < 0:
        reason = "that there are not all of the named properties is not held."
        raise refused(choice, reason, "maxProperties")
    return least, most
