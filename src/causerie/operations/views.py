"""Views of providers for operators. Times are in seconds, money is text."""

from __future__ import annotations

from datetime import date, datetime
from typing import Annotated

from msgspec import Meta, Struct

from causerie.operations.examination import State
from causerie.operations.explanation import PriceTexts
from causerie.operations.interviewing import Found
from causerie.operations.matrix import Cell
from causerie.operations.result import Result
from causerie.probe.subject import Thinking


class Serving(Struct, frozen=True, kw_only=True):
    """A model that a target answers for: with a priority and weight in an alias, or at a price
    in the catalog."""

    model: str
    priority: int | None = None
    weight: float | None = None
    price: PriceTexts | None = None


class TargetView(Struct, frozen=True, kw_only=True):
    """A target as it stands now. Measurements that are missing lately are ``null``: times to the
    first token and speeds of five minutes, the share of answered requests of half an hour and a
    day.

    ``reason`` is why it failed last; it is asked again in ``wait_seconds``.
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
    """The most that a probe can cost; ``words`` say when which."""

    requests: int
    tokens: int
    words: str


class Change(Struct, frozen=True, kw_only=True):
    """A difference from the configuration."""

    what: str
    before: str
    now: str


class ProbedModelView(Struct, frozen=True, kw_only=True):
    """A model at a provider.

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
    """The probe under way at a provider, else its last one since the service began."""

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
    findings: Annotated[
        tuple[Found, ...],
        Meta(description="Of a quick probe, which is not kept. Others are with their models."),
    ] = ()


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
    """Outcome of putting a result in force.

    ``written``: it is in the configuration; ``in_force``: requests are checked against it. If not,
    ``problem`` is the reason, and ``by_hand`` is the text to put below the provider.
    """

    written: bool
    in_force: bool
    problem: str = ""
    by_hand: str = ""
