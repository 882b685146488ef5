"""The public catalog: a list that is searched, models side by side, and a page for each."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import to_builtins

from causerie.catalog.costs import USUAL_LOAD, CostAssumptions, costs
from causerie.catalog.door_catalog import DoorCatalog
from causerie.catalog.listing import Listing
from causerie.catalog.search import CONTEXTS, COSTS, ENDINGS, PAGE, SORTS, CatalogQuery
from causerie.console.catalogue import view
from causerie.console.market.comparison import MOST, comparison, variants
from causerie.console.market.endpoints import endpoints, names_of
from causerie.console.market.facets import facets
from causerie.console.market.providers import providers
from causerie.console.market.row import price, row
from causerie.console.market.trend import trend
from causerie.console.ports import ServiceView
from causerie.console.request_context import RequestContext
from causerie.console.snippets import router_snippets
from causerie.errors import InvalidRequest, NotFound

_CHOICES = {"sorts": SORTS, "costs": COSTS, "endings": ENDINGS, "contexts": CONTEXTS}
_KEY = "YOUR_API_KEY"


class MarketPages:
    """Pages of the router's catalog, public without a sign-in."""

    def __init__(self, service_view: ServiceView) -> None:
        self._service_view = service_view

    async def show(self, context: RequestContext) -> None:
        """``GET /catalog``: the entries that the fields of the address ask for."""
        entries = self._market().entries()
        problem, search, found = None, CatalogQuery(), list[Listing]()
        try:
            search = CatalogQuery.parse(context.query)
            found = list(await search.of(entries))
        except InvalidRequest as failure:
            problem = failure
        values = {
            "search": search,
            "rows": [row(one) for one in search.on_page(found)],
            "count": len(found),
            "total": len(entries),
            "pages": -(-len(found) // PAGE),
            "first": (search.page - 1) * PAGE + 1,
            "problem": problem,
            "most": MOST,
        }
        status = problem.status if problem is not None else 200
        if context.by_script:
            await context.show_openly("catalog/results.html", status=status, **values)
            return
        narrowing = {"facets": facets(entries), "choices": _CHOICES}
        await context.show_openly("catalog/list.html", status=status, **values, **narrowing)

    async def compare(self, context: RequestContext) -> None:
        """``GET /catalog/compare?model=…&model=…``."""
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
        market = self._market()
        found = providers(market.entries(), market.history)
        await context.show_openly("catalog/providers.html", providers=found)

    async def provider(self, context: RequestContext) -> None:
        """``GET /providers/{provider}``."""
        market, name = self._market(), context.params["provider"]
        for each in providers(market.entries(), market.history):
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


def _variants(one: Listing, market: DoorCatalog) -> Sequence[Listing]:
    """With itself, though it has a suffix that is no entry of its own."""
    found = list(variants(one.id, market.entries()))
    return [one if each.id == one.id else each for each in found]


def _asked(one: Listing) -> str:
    """Values that a request names."""
    return f"{one.id}:{one.twist}" if one.twist else one.id
