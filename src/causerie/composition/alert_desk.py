"""Alerts as operators see them: channels and rules of the settings in force, and what was sent."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

from msgspec import convert

from causerie.accounts.operating import Operating
from causerie.accounts.people import Actor
from causerie.alerts.book import Delivery
from causerie.composition.alerting import receivers
from causerie.composition.service import RunningService
from causerie.errors import NotFound
from causerie.operations.alerts import (
    AlertChannel,
    AlertDelivery,
    AlertRule,
    AlertsView,
    AlertView,
    ChannelTest,
)
from causerie.settings import Settings
from causerie.settings.alerts import ALERT_NAMES

_SHOWN = 50


class LiveAlerts:
    """Implements :class:`AlertDesk` for one service, always by the parts that are in force."""

    def __init__(self, parts: RunningService, operating: Operating) -> None:
        self._parts = parts
        self._operating = operating

    async def see(self, actor: Actor) -> AlertsView:
        await self._operating.see_alerts(actor)
        book, settings = self._parts.alerting.center.book, self._parts.settings
        return AlertsView(
            kinds=ALERT_NAMES,
            channels=tuple(_channels(settings)),
            rules=tuple(_rules(settings)),
            alerts=convert(
                (await book.alerts())[:_SHOWN], tuple[AlertView, ...], from_attributes=True
            ),
            deliveries=tuple(_delivery(each) for each in await book.deliveries(_SHOWN)),
        )

    async def test(self, actor: Actor, channel: str) -> ChannelTest:
        await self._operating.may_test_alerts(actor)
        settings, center = self._parts.settings, self._parts.alerting.center
        mine = [each for each in receivers(settings.alerts) if each.channel == channel]
        if not mine:
            raise NotFound("There is no such channel.", code="not_found")
        words = f"This is a test of the channel {channel}"
        outcomes = [await center.test(each, words) for each in mine]
        delivered = all(each.delivered for each in outcomes)
        await self._operating.note_alert_test(actor, channel, delivered=delivered)
        answers = tuple(each.words for each in outcomes)
        return ChannelTest(channel=channel, delivered=delivered, answers=answers)


def _channels(settings: Settings) -> Iterator[AlertChannel]:
    """Without the path of an address, which may be what others must not know."""
    for webhook in settings.alerts.webhooks:
        place = urlsplit(webhook.url).netloc
        yield AlertChannel(name=webhook.name, type="webhook", to=(place,), kinds=webhook.kinds)
    for email in settings.alerts.emails:
        yield AlertChannel(name=email.name, type="email", to=email.to, kinds=email.kinds)


def _rules(settings: Settings) -> Iterator[AlertRule]:
    alerts = settings.alerts
    if alerts.budget_percent:
        shares = _listed(f"{each} %" for each in sorted(alerts.budget_percent))
        words = f"A key, a project or a person has used {shares} of a budget, once in each period."
        yield AlertRule(kind="budget", words=words)
    yield AlertRule(
        kind="provider", words="A provider fails and gets no requests, and when it is back."
    )
    yield AlertRule(
        kind="error_rate",
        words=f"{alerts.error_percent} % or more of a model's requests fail within "
        f"{_time(alerts.error_window_seconds)}, of at least {alerts.error_requests}.",
    )
    if alerts.key_expiry_days:
        days = _listed(str(each) for each in sorted(alerts.key_expiry_days, reverse=True))
        reminds = settings.mail.host is not None and alerts.remind_owners
        too = " The person that it belongs to gets an e-mail." if reminds else ""
        yield AlertRule(kind="key_expiry", words=f"A key expires within {days} days.{too}")
    yield AlertRule(
        kind="job",
        words="An engine has failed, a worker process has ended, a changed configuration does not "
        "hold, or the database cannot be reached.",
    )


def _time(seconds: float) -> str:
    return f"{seconds / 60:g} minutes" if seconds >= 120 else f"{seconds:g} s"


def _listed(words: Iterator[str]) -> str:
    *first, last = words
    return f"{', '.join(first)} or {last}" if first else last


def _delivery(kept: Delivery) -> AlertDelivery:
    return AlertDelivery(
        id=kept.id,
        channel=kept.channel,
        to=kept.to,
        kind=kept.kind,
        title=kept.message.title,
        at=kept.at,
        state=kept.state.value,
        attempts=kept.attempts,
        next_at=kept.next_at,
        outcome=kept.outcome,
    )
