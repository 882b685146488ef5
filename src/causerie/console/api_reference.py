"""The OpenAPI document as `/docs` shows it: operations in groups, errors, then the objects.

Knows the document only; no server, no settings.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from markupsafe import Markup

from causerie.console.api_fields import Field, FieldGroup, field, fields, grouped, kind, references

ROUTER = "/router/v1"
_PLAIN = "/v1"
_JSON = "application/json"
_PLACES = (("path", "Path"), ("query", "Query"), ("header", "Headers"))
_ERROR = "Error"


@dataclass(frozen=True, slots=True)
class Input:
    """A value that an example sends in its path or query."""

    name: str
    place: str
    """``path`` or ``query``."""
    required: bool


@dataclass(frozen=True, slots=True)
class RequestBody:
    """The object that a request sends."""

    name: str
    like: str
    """Operation whose body has all the fields besides those in ``groups``; empty if there is none.
    """
    groups: tuple[FieldGroup, ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """A status, when it is sent, and the type of its body."""

    status: str
    text: str
    kind: Markup


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
    parameters: tuple[FieldGroup, ...]
    """By where they are sent."""
    inputs: tuple[Input, ...]
    body: RequestBody | None
    example: str
    """A body, as JSON; empty if there is none."""
    answers: tuple[Answer, ...]
    """Those that other operations do not share."""
    errors: tuple[str, ...]
    """Statuses of :attr:`ApiReference.errors`."""


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
    fields: tuple[Field, ...]
    bases: frozenset[str]
    """Bases of the operations that send or answer with it."""


@dataclass(frozen=True, slots=True)
class ApiReference:
    """Everything that the page shows."""

    version: str
    description: str
    groups: tuple[OperationGroup, ...]
    errors: tuple[Answer, ...]
    """Refusals, which mean the same for all operations."""
    objects: tuple[ObjectType, ...]


def reference(document: Any) -> ApiReference:
    schemas = document["components"]["schemas"]
    found = _operations(document["paths"], schemas)
    titles = {_PLAIN: "Chat completions", ROUTER: "Router", "": "Service"}
    groups = (
        OperationGroup(title, tuple(each for each in found if each.base == base))
        for base, title in titles.items()
    )
    bases = _bases(document["paths"], schemas)
    return ApiReference(
        document["info"]["version"],
        document["info"]["description"],
        tuple(group for group in groups if group.operations),
        _errors(document["paths"]),
        tuple(
            ObjectType(
                name,
                Markup() if "properties" in schema else kind(schema),
                fields(schema),
                bases.get(name, frozenset()),
            )
            for name, schema in schemas.items()
        ),
    )


def _operations(paths: Any, schemas: Any) -> Sequence[Operation]:
    found: list[Operation] = []
    for base, path, method, said in _described(paths):
        earlier = {each.body.name: each.id for each in found if each.body}
        found.append(_operation(base, path, method, said, partial(_body, schemas, earlier)))
    return found


def _described(paths: Any) -> Iterator[tuple[str, str, str, Any]]:
    """Yield base, path below it, method and description of each operation."""
    for path, methods in paths.items():
        base = next((each for each in (ROUTER, _PLAIN) if path.startswith(f"{each}/")), "")
        for method, said in methods.items():
            yield base, path.removeprefix(base), method.upper(), said


def _operation(
    base: str, path: str, method: str, said: Any, body: Callable[[str], RequestBody]
) -> Operation:
    parameters = said.get("parameters", [])
    sent = said.get("requestBody", {}).get("content", {}).get(_JSON)
    return Operation(
        id=said["operationId"],
        method=method,
        base=base,
        path=path,
        summary=said["summary"],
        key=_key(said.get("security", [])),
        parameters=tuple(
            FieldGroup(title, tuple(map(_parameter, of_place)))
            for place, title in _PLACES
            if (of_place := [each for each in parameters if each["in"] == place])
        ),
        inputs=tuple(
            Input(each["name"], each["in"], each["required"])
            for each in parameters
            if each["in"] in ("path", "query")
        ),
        body=body(next(references(sent["schema"]))) if sent else None,
        example=json.dumps(sent["example"], indent=2) if sent else "",
        answers=tuple(
            Answer(status, answer["description"], _answer_kind(answer))
            for status, answer in said["responses"].items()
            if not _is_error(answer)
        ),
        errors=tuple(status for status, answer in said["responses"].items() if _is_error(answer)),
    )


def _parameter(described: Any) -> Field:
    return field(
        described["name"],
        described["schema"],
        required=described["required"],
        text=described["description"],
    )


def _body(schemas: Any, earlier: Mapping[str, str], name: str) -> RequestBody:
    """Return an object of a request: whole, or by what it has besides one that is shown."""
    found = fields(schemas[name])
    for other, operation in earlier.items():
        known = frozenset(fields(schemas[other]))
        more = tuple(each for each in found if each not in known)
        if len(more) < len(found) / 2:
            return RequestBody(name, operation, grouped(more))
    return RequestBody(name, "", grouped(found))


def _answer_kind(answer: Any) -> Markup:
    content = answer.get("content", {}).values()
    kinds = [kind(each.get("schema") or each["itemSchema"]) for each in content]
    return Markup(" or ").join(kinds)


def _is_error(answer: Any) -> bool:
    return _ERROR in references(answer)


def _errors(paths: Any) -> tuple[Answer, ...]:
    """Return the refusals of all operations, each once; its meaning is the same for all."""
    found = {
        status: answer
        for _, _, _, said in _described(paths)
        for status, answer in said["responses"].items()
        if _is_error(answer)
    }
    return tuple(
        Answer(status, answer["description"], _answer_kind(answer))
        for status, answer in sorted(found.items())
    )


def _bases(paths: Any, schemas: Any) -> Mapping[str, frozenset[str]]:
    """Return by object the bases of the operations that lead to it."""
    found: dict[str, set[str]] = {}
    for base, _, _, said in _described(paths):
        waiting = list(references(said))
        while waiting:
            name = waiting.pop()
            bases = found.setdefault(name, set())
            if base not in bases:
                bases.add(base)
                waiting += references(schemas[name])
    return {name: frozenset(bases) for name, bases in found.items()}


def _key(security: list[Mapping[str, object]]) -> str:
    if not any(security):
        return "none"
    return "required" if all(security) else "optional"
