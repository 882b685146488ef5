"""Alerts: conditions become alerts, and alerts messages that channels deliver to receivers."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import random
from base64 import b64decode, b64encode
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Protocol
from uuid import uuid4

import structlog

from causerie.errors import StoreUnavailable

PREFIX = "whsec_"
_SHORTEST, _LONGEST = 24, 64  # bytes


def secret_bytes(secret: str) -> bytes:
    """Return the key in a ``whsec_…`` secret; raise :class:`ValueError` without naming the key."""
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
    """Outcome of one delivery attempt, in words for operators; a ``final`` one is not retried."""

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
    def facts(self) -> list[str]:
        """Return the details as lines of text, each a name and its value."""
        return [f"{name.replace('_', ' ')}: {value}" for name, value in self.details.items()]

    @property
    def title(self) -> str:
        """Return the summary, after ``Resolved:`` once the condition is over."""
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
        self._counter_samples: deque[tuple[float, Counted]] = deque()

    def look(self, counted: Counted, now: float, window: float) -> Mapping[str, ErrorRate]:
        """Return each model's rate in the last ``window`` seconds, or since the first call."""
        looks = self._counter_samples
        looks.append((now, counted))
        while len(looks) > 2 and looks[1][0] <= now - window:
            looks.popleft()
        since = looks[0][1]
        rates = {}
        for model, (requests, failed) in counted.items():
            before, failed_before = since.get(model, (0, 0))
            rates[model] = ErrorRate(requests - before, failed - failed_before)
        return rates


_MOST = 1000


class MemoryBook:
    """Alerts and deliveries in memory, for a service without a database."""

    def __init__(self) -> None:
        self._every_alert_by_key: dict[str, StoredAlert] = {}
        self._every_delivery_by_id: dict[str, Delivery] = {}

    async def alerts(self) -> Sequence[StoredAlert]:
        return sorted(self._every_alert_by_key.values(), key=lambda each: each.since, reverse=True)

    async def fire(
        self,
        condition: Condition,
        deliveries: Sequence[Delivery],
        now: datetime,
        quiet_since: datetime,
    ) -> bool:
        before = self._every_alert_by_key.get(condition.key)
        if before is not None:
            over = before.resolved_at
            if before.level >= condition.level or (over is not None and over > quiet_since):
                return False
        self._every_alert_by_key[condition.key] = StoredAlert.fired(condition, now)
        self._keep_deliveries_and_drop_oldest_ended(deliveries)
        return True

    async def seen(self, keys: Sequence[str], now: datetime) -> None:
        for key in keys:
            if key in self._every_alert_by_key:
                self._every_alert_by_key[key] = replace(self._every_alert_by_key[key], seen_at=now)

    async def resolve(
        self, key: str, deliveries: Sequence[Delivery], now: datetime, unseen_since: datetime
    ) -> bool:
        found = self._every_alert_by_key.get(key)
        if found is None or not found.level or found.seen_at > unseen_since:
            return False
        self._every_alert_by_key[key] = replace(found, level=0, resolved_at=now)
        self._keep_deliveries_and_drop_oldest_ended(deliveries)
        return True

    async def sent(self, since: datetime) -> Mapping[tuple[str, str], int]:
        return Counter(
            (each.channel, each.to)
            for each in self._every_delivery_by_id.values()
            if each.at >= since and each.state is not DeliveryState.DROPPED
        )

    async def claim(self, now: datetime, until: datetime, most: int) -> Sequence[Delivery]:
        due = [
            each
            for each in self._every_delivery_by_id.values()
            if each.next_at is not None and each.next_at <= now
        ][:most]
        taken = [replace(each, next_at=until, attempts=each.attempts + 1) for each in due]
        self._keep_deliveries_and_drop_oldest_ended(taken)
        return taken

    async def settle(self, delivery: Delivery) -> None:
        self._keep_deliveries_and_drop_oldest_ended([delivery])

    async def deliveries(self, most: int) -> Sequence[Delivery]:
        every = self._every_delivery_by_id.values()
        return sorted(every, key=lambda each: each.at, reverse=True)[:most]

    async def forget(self, before: datetime) -> None:
        self._every_alert_by_key = {
            key: one for key, one in self._every_alert_by_key.items() if one.seen_at >= before
        }
        self._every_delivery_by_id = {
            id: one
            for id, one in self._every_delivery_by_id.items()
            if one.at >= before or one.next_at is not None
        }

    def _keep_deliveries_and_drop_oldest_ended(self, deliveries: Sequence[Delivery]) -> None:
        self._every_delivery_by_id |= {each.id: each for each in deliveries}
        ended = [id for id, each in self._every_delivery_by_id.items() if each.next_at is None]
        for id in ended[: max(len(self._every_delivery_by_id) - _MOST, 0)]:
            del self._every_delivery_by_id[id]


log = structlog.get_logger(__name__)

_RETRY_SECONDS = (5.0, 60.0, 300.0, 1800.0, 7200.0)
_CLAIM = timedelta(minutes=2)  # longer than an attempt takes
_AT_ONCE = 20
_HOUR = timedelta(hours=1)
_KEPT = timedelta(days=40)  # longer than any period that begins anew


@dataclass(frozen=True, slots=True)
class Receiver:
    """Receiver of messages of some kinds: a channel, and an address for e-mails."""

    channel: str
    to: str = ""
    kinds: frozenset[AlertKind] = frozenset(AlertKind)


@dataclass(frozen=True, slots=True)
class AlertOptions:
    """Receivers of messages, and the times after which alerts end and fire again."""

    receivers: Sequence[Receiver] = ()
    owners: str = ""
    """Channel of e-mails to people that a condition concerns, or empty."""
    resolve: timedelta = timedelta(seconds=60)
    quiet: timedelta = timedelta(seconds=300)
    messages_per_hour: int = 60


@dataclass(eq=False)
class AlertCenter:
    """Fires and resolves alerts of one book, and delivers them through their receivers' channels.

    An alert fires once for an event, whichever processes observe its condition, and is over when
    none has observed it for a while. Messages are delivered at least once, with the same id.
    """

    book: AlertBook
    _clock: Callable[[], datetime]
    _find_channel: Callable[[str, str], NotificationChannel | None]
    _retry_jitter: random.Random = field(default_factory=random.Random)
    more: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when there is something to deliver."""

    async def observe(self, conditions: Sequence[Condition], options: AlertOptions) -> None:
        """Fire new conditions, and resolve alerts that no process has observed for a while."""
        now = self._clock()
        stored = {each.key: each for each in await self.book.alerts()}
        new, still = [], []
        for each in conditions:
            before = stored.get(each.key)
            if before is None or before.level < each.level:
                new.append(each)
            elif before.seen_at <= now - options.resolve / 3:
                still.append(each.key)
        await self.book.seen(still, now)
        observed, unseen_since = {each.key for each in conditions}, now - options.resolve
        over = [
            each
            for key, each in stored.items()
            if each.firing and each.seen_at <= unseen_since and key not in observed
        ]
        if new or over:
            await self._fire_and_resolve(new, over, options, now)

    async def forget(self) -> None:
        await self.book.forget(self._clock() - _KEPT)

    async def deliver(self) -> int:
        """Try some due deliveries, and return how many were tried."""
        now = self._clock()
        taken = await self.book.claim(now, now + _CLAIM, _AT_ONCE)
        async with asyncio.TaskGroup() as group:
            for delivery in taken:
                group.create_task(self._deliver_and_settle(delivery))
        return len(taken)

    async def test(self, receiver: Receiver, words: str) -> Outcome:
        """Send a test message at once, and keep its outcome."""
        now = self._clock()
        tested = Condition("", AlertKind.TEST, words)
        delivery = replace(_build_delivery(receiver, tested, now, firing=True), attempts=1)
        outcome = await self._attempt_delivery(delivery)
        state = DeliveryState.DELIVERED if outcome.delivered else DeliveryState.FAILED
        await self.book.settle(replace(delivery, state=state, next_at=None, outcome=outcome.words))
        return outcome

    async def _fire_and_resolve(
        self,
        new_conditions: Sequence[Condition],
        ended_alerts: Sequence[StoredAlert],
        options: AlertOptions,
        now: datetime,
    ) -> None:
        sent = Counter(await self.book.sent(now - _HOUR))
        for one in new_conditions:
            deliveries = _build_deliveries_with_dropped_ones(one, options, now, sent)
            if await self.book.fire(one, deliveries, now, now - options.quiet):
                log.warning("alert", kind=one.kind, alert=one.key, level=one.level)
                self.more.set()
        for alert in ended_alerts:
            deliveries = _build_deliveries_with_dropped_ones(alert, options, now, sent)
            if await self.book.resolve(alert.key, deliveries, now, now - options.resolve):
                log.info("alert over", kind=alert.kind, alert=alert.key)
                self.more.set()

    async def _deliver_and_settle(self, delivery: Delivery) -> None:
        outcome = await self._attempt_delivery(delivery)
        ended = replace(delivery, outcome=outcome.words, next_at=None)
        if outcome.delivered:
            ended = replace(ended, state=DeliveryState.DELIVERED)
        elif outcome.final or delivery.attempts > len(_RETRY_SECONDS):
            ended = replace(ended, state=DeliveryState.FAILED)
        else:
            wait = _RETRY_SECONDS[delivery.attempts - 1] * self._retry_jitter.uniform(0.8, 1.2)
            ended = replace(ended, next_at=self._clock() + timedelta(seconds=wait))
        try:
            await self.book.settle(ended)
        except StoreUnavailable:  # it is tried once more, when nobody has it any more
            log.warning("alert delivery not kept", message=delivery.id)

    async def _attempt_delivery(self, delivery: Delivery) -> Outcome:
        channel = self._find_channel(delivery.channel, delivery.to)
        if channel is None:
            words = "The channel is not in the configuration any more."
            return Outcome(delivered=False, words=words, final=True)
        outcome = await channel.send(delivery, self._clock())
        log.info(
            "alert delivered" if outcome.delivered else "alert not delivered",
            channel=delivery.channel,
            message=delivery.id,
            attempt=delivery.attempts,
        )
        return outcome


def _build_deliveries_with_dropped_ones(
    alert: Condition | StoredAlert,
    options: AlertOptions,
    now: datetime,
    sent_counts_to_raise: Counter[tuple[str, str]],
) -> list[Delivery]:
    owners = alert.owners if isinstance(alert, Condition) and options.owners else ()
    receivers = (
        *(each for each in options.receivers if alert.kind in each.kinds),
        *(Receiver(options.owners, each) for each in owners),
    )
    made = []
    for receiver in receivers:
        place = (receiver.channel, receiver.to)
        delivery = _build_delivery(receiver, alert, now, firing=isinstance(alert, Condition))
        if sent_counts_to_raise[place] >= options.messages_per_hour:
            words = f"Not sent: more than {options.messages_per_hour} messages in an hour."
            delivery = replace(delivery, state=DeliveryState.DROPPED, next_at=None, outcome=words)
        else:
            sent_counts_to_raise[place] += 1
        made.append(delivery)
    return made


def _build_delivery(
    receiver: Receiver, alert: Condition | StoredAlert, now: datetime, *, firing: bool
) -> Delivery:
    place = f"msg_{uuid4().hex}", receiver.channel, receiver.to
    return Delivery(*place, alert.kind, firing, alert.summary, alert.details, at=now, next_at=now)
