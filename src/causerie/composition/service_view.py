"""The service as the console sees it: doors, models, who answers, and a way to talk with them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import to_builtins

from causerie.access.keys import Caller
from causerie.accounts.people import User, actor_of
from causerie.accounts.projects import Projects
from causerie.accounts.visitor import visitor
from causerie.catalog.door_catalog import DoorCatalog
from causerie.composition.service import RunningService
from causerie.console.ports import DoorView
from causerie.edge.exchange import Exchange
from causerie.engines.base import EngineStatus
from causerie.errors import NotFound
from causerie.operations.ports import Operations
from causerie.protocol.target_stats import TimeBucket
from causerie.routing.target_state import TargetStatus
from causerie.settings.addresses import DoorAddress, default_address, door_addresses


class LiveServiceView:
    """Implements :class:`ServiceView` for one service, always by the parts that are in force."""

    def __init__(self, parts: RunningService, projects: Projects, operations: Operations) -> None:
        self.operations: Operations | None = operations
        self._parts = parts
        self._projects = projects

    def doors(self) -> Sequence[DoorView]:
        return [
            DoorView(door_address.door.name, door_address.prefix) for door_address in self._ways()
        ]

    def models(self, door: str | None = None) -> Sequence[dict[str, Any]]:
        found = (each for each in self._ways() if door is None or each.door.name == door)
        shown = frozenset(id for door_address in found for id in door_address.models)
        entries: list[dict[str, Any]] = []
        for model, names in self._parts.catalog.shown(shown):
            entry = {"name": model.card.name, **to_builtins(model.entry())}
            entries += [
                entry if name == model.id else entry | {"name": name, "id": name} for name in names
            ]
        return entries

    def market(self) -> DoorCatalog | None:
        door_address = self._router()
        if door_address is None:
            return None
        return DoorCatalog(
            door_address.prefix,
            frozenset(door_address.models),
            self._parts.catalog,
            self._parts.pipeline.router.history,
        )

    def answering(self, model: str) -> Sequence[str]:
        return self._parts.catalog.resolve(None, model).targets

    async def complete(self, exchange: Exchange, user: User, project_id: str) -> None:
        place = await self._projects.ask(actor_of(user), project_id)
        found = self._ways()
        if not found:
            raise NotFound("There is no door for keys of accounts.")
        caller = visitor(user, place, found[0].door.name)
        await self._parts.edge.converse(exchange, caller)

    async def talk(self, exchange: Exchange, body: bytes, model: str) -> None:
        door_address = self._router()
        if door_address is None:
            raise NotFound("There is no door to the catalog.")
        door, models = door_address.door.name, frozenset({model})
        caller = Caller(key="", name="visitor", door=door, models=models)
        await self._parts.edge.converse(exchange, caller, body)

    def status(self) -> Sequence[EngineStatus]:
        return self._parts.status()

    def targets(self) -> Sequence[TargetStatus]:
        return self._parts.targets()

    def history(self, target: str) -> Sequence[TimeBucket]:
        return self._parts.pipeline.router.history(target)

    def requests(self, target: str) -> int:
        return self._parts.pipeline.router.requests(target)

    def worker(self) -> tuple[int, int] | None:
        place = self._parts.place
        return None if place is None else (place.number, place.count)

    def _router(self) -> DoorAddress | None:
        found = [
            door_address
            for door_address in door_addresses(self._parts.settings)
            if door_address.door.kind == "router"
        ]
        return min(found, key=lambda one: one.door.keys != "accounts", default=None)

    def _ways(self) -> list[DoorAddress]:
        settings = self._parts.settings
        usual = default_address(settings)
        found = [
            door_address
            for door_address in door_addresses(settings)
            if door_address.door.keys == "accounts"
        ]
        return sorted(
            found,
            key=lambda door_address: (
                door_address.own,
                door_address.door.kind != "hosted",
                door_address != usual,
            ),
        )
