"""Looks for alert conditions every few seconds, and notifies the channels of the settings.

With accounts, alerts are kept in the database, where one of several processes decides. Without,
and for a database that is away, each process keeps its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING

import structlog

from causerie.composition.providers import key_conditions, private_networks
from causerie.engines.base import EngineState, EngineStatus
from causerie.errors import ErrorClass, StoreUnavailable
from causerie.http.tasks import happens
from causerie.observe.alert_channels import Email, Webhook
from causerie.observe.alerts import (
    AlertCenter,
    AlertKind,
    AlertOptions,
    Condition,
    ErrorRate,
    ErrorRates,
    MemoryBook,
    NotificationChannel,
    Receiver,
    secret_bytes,
)
from causerie.observe.mail import MailServer
from causerie.protocol.alike import alike
from causerie.routing.target_state import IMPOSSIBLE_USAGE, TargetState
from causerie.settings.alerts import OWNERS, Alerts, Mail
from causerie.settings.tree import Settings

if TYPE_CHECKING:
    from causerie.composition.account_backend import AccountConditions
    from causerie.composition.reloading import Reloading
    from causerie.composition.service import RunningService


def mail_server(mail: Mail, password: str | None) -> MailServer | None:
    if mail.host is None:
        return None
    return alike(MailServer, mail, sender=mail.sender or "", password=password)


_USAGE_SECONDS = 600.0  # for which an impossible report counts
DATABASE_AWAY = Condition(
    "job:database", AlertKind.JOB, "The database cannot be reached", {"job": "database"}
)
NOT_RELOADED = Condition(
    "job:reload",
    AlertKind.JOB,
    "The changed configuration does not hold and is not in force; see `causerie check`",
    {"job": "reload"},
)
WORKER_ENDED = Condition(
    "job:workers", AlertKind.JOB, "A worker process ended and was replaced", {"job": "workers"}
)

_REJECTED: Mapping[str, str] = {
    ErrorClass.REJECTED_KEY: "it does not accept our key",
    ErrorClass.FORBIDDEN: "our key may not do this there",
    ErrorClass.MODEL_NOT_FOUND: "it does not know the model",
    ErrorClass.WRONG_ADDRESS: "chat completions are not at this address",
    ErrorClass.QUOTA: "its quota is used up, or it is not paid for",
}


def provider_conditions(
    settings: Settings, target_states: Sequence[TargetState]
) -> Iterator[Condition]:
    """Yield conditions for providers with targets that get no requests, or that reject all."""
    providers = {one.name: one.provider for one in settings.targets if one.provider is not None}
    checked = {one.name for one in settings.providers if one.health.path}
    by_provider: dict[str, list[TargetState]] = {}
    for each in target_states:
        if each.name in providers:
            by_provider.setdefault(providers[each.name], []).append(each)
    for name, every in sorted(by_provider.items()):
        # Where it is not checked, only a request that it answers shows that it is back.
        half_open = "half_open" if name in checked else ""
        down = [one for one in every if one.breaker.open and one.breaker.state() != half_open]
        for key, affected in (
            ("provider", down),
            ("rejects", [each for each in every if each.breaker.rejecting]),
        ):
            if affected:
                yield _build_provider_alert(key, name, affected, len(every))


def _build_provider_alert(
    key_prefix: str, provider: str, affected: Sequence[TargetState], total: int
) -> Condition:
    where = "" if len(affected) == total else f" for {len(affected)} of {total} targets"
    reasons = sorted({each.breaker.reason for each in affected if each.breaker.reason})
    targets, reason = ", ".join(sorted(each.name for each in affected)[:10]), ", ".join(reasons)
    if key_prefix == "rejects":
        words = ", ".join(_REJECTED.get(reason, reason) for reason in reasons)
        what = f"rejects all requests{where}, so others get them first ({words})"
    else:
        what = f"fails{where} and gets no requests ({reason.replace('_', ' ')})"
    return Condition(
        f"{key_prefix}:{provider}",
        AlertKind.PROVIDER,
        f"Provider {provider} {what}",
        {"provider": provider, "targets": targets, "reason": reason},
        level=2 if len(affected) == total else 1,
    )


class ImpossibleUsage:
    """Remembers the providers that reported impossible usage lately."""

    def __init__(self) -> None:
        self._bad_usage_count_by_target: dict[str, int] = {}
        self._last_bad_usage_at_by_provider: dict[str, float] = {}

    def look(
        self, settings: Settings, target_states: Sequence[TargetState], now: float
    ) -> Iterator[Condition]:
        providers = {one.name: one.provider for one in settings.targets}
        for each in target_states:
            count = each.failures[IMPOSSIBLE_USAGE]
            name = providers.get(each.name)
            if name is not None and count > self._bad_usage_count_by_target.get(each.name, 0):
                self._last_bad_usage_at_by_provider[name] = now
            self._bad_usage_count_by_target[each.name] = count
        for name, seen in sorted(self._last_bad_usage_at_by_provider.items()):
            if now - seen <= _USAGE_SECONDS:
                yield Condition(
                    f"usage:{name}",
                    AlertKind.PROVIDER,
                    f"Provider {name} reports impossible usage; its tokens are estimated instead",
                    {"provider": name, "reason": IMPOSSIBLE_USAGE},
                )


def error_conditions(alerts: Alerts, rates: Mapping[str, ErrorRate]) -> Iterator[Condition]:
    for model, rate in sorted(rates.items()):
        if rate.requests >= alerts.error_requests and rate.percent >= alerts.error_percent:
            yield Condition(
                f"error_rate:{model}",
                AlertKind.ERROR_RATE,
                f"Model {model} fails: {rate.percent} % of {rate.requests} requests",
                {
                    "model": model,
                    "percent": str(rate.percent),
                    "requests": str(rate.requests),
                    "failed": str(rate.failed),
                    "window_seconds": f"{alerts.error_window_seconds:g}",
                },
            )


def engine_conditions(engines: Sequence[EngineStatus]) -> Iterator[Condition]:
    for each in engines:
        if each.state is EngineState.FAILED:
            yield Condition(
                f"job:engine:{each.model}",
                AlertKind.JOB,
                f"The engine of model {each.model} has failed; a restart is scheduled",
                {"job": "engine", "model": each.model},
            )


_POLL_SECONDS = 5.0  # for deliveries that another process has left
_FORGET_SECONDS = 3600.0
log = structlog.get_logger(__name__)


class Alerting:
    """Finds the alerts of one service and delivers them, by the settings in force."""

    def __init__(
        self, running: RunningService, configuration: Reloading, accounts: AccountConditions | None
    ) -> None:
        clock = partial(datetime.now, UTC)
        self._service = running
        self._reloader = configuration
        self._account_watcher = accounts
        self._local_alert_center = AlertCenter(MemoryBook(), clock, self._build_channel)
        shared = AlertCenter(accounts.book, clock, self._build_channel) if accounts else None
        self.center = shared or self._local_alert_center
        self._undelivered_event = self.center.more = self._local_alert_center.more = asyncio.Event()
        self._model_error_tracker = ErrorRates()
        self._impossible_usage_tracker = ImpossibleUsage()
        self._may_report_worker_restart = True  # until the first look
        self._next_accounts_check_at = self._next_alert_cleanup_at = 0.0

    async def watch(self) -> None:
        while True:
            await self._run_and_log_failure(self.look)
            await asyncio.sleep(self._service.now.settings.alerts.check_seconds)

    async def deliver(self) -> None:
        while True:
            self._undelivered_event.clear()
            await self._run_and_log_failure(self._deliver_pending_alerts)
            await happens(self._undelivered_event, _POLL_SECONDS)

    async def look(self) -> None:
        settings = self._service.now.settings
        if not _is_enabled(settings, accounts=self._account_watcher is not None):
            return
        conditions, now = self._collect_service_conditions(settings), monotonic()
        options = alert_options(settings)
        away: list[Condition] = []
        try:
            if self._account_watcher is not None and now >= self._next_accounts_check_at:
                self._next_accounts_check_at = now + settings.alerts.accounts_seconds
                conditions += await self._account_watcher.look(settings.alerts)
            await self.center.observe(conditions, options)
            if now >= self._next_alert_cleanup_at:
                self._next_alert_cleanup_at = now + _FORGET_SECONDS
                await self.center.forget()
        except StoreUnavailable:
            away = [DATABASE_AWAY]
        if self.center is not self._local_alert_center:
            await self._local_alert_center.observe(away, options)

    def _collect_service_conditions(self, settings: Settings) -> list[Condition]:
        alerts, target_states = settings.alerts, self._service.now.router.target_states()
        counted = self._service.counters.outcomes()
        rates = self._model_error_tracker.look(counted, monotonic(), alerts.error_window_seconds)
        found = [
            *provider_conditions(settings, target_states),
            *key_conditions(self._service.changing_keys()),
            *self._impossible_usage_tracker.look(settings, target_states, monotonic()),
            *error_conditions(alerts, rates),
            *engine_conditions(self._service.engines.status()),
        ]
        if self._reloader.failed:
            found.append(NOT_RELOADED)
        place = self._service.place
        if place is not None and place.restarts and self._may_report_worker_restart:
            found.append(WORKER_ENDED)
        self._may_report_worker_restart = False
        return found

    async def _deliver_pending_alerts(self) -> None:
        if not _is_enabled(self._service.now.settings, accounts=self._account_watcher is not None):
            return
        while await self._local_alert_center.deliver():
            pass
        while self.center is not self._local_alert_center and await self.center.deliver():
            pass

    async def _run_and_log_failure(self, step: Callable[[], Awaitable[None]]) -> None:
        try:
            await step()
        except StoreUnavailable:  # alerts wait for the database
            pass
        except Exception:
            log.exception("alerts failed")

    def _build_channel(self, channel_name: str, recipient: str) -> NotificationChannel | None:
        now = self._service.now
        settings, credentials = now.settings, now.credentials
        for webhook in settings.alerts.webhooks:
            if webhook.name == channel_name:
                secret = credentials.alerts.get(channel_name)
                return Webhook(
                    webhook.url,
                    None if secret is None else secret_bytes(secret),
                    webhook.format,
                    webhook.ca_file,
                    networks=private_networks(settings.server),
                )
        server = mail_server(settings.mail, credentials.mail)
        written = [OWNERS] * settings.alerts.remind_owners
        written += [each.name for each in settings.alerts.emails if recipient in each.to]
        if server is None or channel_name not in written:
            return None
        return Email(server, recipient, settings.console.address or "")


def alert_options(settings: Settings) -> AlertOptions:
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
    listed = [(each.name, "", each.kinds) for each in alerts.webhooks]
    listed += [(each.name, to, each.kinds) for each in alerts.emails for to in each.to]
    return [Receiver(name, to, frozenset(map(AlertKind, kinds))) for name, to, kinds in listed]


def _is_enabled(settings: Settings, *, accounts: bool) -> bool:
    # With accounts the console shows alerts, also without a channel.
    return accounts or bool(alert_options(settings).receivers)
