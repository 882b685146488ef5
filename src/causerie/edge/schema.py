"""The words that the JSON Schemas of the OpenAPI document are written in."""

from __future__ import annotations

Schema = dict[str, object]


def ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def text(**more: object) -> Schema:
    return {"type": "string", **more}


def integer(least: int, most: int, **more: object) -> Schema:
    return {"type": "integer", "minimum": least, "maximum": most, **more}


def number(least: float, most: float, **more: object) -> Schema:
    return {"type": "number", "minimum": least, "maximum": most, **more}


def array(items: Schema, **more: object) -> Schema:
    return {"type": "array", "items": items, **more}


def structure(required: str = "", /, **properties: Schema) -> Schema:
    """An object; ``required`` are names with spaces between."""
    schema: Schema = {"type": "object", "properties": properties}
    if required:
        schema["required"] = required.split()
    return schema


def taken(required: str = "", /, **properties: Schema) -> Schema:
    """An object that clients send, where ``null`` is the same as leaving a field out."""
    needed = required.split()
    return structure(
        required,
        **{
            name: schema if name in needed else _or_null(schema)
            for name, schema in properties.items()
        },
    )


def _or_null(schema: Schema) -> Schema:
    kind, words = schema.get("type"), schema.get("enum")
    if kind is None:
        return {"anyOf": [schema, {"type": "null"}]} if schema.keys() - {"description"} else schema
    nullable = {**schema, "type": [kind, "null"]}
    return {**nullable, "enum": [*words, None]} if isinstance(words, list) else nullable


def described(schema: Schema, description: str) -> Schema:
    return {**schema, "description": description}


BOOLEAN: Schema = {"type": "boolean"}
OBJECT: Schema = {"type": "object"}
FUNCTION_NAME = text(pattern="^[a-zA-Z0-9_-]{1,64}$")
SPEAKER = text(maxLength=256)
