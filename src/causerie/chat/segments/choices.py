"""What a schema says of one value, taken apart: references resolved, alternatives side by side.

Whoever writes arguments one by one has to know whether a value is a string
before its first character, and what kind of string. Knows the keywords that
apply schemas to the same value; knows nothing of grammars.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from urllib.parse import unquote

from causerie.chat.schema.keywords import ANNOTATIONS, APPLIES
from causerie.chat.schema.names import listed
from causerie.chat.schema.refusal import step
from causerie.chat.segments.base import Schema
from causerie.chat.segments.conjunction import (
    AT,
    admits,
    constants,
    kind_of,
    met,
    refused,
    settled,
)

ALL = frozenset({"string", "number", "boolean", "null", "array", "object"})
_VALUES = frozenset({"const", "enum", "default", "example", "examples"})
_NAMED = frozenset({"properties", "patternProperties", "$defs", "definitions"})
_SPEAK_OF_PROPERTIES = APPLIES - {"const", "enum", "maxProperties"} | {"propertyNames"}
_DEFINITIONS = ("$defs", "definitions")
_WITHIN = tuple(f"#/{name}/" for name in _DEFINITIONS)
_ALTERNATIVES = ("anyOf", "oneOf")
_APPLIED = frozenset({"$ref", "allOf", *_ALTERNATIVES})
_MOST = 64  # combinations of alternatives that hold at once


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
    stands for itself: a reference of the whole, and an ``allOf`` of one. Every
    part that says something says where it stood (``AT``), for refusals.
    """
    moved: dict[str, object] = {}
    names: dict[str, str] = {}

    def walked(value: object, at: str) -> object:
        if isinstance(value, list):
            return [walked(item, step(at, index)) for index, item in enumerate(value)]
        if not isinstance(value, Mapping) or not value:
            return value
        out: dict[str, object] = {AT: at}
        spelled = listed(_unwrapped(value), at, partial(resolved, root))
        for key, of in spelled.items():
            below = step(at, key)
            if key in _NAMED and isinstance(of, Mapping):
                out[key] = {name: walked(each, step(below, name)) for name, each in of.items()}
            else:
                out[key] = of if key in _VALUES else walked(of, below)
        reference = out.get("$ref")
        if isinstance(reference, str) and not reference.startswith(_WITHIN):
            if reference not in names:
                name = names[reference] = f"#{len(names)}"
                found = _without_definitions(resolved(root, reference))
                moved[name] = walked(found, reference)
            out["$ref"] = f"#/$defs/{names[reference]}"
        return out

    whole = walked(root, "#")
    assert isinstance(whole, dict)
    if moved:
        shared = whole.get("$defs")
        whole["$defs"] = {**(shared if isinstance(shared, dict) else {}), **moved}
    reference = whole.get("$ref")
    if isinstance(reference, str) and whole.keys() - {"$ref", "type", AT} <= ANNOTATIONS:
        del whole["$ref"]
        whole |= _without_definitions(resolved(whole, reference))
    return whole


def closed_schema(parameters: Schema) -> Schema:
    """A function's parameters as the constraint takes them.

    No properties means no arguments; otherwise properties that the schema does
    not name are left out, which any schema that merely allows them admits.
    """
    schema = {"type": "object", **parameters}
    if not schema.keys() & _SPEAK_OF_PROPERTIES:
        schema["properties"] = {}
    named, required = schema.get("properties"), schema.get("required", [])
    if (
        isinstance(named, Mapping)
        and isinstance(required, list)
        and named.keys() >= set(map(str, required))
        and not any(map(_names_others, _beside(schema)))
        and "patternProperties" not in schema
    ):
        schema.setdefault("additionalProperties", False)
    return schema


def _beside(schema: Schema) -> Iterator[object]:
    """The schemas that hold beside it for the same object."""
    for key in ("allOf", "anyOf", "oneOf"):
        options = schema.get(key)
        yield from options if isinstance(options, list) else ()
    if "$ref" in schema:
        yield schema["$ref"]


def _names_others(option: object) -> bool:
    return not isinstance(option, Mapping) or bool(option.keys() & (APPLIES - {"required"}))


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

    There are none where no value can follow ``schema``. Raises ``InvalidRequest``
    (``unsupported_schema``) where they are too many, or cannot be told.
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
            raise refused(schema, "too many alternatives hold for one value at once.")
        pairs = (met(one, other) for one in found for other in each)
        found = [both for both in pairs if both is not None]
    return [choice for one in found if (choice := settled(one)) is not None]


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


def kinds_of(choice: Schema) -> frozenset[str]:
    """The JSON types that a value of a choice may have; all where it does not say."""
    values = constants(choice)
    if values is not None:
        return frozenset(map(kind_of, values))
    declared = choice.get("type")
    if isinstance(declared, list):
        return frozenset(map(str, declared))
    return frozenset({declared}) if isinstance(declared, str) else ALL


def kinds(schema: Schema) -> frozenset[str]:
    """The JSON types that a value may have; empty where it may have any."""
    found = frozenset[str]().union(*map(kinds_of, choices(schema)))
    return frozenset() if found >= ALL else found


def without_text(choice: Schema) -> Schema:
    """A choice without its strings; there is something else in it."""
    left = sorted(kinds_of(choice) - {"string"})
    narrowed = {**choice, "type": left[0] if len(left) == 1 else left}
    values = constants(choice)
    if values is None:
        return narrowed
    narrowed.pop("const", None)
    return {**narrowed, "enum": [value for value in values if not isinstance(value, str)]}


def is_meant(value: object, schema: Schema) -> bool:
    """Whether a text that may be a string, and reads as JSON too, stands for ``value``."""
    return any(admits(choice, value) for choice in choices(schema))
