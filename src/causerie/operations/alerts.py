"""Interface of alerts for pages and the management API: channels, rules, and what was sent."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Literal, Protocol

from msgspec import Meta, Struct

from causerie.accounts.people import Actor


class AlertChannel(Struct, frozen=True, kw_only=True):
    """A channel of the configuration."""

    name: str
    type: Literal["webhook", "email"]
    to: Annotated[
        tuple[str, ...], Meta(description="Host and port of a webhook, or addresses of letters.")
    ]
    kinds: tuple[str, ...]


class AlertRule(Struct, frozen=True, kw_only=True):
    """Kind of alert, and the condition for it."""

    kind: str
    words: str


class AlertView(Struct, frozen=True, kw_only=True):
    """An alert that has fired; ``resolved_at`` is unset while it holds, and if it has no end."""

    kind: str
    summary: str
    firing: bool
    since: datetime
    resolved_at: datetime | None = None
    details: Mapping[str, str] = {}


class AlertDelivery(Struct, frozen=True, kw_only=True):
    """A message to one receiver, and what came of the last attempt."""

    id: str
    channel: str
    to: Annotated[str, Meta(description="Address of a letter; empty for a webhook.")] = ""
    kind: str
    title: str
    at: datetime
    state: Literal["waiting", "delivered", "failed", "dropped"]
    attempts: int
    next_at: datetime | None = None
    outcome: str = ""


class AlertsView(Struct, frozen=True, kw_only=True):
    """Channels, rules in force, alerts, and the newest deliveries."""

    kinds: Annotated[tuple[str, ...], Meta(description="Alerts that a channel may get.")]
    channels: tuple[AlertChannel, ...]
    rules: tuple[AlertRule, ...]
    alerts: tuple[AlertView, ...]
    deliveries: tuple[AlertDelivery, ...]


class ChannelTest(Struct, frozen=True, kw_only=True):
    """Outcome of a test of one channel: what each receiver answered."""

    channel: str
    delivered: bool
    answers: tuple[str, ...]


class AlertDesk(Protocol):
    """Alerts. Everything raises ``Forbidden`` for those who are no operators."""

    async def see(self, actor: Actor) -> AlertsView:
        """Everything at once."""

    async def test(self, actor: Actor, channel: str) -> ChannelTest:
        """Send a test to all receivers of a channel now; raises ``NotFound``."""
