"""Alerts, their messages and deliveries, and the interfaces of books and channels."""

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


class AlertKind(StrEnum):
    """Subject of an alert."""

    BUDGET = "budget"
    PROVIDER = "provider"
    ERROR_RATE = "error_rate"
    KEY_EXPIRY = "key_expiry"
    JOB = "job"
    TEST = "test"


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition that holds; ``key`` is the same for the same event in every process."""

    key: str
    kind: AlertKind
    summary: str
    details: Mapping[str, str] = field(default_factory=dict)
    level: int = 1
    """A higher level is reported anew."""
    recovers: bool = True
    """Its end is reported."""
    owners: tuple[str, ...] = field(default=(), repr=False)
    """E-mail addresses of the people that it concerns."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of one attempt, in words for operators; ``final``: there is no further attempt."""

    delivered: bool
    words: str
    final: bool = False


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
    """Time at which a process last observed its condition."""
    resolved_at: datetime | None = None

    @staticmethod
    def fired(condition: Condition, now: datetime) -> StoredAlert:
        names = ("key", "kind", "summary", "details", "level", "recovers")
        shared = {name: getattr(condition, name) for name in names}
        return StoredAlert(**shared, since=now, seen_at=now)

    @property
    def firing(self) -> bool:
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
    """A message about an alert, or its end (``firing`` false), to one receiver of a channel.

    ``id`` is the same at a retry. ``to`` is the address of a letter, empty for a webhook.
    ``summary`` is one line, ``details`` are facts for programs.
    """

    id: str
    channel: str
    to: str = field(repr=False)
    kind: AlertKind
    firing: bool
    summary: str
    details: Mapping[str, str]
    at: datetime
    state: DeliveryState = DeliveryState.WAITING
    attempts: int = 0
    next_at: datetime | None = None
    """Time of the next attempt; unset at the end."""
    outcome: str = ""

    @property
    def title(self) -> str:
        """Return the summary with its state."""
        over = not self.firing and self.kind is not AlertKind.TEST
        return f"Resolved: {self.summary}" if over else self.summary


class NotificationChannel(Protocol):
    """Sends messages to one receiver, each once; failures are outcomes."""

    async def send(self, message: Delivery, now: datetime) -> Outcome: ...


class AlertBook(Protocol):
    """Stores alerts and deliveries of several processes; all methods raise ``StoreUnavailable``.

    ``fire``, ``resolve`` and ``claim`` succeed for one process only. An alert and its deliveries
    are stored in one step.
    """

    async def alerts(self) -> Sequence[StoredAlert]: ...  # the newest first
    # False if another process was first, or if it was resolved after ``quiet_since``.
    async def fire(
        self,
        condition: Condition,
        deliveries: Sequence[Delivery],
        now: datetime,
        quiet_since: datetime,
    ) -> bool: ...
    async def seen(self, keys: Sequence[str], now: datetime) -> None: ...
    # False if another process was first, or has seen it since.
    async def resolve(
        self, key: str, deliveries: Sequence[Delivery], now: datetime, unseen_since: datetime
    ) -> bool: ...
    # Numbers of deliveries by channel and address, without dropped ones.
    async def sent(self, since: datetime) -> Mapping[tuple[str, str], int]: ...
    # Due deliveries, which no other process gets before ``until``.
    async def claim(self, now: datetime, until: datetime, most: int) -> Sequence[Delivery]: ...
    async def settle(self, delivery: Delivery) -> None: ...  # also of a new one
    async def deliveries(self, most: int) -> Sequence[Delivery]: ...  # the newest
    async def forget(self, before: datetime) -> None: ...  # what has ended or was not seen since


Counted = Mapping[str, tuple[int, int]]
"""Requests and failures of each model since the start."""


@dataclass(frozen=True, slots=True)
class ErrorRate:
    """Requests and failures of one model in the window."""

    requests: int
    failed: int

    @property
    def percent(self) -> int:
        return 100 * self.failed // self.requests if self.requests else 0


class ErrorRates:
    """Error rates of models in a window, from counts that only grow."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, Counted]] = deque()

    def look(self, counted: Counted, now: float, window: float) -> Mapping[str, ErrorRate]:
        """Return the rates of the last ``window`` seconds, or since the first call."""
        looks = self._samples
        looks.append((now, counted))
        while len(looks) > 2 and looks[1][0] <= now - window:
            looks.popleft()
        since = looks[0][1]
        rates = {}
        for model, (requests, failed) in counted.items():
            before, failed_before = since.get(model, (0, 0))
            rates[model] = ErrorRate(requests - before, failed - failed_before)
        return rates
