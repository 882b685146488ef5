"""Alerts as they are found, kept and sent: conditions, messages and their signatures, deliveries,
the interfaces of books and channels, and the share of failed requests.

Knows nothing of budgets, providers or models: it gets conditions in words, and hands on
messages. Of several processes over one book, one decides: :meth:`AlertBook.fire`,
:meth:`AlertBook.resolve` and :meth:`AlertBook.claim` succeed for one of them. An alert and the
deliveries of its messages are kept in one step, so that a process that ends in between loses
none.
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64decode, b64encode
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Protocol

# Signatures of webhooks, by the Standard Webhooks specification (1.0): HMAC-SHA256, ``v1``.

PREFIX = "whsec_"
_SHORTEST, _LONGEST = 24, 64  # bytes


def secret_bytes(secret: str) -> bytes:
    """Return the key of ``whsec_…``; raise :class:`ValueError`, which does not hold it."""
    if not secret.startswith(PREFIX):
        raise ValueError(f"does not begin with `{PREFIX}`")
    try:
        key = b64decode(secret.removeprefix(PREFIX), validate=True)
    except ValueError:
        raise ValueError(f"is not base64 behind `{PREFIX}`") from None
    if not _SHORTEST <= len(key) <= _LONGEST:
        raise ValueError(f"has {len(key)} bytes; a secret has {_SHORTEST} to {_LONGEST}")
    return key


def signature(key: bytes, id: str, timestamp: int, body: bytes) -> str:
    """Return the value of ``webhook-signature``; ``timestamp`` is in seconds since 1970."""
    signed = b"%b.%d.%b" % (id.encode(), timestamp, body)
    return "v1," + b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()


# A message about one alert, as every channel carries it. It holds no secret and no contents.


class AlertKind(StrEnum):
    """Subject of an alert."""

    BUDGET = "budget"
    PROVIDER = "provider"
    ERROR_RATE = "error_rate"
    KEY_EXPIRY = "key_expiry"
    JOB = "job"
    TEST = "test"


@dataclass(frozen=True, slots=True)
class AlertMessage:
    """``firing`` is false for the message that an alert is over. ``id`` is the same at a retry."""

    id: str
    kind: AlertKind
    firing: bool
    summary: str
    """One line."""
    at: datetime
    details: Mapping[str, str] = field(default_factory=dict)
    """Facts for programs."""

    @property
    def title(self) -> str:
        """Return the line with its state, for subjects and lists."""
        if self.kind is AlertKind.TEST:
            return self.summary
        return self.summary if self.firing else f"Resolved: {self.summary}"


# Something that holds at the moment and that somebody should know.


@dataclass(frozen=True, slots=True)
class Condition:
    """``key`` is the same for as long as it is the same event, in every process."""

    key: str
    kind: AlertKind
    summary: str
    details: Mapping[str, str] = field(default_factory=dict)
    level: int = 1
    """A higher one is notified anew."""
    recovers: bool = True
    """Its end is notified; otherwise it has none that anybody waits for."""
    owner: str = field(default="", repr=False)
    """E-mail address of a person that it concerns, apart from the channels."""


# Interface of channels, whatever carries their messages.


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of one attempt, in words for operators. ``final``: another attempt is of no use."""

    delivered: bool
    words: str
    final: bool = False


class NotificationChannel(Protocol):
    """Carries messages to one receiver."""

    async def send(self, message: AlertMessage, now: datetime) -> Outcome:
        """Try once; never raises for what the receiver does."""


# Alerts and deliveries as they are kept, and the interface of what keeps them.


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


# Share of failed requests of each model in a window, from counts that only grow.

Counted = Mapping[str, tuple[int, int]]
"""Requests and failures of each model since the start."""


@dataclass(frozen=True, slots=True)
class ErrorRate:
    """Requests and failures of one model in the window."""

    requests: int
    failed: int

    @property
    def percent(self) -> int:
        """Return the share of failures, from 0 to 100."""
        return 100 * self.failed // self.requests if self.requests else 0


class ErrorRates:
    """Keeps one count a look, for as long as the window is."""

    def __init__(self) -> None:
        self._looks: deque[tuple[float, Counted]] = deque()

    def look(self, counted: Counted, now: float, window: float) -> Mapping[str, ErrorRate]:
        """Return the rates of the last ``window`` seconds, or since the first look.

        ``now`` is on the monotonic clock.
        """
        looks = self._looks
        looks.append((now, counted))
        while len(looks) > 2 and looks[1][0] <= now - window:
            looks.popleft()
        since = looks[0][1]
        rates = {}
        for model, (requests, failed) in counted.items():
            before, failed_before = since.get(model, (0, 0))
            rates[model] = ErrorRate(requests - before, failed - failed_before)
        return rates
