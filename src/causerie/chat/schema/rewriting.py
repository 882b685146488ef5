"""Roundabout schemas rewritten into plain ones, and the opposite of a schema."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from math import prod
from typing import Any

from causerie.chat.schema import keywords as words
from causerie.chat.schema.keywords import Schema, as_list, constants, one_or_several, step
from causerie.chat.schema.pattern import Refused, searches
from causerie.chat.schema.values import is_number, json_type_name

SIZES = frozenset({
    "minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties",
    "minContains", "maxContains",
})  # fmt: skip
_MOST_STEPS = 16  # from reference to reference


def satisfiable(schema: Schema) -> Schema | bool:
    """Return an equivalent, simpler schema, or ``False`` for one that plainly admits nothing."""
    if is_never(schema):
        return False
    whole = {
        key: int(of)
        for key, of in schema.items()
        if key in SIZES and isinstance(of, float) and of.is_integer()
    }
    schema = {**schema, **whole} if whole else schema
    if "nullable" not in schema:
        return schema
    rest = {key: value for key, value in schema.items() if key != "nullable"}
    return {**rest, "type": declared_types(schema)} if "type" in rest else rest


def plain(schema: Schema, pointer: str, resolve: Callable[[str], object]) -> Schema | bool:
    """Return the schema with ``propertyNames`` written as other keywords where that is possible."""
    said = satisfiable(schema)
    if isinstance(said, bool) or "propertyNames" not in said:
        return said
    schema = said
    named = _follow_references(schema.get("propertyNames"), resolve)
    names, pattern = _list_all_allowed_strings(named), _convert_to_pattern(named)
    known, others = schema.get("properties", {}), schema.get("additionalProperties", True)
    if "patternProperties" in schema or not isinstance(known, Mapping):
        return schema
    if isinstance(others, Mapping):
        others = {"$ref": step(pointer, "additionalProperties")}
    rest = {key: value for key, value in schema.items() if key != "propertyNames"}
    if names is not None:
        properties = {name: known.get(name, others) for name in names}
        return {**rest, "properties": properties, "additionalProperties": False}
    if pattern is not None and not known:
        return {**rest, "patternProperties": {pattern: others}, "additionalProperties": False}
    return schema


def declared_types(schema: Schema) -> object:
    """Return the ``type`` of a schema, with ``null`` if it is also ``nullable`` (OpenAPI 3.0.3)."""
    types = schema.get("type")
    if schema.get("nullable") is not True or types is None:
        return types
    named = one_or_several(types)
    return named if "null" in named else [*named, "null"]


def is_never(schema: object) -> bool:
    if not isinstance(schema, Mapping):
        return schema is False
    never = schema.get("not", False)
    return never is True or (isinstance(never, Mapping) and not _drop_annotations(never))


def _follow_references(schema: object, resolve: Callable[[str], object]) -> Schema:
    said = _drop_annotations(schema)
    for _ in range(_MOST_STEPS):
        reference = said.get("$ref")
        if len(said) > 1 or not (isinstance(reference, str) and reference.startswith("#")):
            break
        said = _drop_annotations(resolve(reference))
    return said


def _list_all_allowed_strings(schema: Schema) -> Sequence[str] | None:
    options = schema.get("anyOf") if schema.keys() <= {"type", "anyOf"} else None
    if not isinstance(options, list) or schema.get("type", "string") != "string":
        return _read_string_constants(schema)
    each = [_read_string_constants(_drop_annotations(option)) for option in options]
    return [name for names in each for name in names or ()] if None not in each else None


def _convert_to_pattern(schema: Schema) -> str | None:
    rules = {key: value for key, value in schema.items() if (key, value) != ("type", "string")}
    if rules.get("format") in words.SAID_BY_PATTERN and "pattern" in rules:
        del rules["format"]
    pattern = rules.get("pattern")
    lengths = rules.keys() <= {"minLength", "maxLength"}
    if rules and lengths and all(type(size) is int and size >= 0 for size in rules.values()):
        low, high = rules.get("minLength", 0), rules.get("maxLength", "")
        pattern = f"^[\\s\\S]{{{low},{high}}}$"
    elif rules.keys() != {"pattern"}:
        return None
    try:
        return pattern if isinstance(pattern, str) and len(searches(pattern)) == 1 else None
    except Refused:
        return None


def _drop_annotations(schema: object) -> Schema:
    if not isinstance(schema, Mapping):
        return {}
    return {key: value for key, value in schema.items() if not words.is_annotation(key)}


def _read_string_constants(schema: Schema) -> Sequence[str] | None:
    if schema.get("type", "string") != "string" or len(schema.keys() - {"type"}) != 1:
        return None
    options = constants(schema)
    return None if options is None else [name for name in options if isinstance(name, str)]


# Every document that an opposite admits is invalid by the schema. The reverse does not hold: no
# grammar excludes a pattern, for example.

_MOST = 24  # alternatives
_DEEPEST = 8
_MOST_CHARACTERS_IN_ALL = 20_000
_A_WAY = 20  # characters as which one alternative counts
_ESCAPED = re.compile(r'["\\\x00-\x1f\x7f]')  # in JSON; engines read classes without them loosely
_MOST_CHARACTERS = 400  # of the strings that a pattern excludes

_BOUNDS = {
    "minLength": ("string", "maxLength", -1),
    "maxLength": ("string", "minLength", 1),
    "minItems": ("array", "maxItems", -1),
    "maxItems": ("array", "minItems", 1),
    "minProperties": ("object", "maxProperties", -1),
    "maxProperties": ("object", "minProperties", 1),
    "minimum": ("number", "exclusiveMaximum", 0),
    "maximum": ("number", "exclusiveMinimum", 0),
    "exclusiveMinimum": ("number", "maximum", 0),
    "exclusiveMaximum": ("number", "minimum", 0),
}


@dataclass(frozen=True, slots=True)
class Opposite:
    """Alternative schemas of documents that break a schema, of all such ones if ``complete``."""

    ways: tuple[Schema, ...]
    complete: bool  # whether no other document breaks the schema


_NOTHING_SAID = Opposite((), False)


@dataclass(slots=True)
class SchemaNegation:
    """Negates schemas, within limits of work; ``resolve`` finds what a ``$ref`` names."""

    resolve: Callable[[str], object]
    _char_work_left: int = _MOST_CHARACTERS_IN_ALL

    def of(self, schema: object, depth: int = 0) -> Opposite:
        """Return the opposite of a schema, without alternatives if none can be expressed."""
        if not isinstance(schema, Mapping):
            return Opposite(({},) if schema is False else (), True)
        if depth > _DEEPEST or self._char_work_left < 0:
            return _NOTHING_SAID
        each = [
            self._build_opposite_of_keyword(key, value, schema, depth)
            for key, value in schema.items()
            if not words.is_annotation(key)
        ]
        found = _unite_opposites(each)
        self._char_work_left -= sum(_A_WAY + len(str(way.get("pattern", ""))) for way in found.ways)
        return found

    def _build_opposite_of_keyword(
        self, keyword: str, value: object, schema: Schema, depth: int
    ) -> Opposite:
        if keyword == "$ref" and isinstance(value, str) and value.startswith("#"):
            return self.of(self.resolve(value), depth + 1)
        if keyword in ("const", "enum"):
            return _build_opposite_of_constants([value] if keyword == "const" else as_list(value))
        if keyword == "type":
            names = set(map(str, one_or_several(declared_types(schema))))
            excluded = names | ({"number"} if "integer" in names else set())
            others = [kind for kind in words.KINDS if kind not in excluded]
            complete = "integer" not in names or "number" in names
            return Opposite(({"type": others},) if others else (), complete)
        if keyword == "not":
            return Opposite((value,) if isinstance(value, Mapping) else (), True)
        if keyword == "required":
            lacking = [{"type": "object", "properties": {name: False}} for name in as_list(value)]
            return Opposite(tuple(lacking), True)
        if keyword == "properties" and isinstance(value, Mapping):
            return self._build_opposite_of_properties(value, depth)
        if keyword == "items" and isinstance(value, Mapping) and "prefixItems" not in schema:
            ways = self.of(value, depth + 1).ways
            first = ({"type": "array", "minItems": 1, "prefixItems": [way]} for way in ways)
            return Opposite(tuple(first), False)
        if keyword == "allOf":
            return _unite_opposites(self.of(part, depth + 1) for part in as_list(value))
        if keyword in ("anyOf", "oneOf"):
            none = self._build_opposite_of_any_of(as_list(value), depth)
            return none if keyword == "anyOf" else Opposite(none.ways, False)
        return _build_opposite_of_bound(keyword, value)

    def _build_opposite_of_properties(self, properties: Schema, depth: int) -> Opposite:
        ways, complete = [], True
        for name, schema in properties.items():
            opposite = self.of(schema, depth + 1)
            complete = complete and opposite.complete
            held = {"type": "object", "required": [name]}
            ways += [{**held, "properties": {name: way}} for way in opposite.ways]
        return Opposite(tuple(ways[:_MOST]), complete and len(ways) <= _MOST)

    def _build_opposite_of_any_of(self, options: Sequence[object], depth: int) -> Opposite:
        each = [self.of(option, depth + 1) for option in options]
        if prod(len(one.ways) for one in each) > _MOST:
            return _NOTHING_SAID
        ways = tuple(
            {"allOf": list(ways)} if len(ways) > 1 else ways[0]
            for ways in product(*(one.ways for one in each))
            if ways
        )
        return Opposite(ways, all(one.complete for one in each))


def _build_opposite_of_bound(keyword: str, bound: object) -> Opposite:
    if keyword not in _BOUNDS or not is_number(bound):
        return _NOTHING_SAID
    kind, other, away = _BOUNDS[keyword]
    if away < 0 and bound <= 0:
        return _NOTHING_SAID
    return Opposite(({"type": kind, other: int(bound) + away if away else bound},), True)


def _unite_opposites(opposites: Iterable[Opposite]) -> Opposite:
    each = list(opposites)
    ways = [way for one in each for way in one.ways]
    return Opposite(tuple(ways[:_MOST]), len(ways) <= _MOST and all(o.complete for o in each))


def _build_opposite_of_constants(values: Sequence[object]) -> Opposite:
    kinds = set(map(json_type_name, values))
    ways: list[Schema] = []
    if others := [kind for kind in words.KINDS if kind not in kinds]:
        ways.append({"type": others})
    texts = [value for value in values if isinstance(value, str)]
    said = sum(map(len, texts)) <= _MOST_CHARACTERS and not _ESCAPED.search("".join(texts))
    if texts and said:
        ways.append({"type": "string", "pattern": build_pattern_excluding(texts)})
    if "boolean" in kinds:
        ways += [{"const": flag} for flag in (True, False) if not any(of is flag for of in values)]
    numbers = sorted({value for value in values if is_number(value)})
    if numbers:
        ways.append({"type": "number", "exclusiveMaximum": numbers[0]})
        ways.append({"type": "number", "exclusiveMinimum": numbers[-1]})
    gaps = [(low, high) for low, high in pairwise(numbers) if high - low > 1]
    for low, high in gaps:
        ways.append({"type": "number", "exclusiveMinimum": low, "exclusiveMaximum": high})
    apart = len(gaps) == max(len(numbers) - 1, 0)
    return Opposite(tuple(ways), said and apart and not kinds & {"array", "object"})


def build_pattern_excluding(texts: Iterable[str]) -> str:
    """Build a pattern that matches every text but ``texts``, without look-ahead."""
    trie: dict[str, Any] = {}
    for text in texts:
        node = trie
        for character in text:
            node = node.setdefault(character, {})
        node[""] = {}
    return f"^{_build_excluding_pattern(trie)}$"


def _build_excluding_pattern(trie_node: Mapping[str, Any]) -> str:
    known = [character for character in trie_node if character]
    others = re.sub(r"[\\\]^\-\[]", r"\\\g<0>", "".join(known))
    ways = [f"[^{others}][\\s\\S]*"] if known else ["[\\s\\S]+"]
    ways += [f"{re.escape(each)}{_build_excluding_pattern(trie_node[each])}" for each in known]
    if "" not in trie_node:
        ways.append("")
    return f"(?:{'|'.join(ways)})"
