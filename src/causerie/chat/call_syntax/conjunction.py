"""Conjunction of two schemas of one value.

The result is exact, or the schema is rejected: no rule of either schema is
lost. Knows the keywords of JSON Schema; follows no references.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from causerie.chat.call_syntax.base import Schema
from causerie.chat.schema.keywords import is_annotation
from causerie.chat.schema.refusal import step, unsupported
from causerie.chat.validation import following
from causerie.errors import InvalidRequest

AT = "x-at"  # where a part of a schema stood in what was sent
_NAMES: Mapping[type, str] = {
    str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null",
    list: "array", dict: "object",
}  # fmt: skip
NUMERIC = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "allOf")
_OBJECTS = frozenset({"properties", "additionalProperties"})
_REPEATED = frozenset({"pattern", "format", "multipleOf"})  # side by side in an ``allOf``
_ALONE = frozenset({"prefixItems", "items", "additionalItems", "patternProperties"})
_PLAIN = frozenset({"type", "multipleOf", "minLength", "maxLength", "minimum", "maximum",
                    "exclusiveMinimum", "exclusiveMaximum"})  # fmt: skip


def refused(schema: Schema, reason: str, *keys: str) -> InvalidRequest:
    """Return the refusal of a part of a function's parameters."""
    return unsupported("tools", reason, step(str(schema.get(AT, "#")), *keys))


def kind_of(value: object) -> str:
    """Return the JSON type of a value."""
    return _NAMES[type(value)]


def constants(choice: Schema) -> list[object] | None:
    """Return the values that a choice lists."""
    values = [choice["const"]] if "const" in choice else choice.get("enum")
    return values if isinstance(values, list) else None


def admits(choice: Schema, value: object) -> bool:
    """Return whether a value is one of a choice's constants, or has its type and bounds."""
    values = constants(choice)
    if values is not None:
        return any(same(value, each) for each in values)
    return bool(following([value], {key: choice[key] for key in _PLAIN if key in choice}))


def met(one: Schema, other: Schema) -> Schema | None:
    """Return the conjunction; ``None`` if no value has the type, or is a constant, of both."""
    both = {**one, **other}
    for key in one.keys() & other.keys():
        if one[key] == other[key]:
            continue
        if key in _TOGETHER:
            both[key] = _TOGETHER[key](one[key], other[key])
        elif key in _REPEATED:
            leading_content = both.get("allOf")
            both["allOf"] = [
                *(leading_content if isinstance(leading_content, list) else ()),
                {key: one[key]},
            ]
        elif key in _ALONE:
            raise refused(other, "alongside another schema for the same array it is not supported.")
    if one.keys() & _OBJECTS and other.keys() & _OBJECTS:
        both |= _members(one, other)
    first, second = constants(one), constants(other)
    if first is not None and second is not None:
        both.pop("const", None)
        both["enum"] = [value for value in first if any(same(value, each) for each in second)]
    return None if both.get("type") == [] or both.get("enum") == [] else both


def settled(choice: Schema) -> Schema | None:
    """Return the choice with those of its constants that follow the rest; ``None`` without any."""
    values = constants(choice)
    if values is None:
        return choice
    others = {key for key in choice if not is_annotation(key)} - {"const", "enum", "allOf"}
    rules = {key: choice[key] for key in others & _PLAIN}
    if "allOf" in choice or others - _PLAIN:
        raise refused(choice, "alongside constants only types, lengths and bounds are supported.")
    if not rules:
        return choice
    kept = following(values, rules)
    if not kept:
        return None
    return {**{key: of for key, of in choice.items() if key != "const"}, "enum": kept}


def _members(one: Schema, other: Schema) -> Mapping[str, object]:
    """Return the properties of two object schemas, each as both see it."""
    names = dict.fromkeys([*_named(one), *_named(other)])
    found: dict[str, object] = {}
    if names:
        found["properties"] = {name: _both(_seen(one, name), _seen(other, name)) for name in names}
    if "additionalProperties" in one or "additionalProperties" in other:
        sides = [side.get("additionalProperties", True) for side in (one, other)]
        found["additionalProperties"] = _both(*sides)
    return found


def _named(schema: Schema) -> Mapping[str, object]:
    named = schema.get("properties")
    return named if isinstance(named, Mapping) else {}


def _seen(schema: Schema, name: str) -> object:
    return _named(schema).get(name, schema.get("additionalProperties", True))


def _both(first: object, second: object) -> object:
    """Return a schema that is valid for both."""
    if first is False or second is False:
        return False
    parts = _union(_parts(first), _parts(second))
    return {"allOf": parts} if len(parts) > 1 else parts[0] if parts else True


def _parts(schema: object) -> list[object]:
    if not isinstance(schema, Mapping):
        return []
    parts = schema.get("allOf")
    return parts if isinstance(parts, list) and schema.keys() == {"allOf"} else [schema]


def _types(first: object, second: object) -> object:
    sides = [side if isinstance(side, list) else [side] for side in (first, second)]
    mine, theirs = ({*side, "integer"} if "number" in side else {*side} for side in sides)
    common = mine & theirs
    kinds = sorted(common - {"integer"} if "number" in common else common)
    return kinds[0] if len(kinds) == 1 else kinds


def _union(first: Sequence[object], second: Sequence[object]) -> list[object]:
    return [*first, *(item for item in second if item not in first)]


def same(one: object, other: object) -> bool:
    """Return whether two JSON values are equal; true is not 1."""
    return one == other and isinstance(one, bool) == isinstance(other, bool)


_TOGETHER: Mapping[str, Callable[[Any, Any], object]] = {
    "type": _types,
    "required": _union,
    "allOf": _union,
    **dict.fromkeys(("minLength", "minItems", "minProperties", "minimum", "exclusiveMinimum"), max),
    **dict.fromkeys(("maxLength", "maxItems", "maxProperties", "maximum", "exclusiveMaximum"), min),
}
