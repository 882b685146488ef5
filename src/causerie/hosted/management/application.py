"""The management API: every request below ``/api`` in, every answer out; its table of operations
and the OpenAPI document made from it.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Sequence
from typing import Any, Protocol

import msgspec
from msgspec import Struct

import causerie
from causerie.access.keys import Credential, KeyDigest
from causerie.access.limits import Rates, RateScope, Tokens, tell
from causerie.access.windows import MemoryCounters
from causerie.errors import Error, NotFound
from causerie.hosted.accounts.accounts import Accounts
from causerie.hosted.accounts.authorization import Clock
from causerie.hosted.accounts.people import Actor
from causerie.hosted.management.accounts import (
    KeyOperations,
    LinkPath,
    PeopleOperations,
    ProjectOperations,
)
from causerie.hosted.management.operator import (
    AlertOperations,
    CatalogImportOperations,
    ConfigurationOperations,
    ProviderOperations,
)
from causerie.hosted.management.requests import NoQuery
from causerie.hosted.management.routing import (
    ID_PATTERN,
    AnyRoute,
    ApiCall,
    body_of,
    query_of,
    route,
)
from causerie.hosted.management.usage import UsageOperations
from causerie.hosted.operations.ports import Operations
from causerie.http.answers import Export
from causerie.http.exchange import Exchange
from causerie.http.openapi_schemas import Schema, sent_schemas
from causerie.http.routing import RouteTable


class Managers(Protocol):
    """Authentication of management keys."""

    async def manager(self, credential: Credential | None) -> Actor:
        """Return the actor behind a management key.

        Raises ``Unauthenticated``, ``Forbidden`` for a key that is for inference, and
        ``StoreUnavailable`` if it cannot be known.
        """


class OperatorKeys:
    """Keys of operators, whose digests the settings hold, before those that ``managers`` know."""

    def __init__(self, managers: Managers, keys: Sequence[KeyDigest] = ()) -> None:
        self._managers = managers
        self._keys = tuple(keys)

    def replace(self, keys: Sequence[KeyDigest]) -> None:
        """Know these from now on, and no others."""
        self._keys = tuple(keys)

    async def manager(self, credential: Credential | None) -> Actor:
        """Every digest is compared, in constant time, whichever matches."""
        found: KeyDigest | None = None
        if credential is not None and self._keys:
            for key in self._keys:
                if hmac.compare_digest(key.digest, credential.digest):
                    found = key
        if found is None:
            return await self._managers.manager(credential)
        return Actor("key", found.id, found.id, operator=True)


_PROJECT = "/projects/{project}"
_MEMBER = "/projects/{project}/members/{user}"
_ENTRIES = "/configuration/entries"
_ENTRY = "/configuration/entries/{entry}"
_OFFER = "/projects/{project}/invitations/{invitation}"


def people_routes(desk: PeopleOperations) -> list[AnyRoute]:
    """Return the operations on the caller, and for operators on users."""
    return [
        route("GET /me", "Get the identity of the key", desk.me),
        route("GET /users", "List users", desk.list),
        route("POST /users 201", "Create a user", desk.create),
        route("GET /users/{user}", "Get a user", desk.see),
        route("POST /users/{user}/disable", "Disable a user", desk.disable),
        route("POST /users/{user}/enable", "Enable a user", desk.enable),
        route("PUT /users/{user}/operator", "Set whether a user is an operator", desk.set_operator),
        route("GET /users/{user}/bounds", "Get limits and budgets of a user", desk.bounds),
        route("PUT /users/{user}/bounds", "Set limits and budgets of a user", desk.set_bounds),
        route(
            "GET /users/{user}/spending", "Spending against the budgets of a user", desk.spending
        ),
        route("POST /users/{user}/password-link 201", "Create a password link", desk.reset),
        route(
            "DELETE /users/{user}/two-factor",
            "Remove two-factor authentication",
            desk.remove_factor,
        ),
        route("GET /invitations", "List invitations to the service", desk.invitations),
        route("POST /invitations 201", "Create an invitation to the service", desk.invite),
        route(
            "DELETE /invitations/{invitation}",
            "Withdraw an invitation to the service",
            desk.withdraw,
        ),
    ]


def project_routes(desk: ProjectOperations) -> list[AnyRoute]:
    return [
        route("GET /projects", "List projects", desk.list),
        route("POST /projects 201", "Create a project", desk.create),
        route(f"GET {_PROJECT}", "Get a project", desk.see),
        route(f"PATCH {_PROJECT}", "Rename a project", desk.rename),
        route(f"POST {_PROJECT}/archive", "Archive a project", desk.archive),
        route(f"POST {_PROJECT}/restore", "Restore a project", desk.restore),
        route(f"PUT {_PROJECT}/bounds", "Set limits and budgets of a project", desk.set_bounds),
        route(f"PUT {_PROJECT}/recording", "Set request logging of a project", desk.set_recording),
        route(f"GET {_PROJECT}/credits", "Get credits added, spent and left", desk.credits),
        route(f"POST {_PROJECT}/credits 201", "Add credits to a project", desk.put_credits),
        route(f"GET {_PROJECT}/members", "List members", desk.members),
        route(f"PATCH {_MEMBER}", "Change the role of a member", desk.change_member),
        route(f"DELETE {_MEMBER}", "Remove a member", desk.remove_member),
        route(f"GET {_PROJECT}/invitations", "List invitations to a project", desk.invitations),
        route(f"POST {_PROJECT}/invitations 201", "Create an invitation to a project", desk.invite),
        route(f"DELETE {_OFFER}", "Withdraw an invitation to a project", desk.withdraw),
    ]


def key_routes(desk: KeyOperations) -> list[AnyRoute]:
    return [
        route(f"GET {_PROJECT}/keys", "List keys", desk.list),
        route(f"POST {_PROJECT}/keys 201", "Create a key", desk.create),
        route("GET /keys/{key}", "Get a key", desk.see),
        route("PATCH /keys/{key}", "Change a key", desk.edit),
        route("POST /keys/{key}/rotate", "Rotate the secret of a key", desk.rotate),
        route("POST /keys/{key}/transfer", "Transfer a key to a member", desk.transfer),
        route("POST /keys/{key}/disable", "Disable a key", desk.disable),
        route("POST /keys/{key}/enable", "Enable a key", desk.enable),
        route("DELETE /keys/{key}", "Delete a key", desk.delete),
        route("GET /users/{user}/keys", "List the keys that derive from a user", desk.of_user),
    ]


def provider_routes(desk: ProviderOperations) -> list[AnyRoute]:
    """Providers and the routes of requests, for operators."""
    return [
        route("GET /providers", "List providers", desk.list),
        route("GET /providers/{provider}", "Get a provider and its capabilities", desk.see),
        route("POST /providers/{provider}/probe 201", "Probe a model of a provider", desk.probe),
        route("GET /providers/{provider}/probe", "Get the state of the last probe", desk.progress),
        route("POST /providers/{provider}/probe/cancel", "Cancel a probe", desk.cancel),
        route("POST /providers/{provider}/probe/use", "Apply the result of a probe", desk.use),
        route("POST /routes/explain", "Explain routing", desk.explain),
    ]


def configuration_routes(desk: ConfigurationOperations) -> list[AnyRoute]:
    return [
        route(f"GET {_ENTRIES}", "List entries of the configuration", desk.list),
        route(f"POST {_ENTRIES} 201", "Create an entry", desk.create),
        route(f"GET {_ENTRY}", "Get an entry of the database", desk.see),
        route(f"PUT {_ENTRY}", "Change an entry", desk.change),
        route(f"POST {_ENTRY}/enable", "Enable an entry", desk.enable),
        route(f"POST {_ENTRY}/disable", "Disable an entry", desk.disable),
        route(f"DELETE {_ENTRY}", "Delete an entry", desk.delete),
        route("POST /providers/test", "Test a provider", desk.test),
    ]


def catalog_import_routes(desk: CatalogImportOperations) -> list[AnyRoute]:
    """Return the operations that publish models of providers, for operators."""
    return [
        route(
            "GET /providers/{provider}/offers",
            "Compare a provider's list with the catalog",
            desk.offers,
        ),
        route(
            "POST /providers/{provider}/offers",
            "Publish models of a provider in the catalog",
            desk.publish,
        ),
    ]


def alert_routes(desk: AlertOperations) -> list[AnyRoute]:
    return [
        route("GET /alerts", "Alerts, their channels and deliveries", desk.see),
        route("POST /alerts/channels/{channel}/test", "Send a test by a channel", desk.test),
    ]


def usage_routes(desk: UsageOperations) -> list[AnyRoute]:
    return [
        route("GET /usage", "Usage and cost over time", desk.sums),
        route("GET /rankings", "Models or providers by tokens, over all projects", desk.ranking),
        route("GET /usage.csv", "Usage and cost as CSV", desk.export),
        route(
            f"GET {_PROJECT}/spending",
            "Spending against the budgets of a project",
            desk.project_spending,
        ),
        route(
            "GET /keys/{key}/spending", "Spending against the budgets of a key", desk.key_spending
        ),
        route("GET /usage/first-token", "Time to first token", desk.first_tokens),
        route("GET /requests", "Single requests", desk.requests),
        route("GET /audit", "Audit log", desk.audit),
    ]


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


def openapi_document(routes: Sequence[AnyRoute]) -> Schema:
    paths: dict[str, dict[str, object]] = {}
    for one in routes:
        operations = paths.setdefault(f"/api{one.path}", {})
        operations[one.method.lower()] = _operation(one)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Causerie management",
            "version": causerie.__version__,
            "description": "People, projects, keys, limits, budgets and usage, for programs.",
        },
        "paths": paths,
        "components": {
            "schemas": _schemas(routes) | sent_schemas(Error),
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
    types: set[type[Struct]] = set()
    for one in routes:
        if one.takes_body:
            types.add(one.body)
        types.add(one.query)
        if one.answer is not Export and issubclass(one.answer, Struct):
            types.add(one.answer)
    ordered = sorted(types, key=lambda each: each.__name__)
    _, components = msgspec.json.schema_components(ordered, ref_template=_REF)
    return components


PREFIX = "/api"
_DOCUMENT = "/openapi.json"
_HEADERS = {"cache-control": "no-store", "x-content-type-options": "nosniff"}
_AT_ONCE = 16
_encode = msgspec.json.Encoder().encode


class Management:
    """Answers what is asked of accounts, and of providers.

    ``managers`` says whose a key is, ``link_path`` where a browser uses a
    one-time link, ``clock`` what time it is, in UTC; ``operations`` sees to providers. Each
    key may ask ``requests_per_minute`` times, and a few times at once.
    """

    def __init__(
        self,
        accounts: Accounts,
        managers: Managers,
        clock: Clock,
        link_path: LinkPath,
        operations: Operations,
        requests_per_minute: int,
    ) -> None:
        self._managers = managers
        self._rates = Rates(requests_per_minute=requests_per_minute, concurrent=_AT_ONCE)
        self._limits = MemoryCounters()  # apart from those of inference
        self.routes = [
            *people_routes(PeopleOperations(accounts, link_path)),
            *project_routes(ProjectOperations(accounts, link_path, clock)),
            *key_routes(KeyOperations(accounts, clock)),
            *usage_routes(UsageOperations(accounts, clock)),
            *provider_routes(ProviderOperations(operations)),
            *configuration_routes(ConfigurationOperations(operations.configuration)),
            *catalog_import_routes(CatalogImportOperations(operations.configuration)),
            *alert_routes(AlertOperations(operations.alerts)),
        ]
        self._routes = RouteTable(self.routes, re.compile(ID_PATTERN).fullmatch)
        self._document = _encode(openapi_document(self.routes))

    async def answer(self, exchange: Exchange) -> None:
        """Answer one request; raises :class:`~causerie.errors.ServiceError`."""
        path = exchange.path.removeprefix(PREFIX)
        if path == _DOCUMENT and exchange.method in ("GET", "HEAD"):
            exchange.respond(200, self._document, headers=_HEADERS)
            return
        found = self._routes.find(exchange.method, "/" + path.strip("/"))
        if found is None:
            there = f"There is nothing at {PREFIX}{path[:200]}"
            raise NotFound(
                f"{there}; {PREFIX}{_DOCUMENT} says what the management API has. Chat completions "
                "are POST /v1/chat/completions, below the base URL of a door."
            )
        route, ids = found
        actor = await self._managers.manager(exchange.credential)
        with self._limits.take_now([RateScope("key", actor.id, self._rates)], Tokens) as lease:
            query = query_of(exchange.query, route.query)
            body = await body_of(exchange, route.body) if route.takes_body else route.body()
            answer = await route.handler(ApiCall(actor, ids, query, body))
            headers = dict(_HEADERS)
            tell(lease.limit_statuses(), headers)
            if isinstance(answer, Export):
                await answer.send(exchange, headers)
            else:
                content = b"" if answer is None else _encode(answer)
                exchange.respond(route.status, content, headers=headers)
