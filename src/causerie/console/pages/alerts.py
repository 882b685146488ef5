"""Alerts for operators: channels with a test for each, rules, alerts, and what was sent."""

from __future__ import annotations

from causerie.console.request_context import RequestContext
from causerie.operations.alerts import AlertDesk


class AlertsPages:
    """Asked of the desk, which decides who may."""

    def __init__(self, desk: AlertDesk) -> None:
        self._desk = desk

    async def show(self, context: RequestContext) -> None:
        """``GET /operator/alerts``."""
        await context.show(
            "operator/alerts.html", view=await self._desk.see(context.actor), tested=None
        )

    async def test(self, context: RequestContext) -> None:
        """``POST /operator/alerts/{channel}/test``: send one now, and show what was answered."""
        tested = await self._desk.test(context.actor, context.params["channel"])
        view = await self._desk.see(context.actor)
        await context.show("operator/alerts.html", view=view, tested=tested)
