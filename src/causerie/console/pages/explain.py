"""Routing explanation of a request, for operators, before anybody sends it."""

from __future__ import annotations

from typing import Any

from causerie.console.request_context import RequestContext
from causerie.console.route_form import EFFORTS, FORMATS, SORTS, RouteForm
from causerie.errors import InvalidRequest, NotFound
from causerie.operations.explanation import RoutingExplanation
from causerie.operations.ports import Operations, RouteQuery

_TEMPLATE = "operator/explain.html"


class ExplainPages:
    """Asks what sees to the service; nothing is sent, and nothing changes."""

    def __init__(self, operations: Operations) -> None:
        self._operations = operations

    async def show(self, context: RequestContext) -> None:
        """``GET /operator/explain``; ``?model=`` fills one in."""
        await self._operations.providers(context.actor)
        await self._show(context, RouteForm(model=context.query.get("model")), None)

    async def explain(self, context: RequestContext) -> None:
        await self._operations.providers(context.actor)  # a wrong form names models and doors, too
        form = RouteForm.of(context.form)
        try:
            context.check_form()
            question = RouteQuery(form.request(), form.door, form.key, form.session, form.reject)
            told = await self._operations.explain(context.actor, question)
        except (InvalidRequest, NotFound) as problem:
            await context.show_problem(_TEMPLATE, problem, **self._around(form, None))
            return
        await self._show(context, form, told, question.body.decode("utf-8", "replace"))

    async def _show(
        self,
        context: RequestContext,
        form: RouteForm,
        told: RoutingExplanation | None,
        body: str = "",
    ) -> None:
        await context.show(_TEMPLATE, **self._around(form, told, body))

    def _around(
        self, form: RouteForm, told: RoutingExplanation | None, body: str = ""
    ) -> dict[str, Any]:
        return {
            "form": form,
            "told": told,
            "body": body or form.body,
            "doors": [(name, name) for name in self._operations.doors()],
            "models": self._operations.models(),
            "formats": FORMATS,
            "efforts": EFFORTS,
            "sorts": SORTS,
        }
