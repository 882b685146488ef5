"""The shape that the answer must have: ``response_format`` and ``structured_outputs``."""

from __future__ import annotations

import re

from causerie.errors import InvalidRequest
from causerie.protocol.body_types import MAX_OPTIONS, StructuredOutputs
from causerie.protocol.parsing.fields import (
    ObjectReader,
    missing,
    wrong_type,
    wrong_value,
)
from causerie.protocol.request import Grammar, JsonObject, JsonSchema, OutputFormat, Regex, ToolMode

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}", re.ASCII)
_SCHEMA = "an object, the JSON Schema itself"
_KINDS = StructuredOutputs.__struct_fields__


def read_output(body: ObjectReader) -> OutputFormat | None:
    """The one shape that was asked for, or ``None`` for free text."""
    output = _response_format(body)
    structured = body.child("structured_outputs")
    if structured is None:
        return output
    if output is not None:
        raise InvalidRequest(
            "`response_format` and `structured_outputs` both give the answer a shape; "
            "send one of them.",
            param="structured_outputs",
        )
    return _structured(structured)


def _response_format(body: ObjectReader) -> OutputFormat | None:
    fields = body.child("response_format", 'an object like {"type": "json_object"}')
    if fields is None:
        return None
    sort = fields.word("type", ("text", "json_object", "json_schema"))
    if sort is None:
        raise missing(fields.param("type"), "text, json_object or json_schema")
    if sort == "text":
        return None
    if sort == "json_object":
        return _object(fields)
    schema = fields.required_object("json_schema", "an object with `name` and `schema`")
    schema.boolean("strict")
    schema.string("description")
    name = schema.string("name")
    if name is not None and not _NAME.fullmatch(name):
        raise wrong_value(
            schema.param("name"), "must be 1 to 64 letters, digits, underscores or hyphens."
        )
    return JsonSchema(schema.required_object("schema", _SCHEMA).values, name or "response")


def _object(fields: ObjectReader) -> OutputFormat:
    """Any object, or one by the schema that some clients put alongside the type."""
    if not fields.has("schema"):
        return JsonObject()
    schema = fields.required_object("schema").values
    return JsonSchema({"type": "object", **schema}, param=fields.param("schema"))


def _structured(fields: ObjectReader) -> OutputFormat:
    given = [name for name in _KINDS if fields.has(name)]
    if not given:
        raise InvalidRequest(
            f"`{fields.path}` is empty; it must hold one of {', '.join(_KINDS)}.",
            code="missing_parameter",
            param=fields.path,
        )
    if len(given) > 1:
        raise wrong_value(fields.path, f"holds {' and '.join(given)}; send one of them.")
    match given[0]:
        case "json":
            return _schema(fields)
        case "regex":
            return Regex(fields.required_string("regex"))
        case "choice":
            return ToolMode(_options(fields))
        case _:
            return Grammar(fields.required_string("grammar"))


def _schema(fields: ObjectReader) -> JsonSchema:
    value = fields.get("json")
    if not isinstance(value, dict | bool):
        raise wrong_type(fields.param("json"), "a JSON Schema (an object)", value)
    return JsonSchema(value, param=fields.param("json"))


def _options(fields: ObjectReader) -> tuple[str, ...]:
    options = []
    for index, option in enumerate(fields.array("choice", most=MAX_OPTIONS) or ()):
        param = f"{fields.param('choice')}[{index}]"
        if not isinstance(option, str):
            raise wrong_type(param, "a string", option)
        if not option:
            raise wrong_value(param, "must not be empty.")
        options.append(option)
    if not options:
        raise wrong_value(fields.param("choice"), "is empty; send at least one option.")
    return tuple(dict.fromkeys(options))
