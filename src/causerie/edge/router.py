"""Paths of the router's door in addition to completions: its catalog, in its clients' form."""

from __future__ import annotations

from typing import Protocol
from urllib.parse import parse_qs

from causerie.access.keys import Caller
from causerie.catalog.page_cache import CatalogCache
from causerie.edge.cached import send_cached
from causerie.edge.doors import MountedDoor
from causerie.edge.exchange import Exchange
from causerie.errors import InvalidRequest, NotFound
from causerie.pipeline import Pipeline
from causerie.protocol.key_statements import (
    CreditsStatement,
    GenerationStatement,
    KeyStatement,
    RouterCredits,
    RouterGeneration,
    RouterKey,
)
from causerie.protocol.model_entries import Count, RouterCount, RouterEndpoints, RouterModelData

_ENDPOINTS = "/endpoints"
_OPEN = {"cache-control": "public, max-age=2"}
_OWN = {"cache-control": "private, no-store"}
_VARY = {"vary": "accept-encoding, authorization"}


class KeyStatements(Protocol):
    """Source of statements on keys and money."""

    async def key(self, caller: Caller) -> KeyStatement:
        """The caller's own."""

    async def credits(self, caller: Caller) -> CreditsStatement:
        """Of the caller's account."""

    async def generation(self, caller: Caller, id: str) -> GenerationStatement:
        """One past request; raises ``NotFound``."""


class RouterPages:
    """The handlers; pages of the catalog are kept. ``teller`` is there where accounts are."""

    def __init__(self, market: Pipeline, teller: KeyStatements | None = None) -> None:
        self._market = market
        self._teller = teller
        self._catalog_cache = CatalogCache()

    async def list_models(self, exchange: Exchange, door: MountedDoor, _: str) -> None:
        """``GET /models``, with filters, sorts and pages."""
        page = await self._catalog_cache.page(
            door.name, exchange.path, exchange.query, lambda: self._market.listed(door, None)
        )
        await send_cached(exchange, page, _OPEN | _VARY)

    async def list_mine(self, exchange: Exchange, door: MountedDoor, _: str) -> None:
        """``GET /models/user``: what the key may use."""
        caller = await self._market.authenticate(door, exchange.credential)
        page = await self._catalog_cache.page(
            f"{door.name} {caller.key}",
            exchange.path,
            exchange.query,
            lambda: self._market.listed(door, caller),
        )
        await send_cached(exchange, page, _OWN | _VARY)

    async def count(self, exchange: Exchange, door: MountedDoor, _: str) -> None:
        count = len(self._market.listed(door, None))
        exchange.json(RouterCount(data=Count(count=count)), _OPEN)

    async def show(self, exchange: Exchange, door: MountedDoor, name: str) -> None:
        """``GET /models/{id}`` and ``GET /models/{id}/endpoints``."""
        if name.endswith(_ENDPOINTS):
            entry = self._market.listing(door, name.removesuffix(_ENDPOINTS))
            exchange.json(RouterEndpoints(data=entry.with_endpoints()), _OPEN)
        else:
            exchange.json(self._market.listing(door, name).entry(), _OPEN)

    async def show_wrapped(self, exchange: Exchange, door: MountedDoor, name: str) -> None:
        """``GET /model/{id}``: the entry in an object of its own."""
        exchange.json(RouterModelData(data=self._market.listing(door, name).entry()), _OPEN)

    async def key(self, exchange: Exchange, door: MountedDoor, _: str) -> None:
        caller, teller = await self._account(exchange, door)
        exchange.json(RouterKey(data=await teller.key(caller)), _OWN)

    async def credits(self, exchange: Exchange, door: MountedDoor, _: str) -> None:
        caller, teller = await self._account(exchange, door)
        exchange.json(RouterCredits(data=await teller.credits(caller)), _OWN)

    async def generation(self, exchange: Exchange, door: MountedDoor, _: str) -> None:
        """``GET /generation?id=``: by the id of the completion, or of the request."""
        caller, teller = await self._account(exchange, door)
        ids = parse_qs(exchange.query).get("id", [])
        if len(ids) != 1:
            raise InvalidRequest(
                "`id` is missing; it is the `id` of a completion.",
                code="missing_parameter",
                param="id",
            )
        exchange.json(RouterGeneration(data=await teller.generation(caller, ids[0])), _OWN)

    async def _account(self, exchange: Exchange, door: MountedDoor) -> tuple[Caller, KeyStatements]:
        caller = await self._market.authenticate(door, exchange.credential)
        if self._teller is None:
            raise NotFound("There are no accounts here, so nothing is known of keys and money.")
        return caller, self._teller
