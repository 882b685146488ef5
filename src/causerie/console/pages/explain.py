"""Who would get a request, and why: asked by operators before anybody sends it."""

from __future__ import annotations

from typing import Any

from causerie.console.route_form import EFFORTS, FORMATS, SORTS, RouteForm
from causerie.console.visit import Visit
from causerie.errors import InvalidRequest, NotFound
from causerie.upkeep.forecast import Forecast
from causerie.upkeep.ports import Question, Upkeep

_TEMPLATE = "operator/explain.html"


class ExplainPages:
    """Asks what sees to the service; nothing is sent, and nothing changes."""

    def __init__(self, upkeep: Upkeep) -> None:
        self._upkeep = upkeep

    async def show(self, visit: Visit) -> None:
        """``GET /operator/explain``; ``?model=`` fills one in."""
        await self._upkeep.endpoints(visit.actor)
        await self._show(visit, RouteForm(model=visit.query.get("model")), None)

    async def explain(self, visit: Visit) -> None:
        """``POST /operator/explain``."""
        await self._upkeep.endpoints(visit.actor)  # a wrong form names models and doors, too
        form = RouteForm.of(visit.form)
        try:
            visit.check_form()
            question = Question(form.request(), form.door, form.key, form.session)
            told = await self._upkeep.explain(visit.actor, question)
        except (InvalidRequest, NotFound) as problem:
            await visit.show_problem(_TEMPLATE, problem, **self._around(form, None))
            return
        await self._show(visit, form, told, question.body.decode("utf-8", "replace"))

    async def _show(
        self, visit: Visit, form: RouteForm, told: Forecast | None, body: str = ""
    ) -> None:
        await visit.show(_TEMPLATE, **self._around(form, told, body))

    def _around(self, form: RouteForm, told: Forecast | None, body: str = "") -> dict[str, Any]:
        return {
            "form": form,
            "told": told,
            "body": body or form.body,
            "doors": [(name, name) for name in self._upkeep.doors()],
            "models": self._upkeep.models(),
            "formats": FORMATS,
            "efforts": EFFORTS,
            "sorts": SORTS,
        }
