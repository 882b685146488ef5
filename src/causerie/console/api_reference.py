"""The OpenAPI document as `/docs` shows it: operations in groups, then the objects.

Knows the document only; no server, no settings.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from markupsafe import Markup

ROUTER = "/router/v1"
_PLAIN = "/v1"
_BOUNDS = {
    "minimum": "from",
    "exclusiveMinimum": "above",
    "maximum": "to",
    "pattern": "matching",
}


@dataclass(frozen=True, slots=True)
class Row:
    """A parameter or field."""

    name: str
    required: bool
    kind: Markup
    text: str


@dataclass(frozen=True, slots=True)
class Input:
    """A value that an example sends in its path or query."""

    name: str
    place: str
    """``path`` or ``query``."""
    required: bool


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation, and what an example of it sends."""

    id: str
    method: str
    base: str
    """Usual path of the base URL; empty for paths of the service."""
    path: str
    """Below the base."""
    summary: str
    key: str
    """``none``, ``optional`` or ``required``."""
    parameters: tuple[Row, ...]
    inputs: tuple[Input, ...]
    body: Markup
    """The type of the body; empty if there is none."""
    example: str
    """A body, as JSON; empty if there is none."""
    responses: tuple[tuple[str, str], ...]
    """Statuses and when they are sent."""


@dataclass(frozen=True, slots=True)
class OperationGroup:
    """Operations with the same base."""

    title: str
    operations: tuple[Operation, ...]


@dataclass(frozen=True, slots=True)
class ObjectType:
    """One schema: its fields, or in ``kind`` what it is if it has none."""

    name: str
    kind: Markup
    fields: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class ApiReference:
    """Everything that the page shows."""

    version: str
    description: str
    groups: tuple[OperationGroup, ...]
    objects: tuple[ObjectType, ...]


def reference(document: Any) -> ApiReference:
    """Return what the page shows of a document."""
    found = list(_operations(document))
    titles = {_PLAIN: "Chat completions", ROUTER: "Router", "": "Service"}
    groups = (
        OperationGroup(title, tuple(each for each in found if each.base == base))
        for base, title in titles.items()
    )
    return ApiReference(
        document["info"]["version"],
        document["info"]["description"],
        tuple(group for group in groups if group.operations),
        tuple(_object(*each) for each in document["components"]["schemas"].items()),
    )


def _operations(document: Any) -> Iterator[Operation]:
    for path, methods in document["paths"].items():
        base = next((each for each in (ROUTER, _PLAIN) if path.startswith(f"{each}/")), "")
        for method, said in methods.items():
            parameters = said.get("parameters", [])
            body = said.get("requestBody", {}).get("content", {}).get("application/json", {})
            yield Operation(
                id=said["operationId"],
                method=method.upper(),
                base=base,
                path=path.removeprefix(base),
                summary=said["summary"],
                key=_key(said.get("security", [])),
                parameters=tuple(_row(each["name"], each["required"], each) for each in parameters),
                inputs=tuple(
                    Input(each["name"], each["in"], each["required"])
                    for each in parameters
                    if each["in"] in ("path", "query")
                ),
                body=_kind(body["schema"]) if body else Markup(),
                example=json.dumps(body["example"], indent=2) if body else "",
                responses=tuple(
                    (status, answer["description"]) for status, answer in said["responses"].items()
                ),
            )


def _key(security: list[Mapping[str, object]]) -> str:
    if not any(security):
        return "none"
    return "required" if all(security) else "optional"


def _row(name: str, required: bool, described: Any) -> Row:
    return Row(name, required, _kind(described["schema"]), described["description"])


def _object(name: str, schema: Any) -> ObjectType:
    if "properties" not in schema:
        return ObjectType(name, _kind(schema), ())
    required = schema.get("required", [])
    fields = (
        Row(field, field in required, _kind(inner), inner.get("description", ""))
        for field, inner in schema["properties"].items()
    )
    return ObjectType(name, Markup(), tuple(fields))


def _kind(schema: Any) -> Markup:
    """Return a schema in a few words. That ``null`` means leaving out is said once on the page."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return Markup('<a href="#{}">{}</a>').format(name, name)
    branches = schema.get("oneOf") or schema.get("anyOf")
    if branches:
        return Markup(" or ").join(_kind(one) for one in branches if one != {"type": "null"})
    if "enum" in schema:
        return _codes(_word(one) for one in schema["enum"] if one is not None)
    kinds = schema.get("type", "anything")
    words = [kind for kind in ([kinds] if isinstance(kinds, str) else kinds) if kind != "null"]
    if words == ["array"]:
        return (
            Markup("array of ") + _kind(schema["items"]) if "items" in schema else Markup("array")
        )
    fields = _codes(schema.get("properties", {}))
    bounds = "".join(f" {word} {schema[name]}" for name, word in _BOUNDS.items() if name in schema)
    said = Markup("{}{}").format(" or ".join(words), bounds)
    return said + Markup(" with ") + fields if fields else said


def _codes(words: Any) -> Markup:
    return Markup(", ").join(Markup("<code>{}</code>").format(word) for word in words)


def _word(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
