"""The management API: answers requests below ``/api``, and describes itself in OpenAPI."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

import causerie
from causerie.access import allowed
from causerie.access.keys import Credential, KeyDigest, matching
from causerie.access.limits import MemoryCounters, Rates, RateScope, Tokens, tell
from causerie.access.networks import Network
from causerie.errors import Error, NotFound, Unauthenticated
from causerie.hosted.accounts import bounds, issuing
from causerie.hosted.accounts.accounts import Accounts
from causerie.hosted.accounts.authorization import Clock
from causerie.hosted.accounts.people import Actor
from causerie.hosted.management import handlers, requests, views
from causerie.hosted.management.requests import NoQuery
from causerie.hosted.management.routing import (
    ID_PATTERN,
    ApiCall,
    ApiRoute,
    acts,
    body_of,
    query_of,
)
from causerie.hosted.operations import configuring, ports, provider_models
from causerie.hosted.operations.ports import Operations
from causerie.http.answers import Export
from causerie.http.exchange import Exchange
from causerie.http.openapi import Schema, json_answer, ref, sent_schemas
from causerie.http.routing import RouteTable

_ACCOUNT_TYPES = (views, requests, bounds, issuing)
_HANDLED = (each for each in vars(handlers).values() if isinstance(each, ApiRoute))
ROUTES: Sequence[ApiRoute] = sorted(
    (
        *_HANDLED,
        *acts("accounts", *_ACCOUNT_TYPES),
        *acts("operations", handlers, ports, configuring),
    ),
    key=lambda one: one.path,
)
"""All operations."""

_FIELDS: Mapping[str, Mapping[str, str]] = tomllib.loads(
    Path(__file__).with_name("fields.toml").read_text("utf-8")
)
_MODULES = (*_ACCOUNT_TYPES, allowed, handlers, ports, configuring, provider_models)
_KINDS = {name: each for module in _MODULES for name, each in vars(module).items()}
_ERRORS: Mapping[str, str] = _FIELDS["errors"]
_WITH_BODY = ("408", "409", "413", "415")


def openapi_document() -> Schema:
    paths: dict[str, dict[str, object]] = {}
    for one in ROUTES:
        operations = paths.setdefault(f"/api{one.path}", {})
        operations[one.method.lower()] = _build_operation_object(one)
    sent = _build_schema_components({each for one in ROUTES for each in (one.query, one.answer)})
    bodies = _build_schema_components({one.body for one in ROUTES if one.takes_body})
    received = {name: _loosen_decimals_sets(each) for name, each in bodies.items()}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Causerie management",
            "version": causerie.__version__,
            "description": "People, projects, keys, limits, budgets and usage, for programs.",
        },
        "paths": paths,
        "components": {
            "schemas": sent | received | sent_schemas(Error),
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }


def _build_operation_object(route: ApiRoute) -> Schema:
    operation: Schema = {
        "operationId": route.name,
        "summary": route.summary,
        "security": [{"key": []}],
        "responses": {
            str(route.status): _build_response_object(route),
            **{
                status: json_answer(words, "Error")
                for status, words in _ERRORS.items()
                if route.takes_body or status not in _WITH_BODY
            },
        },
    }
    id: Schema = {"type": "string", "pattern": ID_PATTERN}
    named: list[Schema] = [
        {"name": name, "in": "path", "required": True, "schema": id} for name in route.parameters
    ]
    if parameters := [*named, *_build_query_parameters(route.query)]:
        operation["parameters"] = parameters
    if route.takes_body:
        required = any(field.required for field in msgspec.structs.fields(route.body))
        content = {"application/json": {"schema": ref(route.body.__name__)}}
        operation["requestBody"] = {"required": required, "content": content}
    return operation


def _build_response_object(route: ApiRoute) -> Schema:
    if route.answer is Export:
        text: Schema = {"text/csv": {"schema": {"type": "string"}}}
        return {"description": "The table.", "content": text}
    if not issubclass(route.answer, Struct):
        return {"description": "It is done."}
    return json_answer((route.answer.__doc__ or "").split("\n")[0], route.answer.__name__)


def _build_query_parameters(query_type: type[Struct]) -> list[Schema]:
    if query_type is NoQuery:
        return []
    components = _build_schema_components([query_type])
    found = []
    for name, schema in components[query_type.__name__]["properties"].items():
        parameter: Schema = {"name": name, "in": "query", "required": False}
        if "description" in schema:
            parameter["description"] = schema.pop("description")
        found.append(parameter | {"schema": schema})
    return found


def _build_schema_components(types: Iterable[type]) -> dict[str, Any]:
    structs = sorted({one for one in types if issubclass(one, Struct)}, key=lambda it: it.__name__)
    template = "#/components/schemas/{name}"
    _, components = msgspec.json.schema_components(structs, ref_template=template)
    for name, schema in components.items():
        for kind in reversed(getattr(_KINDS.get(name), "__mro__", ())):
            for part, words in _FIELDS.get(kind.__name__, {}).items():
                schema["properties"][part]["description"] = words
    return components


def _loosen_decimals_sets(schema: Any) -> Any:
    # The decoder accepts more: a decimal as a JSON number, which is exact too, and repeated items
    # of a set.
    if isinstance(schema, list):
        return [_loosen_decimals_sets(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made = {
        name: _loosen_decimals_sets(each) for name, each in schema.items() if name != "uniqueItems"
    }
    if made.get("format") == "decimal":
        made["type"] = ["string", "number"]
    return made


PREFIX = "/api"
_DOCUMENT = "/openapi.json"
_HEADERS = {"cache-control": "no-store", "x-content-type-options": "nosniff"}
_AT_ONCE = 16
_encode = msgspec.json.Encoder().encode
_TABLE = RouteTable(ROUTES, re.compile(ID_PATTERN).fullmatch)


@cache
def _encode_openapi_document() -> bytes:
    return _encode(openapi_document())


@dataclass(eq=False)
class Management:
    """Answers requests of the management API with the services of accounts and operations.

    ``manager`` returns the actor behind a management key. It raises ``Unauthenticated``,
    ``Forbidden`` for a key that is for inference, and ``StoreUnavailable`` if it cannot be known.
    ``link_path`` says where a browser uses a one-time link, ``operator_keys`` returns the keys of
    operators in the settings. Each key may ask ``requests_per_minute`` times, and a few times at
    once.
    """

    accounts: Accounts
    manager: Callable[[Credential | None], Awaitable[Actor]]
    clock: Clock
    link_path: views.LinkPath
    operations: Operations
    requests_per_minute: int
    operator_keys: Callable[[], Sequence[KeyDigest]] = tuple
    proxies: Sequence[Network] = ()  # trusted to name the address of a client
    _rate_limits: MemoryCounters = field(default_factory=MemoryCounters)  # apart from inference

    async def answer(self, exchange: Exchange) -> None:
        """Answer one request; raises :class:`~causerie.errors.ServiceError`."""
        path = exchange.path.removeprefix(PREFIX)
        if path == _DOCUMENT and exchange.method in ("GET", "HEAD"):
            exchange.respond(200, _encode_openapi_document(), headers=_HEADERS)
            return
        found = _TABLE.find(exchange.method, "/" + path.strip("/"))
        if found is None:
            there = f"There is nothing at {PREFIX}{path[:200]}"
            raise NotFound(
                f"{there}; {PREFIX}{_DOCUMENT} says what the management API has. Chat completions "
                "are POST /v1/chat/completions, below the base URL of a door."
            )
        route, ids = found
        actor = await self._authenticate_actor(exchange.head.credential)
        if actor.networks is not None:
            actor.networks.check(exchange.client(self.proxies), "This key")
        rates = Rates(requests_per_minute=self.requests_per_minute, concurrent=_AT_ONCE)
        with self._rate_limits.take_now([RateScope("key", actor.id, rates)], Tokens) as lease:
            query = query_of(exchange.head.query, route.query)
            body = await body_of(exchange, route.body) if route.takes_body else route.body()
            services = self.clock, self.link_path, self.accounts, self.operations
            answer = await route.handler(ApiCall(*services, actor, query, body), **ids)
            headers = dict(_HEADERS)
            tell(lease.limit_statuses(), headers)
            if isinstance(answer, Export):
                await answer.send(exchange, headers)
            else:
                content = b"" if answer is None else _encode(answer)
                exchange.respond(route.status, content, headers=headers)

    async def _authenticate_actor(self, credential: Credential | None) -> Actor:
        found = matching(self.operator_keys(), credential)
        if found is not None:
            return Actor("key", found.id, found.id, operator=True)
        try:
            return await self.manager(credential)
        except Unauthenticated:
            if credential is None or not credential.formed:
                raise
            actor = await self.accounts.operator_keys.actor(credential.digest)
            if actor is None:
                raise
            return actor
