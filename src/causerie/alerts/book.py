"""Alerts and deliveries as they are kept, and the interface of what keeps them.

Of several processes over one book, one decides: :meth:`AlertBook.fire`, :meth:`AlertBook.resolve`
and :meth:`AlertBook.claim` succeed for one of them. An alert and the deliveries of its messages are
kept in one step, so that a process that ends in between loses none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from causerie.alerts.condition import Condition
from causerie.alerts.message import AlertKind, AlertMessage


@dataclass(frozen=True, slots=True)
class StoredAlert:
    """An alert that has fired; ``level`` is 0 once it is over."""

    key: str
    kind: AlertKind
    summary: str
    details: Mapping[str, str]
    level: int
    recovers: bool
    since: datetime
    seen_at: datetime
    """When any process last found its condition to hold."""
    resolved_at: datetime | None = None

    @staticmethod
    def fired(condition: Condition, now: datetime) -> StoredAlert:
        """Return the alert of a condition that is found now."""
        return StoredAlert(
            key=condition.key,
            kind=condition.kind,
            summary=condition.summary,
            details=condition.details,
            level=condition.level,
            recovers=condition.recovers,
            since=now,
            seen_at=now,
        )

    @property
    def firing(self) -> bool:
        """Return true if it waits for its end."""
        return self.level > 0 and self.recovers


class DeliveryState(StrEnum):
    """State of the delivery of a message to one receiver."""

    WAITING = "waiting"
    DELIVERED = "delivered"
    FAILED = "failed"
    DROPPED = "dropped"
    """Too many messages in an hour."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """A message on its way to one receiver of a channel; ``id`` is the message's for it."""

    id: str
    channel: str
    to: str = field(repr=False)
    """Address of a letter; empty for a webhook."""
    kind: AlertKind
    firing: bool
    summary: str
    details: Mapping[str, str]
    at: datetime
    state: DeliveryState = DeliveryState.WAITING
    attempts: int = 0
    next_at: datetime | None = None
    """When it is tried next; unset once it has ended."""
    outcome: str = ""
    """What came of the last attempt."""

    @property
    def message(self) -> AlertMessage:
        return AlertMessage(
            self.id, self.kind, self.firing, self.summary, at=self.at, details=self.details
        )


class AlertBook(Protocol):
    """Keeps alerts and deliveries. Everything raises ``StoreUnavailable`` where it cannot."""

    async def alerts(self) -> Sequence[StoredAlert]:
        """All that are kept, newest first."""

    async def fire(
        self,
        condition: Condition,
        deliveries: Sequence[Delivery],
        now: datetime,
        quiet_since: datetime,
    ) -> bool:
        """Keep an alert of a level that was not reached yet, with its deliveries.

        False where another process was first, or where it was over after ``quiet_since``.
        """

    async def seen(self, keys: Sequence[str], now: datetime) -> None:
        """These hold still."""

    async def resolve(
        self, key: str, deliveries: Sequence[Delivery], now: datetime, unseen_since: datetime
    ) -> bool:
        """End an alert that nobody has seen since; false where another process was first."""

    async def sent(self, since: datetime) -> Mapping[tuple[str, str], int]:
        """Count the deliveries since, by channel and address, without those that were dropped."""

    async def claim(self, now: datetime, until: datetime, most: int) -> Sequence[Delivery]:
        """Take up to so many that are due; nobody else gets them before ``until``."""

    async def settle(self, delivery: Delivery) -> None:
        """Keep the state of a delivery, also of one that was not there."""

    async def deliveries(self, most: int) -> Sequence[Delivery]:
        """Return the newest."""

    async def forget(self, before: datetime) -> None:
        """Remove what has ended and what was not seen since."""
