"""The words that schemas of the OpenAPI document are written in where no type says them."""

from __future__ import annotations

Schema = dict[str, object]


def ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def text(**more: object) -> Schema:
    return {"type": "string", **more}


def integer(least: int, most: int, **more: object) -> Schema:
    return {"type": "integer", "minimum": least, "maximum": most, **more}


def structure(required: str = "", /, **properties: Schema) -> Schema:
    """An object; ``required`` are names with spaces between."""
    schema: Schema = {"type": "object", "properties": properties}
    if required:
        schema["required"] = required.split()
    return schema
