"""Endpoints for operators: how they stand, what they can do, and probes of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from causerie.console.visit import Visit
from causerie.errors import InvalidRequest, NotFound
from causerie.upkeep.matrix import Cell, groups
from causerie.upkeep.ports import Upkeep
from causerie.upkeep.views import EndpointView, ModelView, TargetView

_PATH = "/operator/endpoints"


@dataclass(frozen=True, slots=True)
class Column:
    """One model at one endpoint, in the matrix."""

    endpoint: str
    title: str
    model: ModelView
    cells: Mapping[str, Cell]


def column(view: EndpointView, model: ModelView, title: str) -> Column:
    """The column of a model."""
    return Column(view.name, title, model, {cell.parameter: cell for cell in model.cells})


class EndpointsPages:
    """Asked of what sees to the service, which decides who may."""

    def __init__(self, upkeep: Upkeep) -> None:
        self._upkeep = upkeep

    async def list(self, visit: Visit) -> None:
        """``GET /operator/endpoints``; ``?model=`` shows who answers for one, side by side."""
        views = await self._upkeep.endpoints(visit.actor)
        served = {one.model for view in views for each in view.targets for one in each.serves}
        model = visit.query.get("model")
        shown = model if model in served else ""
        if shown:
            views = [_only(view, shown) for view in views]
        await visit.show(
            "operator/endpoints.html",
            views=[view for view in views if view.targets or not shown],
            models=sorted(served),
            model=shown,
            columns=_columns(views) if shown else (),
            groups=groups(),
            query=urlencode({"model": shown}) if shown else "",
        )

    async def see(self, visit: Visit) -> None:
        """``GET /operator/endpoints/{endpoint}``."""
        view = await self._view(visit)
        await visit.show(
            "operator/endpoint.html",
            view=view,
            columns=[column(view, model, model.id) for model in view.models],
            groups=groups(),
        )

    async def progress(self, visit: Visit) -> None:
        """``GET /operator/endpoints/{endpoint}/progress``: fetched again while a probe runs.

        When it has ended, the page of the endpoint has what was found.
        """
        view = await self._view(visit)
        if view.probe is None or view.probe.state != "asking":
            visit.go(f"{_PATH}/{view.name}")
            return
        await visit.show("operator/progress.html", view=view)

    async def ask(self, visit: Visit) -> None:
        """``GET /operator/endpoints/{endpoint}/probe``: what it costs, and whether it is meant."""
        view = await self._view(visit)
        await visit.show(
            "operator/probe.html", view=view, model=_model(view, visit.query.get("model"))
        )

    async def probe(self, visit: Visit) -> None:
        """``POST /operator/endpoints/{endpoint}/probe``."""
        name, model = visit.params["endpoint"], visit.form.get("model")
        try:
            await self._upkeep.probe(visit.actor, name, model)
        except InvalidRequest as problem:
            view = await self._view(visit)
            await visit.show_problem(
                "operator/probe.html", problem, view=view, model=_model(view, model)
            )
            return
        visit.go(f"{_PATH}/{name}")

    async def cancel(self, visit: Visit) -> None:
        """``POST /operator/endpoints/{endpoint}/probe/cancel``."""
        name = visit.params["endpoint"]
        await self._upkeep.cancel(visit.actor, name)
        visit.go(f"{_PATH}/{name}", done="probe-cancelled")

    async def use(self, visit: Visit) -> None:
        """``POST /operator/endpoints/{endpoint}/probe/use``: write the result, and go by it."""
        name, model = visit.params["endpoint"], visit.form.get("model")
        used = await self._upkeep.use(visit.actor, name, model)
        if used.in_force:
            visit.go(f"{_PATH}/{name}", done="probe-used")
            return
        await visit.show("operator/by_hand.html", name=name, model=model, used=used)

    async def _view(self, visit: Visit) -> EndpointView:
        return await self._upkeep.endpoint(visit.actor, visit.params["endpoint"])


def _model(view: EndpointView, id: str) -> ModelView:
    for model in view.models:
        if model.id == id and model.cost is not None:
            return model
    raise NotFound("There is no such model at this endpoint that could be probed.")


def _only(view: EndpointView, model: str) -> EndpointView:
    """Those of its targets that answer for a model."""
    targets = [one for one in view.targets if _serves(one, model)]
    named = {one.model for one in targets}
    return EndpointView(
        name=view.name,
        base_url=view.base_url,
        dialect=view.dialect,
        max_concurrent=view.max_concurrent,
        targets=tuple(targets),
        models=tuple(one for one in view.models if one.id in named),
        probe=view.probe,
    )


def _serves(target: TargetView, model: str) -> bool:
    return any(one.model == model for one in target.serves)


def _columns(views: Sequence[EndpointView]) -> Sequence[Column]:
    return [
        column(view, model, f"{view.name}/{model.id}") for view in views for model in view.models
    ]
