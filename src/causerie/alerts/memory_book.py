"""Alerts and deliveries of one process, where there is no database."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from causerie.alerts.book import Delivery, DeliveryState, StoredAlert
from causerie.alerts.condition import Condition

_MOST = 1000


class MemoryBook:
    """Keeps the newest deliveries only."""

    def __init__(self) -> None:
        self._alerts: dict[str, StoredAlert] = {}
        self._deliveries: dict[str, Delivery] = {}

    async def alerts(self) -> Sequence[StoredAlert]:
        return sorted(self._alerts.values(), key=lambda each: each.since, reverse=True)

    async def fire(
        self,
        condition: Condition,
        deliveries: Sequence[Delivery],
        now: datetime,
        quiet_since: datetime,
    ) -> bool:
        before = self._alerts.get(condition.key)
        if before is not None:
            over = before.resolved_at
            if before.level >= condition.level or (over is not None and over > quiet_since):
                return False
        self._alerts[condition.key] = StoredAlert.fired(condition, now)
        self._add(deliveries)
        return True

    async def seen(self, keys: Sequence[str], now: datetime) -> None:
        for key in keys:
            if key in self._alerts:
                self._alerts[key] = replace(self._alerts[key], seen_at=now)

    async def resolve(
        self, key: str, deliveries: Sequence[Delivery], now: datetime, unseen_since: datetime
    ) -> bool:
        found = self._alerts.get(key)
        if found is None or not found.level or found.seen_at > unseen_since:
            return False
        self._alerts[key] = replace(found, level=0, resolved_at=now)
        self._add(deliveries)
        return True

    async def sent(self, since: datetime) -> Mapping[tuple[str, str], int]:
        return Counter(
            (each.channel, each.to)
            for each in self._deliveries.values()
            if each.at >= since and each.state is not DeliveryState.DROPPED
        )

    async def claim(self, now: datetime, until: datetime, most: int) -> Sequence[Delivery]:
        due = [
            each
            for each in self._deliveries.values()
            if each.next_at is not None and each.next_at <= now
        ][:most]
        taken = [replace(each, next_at=until, attempts=each.attempts + 1) for each in due]
        self._add(taken)
        return taken

    async def settle(self, delivery: Delivery) -> None:
        self._add([delivery])

    async def deliveries(self, most: int) -> Sequence[Delivery]:
        return sorted(self._deliveries.values(), key=lambda each: each.at, reverse=True)[:most]

    async def forget(self, before: datetime) -> None:
        self._alerts = {key: one for key, one in self._alerts.items() if one.seen_at >= before}
        self._deliveries = {
            id: one
            for id, one in self._deliveries.items()
            if one.at >= before or one.next_at is not None
        }

    def _add(self, deliveries: Sequence[Delivery]) -> None:
        self._deliveries |= {each.id: each for each in deliveries}
        ended = [id for id, each in self._deliveries.items() if each.next_at is None]
        for id in ended[: max(len(self._deliveries) - _MOST, 0)]:
            del self._deliveries[id]
