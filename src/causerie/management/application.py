"""The management API: every request below ``/api`` in, every answer out."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import aclosing

import msgspec

from causerie.access.lease import tell
from causerie.access.quota import Rates, Scope, Tokens
from causerie.access.windows import MemoryCounters
from causerie.accounts.accounts import Accounts
from causerie.accounts.guard import Clock
from causerie.edge.exchange import Exchange
from causerie.management.document import document
from causerie.management.endpoints import EndpointDesk
from causerie.management.keys import KeyDesk
from causerie.management.managers import Managers
from causerie.management.people import LinkPath, PeopleDesk
from causerie.management.projects import ProjectDesk
from causerie.management.reading import body_of, query_of
from causerie.management.route import Call, Export, pick
from causerie.management.routes import (
    endpoint_routes,
    key_routes,
    people_routes,
    project_routes,
    usage_routes,
)
from causerie.management.usage import UsageDesk
from causerie.upkeep.ports import Upkeep

PREFIX = "/api"
_DOCUMENT = "/openapi.json"
_HEADERS = {"cache-control": "no-store", "x-content-type-options": "nosniff"}
_AT_ONCE = 16
_encode = msgspec.json.Encoder().encode


class Management:
    """Answers what is asked of accounts, and of endpoints.

    ``managers`` says whose a key is, ``link_path`` where a browser uses a
    one-time link, ``clock`` what time it is, in UTC; ``upkeep`` sees to endpoints. Each
    key may ask ``requests_per_minute`` times, and a few times at once.
    """

    def __init__(
        self,
        accounts: Accounts,
        managers: Managers,
        clock: Clock,
        link_path: LinkPath,
        upkeep: Upkeep,
        requests_per_minute: int,
    ) -> None:
        self._managers = managers
        self._rates = Rates(requests_per_minute=requests_per_minute, concurrent=_AT_ONCE)
        self._limits = MemoryCounters()  # apart from those of inference
        self.routes = [
            *people_routes(PeopleDesk(accounts, link_path)),
            *project_routes(ProjectDesk(accounts, link_path, clock)),
            *key_routes(KeyDesk(accounts, clock)),
            *usage_routes(UsageDesk(accounts, clock)),
            *endpoint_routes(EndpointDesk(upkeep)),
        ]
        self._document = _encode(document(self.routes))

    async def answer(self, exchange: Exchange) -> None:
        """Answer one request; raises :class:`~causerie.errors.ServiceError`."""
        path = exchange.path.removeprefix(PREFIX)
        if path == _DOCUMENT and exchange.method in ("GET", "HEAD"):
            exchange.respond(200, self._document, headers=_HEADERS)
            return
        route, ids = pick(self.routes, exchange.method, path)
        actor = await self._managers.manager(exchange.credential)
        with self._limits.take_now([Scope("key", actor.id, self._rates)], Tokens) as lease:
            query = query_of(exchange.query, route.query)
            body = await body_of(exchange, route.body) if route.takes_body else route.body()
            answer = await route.handler(Call(actor, ids, query, body))
            headers = dict(_HEADERS)
            tell(lease.standings(), headers)
            if isinstance(answer, Export):
                await _send(exchange, answer, headers)
            else:
                content = b"" if answer is None else _encode(answer)
                exchange.respond(route.status, content, headers=headers)


async def _send(exchange: Exchange, export: Export, headers: Mapping[str, str]) -> None:
    """A file, no faster than the client reads it; ends where the client leaves."""
    disposition = {"content-disposition": f'attachment; filename="{export.filename}"'}
    exchange.start(200, export.content_type, {**headers, **disposition})
    async with aclosing(export.pieces):
        async for piece in export.pieces:
            if exchange.gone:
                return
            exchange.write(piece)
            if exchange.blocked:
                await exchange.drained()
    exchange.end()
