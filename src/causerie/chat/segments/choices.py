"""What a schema says of one value, taken apart: references resolved, alternatives side by side.

Whoever writes arguments one by one has to know whether a value is a string
before its first character, and what kind of string. Knows the keywords that
apply schemas to the same value; knows nothing of grammars.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from urllib.parse import unquote

from causerie.chat.schema.keywords import ANNOTATIONS
from causerie.chat.schema.refusal import unsupported
from causerie.chat.segments.base import Schema

ALL = frozenset({"string", "number", "boolean", "null", "array", "object"})
_DEFINITIONS = ("$defs", "definitions")
_WITHIN = tuple(f"#/{name}/" for name in _DEFINITIONS)
_ALTERNATIVES = ("anyOf", "oneOf")
_APPLIED = frozenset({"$ref", "allOf", *_ALTERNATIVES})
_MOST = 64  # combinations of alternatives that hold at once
_NAMES: Mapping[type, str] = {
    str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null",
    list: "array", dict: "object",
}  # fmt: skip


def definitions(schema: Schema) -> dict[str, object]:
    """What a part of ``schema`` may refer to."""
    return {key: schema[key] for key in _DEFINITIONS if key in schema}


def resolved(root: Schema, reference: str) -> Schema:
    """The schema that a local reference names; one that names nothing allows anything."""
    found: object = root
    for part in reference.removeprefix("#").split("/")[1:]:
        name = unquote(part).replace("~1", "/").replace("~0", "~")
        if isinstance(found, list):
            found = found[int(name)] if name.isdecimal() and int(name) < len(found) else {}
        else:
            found = found.get(name, {}) if isinstance(found, Mapping) else {}
    return found if isinstance(found, Mapping) else {}


def anchored(root: Schema) -> Schema:
    """The same schema, whose parts mean what they mean with nothing but its definitions.

    Whatever else is referred to becomes one of them. What is applied alone
    stands for itself: a reference of the whole, and an ``allOf`` of one.
    """
    moved: dict[str, object] = {}
    names: dict[str, str] = {}

    def walked(value: object) -> object:
        if isinstance(value, list):
            return [walked(item) for item in value]
        if not isinstance(value, Mapping):
            return value
        out = {key: walked(item) for key, item in _unwrapped(value).items()}
        reference = out.get("$ref")
        if isinstance(reference, str) and not reference.startswith(_WITHIN):
            if reference not in names:
                name = names[reference] = f"#{len(names)}"
                moved[name] = walked(_without_definitions(resolved(root, reference)))
            out["$ref"] = f"#/$defs/{names[reference]}"
        return out

    whole = walked(root)
    assert isinstance(whole, dict)
    if moved:
        shared = whole.get("$defs")
        whole["$defs"] = {**(shared if isinstance(shared, dict) else {}), **moved}
    reference = whole.get("$ref")
    if isinstance(reference, str) and whole.keys() - {"$ref", "type"} <= ANNOTATIONS:
        del whole["$ref"]
        whole |= _without_definitions(resolved(whole, reference))
    return whole


def _unwrapped(schema: Mapping[str, object]) -> Mapping[str, object]:
    """The one part of an ``allOf``, where nothing else says anything."""
    parts = schema.get("allOf")
    if isinstance(parts, list) and len(parts) == 1 and isinstance(parts[0], Mapping):
        rest = {key: value for key, value in schema.items() if key != "allOf"}
        if rest.keys() <= ANNOTATIONS:
            return {**rest, **parts[0]}
    return schema


def _without_definitions(schema: Schema) -> Schema:
    return {key: value for key, value in schema.items() if key not in _DEFINITIONS}


def choices(schema: Schema) -> list[Schema]:
    """The schemas one of which a value follows, with the definitions; none of them applies others.

    Raises ``InvalidRequest`` (``unsupported_schema``) where they are too many.
    """
    shared = definitions(schema)
    found: list[Schema] = [{key: of for key, of in schema.items() if key not in _APPLIED}]
    for options in _applied(schema):
        each = [
            choice
            for option in options
            if option is not False
            for choice in choices({**(option if isinstance(option, Mapping) else {}), **shared})
        ]
        if len(found) > 1 and len(found) * len(each) > _MOST:
            raise unsupported("tools", "Too many alternatives hold for one value at once.")
        found = [_met(one, other) for one in found for other in each]
    return found


def _applied(schema: Schema) -> Iterator[list[object]]:
    reference = schema.get("$ref")
    if isinstance(reference, str):
        yield [resolved(schema, reference)]
    parts = schema.get("allOf")
    yield from ([part] for part in parts) if isinstance(parts, list) else ()
    for key in _ALTERNATIVES:
        options = schema.get(key)
        if isinstance(options, list):
            yield options


def _met(one: Schema, other: Schema) -> Schema:
    """Both at once."""
    both = {**one, **other}
    first, second = one.get("properties"), other.get("properties")
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        both["properties"] = {**first, **second}
    needed, too = one.get("required"), other.get("required")
    if isinstance(needed, list) and isinstance(too, list):
        both["required"] = [*needed, *too]
    return both


def kinds_of(choice: Schema) -> frozenset[str]:
    """The JSON types that a value of a choice may have; all where it does not say."""
    values = constants(choice)
    if values is not None:
        return frozenset(_NAMES[type(value)] for value in values)
    declared = choice.get("type")
    if isinstance(declared, list):
        return frozenset(map(str, declared))
    return frozenset({declared}) if isinstance(declared, str) else ALL


def constants(choice: Schema) -> list[object] | None:
    """The values that a choice lists."""
    values = [choice["const"]] if "const" in choice else choice.get("enum")
    return values if isinstance(values, list) else None


def kinds(schema: Schema) -> frozenset[str]:
    """The JSON types that a value may have; empty where it may have any."""
    found = frozenset[str]().union(*map(kinds_of, choices(schema)))
    return frozenset() if found >= ALL else found


def properties(schema: Schema) -> Mapping[str, Schema]:
    """The properties of an object schema, each with the definitions it may refer to."""
    found: dict[str, dict[int, object]] = {}
    for choice in choices(schema):
        declared = choice.get("properties")
        for name, value in declared.items() if isinstance(declared, Mapping) else ():
            found.setdefault(str(name), {})[id(value)] = value
    shared = definitions(schema)
    return {name: {**_one_of(list(values.values())), **shared} for name, values in found.items()}


def _one_of(values: list[object]) -> Schema:
    first = values[0]
    if len(values) > 1:
        return {"anyOf": values}
    return first if isinstance(first, Mapping) else {}


def without_text(choice: Schema) -> Schema:
    """A choice without its strings; there is something else in it."""
    left = sorted(kinds_of(choice) - {"string"})
    narrowed = {**choice, "type": left[0] if len(left) == 1 else left}
    values = constants(choice)
    if values is None:
        return narrowed
    narrowed.pop("const", None)
    return {**narrowed, "enum": [value for value in values if not isinstance(value, str)]}
