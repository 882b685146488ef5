"""Alternatives that a schema allows for one value, and the conjunction of two schemas."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from causerie.chat.call_syntax.base import Schema
from causerie.chat.schema import keywords as words
from causerie.chat.schema.keywords import AT, as_list, as_mapping, constants, one_or_several, step
from causerie.chat.schema.normal import Rewriter
from causerie.chat.schema.values import canonical, is_number, json_type_name
from causerie.chat.validation import following

ALL = frozenset({"string", "number", "boolean", "null", "array", "object"})
_SPEAK_OF_PROPERTIES = words.APPLIES - {"const", "enum", "maxProperties"} | {"propertyNames"}
_NAME_OTHERS = words.APPLIES - {"required"}
_DEFINITIONS = ("$defs", "definitions")
_ALTERNATIVES = ("anyOf", "oneOf")
_NUMBERS = ("minimum", "maximum")
_BOUNDS = {
    "string": ("minLength", "maxLength"),
    "array": ("minItems", "maxItems"),
    "object": ("minProperties", "maxProperties"),
    "number": _NUMBERS,
    "integer": _NUMBERS,
}
_MOST = 32  # combinations of alternatives that hold at once
_MOST_UNITED = 1_000  # alternatives of which options have several


def definitions(schema: Schema) -> dict[str, object]:
    """Return the definitions that a part of ``schema`` may refer to."""
    return {key: schema[key] for key in _DEFINITIONS if key in schema}


def part_of(schema: Schema, part: object) -> Schema | None:
    """Return a schema inside ``schema`` with its definitions; ``None`` if it admits nothing."""
    if part is False:
        return None
    return {**as_mapping(part), **definitions(schema)}


def resolved(root: Schema, reference: str) -> Schema | bool:
    """Return the schema that a local reference names; an unresolved one admits anything."""
    try:
        found = words.part_at(root, reference)
    except LookupError:
        return {}
    return found if isinstance(found, Mapping | bool) else {}


def anchored(root: Schema) -> Schema:
    """Rewrite a schema so that each part needs only its definitions; raise ``SchemaRefused``."""
    whole = Rewriter(root, "tools", for_parts=True).rewrite()
    reference = whole.get("$ref")
    if not isinstance(reference, str) or whole.keys() - {"$ref", "type", "$defs", AT}:
        return whole
    target = resolved(whole, reference)
    if not isinstance(target, Mapping) or whole.get("type") not in (None, target.get("type")):
        return whole
    return {**{key: of for key, of in whole.items() if key != "$ref"}, **target}


def closed_schema(parameters: Schema) -> Schema:
    """Return a function's parameter schema, closed to properties that it does not name.

    No properties means no arguments; otherwise properties that the schema does
    not name are left out, which any schema that merely allows them admits.
    """
    schema = {"type": "object", **parameters}
    if not schema.keys() & _SPEAK_OF_PROPERTIES:
        schema["properties"] = {}
    named, required = schema.get("properties"), schema.get("required", [])
    alongside = [each for key in ("allOf", "anyOf", "oneOf") for each in as_list(schema.get(key))]
    if (
        isinstance(named, Mapping)
        and isinstance(required, list)
        and named.keys() >= set(map(str, required))
        and all(
            isinstance(each, Mapping) and each.keys().isdisjoint(_NAME_OTHERS) for each in alongside
        )
        and schema.keys().isdisjoint({"$ref", "patternProperties"})
    ):
        schema.setdefault("additionalProperties", False)
    return schema


def choices(schema: Schema) -> Sequence[Schema]:
    """Expand ``schema`` into alternatives that apply no other schemas, each with its definitions.

    There are none where no value can follow it. Raises ``SchemaRefused`` where they are too many.
    """
    return _expand_alternatives(schema, definitions(schema), {})


def _expand_alternatives(
    schema: Schema, defs: Schema, cache: dict[int, tuple[object, Sequence[Schema]]]
) -> Sequence[Schema]:
    # Parts that refer to the same part twice, level by level, are read once each.
    applied = ("$ref", "allOf", *_ALTERNATIVES)
    found: list[Schema] = [{key: of for key, of in schema.items() if key not in applied}]
    for options in _iter_alternatives_per_applicator(schema):
        ways = [_expand_option(option, defs, cache) for option in options]
        each = _flatten_distinct_choices(ways, defs)
        if len(each) > max(len(options), _MOST_UNITED):
            raise refused(schema, "it has too many alternatives.")
        if len(found) > 1 and len(found) * len(each) > _MOST:
            raise refused(schema, "too many alternatives hold for one value at once.")
        pairs = (met(one, other) for one in found for other in each)
        found = [both for both in pairs if both is not None]
    kept = [choice for one in found if (choice := settled(one)) is not None]
    return [choice for one in kept if (choice := _drop_types_with_empty_range(one)) is not None]


def _expand_option(
    option: object, defs: Schema, cache: dict[int, tuple[object, Sequence[Schema]]]
) -> Sequence[Schema]:
    if option is False:
        return ()
    if not isinstance(option, Mapping):
        return _expand_alternatives(defs, defs, cache)
    if id(option) not in cache:
        cache[id(option)] = option, _expand_alternatives({**option, **defs}, defs, cache)
    return cache[id(option)][1]


def _flatten_distinct_choices(
    choice_lists: Sequence[Sequence[Schema]], ignored_keywords: Schema
) -> Sequence[Schema]:
    each = [choice for option in choice_lists for choice in option]
    if len(each) <= len(choice_lists):
        return each
    own = (
        {key: of for key, of in choice.items() if key not in ignored_keywords} for choice in each
    )
    return [*{json.dumps(one, sort_keys=True): each[at] for at, one in enumerate(own)}.values()]


def _drop_types_with_empty_range(choice: Schema) -> Schema | None:
    # Schemas that hold at once may leave nothing of one alternative, and something of another.
    bounds = {kind: (choice.get(low), choice.get(high)) for kind, (low, high) in _BOUNDS.items()}
    empty = {
        kind
        for kind, (least, most) in bounds.items()
        if is_number(least) and is_number(most) and least > most
    }
    if not empty:
        return choice
    left = kinds_of(choice) - empty
    return of_kinds(choice, left) if left else None


def _iter_alternatives_per_applicator(schema: Schema) -> Iterator[Sequence[object]]:
    reference = schema.get("$ref")
    if isinstance(reference, str):
        yield [resolved(schema, reference)]
    yield from ([part] for part in as_list(schema.get("allOf")))
    for key in _ALTERNATIVES:
        options = schema.get(key)
        if isinstance(options, list):
            yield options


def kinds_of(choice: Schema) -> frozenset[str]:
    """Return the JSON types that a value of a choice may have; all if it names none."""
    values = constants(choice)
    if values is not None:
        return frozenset(map(kind_of, values))
    return frozenset(map(str, one_or_several(choice["type"]))) if "type" in choice else ALL


def kinds(schema: Schema) -> frozenset[str]:
    """Return the JSON types that ``schema`` admits; empty if it admits all of them."""
    found = frozenset[str]().union(*map(kinds_of, choices(schema)))
    return frozenset() if found >= ALL else found


def of_kinds(choice: Schema, left: Collection[str]) -> Schema:
    """Return a choice with only the types ``left`` and its constants of those types."""
    names, values = sorted(left), constants(choice)
    narrowed = {**choice, "type": names[0] if len(names) == 1 else names}
    if values is None:
        return narrowed
    narrowed.pop("const", None)
    return {**narrowed, "enum": [value for value in values if kind_of(value) in left]}


def is_meant(value: object, schema: Schema) -> bool:
    """Return whether the schema admits ``value``, so that its text is JSON and not a string."""
    return any(admits(choice, value) for choice in choices(schema))


# The conjunction of two schemas. It is exact, or the schema is refused.

_OBJECTS = frozenset({"properties", "additionalProperties"})
_REPEATED = frozenset({"pattern", "format", "multipleOf"})  # side by side in an ``allOf``
_ALONE = frozenset({"prefixItems", "items", "patternProperties"})
_PLAIN = frozenset({"type", "multipleOf", "minLength", "maxLength", "minimum", "maximum",
                    "exclusiveMinimum", "exclusiveMaximum"})  # fmt: skip


def refused(schema: Schema, reason: str, *keys: str) -> words.SchemaRefused:
    return words.SchemaRefused("tools", reason, step(str(schema.get(AT, "#")), *keys))


def kind_of(value: object) -> str:
    return "integer" if type(value) is int else json_type_name(value)


def admits(choice: Schema, value: object) -> bool:
    """Return whether a value is one of a choice's constants, or has its type and bounds."""
    values = constants(choice)
    if values is not None:
        return canonical(value) in map(canonical, values)
    return bool(following([value], {key: choice[key] for key in _PLAIN if key in choice}))


def met(one: Schema, other: Schema) -> Schema | None:
    """Conjoin two schemas; return ``None`` if no value has the type, or is a constant, of both."""
    both = {**one, **other}
    for key in one.keys() & other.keys():
        if one[key] == other[key]:
            continue
        if key in _TOGETHER:
            both[key] = _TOGETHER[key](one[key], other[key])
        elif key in _REPEATED:
            both["allOf"] = [*as_list(both.get("allOf")), {key: one[key]}]
        elif key in _ALONE:
            raise refused(other, "alongside another schema for the same array it is not supported.")
    if one.keys() & _OBJECTS and other.keys() & _OBJECTS:
        both |= _conjoin_properties(one, other)
    first, second = constants(one), constants(other)
    if first is not None and second is not None:
        both.pop("const", None)
        shared = set(map(canonical, second))  # true is not 1, however deep
        both["enum"] = [value for value in first if canonical(value) in shared]
    return None if both.get("type") == [] or both.get("enum") == [] else both


def settled(choice: Schema) -> Schema | None:
    """Keep the constants of a choice that follow its other rules; return ``None`` without any."""
    values = constants(choice)
    if values is None:
        return choice
    others = {key for key in choice if not words.is_annotation(key)} - {"const", "enum", "allOf"}
    rules = {key: choice[key] for key in others & _PLAIN}
    if "allOf" in choice or others - _PLAIN:
        raise refused(choice, "alongside constants only types, lengths and bounds are supported.")
    if not rules:
        return choice
    kept = following(values, rules)
    if not kept:
        return None
    return {**{key: of for key, of in choice.items() if key != "const"}, "enum": kept}


def _conjoin_properties(first: Schema, second: Schema) -> Schema:
    sides = [as_mapping(side.get("properties")) for side in (first, second)]
    names = dict.fromkeys(name for side in sides for name in side)
    found: dict[str, object] = {}
    if names:
        found["properties"] = {
            name: _conjoin_schemas(_property_schema(first, name), _property_schema(second, name))
            for name in names
        }
    if "additionalProperties" in first or "additionalProperties" in second:
        others = [side.get("additionalProperties", True) for side in (first, second)]
        found["additionalProperties"] = _conjoin_schemas(*others)
    return found


def _property_schema(schema: Schema, property_name: str) -> object:
    others = schema.get("additionalProperties", True)
    return as_mapping(schema.get("properties")).get(property_name, others)


def _conjoin_schemas(first: object, second: object) -> object:
    if first is False or second is False:
        return False
    parts = _concatenate_unique(_unwrap_if_only_all_of(first), _unwrap_if_only_all_of(second))
    return {"allOf": parts} if len(parts) > 1 else parts[0] if parts else True


def _unwrap_if_only_all_of(schema: object) -> list[object]:
    if not isinstance(schema, Mapping):
        return []
    parts = schema.get("allOf")
    return parts if isinstance(parts, list) and schema.keys() == {"allOf"} else [schema]


def _intersect_types(first: object, second: object) -> object:
    sides = [one_or_several(side) for side in (first, second)]
    mine, theirs = ({*side, "integer"} if "number" in side else {*side} for side in sides)
    common = mine & theirs
    kinds = sorted(common - {"integer"} if "number" in common else common)
    return kinds[0] if len(kinds) == 1 else kinds


def _concatenate_unique(first: Sequence[object], second: Sequence[object]) -> list[object]:
    return [*first, *(item for item in second if item not in first)]


_TOGETHER: Mapping[str, Callable[[Any, Any], object]] = {
    "type": _intersect_types,
    "required": _concatenate_unique,
    "allOf": _concatenate_unique,
    **dict.fromkeys(("minLength", "minItems", "minProperties", "minimum", "exclusiveMinimum"), max),
    **dict.fromkeys(("maxLength", "maxItems", "maxProperties", "maximum", "exclusiveMaximum"), min),
}
