"""The page of all models: public entries for everybody, and for members what their keys may name.

Operators also see the targets of each model, and how they stand.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from causerie.catalog.search import CONTEXTS, COSTS, ENDINGS, ROWS, SORTS, CatalogQuery
from causerie.console.catalogue import StatusBadge, anchor, best, target_badges
from causerie.console.market.comparison import MOST
from causerie.console.market.facets import facets
from causerie.console.market.offers import Offer, offer_row, offers, sources
from causerie.console.ports import ServiceView
from causerie.console.request_context import PREFIX, RequestContext
from causerie.errors import InvalidRequest, NotFound

_CHOICES = {"sorts": SORTS, "costs": COSTS, "endings": ENDINGS, "contexts": CONTEXTS}


class ModelsPages:
    """One list at two addresses: in a project, and for everybody."""

    def __init__(self, service_view: ServiceView) -> None:
        self._service_view = service_view

    async def show(self, context: RequestContext) -> None:
        """``GET /projects/{project}/models``: the models that the fields of the address ask for."""
        project = (await context.project()).project
        path = f"/projects/{project.id}/models"
        callable_ids = {str(entry.get("id", "")) for entry in self._service_view.models()}
        await self._page(context, path, callable_ids=callable_ids)

    async def show_openly(self, context: RequestContext) -> None:
        """``GET /catalog``: the public entries; members are led to the list of their project."""
        if self._service_view.market() is None:
            raise NotFound("There is no such page.")
        if context.user is not None:
            found = await context.accounts.projects.of(context.user)
            project = context.usual([each for each, _ in found])
            if project is not None:
                query = f"?{context.exchange.query}" if context.exchange.query else ""
                context.go(f"/projects/{project.id}/models{query}")
                return
        await self._page(context, "/catalog", public=True)

    async def states(self, context: RequestContext) -> None:
        """``GET /projects/{project}/models/states``: how those on the page stand now."""
        await context.project()
        search = CatalogQuery.parse(context.query)
        shown = search.on_page(await search.of(offers(self._service_view, public=False)))
        states = self._states(context, shown)
        await context.show(
            "models_states.html", states=[(anchor(id), found) for id, found in states.items()]
        )

    async def _page(
        self,
        context: RequestContext,
        path: str,
        *,
        public: bool = False,
        callable_ids: set[str] | frozenset[str] = frozenset(),
    ) -> None:
        entries = offers(self._service_view, public=public)
        problem, search, found = None, CatalogQuery(), list[Offer]()
        try:
            search = CatalogQuery.parse(context.query)
            found = list(await search.of(entries))
        except InvalidRequest as failure:
            problem = failure
        shown = search.on_page(found)
        engines = frozenset(each.model for each in self._service_view.status())
        values: dict[str, Any] = {
            "here": PREFIX + path,
            "public": public,
            "search": search,
            "rows": [(offer_row(one), sources(one, engines), anchor(one.id)) for one in shown],
            "states": {} if public else self._states(context, shown),
            "callable_ids": callable_ids,
            "count": len(found),
            "total": len(entries),
            "pages": -(-len(found) // search.rows),
            "first": (search.page - 1) * search.rows + 1,
            "problem": problem,
            "choice": ROWS,
            "most": MOST,
        }
        status = problem.status if problem is not None else 200
        if context.by_script:
            await context.show_openly("catalog/results.html", status=status, **values)
            return
        narrowing = {"facets": facets(entries), "choices": _CHOICES}
        await context.show_openly("catalog/list.html", status=status, **values, **narrowing)

    def _states(
        self, context: RequestContext, shown: Sequence[Offer]
    ) -> Mapping[str, Sequence[StatusBadge]]:
        """Return the states of models by id: of every target for operators, else the best."""
        found = target_badges(self._service_view, {one.id: one.targets for one in shown})
        if context.me.operator:
            return found
        return {id: best(badges) for id, badges in found.items()}
