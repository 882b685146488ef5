"""Queries of usage and their answers: sums over time, single requests, and rankings.

Sums come from the ledger's rollups, so their cost does not depend on the number of requests. Their
intervals are whole hours or days in UTC.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import NamedTuple

from causerie.errors import InvalidRequest
from causerie.protocol.money import amount_of

_MOST_RECORDS = 1000
TOKEN_CLASSES = ("prompt", "cached", "written", "completion", "reasoning")
OWN_PROVIDER = "causerie"
PERCENTILES = (0.5, 0.9, 0.99)


class Step(StrEnum):
    """Length of the intervals of sums: an hour, a day, or all of a query's time."""

    HOUR = "hour"
    DAY = "day"
    ALL = "all"


class By(StrEnum):
    """Dimension to group sums by; those of :data:`LABELS` combine with some others only."""

    PROJECT = "project"
    KEY = "key"
    USER = "user"
    MODEL = "model"
    DOOR = "door"
    APP = "app"
    TAG = "tag"
    PROVIDER = "provider"


LABELS: Mapping[By, frozenset[By]] = {
    By.APP: frozenset({By.PROJECT, By.MODEL}),
    By.TAG: frozenset({By.PROJECT, By.USER, By.MODEL}),
    By.PROVIDER: frozenset({By.PROJECT, By.MODEL}),
}
"""Labels of clients, and who answered, with the dimensions that their sums combine with."""
TIMED = (By.MODEL, By.PROJECT, By.KEY, By.USER)


@dataclass(frozen=True, slots=True)
class UsageQuery:
    """Query of usage from ``since`` up to ``until``; unset fields do not narrow it down."""

    since: datetime
    until: datetime
    step: Step = Step.DAY
    by: tuple[By, ...] = ()
    project: str | None = None
    key: str | None = None
    user: str | None = None
    model: str | None = None
    door: str | None = None

    def check(self) -> None:
        """Raise :class:`InvalidRequest` for a wrong query."""
        for name in ("since", "until"):
            if getattr(self, name).tzinfo is None:
                raise InvalidRequest("A time needs a time zone.", param=name)
        if self.until <= self.since:
            raise InvalidRequest("`until` has to be after `since`.", param="until")
        narrowed = [by for by in By if by not in LABELS and getattr(self, by) is not None]
        for label in LABELS.keys() & set(self.by):
            known = LABELS[label] | {label}
            if others := [by for by in (*self.by, *narrowed) if by not in known]:
                raise InvalidRequest(
                    f"Sums by {label} know {' and '.join(sorted(LABELS[label]))}, not the "
                    f"{others[0]}; leave one of them out.",
                    param="by",
                )

    def check_times(self) -> None:
        """Raise :class:`InvalidRequest` if groups or door exclude times to the first token."""
        if len(self.by) > 1 or not set(self.by) <= set(TIMED):
            raise InvalidRequest(
                f"Times to the first token are by one of {', '.join(TIMED)}, or by nothing.",
                param="by",
            )
        if self.door is not None:
            raise InvalidRequest("Times to the first token know no doors.", param="door")


@dataclass(frozen=True, slots=True)
class UsageSum:
    """Sums over the requests of one interval and group; times are means, in seconds."""

    start: datetime | None
    """``None`` for :attr:`Step.ALL`."""
    group: Mapping[By, str]
    requests: int
    refused: int
    """Ended with a status from 400 to 499."""
    failed: int
    """Ended with a status from 500."""
    aborted: int
    """The client disconnected."""
    prompt: int
    cached: int
    completion: int
    reasoning: int
    written: int
    cost: Decimal
    first_token_seconds: float | None
    duration_seconds: float
    first_tokens: int = 0
    """Requests that came to a first token, over which its mean is taken."""
    charged: int = 0
    """The tokens that budgets count."""


@dataclass(frozen=True, slots=True)
class FirstTokens:
    """Percentiles of the time to the first token, in seconds, of one interval and group."""

    start: datetime | None
    """``None`` for :attr:`Step.ALL`."""
    group: str
    """Empty if there are no groups."""
    times: Sequence[float]


@dataclass(frozen=True, slots=True)
class RecordFilter:
    """Filter of single requests; ``before`` is time and id that the last page ended with."""

    since: datetime
    until: datetime
    project: str | None = None
    key: str | None = None
    user: str | None = None
    model: str | None = None
    door: str | None = None
    tag: str | None = None
    operation: str | None = None
    status: int | None = None
    request_id: str | None = None
    failures_only: bool = False
    before: tuple[int, str] | None = None
    limit: int = 100

    @property
    def count(self) -> int:
        return min(max(self.limit, 1), _MOST_RECORDS)


@dataclass(frozen=True, slots=True)
class Spent:
    """Use by a budget's owner since the start of the budget's period; ``cost`` in billionths."""

    cost: int = 0
    tokens: int = 0

    @property
    def amount(self) -> Decimal:
        """Return the cost as an amount of money."""
        return amount_of(self.cost)


@dataclass(frozen=True, slots=True)
class Used:
    """Cost of the requests of a person or project, and the day of the last one."""

    cost: Decimal = field(default=Decimal(0))
    day: datetime | None = None


class TokenSum(NamedTuple):
    """Tokens of prompts and replies, and requests, of one interval and a pair of groups."""

    start: datetime | None
    """``None`` for :attr:`Step.ALL`."""
    group: tuple[str, str]
    """In the order of the query; of a provider the target."""
    tokens: int
    requests: int


@dataclass(frozen=True, slots=True)
class ChargedSum:
    """Charged requests, tokens and cost of one project, tag, model and target."""

    project_id: str
    tag: str
    model: str
    served_by: str
    requests: int
    prompt: int
    cached: int
    written: int
    completion: int
    reasoning: int
    units: int
    cost: Decimal

    @property
    def place(self) -> tuple[str, str, str, str]:
        return self.project_id, self.tag, self.model, self.served_by


@dataclass(frozen=True, slots=True)
class ChargedQuery:
    """Query of :class:`ChargedSum` for whole days; ``after`` is the place of the last one read."""

    since: datetime
    until: datetime
    project: str | None = None
    after: tuple[str, str, str, str] | None = None
    limit: int = 5000


def provider_of(served_by: str) -> str:
    """Return the provider of a target: this service for own models; empty without a target."""
    provider, slash, _ = served_by.partition("/")
    return provider if slash or not served_by else OWN_PROVIDER


class RankingPeriod(StrEnum):
    """The last 24 whole hours, or the last 7 or 30 days in UTC with today."""

    DAY = "day"
    WEEK = "week"
    MONTH = "month"

    @property
    def length(self) -> timedelta:
        return timedelta(days={"day": 1, "week": 7, "month": 30}[self.value])

    @property
    def step(self) -> Step:
        return Step.HOUR if self is RankingPeriod.DAY else Step.DAY


@dataclass(frozen=True, slots=True)
class Ranked:
    """A model, provider or app with the tokens of its prompts and replies."""

    name: str
    rank: int
    """From 1; names decide between equal tokens."""
    tokens: int
    requests: int
    rank_before: int | None
    """Rank in the period before, if it was used then."""


@dataclass(frozen=True, slots=True)
class Ranking:
    """Models, providers or apps by tokens in a period until ``until``, the most first."""

    period: RankingPeriod
    since: datetime
    until: datetime
    rows: Sequence[Ranked]

    @property
    def tokens(self) -> int:
        return sum(each.tokens for each in self.rows)
