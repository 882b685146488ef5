"""The public catalog: models side by side, and a page for each."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from msgspec import to_builtins

from causerie.catalog.costs import USUAL_LOAD, CostAssumptions, costs
from causerie.catalog.door_catalog import DoorCatalog
from causerie.catalog.listing import Listing
from causerie.console.catalogue import view
from causerie.console.market.comparison import MOST, comparison, variants
from causerie.console.market.endpoints import endpoints, names_of
from causerie.console.market.providers import ProviderRow, providers
from causerie.console.market.row import price, row
from causerie.console.market.trend import trend
from causerie.console.ports import ServiceView
from causerie.console.request_context import RequestContext
from causerie.console.snippets import router_snippets
from causerie.errors import InvalidRequest, NotFound

_KEY = "YOUR_API_KEY"


class MarketPages:
    """Pages of the router's catalog, public without a sign-in."""

    def __init__(self, service_view: ServiceView) -> None:
        self._service_view = service_view

    async def compare(self, context: RequestContext) -> None:
        market = self._market()
        names = list(dict.fromkeys(filter(None, context.query.every("model"))))
        chosen = [market.entry(name) for name in names[:MOST]]
        await context.show_openly(
            "catalog/compare.html",
            comparison=comparison(chosen, market.entries()),
            left_out=max(len(names) - MOST, 0),
            most=MOST,
        )

    async def model(self, context: RequestContext) -> None:
        """``GET /catalog/{author}/{slug}``; a script that asks gets the costs alone."""
        market = self._market()
        one = market.entry(f"{context.params['author']}/{context.params['slug']}")
        every = _variants(one, market)
        load, problem = USUAL_LOAD, None
        try:
            load = CostAssumptions.parse(context.query)
        except InvalidRequest as failure:
            problem = failure
        values = {"load": load, "costs": costs(every, load), "problem": problem, "one": one}
        values["several"] = len(every) > 1
        status = problem.status if problem is not None else 200
        if context.by_script:
            await context.show_openly("catalog/costs.html", status=status, **values)
            return
        names = names_of(one)
        days = {names[each.name]: market.history(each.name) for each in one.endpoints}
        await context.show_openly(
            "catalog/model.html",
            status=status,
            **values,
            row=row(one),
            chat=context.services.public_chat.offers(one),
            view=view(to_builtins(one.entry())),
            endpoints=endpoints(one),
            variants=[row(each) for each in every],
            trend=trend(days, context.services.clock()),
            prices=[price(each.tariff) for one in every for each in one.endpoints],
            snippets=router_snippets(context.base + market.prefix, _KEY, _asked(one)),
            base=context.base + market.prefix,
        )

    async def providers(self, context: RequestContext) -> None:
        """``GET /providers``: those of the catalog."""
        found = await _providers(self._market())
        await context.show_openly("catalog/providers.html", providers=found)

    async def provider(self, context: RequestContext) -> None:
        market, name = self._market(), context.params["provider"]
        for each in await _providers(market):
            if each.name == name:
                await context.show_openly(
                    "catalog/provider.html", row=each, base=context.base + market.prefix
                )
                return
        raise NotFound("The catalog has no provider of this name.")

    async def logo(self, context: RequestContext) -> None:
        """``GET /logos/{name}``: an image of the configuration."""
        found = context.services.logos.get(context.params["name"])
        if found is None:
            raise NotFound("There is no such logo.")
        context.send_image(found.content_type, found.content)

    def _market(self) -> DoorCatalog:
        market = self._service_view.market()
        if market is None:
            raise NotFound("There is no such page.")
        return market


async def _providers(market: DoorCatalog) -> Sequence[ProviderRow]:
    """Return them off the event loop: there may be thousands of endpoints."""
    return await asyncio.to_thread(providers, market.entries(), market.history)


def _variants(one: Listing, market: DoorCatalog) -> Sequence[Listing]:
    """With itself, though it has a suffix that is no entry of its own."""
    found = list(variants(one.id, market.entries()))
    return [one if each.id == one.id else each for each in found]


def _asked(one: Listing) -> str:
    """Values that a request names."""
    return f"{one.id}:{one.twist}" if one.twist else one.id
