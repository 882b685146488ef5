"""Models of the catalog as operators see them: from the file, or published in the console."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

from causerie.console.entries import entries_of
from causerie.console.paging import page_of
from causerie.console.request_context import RequestContext
from causerie.errors import InvalidRequest, NotFound
from causerie.operations.configuring import EntryView
from causerie.operations.ports import Operations

_PATH = "/operator/catalog"
_DELETE = "operator/delete_catalog_model.html"
_COLUMNS = {"id": lambda one: one.name.casefold(), "origin": lambda one: one.origin}


class CatalogEntryPages:
    """Changes are in force at once; models of the file are shown only."""

    def __init__(self, operations: Operations) -> None:
        self._configuration = operations.configuration

    async def list(self, context: RequestContext) -> None:
        """``GET /operator/catalog``."""
        entries = await entries_of(self._configuration, context.actor)
        models = [each for each in entries if each.kind == "catalog_model"]
        providers = {each.name for each in entries if each.kind == "provider" and each.in_force}
        await context.show(
            "operator/catalog.html",
            page=page_of(models, context.query, _texts, _COLUMNS),
            providers=sorted(providers),
            lowest=_lowest,
        )

    async def enable(self, context: RequestContext) -> None:
        """``POST /operator/catalog/{entry}/enable``."""
        await self._switch(context, enabled=True)

    async def disable(self, context: RequestContext) -> None:
        """``POST /operator/catalog/{entry}/disable``."""
        await self._switch(context, enabled=False)

    async def ask_deletion(self, context: RequestContext) -> None:
        """``GET /operator/catalog/{entry}/delete``."""
        await context.show(_DELETE, entry=await self._entry(context))

    async def delete(self, context: RequestContext) -> None:
        """``POST /operator/catalog/{entry}/delete``."""
        entry = await self._entry(context)
        try:
            await self._configuration.delete(context.actor, entry.id)
        except InvalidRequest as problem:
            await context.show_problem(_DELETE, problem, entry=entry)
            return
        context.go(_PATH, done="catalog-model-deleted")

    async def _switch(self, context: RequestContext, *, enabled: bool) -> None:
        entry = await self._entry(context)
        await self._configuration.switch(context.actor, entry.id, enabled=enabled)
        done = "catalog-model-enabled" if enabled else "catalog-model-disabled"
        context.go(_PATH, done=done)

    async def _entry(self, context: RequestContext) -> EntryView:
        entry = await self._configuration.see(context.actor, context.params["entry"])
        if entry.kind != "catalog_model":
            raise NotFound("There is no such model of the catalog in the database.")
        return entry


def _lowest(entry: EntryView, part: str) -> Decimal | None:
    """Return the lowest price of its endpoints per 1M tokens; ``None`` without endpoints."""
    found: list[Mapping[str, Any]] = entry.settings.get("endpoints", [])
    return min((Decimal(each.get("price", {}).get(part, "0")) for each in found), default=None)


def _texts(entry: EntryView) -> Iterator[str]:
    yield entry.name
    yield str(entry.settings.get("name", ""))
    for each in entry.settings.get("endpoints", ()):
        yield f"{each.get('provider', '')}/{each.get('model', '')}"
