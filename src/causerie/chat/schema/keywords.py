"""Which keywords of JSON Schema say what, and which of them nobody can enforce."""

from __future__ import annotations

from collections.abc import Callable

from causerie.errors import InvalidRequest

TYPES = ("object", "array", "string", "number", "integer", "boolean", "null")

# Formats that hold as patterns while tokens are drawn.
FORMATS = (
    "date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid",
)  # fmt: skip

_SEGMENT = r"(?:[A-Za-z0-9._~!$&'()*+,;=:@\-]|%[0-9A-Fa-f]{2})"
# Absolute addresses with a registered name or without an authority; no IP literals in brackets.
URI = (
    r"^[A-Za-z][A-Za-z0-9+.\-]*:"
    rf"(?://[A-Za-z0-9._~\-]+(?::[0-9]{{1,5}})?(?:/{_SEGMENT}*)*|{_SEGMENT}+(?:/{_SEGMENT}*)*)"
    rf"(?:\?(?:{_SEGMENT}|[/?])*)?(?:#(?:{_SEGMENT}|[/?])*)?$"
)

# Keywords that say nothing about whether a document is valid.
ANNOTATIONS = frozenset({
    "title", "description", "default", "examples", "example", "$comment", "deprecated",
    "readOnly", "writeOnly", "$schema", "id", "$anchor", "$dynamicAnchor",
    "$recursiveAnchor", "$vocabulary", "$defs", "definitions", "contentMediaType",
    "contentEncoding", "contentSchema", "discriminator", "externalDocs", "xml",
    "markdownDescription", "enumNames", "enumDescriptions", "propertyOrdering",
    "additionalItems",  # read together with an array of items, without effect otherwise
})  # fmt: skip

# What is met with the rest of a schema, and what else decides which properties there may be.
IN_PLACE = frozenset({"$ref", "allOf", "anyOf", "oneOf", "const", "enum"})
APPLIES = IN_PLACE | {"properties", "patternProperties", "additionalProperties", "required",
                      "minProperties", "maxProperties"}  # fmt: skip

_REASONS = {
    "not": "`not` cannot be enforced; say what the value is instead of what it is not.",
    "if": "conditions (`if`, `then`, `else`) cannot be enforced; write the cases as anyOf.",
    "then": "conditions (`if`, `then`, `else`) cannot be enforced; write the cases as anyOf.",
    "else": "conditions (`if`, `then`, `else`) cannot be enforced; write the cases as anyOf.",
    "dependentRequired": "dependencies between properties cannot be enforced; use anyOf.",
    "dependentSchemas": "dependencies between properties cannot be enforced; use anyOf.",
    "dependencies": "dependencies between properties cannot be enforced; use anyOf.",
    "contains": "`contains` cannot be enforced; describe every item with items or prefixItems.",
    "minContains": "`minContains` cannot be enforced.",
    "maxContains": "`maxContains` cannot be enforced.",
    "unevaluatedProperties": "`unevaluatedProperties` cannot be enforced; use "
    "additionalProperties in a schema that names all properties itself.",
    "unevaluatedItems": "`unevaluatedItems` cannot be enforced; use items.",
    "$dynamicRef": "dynamic references are not supported; use $ref.",
    "$recursiveRef": "dynamic references are not supported; use $ref.",
    "nullable": '`nullable` is not a keyword of JSON Schema; write "type": ["…", "null"].',
    "x-guidance": "`x-guidance` is reserved.",
}
_HARMLESS: dict[str, tuple[object, ...]] = {
    "nullable": (False,),
    "unevaluatedProperties": (True, {}),
    "unevaluatedItems": (True, {}),
    "dependentRequired": ({},),
    "dependentSchemas": ({},),
    "dependencies": ({},),
}


def check_other(key: str, value: object, refuse: Callable[[str], InvalidRequest]) -> None:
    """A keyword that is neither enforced nor an annotation: harmless by its value, or refused."""
    harmless = _HARMLESS.get(key, ())
    if any(type(value) is type(other) and value == other for other in harmless):
        return
    shown = key if len(key) <= 60 else key[:60] + "…"
    raise refuse(
        _REASONS.get(
            key,
            f"the keyword {shown!r} is not known, so it would not be enforced; leave it out, or "
            "begin it with `x-` if it is a note of your own.",
        )
    )
