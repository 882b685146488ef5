"""Operations on alerts, for operators."""

from __future__ import annotations

from causerie.management.bodies import NoBody
from causerie.management.queries import NoQuery
from causerie.management.route import ApiCall
from causerie.operations.alerts import AlertDesk, AlertsView, ChannelTest


class AlertOperations:
    """Answers by the alerts of the running service."""

    def __init__(self, desk: AlertDesk) -> None:
        self._desk = desk

    async def see(self, call: ApiCall[NoQuery, NoBody]) -> AlertsView:
        return await self._desk.see(call.actor)

    async def test(self, call: ApiCall[NoQuery, NoBody]) -> ChannelTest:
        return await self._desk.test(call.actor, call.ids["channel"])
