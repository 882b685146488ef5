"""The management API: every request below ``/api`` in, every answer out."""

from __future__ import annotations

import re

import msgspec

from causerie.access.lease import tell
from causerie.access.quota import Rates, RateScope, Tokens
from causerie.access.windows import MemoryCounters
from causerie.accounts.accounts import Accounts
from causerie.accounts.authorization import Clock
from causerie.edge.exchange import Exchange
from causerie.errors import NotFound
from causerie.management.alerts import AlertOperations
from causerie.management.catalog_import import CatalogImportOperations
from causerie.management.configuration import ConfigurationOperations
from causerie.management.document import document
from causerie.management.keys import KeyOperations
from causerie.management.managers import Managers
from causerie.management.people import LinkPath, PeopleOperations
from causerie.management.projects import ProjectOperations
from causerie.management.providers import ProviderOperations
from causerie.management.reading import body_of, query_of
from causerie.management.route import ID_PATTERN, ApiCall
from causerie.management.routes import (
    alert_routes,
    catalog_import_routes,
    configuration_routes,
    key_routes,
    people_routes,
    project_routes,
    provider_routes,
    usage_routes,
)
from causerie.management.usage import UsageOperations
from causerie.operations.ports import Operations
from causerie.web.exports import Export
from causerie.web.routing import RouteTable

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
        self._document = _encode(document(self.routes))

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
