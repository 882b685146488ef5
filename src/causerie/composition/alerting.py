"""Looks at the service every few seconds, and notifies the channels of the settings.

With accounts, alerts are kept in the database, where one of several processes decides. Without, and
for a database that is away, each process keeps its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import TYPE_CHECKING

import structlog

from causerie.alerts.center import AlertCenter, AlertOptions, Receiver
from causerie.alerts.channel import NotificationChannel
from causerie.alerts.condition import Condition
from causerie.alerts.email import Email
from causerie.alerts.error_rates import ErrorRates
from causerie.alerts.memory_book import MemoryBook
from causerie.alerts.message import AlertKind
from causerie.alerts.signature import secret_bytes
from causerie.alerts.webhook import Webhook
from causerie.composition.mail import mail_server
from causerie.composition.providers import private_networks
from causerie.composition.service_conditions import (
    DATABASE_AWAY,
    NOT_RELOADED,
    WORKER_ENDED,
    ImpossibleUsage,
    engine_conditions,
    error_conditions,
    provider_conditions,
)
from causerie.errors import StoreUnavailable
from causerie.settings import Settings
from causerie.settings.alerts import OWNERS, Alerts

if TYPE_CHECKING:
    from causerie.composition.account_conditions import AccountConditions
    from causerie.composition.service import RunningService

_POLL_SECONDS = 5.0  # for deliveries that another process has left
_FORGET_SECONDS = 3600.0
log = structlog.get_logger(__name__)


class Alerting:
    """Alerts of one service, always by the settings in force."""

    def __init__(self, parts: RunningService, accounts: AccountConditions | None) -> None:
        self._parts = parts
        self._accounts = accounts
        self._local = AlertCenter(MemoryBook(), _clock, self._channel)
        shared = AlertCenter(accounts.book, _clock, self._channel) if accounts else None
        self.center = shared or self._local
        self._more = self.center.more = self._local.more = asyncio.Event()
        self._rates = ErrorRates()
        self._usage = ImpossibleUsage()
        self._started = True  # until the first look
        self._accounts_due = self._forget_due = 0.0

    async def watch(self) -> None:
        while True:
            await self._guarded(self.look)
            await asyncio.sleep(self._parts.settings.alerts.check_seconds)

    async def deliver(self) -> None:
        """Send what waits, for ever."""
        while True:
            self._more.clear()
            await self._guarded(self._deliver)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._more.wait(), _POLL_SECONDS)

    async def look(self) -> None:
        """Look once at everything that is due."""
        settings = self._parts.settings
        if not _is_used(settings, accounts=self._accounts is not None):
            return
        conditions = self._of_service(settings)
        options = alert_options(settings)
        away: list[Condition] = []
        try:
            await self.center.observe([*conditions, *await self._of_accounts(settings)], options)
            await self._forget()
        except StoreUnavailable:
            away = [DATABASE_AWAY]
        if self.center is not self._local:
            await self._local.observe(away, options)

    def _of_service(self, settings: Settings) -> list[Condition]:
        parts, alerts = self._parts, settings.alerts
        counted = parts.counters.outcomes()
        rates = self._rates.look(counted, monotonic(), alerts.error_window_seconds)
        return [
            *provider_conditions(settings, parts.target_states()),
            *self._usage.look(settings, parts.target_states(), monotonic()),
            *error_conditions(alerts, rates),
            *engine_conditions(parts.status()),
            *self._jobs(),
        ]

    def _jobs(self) -> Iterator[Condition]:
        configuration = self._parts.configuration
        if configuration is not None and configuration.failed:
            yield NOT_RELOADED
        place = self._parts.place
        if place is not None and place.restarts and self._started:
            yield WORKER_ENDED
        self._started = False

    async def _of_accounts(self, settings: Settings) -> list[Condition]:
        now = monotonic()
        if self._accounts is None or now < self._accounts_due:
            return []
        self._accounts_due = now + settings.alerts.accounts_seconds
        return [*await self._accounts.look(settings.alerts)]

    async def _forget(self) -> None:
        if (now := monotonic()) >= self._forget_due:
            self._forget_due = now + _FORGET_SECONDS
            await self.center.forget()

    async def _deliver(self) -> None:
        if not _is_used(self._parts.settings, accounts=self._accounts is not None):
            return
        while await self._local.deliver():
            pass
        while self.center is not self._local and await self.center.deliver():
            pass

    async def _guarded(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do it; a failure is logged, and the next turn comes all the same."""
        try:
            await work()
        except StoreUnavailable:
            log.warning("alerts wait for the database")
        except Exception:
            log.exception("alerts failed")

    def _channel(self, name: str, to: str) -> NotificationChannel | None:
        """Return the channel of that name, as the settings in force have it."""
        settings, credentials = self._parts.settings, self._parts.credentials
        for webhook in settings.alerts.webhooks:
            if webhook.name == name:
                key = secret_bytes(credentials.alerts[name])
                return Webhook(
                    webhook.url, key, webhook.ca_file, networks=private_networks(settings.server)
                )
        server = mail_server(settings.mail, credentials.mail)
        written = [OWNERS] * settings.alerts.remind_owners
        written += [each.name for each in settings.alerts.emails if to in each.to]
        if server is None or name not in written:
            return None
        return Email(server, to, settings.console.address or "")


def alert_options(settings: Settings) -> AlertOptions:
    """Return who gets messages, and when alerts are over."""
    alerts = settings.alerts
    reminds = settings.mail.host is not None and alerts.remind_owners
    return AlertOptions(
        receivers(alerts),
        owners=OWNERS if reminds else "",
        resolve=timedelta(seconds=alerts.resolve_seconds),
        quiet=timedelta(seconds=alerts.quiet_seconds),
        messages_per_hour=alerts.messages_per_hour,
    )


def receivers(alerts: Alerts) -> list[Receiver]:
    """Return one receiver for each webhook, and one for each address."""
    return [
        *(Receiver(each.name, "", _kinds(each.kinds)) for each in alerts.webhooks),
        *(Receiver(each.name, to, _kinds(each.kinds)) for each in alerts.emails for to in each.to),
    ]


def _kinds(names: tuple[str, ...]) -> frozenset[AlertKind]:
    return frozenset(map(AlertKind, names))


def _is_used(settings: Settings, *, accounts: bool) -> bool:
    """Return true if anybody can get a message."""
    alerts = settings.alerts
    reminds = accounts and settings.mail.host is not None and alerts.remind_owners
    return bool(alerts.webhooks or alerts.emails) or reminds


def _clock() -> datetime:
    return datetime.now(UTC)
