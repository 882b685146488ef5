"""Interface of operations for pages and the management API: providers, routes and alerts.

Times are in seconds, money is text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, datetime
from typing import Literal, Protocol

from msgspec import Struct

from causerie.hosted.accounts.people import Actor
from causerie.hosted.operations.configuring import Configuring
from causerie.hosted.operations.explanation import PriceTexts, RoutingExplanation
from causerie.hosted.operations.probes import Cell, Result, State
from causerie.probe.interview import Found
from causerie.probe.question import Thinking


class AlertChannel(Struct, frozen=True, kw_only=True):
    """An alert channel of the configuration, with its receivers and kinds of alerts."""

    name: str
    type: Literal["webhook", "email"]
    to: tuple[str, ...]
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
    to: str = ""
    kind: str
    title: str
    at: datetime
    state: Literal["waiting", "delivered", "failed", "dropped"]
    attempts: int
    next_at: datetime | None = None
    outcome: str = ""


class AlertsView(Struct, frozen=True, kw_only=True):
    """Channels, rules in force, alerts, and the newest deliveries."""

    kinds: tuple[str, ...]
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
    """Alerts for operators; every method raises ``Forbidden``, and ``test`` ``NotFound``."""

    async def see(self, actor: Actor) -> AlertsView: ...
    async def test(self, actor: Actor, channel: str) -> ChannelTest: ...  # to all receivers


class Serving(Struct, frozen=True, kw_only=True):
    """A model name that a target serves, with priority and weight in an alias or catalog price."""

    model: str
    priority: int | None = None
    weight: float | None = None
    price: PriceTexts | None = None


class TargetView(Struct, frozen=True, kw_only=True):
    """Present state of a target.

    Times to the first token and speeds are of five minutes, uptimes are shares of answered
    requests; ``null`` without a measurement. ``reason`` is the last failure; the next attempt is in
    ``wait_seconds``.
    """

    name: str
    model: str
    state: str
    in_flight: int
    failures: int
    wait_seconds: float
    reason: str
    first_token_seconds: float | None
    slow_first_token_seconds: float | None
    tokens_per_second: float | None
    uptime_half_hour: float | None
    uptime_day: float | None
    serves: tuple[Serving, ...]


class ProbeCost(Struct, frozen=True, kw_only=True):
    """The most that a probe can cost; ``words`` explain it."""

    requests: int
    tokens: int
    words: str


class Change(Struct, frozen=True, kw_only=True):
    """A difference between the result of a probe and the configuration."""

    what: str
    before: str
    now: str


class ProbedModelView(Struct, frozen=True, kw_only=True):
    """A model at a provider, with the results of its probes.

    ``probed`` is the day of the probe in force and ``evidence`` its text; ``newest`` is the result
    of the last probe that is kept, ``changes`` are its differences from the configuration.
    """

    id: str
    probed: date | None
    evidence: str
    context_length: int | None
    thinking: Thinking | None
    continues: bool | None
    cells: tuple[Cell, ...]
    cost: ProbeCost | None
    used: Result | None = None
    newest: Result | None = None
    changes: tuple[Change, ...] = ()


class ProbeView(Struct, frozen=True, kw_only=True):
    """The running probe at a provider, else its last one since the start of the service."""

    model: str
    quick: bool
    state: State
    asked: int
    questions: int
    question: str
    requests: int
    tokens: int
    cost: ProbeCost
    began: datetime
    ended: datetime | None
    failure: str
    hint: str
    findings: tuple[Found, ...] = ()


class ProviderView(Struct, frozen=True, kw_only=True):
    """A provider; ``base_url`` is empty for this service itself, which is not probed."""

    name: str
    base_url: str
    dialect: str
    max_concurrent: int | None
    targets: tuple[TargetView, ...]
    models: tuple[ProbedModelView, ...]
    probe: ProbeView | None = None


class AppliedResult(Struct, frozen=True, kw_only=True):
    """Outcome of putting the result of a probe in force.

    ``written``: it is in the configuration; ``in_force``: requests are checked against it. If not,
    ``problem`` is the reason, and ``by_hand`` is the text to put below the provider.
    """

    written: bool
    in_force: bool
    problem: str = ""
    by_hand: str = ""


class RouteQuery(Struct, frozen=True):
    """A request to explain: its body as JSON and its door.

    ``key`` is the id of its key (empty: one without restrictions), ``session`` its header
    ``x-session-id``, ``strict`` whether it has ``x-unknown-params: reject``.
    """

    body: bytes
    door: str = ""
    key: str = ""
    session: str = ""
    strict: bool = False


class Operations(Protocol):
    """Providers and routes for operators; every method with an actor raises ``Forbidden``.

    Methods with a name raise ``NotFound``; ``probe`` and ``use`` raise ``InvalidRequest``, too, if
    a probe is running or impossible. A ``quick`` probe asks only what usual clients need, for a
    minute at most.
    """

    @property
    def configuration(self) -> Configuring: ...
    @property
    def alerts(self) -> AlertDesk: ...

    def doors(self) -> Sequence[str]: ...  # names, the default one first
    def models(self) -> Sequence[str]: ...  # ids
    # All providers in the configured order, and this service if it runs models.
    async def providers(self, actor: Actor) -> Sequence[ProviderView]: ...
    async def provider(self, actor: Actor, name: str) -> ProviderView: ...
    async def probe(
        self, actor: Actor, name: str, model: str, *, quick: bool = False
    ) -> ProbeView: ...
    async def cancel(self, actor: Actor, name: str) -> ProbeView: ...
    async def use(self, actor: Actor, name: str, model: str) -> AppliedResult: ...  # the newest
    async def explain(self, actor: Actor, question: RouteQuery) -> RoutingExplanation: ...
