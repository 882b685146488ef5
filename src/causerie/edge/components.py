"""Schemas of the OpenAPI document, made from types by msgspec."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

import msgspec
from msgspec import UNSET, Struct
from msgspec.structs import FieldInfo, fields

from causerie.edge.schema import Schema
from causerie.protocol.declaration import declared

_REF = "#/components/schemas/{name}"


def received(*types: type[Struct]) -> dict[str, Schema]:
    """Return the schemas of these types and of all that they hold, by the names of the types.

    A struct may have an ``extra_schema`` for rules between its fields. Where a struct forbids
    fields, ``null`` is still the same as leaving one out.
    """
    schemas, structs = _schemas(types)
    for name, schema in schemas.items():
        if schema.get("additionalProperties") is False:
            schema["additionalProperties"] = {"type": "null"}
        schema |= getattr(structs[name], "extra_schema", {})
    return schemas


def sent(*types: type[Struct]) -> dict[str, Schema]:
    """Return the schemas of types that the service encodes; fields with defaults are there too."""
    schemas, structs = _schemas(types)
    for name, schema in schemas.items():
        schema["required"] = [
            each.encode_name
            for each in fields(structs[name])
            if _is_always_sent(structs[name], each)
        ]
    return schemas


def _is_always_sent(kind: type[Struct], one: FieldInfo) -> bool:
    omitted = kind.__struct_config__.omit_defaults and not one.required
    return not omitted and one.default is not UNSET


def _schemas(types: tuple[type[Struct], ...]) -> tuple[dict[str, Schema], dict[str, type[Struct]]]:
    """Return the schemas that msgspec makes, and their structs by the same names."""
    _, schemas = msgspec.json.schema_components(types, ref_template=_REF)
    for schema in schemas.values():
        if "description" in schema:
            schema["description"] = schema["description"].replace("``", "`")
        for each in schema.get("properties", {}).values():
            if each.get("default", ...) is None:
                del each["default"]
    return schemas, {each.__name__: each for one in types for each in _structs(one)}


def _structs(kind: Any) -> Iterator[type[Struct]]:
    """Yield the structs that values of a type may hold."""
    if isinstance(kind, type) and issubclass(kind, Struct):
        yield kind
        for each in declared(kind):
            yield from _structs(each.type)
    for argument in get_args(kind):
        yield from _structs(argument)
