"""The API for machines: an OpenAPI document made from the routes themselves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

import causerie
from causerie.edge.components import sent
from causerie.edge.schema import Schema
from causerie.errors import Error
from causerie.management.queries import NoQuery
from causerie.management.route import ID_PATTERN, AnyRoute
from causerie.web.exports import Export

_REF = "#/components/schemas/{name}"
_ERRORS = {
    "400": "The request is wrong; `param` names the field.",
    "401": "No key, or one that is not valid.",
    "403": "The key may not do this.",
    "404": "There is no such thing, or the key may not see it.",
    "408": "The body did not arrive in time.",
    "409": "It does not go with what is there.",
    "413": "The body is too large.",
    "415": "The body is not declared as JSON.",
    "500": "Our fault.",
    "503": "The database cannot be asked now; nothing was changed. See `Retry-After`.",
}
_WITH_BODY = ("408", "409", "413", "415")


def document(routes: Sequence[AnyRoute]) -> Schema:
    paths: dict[str, dict[str, object]] = {}
    for route in routes:
        operations = paths.setdefault(f"/api{route.path}", {})
        operations[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Causerie management",
            "version": causerie.__version__,
            "description": "People, projects, keys, limits, budgets and usage, for programs.",
        },
        "paths": paths,
        "components": {
            "schemas": _schemas(routes) | sent(Error),
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(route: AnyRoute) -> Schema:
    operation: Schema = {
        "operationId": route.name,
        "summary": route.summary,
        "security": [{"key": []}],
        "responses": {str(route.status): _answer(route), **_errors(route)},
    }
    parameters = [*map(_named, route.parameters), *_query(route.query)]
    if parameters:
        operation["parameters"] = parameters
    if route.takes_body:
        required = any(field.required for field in msgspec.structs.fields(route.body))
        schema: Schema = {"$ref": _REF.format(name=route.body.__name__)}
        operation["requestBody"] = {
            "required": required,
            "content": {"application/json": {"schema": schema}},
        }
    return operation


def _answer(route: AnyRoute) -> Schema:
    if route.answer is Export:
        text: Schema = {"text/csv": {"schema": {"type": "string"}}}
        return {"description": "The table.", "content": text}
    if not issubclass(route.answer, Struct):
        return {"description": "It is done."}
    return {
        "description": (route.answer.__doc__ or "").split("\n")[0],
        "content": {
            "application/json": {"schema": {"$ref": _REF.format(name=route.answer.__name__)}}
        },
    }


def _errors(route: AnyRoute) -> Schema:
    content: Schema = {"application/json": {"schema": {"$ref": _REF.format(name="Error")}}}
    return {
        status: {"description": words, "content": content}
        for status, words in _ERRORS.items()
        if route.takes_body or status not in _WITH_BODY
    }


def _named(name: str) -> Schema:
    return {
        "name": name,
        "in": "path",
        "required": True,
        "schema": {"type": "string", "pattern": ID_PATTERN},
    }


def _query(query: type[Struct]) -> list[Schema]:
    if query is NoQuery:
        return []
    _, components = msgspec.json.schema_components([query], ref_template=_REF)
    found = []
    for name, schema in components[query.__name__]["properties"].items():
        parameter: Schema = {"name": name, "in": "query", "required": False}
        if "description" in schema:
            parameter["description"] = schema.pop("description")
        found.append(parameter | {"schema": schema})
    return found


def _schemas(routes: Sequence[AnyRoute]) -> dict[str, Any]:
    """Everything that the operations take and give, by name."""
    types: set[type[Struct]] = set()
    for route in routes:
        if route.takes_body:
            types.add(route.body)
        types.add(route.query)
        if route.answer is not Export and issubclass(route.answer, Struct):
            types.add(route.answer)
    ordered = sorted(types, key=lambda each: each.__name__)
    _, components = msgspec.json.schema_components(ordered, ref_template=_REF)
    return components
