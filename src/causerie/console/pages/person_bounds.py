"""Limits and budgets of a person, over all their keys and projects; for operators."""

from __future__ import annotations

from typing import Any

from causerie.accounts.people import User
from causerie.console.bounds_form import BoundsRows, offered
from causerie.console.ports import ServiceView
from causerie.console.request_context import RequestContext
from causerie.errors import ServiceError

_FORM = "operator/person_bounds.html"


class PersonBoundsPages:
    """The form below a user."""

    def __init__(self, service_view: ServiceView) -> None:
        self._service_view = service_view

    async def ask(self, context: RequestContext) -> None:
        """The form of limits and budgets."""
        user = await context.accounts.users.see(context.actor, context.params["user"])
        bounds = await context.accounts.person_bounds.see(context.actor, user.id)
        await context.show(_FORM, **self._values(user, BoundsRows.of(bounds)))

    async def set(self, context: RequestContext) -> None:
        user = await context.accounts.users.see(context.actor, context.params["user"])
        rows = BoundsRows.typed(context.form)
        try:
            context.check_form()
            await context.accounts.person_bounds.set(context.actor, user.id, rows.bounds())
        except ServiceError as problem:
            await context.show_problem(_FORM, problem, **self._values(user, rows))
            return
        context.go("/operator/users", done="bounds-saved")

    def _values(self, user: User, rows: BoundsRows) -> dict[str, Any]:
        return {"person": user, **offered(rows, self._service_view.models())}
