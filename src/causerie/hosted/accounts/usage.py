"""Queries of usage: sums over time, single requests, and rankings of models and providers.

Sums come from the ledger's rollups, so their cost does not depend on the number of requests. Their
intervals are whole hours or days in UTC.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Literal, Protocol

from causerie.errors import InvalidRequest
from causerie.hosted.accounts.authorization import Clock, require, visible_project
from causerie.hosted.accounts.people import Action, Actor
from causerie.hosted.accounts.service import AccountService
from causerie.hosted.store.accounts import SqlStore
from causerie.metering.ledger import UsageRecord
from causerie.protocol.money import amount_of

_MOST_RECORDS = 1000
TOKEN_CLASSES = ("prompt", "cached", "written", "completion", "reasoning")
OWN_PROVIDER = "causerie"
PERCENTILES = (0.5, 0.9, 0.99)


class Step(StrEnum):
    """Length of the intervals of sums."""

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
        for label in LABELS.keys() & set(self.by):
            self._check_label(label)

    def check_times(self) -> None:
        """Raise :class:`InvalidRequest` if times to the first token cannot be queried so."""
        if len(self.by) > 1 or not set(self.by) <= set(TIMED):
            raise InvalidRequest(
                f"Times to the first token are by one of {', '.join(TIMED)}, or by nothing.",
                param="by",
            )
        if self.door is not None:
            raise InvalidRequest("Times to the first token know no doors.", param="door")

    def _check_label(self, label: By) -> None:
        known = LABELS[label] | {label}
        narrowed = [by for by in By if by not in LABELS and getattr(self, by) is not None]
        if others := [by for by in (*self.by, *narrowed) if by not in known]:
            raise InvalidRequest(
                f"Sums by {label} know {' and '.join(sorted(LABELS[label]))}, not the {others[0]}; "
                "leave one of them out.",
                param="by",
            )


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


@dataclass(frozen=True, slots=True)
class TargetUse:
    """Use of a target; ``tokens`` are those of prompts and replies."""

    tokens: int
    requests: int


@dataclass(frozen=True, slots=True)
class ChargedSum:
    """Charged requests and tokens of a project's tag and model at one target."""

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
    """Query of what was charged for in whole days; ``after`` is where the last piece ended."""

    since: datetime
    until: datetime
    project: str | None = None
    after: tuple[str, str, str, str] | None = None
    limit: int = 5000


class UsageReader(Protocol):
    """Reader of usage, as the store implements it.

    ``used`` and ``spent`` count from a midnight UTC. ``used`` is by user, project or key; ``spent``
    is that of ``key:ID``, ``user:ID``, ``project:ID``, ``tag:NAME`` or ``provider:NAME``, with an
    empty ``model`` for all models.
    ``charged_failures`` are the charged requests of models whose id ends with ``suffix`` that were
    rejected or failed.
    """

    async def sums(self, question: UsageQuery) -> Sequence[UsageSum]: ...  # by start, then group
    async def used(
        self, by: By, since: datetime, project: str | None = None
    ) -> Mapping[str, Used]: ...
    async def first_tokens(
        self, question: UsageQuery, shares: Sequence[float]
    ) -> Sequence[FirstTokens]: ...  # by start
    async def by_target(
        self, since: datetime, until: datetime
    ) -> Mapping[tuple[str, str], TargetUse]: ...  # of whole hours, by model and target
    async def charged(self, question: ChargedQuery) -> Sequence[ChargedSum]: ...  # by place
    async def records(self, filter: RecordFilter) -> Sequence[UsageRecord]: ...  # newest first
    async def charged_failures(self, project: str, since: datetime, suffix: str) -> int: ...
    async def spent(self, owner: str, model: str, since: datetime) -> Spent: ...
    async def last_used(self, project: str) -> Mapping[str, datetime]: ...  # by key


class UsageReports:
    """Usage of projects and of the whole service, for actors with the right to see it."""

    def __init__(self, store: SqlStore, reader: UsageReader) -> None:
        self._store = store
        self._reader = reader

    async def sums(
        self, actor: Actor, project_id: str | None, question: UsageQuery
    ) -> Sequence[UsageSum]:
        """Return the sums of a project, or with ``None`` of the whole service."""
        await self._require(actor, project_id, Action.USAGE_SEE)
        question.check()
        return await self._reader.sums(replace(question, project=project_id or question.project))

    async def used(
        self, actor: Actor, by: By, since: datetime, project_id: str | None = None
    ) -> Mapping[str, Used]:
        """Return cost and last day of use since a midnight UTC, by project or user.

        With a project, by its keys.
        """
        await self._require(actor, project_id, Action.USAGE_SEE)
        return await self._reader.used(by, since, project_id)

    async def first_tokens(
        self, actor: Actor, project_id: str | None, question: UsageQuery
    ) -> Sequence[FirstTokens]:
        """Return median, 90th and 99th percentile of the time to the first token, by start.

        They can be grouped by one of :data:`TIMED`. Groups without a first token are left out.
        """
        await self._require(actor, project_id, Action.USAGE_SEE)
        question.check()
        question.check_times()
        narrowed = replace(question, project=project_id or question.project)
        return await self._reader.first_tokens(narrowed, PERCENTILES)

    async def requests(
        self, actor: Actor, project_id: str | None, filter: RecordFilter
    ) -> Sequence[UsageRecord]:
        """Return single requests of a project, or of the whole service, newest first."""
        await self._require(actor, project_id, Action.ACTIVITY_SEE)
        return await self._reader.records(replace(filter, project=project_id or filter.project))

    async def charged(
        self, actor: Actor, question: ChargedQuery
    ) -> AsyncGenerator[Sequence[ChargedSum]]:
        """Yield what was charged for in pieces, which each check the actor's right again."""
        while True:
            await self._require(actor, question.project, Action.USAGE_SEE)
            found = await self._reader.charged(question)
            yield found
            if len(found) < question.limit:
                return
            question = replace(question, after=found[-1].place)

    async def every_request(
        self, actor: Actor, project_id: str | None, filter: RecordFilter
    ) -> AsyncGenerator[Sequence[UsageRecord]]:
        """Yield all requests of a filter in pieces, newest first, as :meth:`requests`."""
        filter = replace(filter, limit=_MOST_RECORDS)
        while True:
            found = await self.requests(actor, project_id, filter)
            yield found
            if len(found) < _MOST_RECORDS:
                return
            filter = replace(filter, before=(found[-1].at, found[-1].id))

    async def last_used(self, actor: Actor, project_id: str) -> Mapping[str, datetime]:
        """Return when each key of a project was last used, if it was."""
        await self._require(actor, project_id, Action.KEYS_SEE)
        return await self._reader.last_used(project_id)

    async def _require(self, actor: Actor, project_id: str | None, action: Action) -> None:
        async with self._store.reading() as tx:
            if project_id is None:
                await require(tx, actor, Action.USAGE_SEE_ALL)
                await require(tx, actor, action)
            else:
                await visible_project(tx, actor, project_id, action)


def provider_of(served_by: str) -> str:
    """Return the provider of a target: this service for own models; empty without a target."""
    provider, slash, _ = served_by.partition("/")
    return provider if slash or not served_by else OWN_PROVIDER


_MOST_INTERVALS = 64
_FASTEST_GROWTH = 4  # times as long as the bucket before
_MANY = 1000

UsageBucket = tuple[UsageQuery, Sequence[UsageSum]]


async def time_buckets(
    usage: UsageReports, actor: Actor, project: str | None, question: UsageQuery
) -> AsyncGenerator[UsageBucket]:
    """Yield the sums of a query in buckets of time, so that nobody holds all of them at once.

    They are of one project, or with ``None`` of the whole service. Each bucket checks the actor's
    right again. If all time is one interval, there is one bucket.
    """
    since, until, length = question.since, question.until, 1
    while since < question.until:
        if question.step is not Step.ALL:
            first = since.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
            if question.step is Step.HOUR:
                end = first + timedelta(hours=length)
            else:
                end = first.replace(hour=0) + timedelta(days=length)
            until = min(end, question.until)
        asked = replace(question, since=since, until=until)
        sums = await usage.sums(actor, project, asked)
        yield asked, sums
        fitting = length * _MANY // max(len(sums), 1)
        length = max(min(fitting, length * _FASTEST_GROWTH, _MOST_INTERVALS), 1)
        since = until


class RankingPeriod(StrEnum):
    """The last 24 whole hours, or the last 7 or 30 days in UTC with today."""

    DAY = "day"
    WEEK = "week"
    MONTH = "month"

    @property
    def length(self) -> timedelta:
        return timedelta(days={"day": 1, "week": 7, "month": 30}[self.value])


@dataclass(frozen=True, slots=True)
class Ranked:
    """A model or provider with the tokens of its prompts and replies."""

    name: str
    rank: int
    """From 1; names decide between equal tokens."""
    tokens: int
    requests: int
    rank_before: int | None
    """Rank in the period before, if it was used then."""


@dataclass(frozen=True, slots=True)
class Ranking:
    """Models or providers by tokens in a period that ends at ``until``, the most first."""

    period: RankingPeriod
    since: datetime
    until: datetime
    rows: Sequence[Ranked]

    @property
    def tokens(self) -> int:
        return sum(each.tokens for each in self.rows)


_Served = tuple[str, str]  # a model, and the target that answered
_Use = Mapping[_Served, TargetUse]


@dataclass(frozen=True, slots=True)
class _Sums:
    read_at: datetime
    since: datetime
    until: datetime
    now: _Use
    before: _Use


class Rankings(AccountService):
    """Rankings over all projects; the sums are read once a minute at most."""

    def __init__(self, store: SqlStore, reader: UsageReader, clock: Clock) -> None:
        super().__init__(store, clock)
        self._reader = reader
        self._cached_sums: dict[RankingPeriod, _Sums] = {}
        self._turn = asyncio.Lock()

    async def of_all(
        self, by: Literal["model", "provider"], actor: Actor, period: RankingPeriod
    ) -> Ranking:
        """Return the ranking of all models or providers for operators; raise :class:`Forbidden`."""
        await self.require(actor, Action.USAGE_SEE_ALL)
        sums = await self._sums(period)
        if by == "model":
            return _ranking(period, sums, lambda served: served[0])
        return _ranking(period, sums, lambda served: provider_of(served[1]))

    async def models(self, models: Collection[str], period: RankingPeriod) -> Ranking:
        """Return the ranking of these models for everybody, which the caller has to allow."""
        sums = await self._sums(period)
        return _ranking(period, sums, lambda served: served[0] if served[0] in models else "")

    async def providers(self, endpoints: Mapping[_Served, str], period: RankingPeriod) -> Ranking:
        """Return the ranking of the providers of these endpoints for everybody.

        ``endpoints`` maps a model and a target to the provider.
        """
        sums = await self._sums(period)
        return _ranking(period, sums, lambda served: endpoints.get(served, ""))

    async def _sums(self, period: RankingPeriod) -> _Sums:
        async with self._turn:
            kept, now = self._cached_sums.get(period), self._clock()
            if kept is None or not timedelta() <= now - kept.read_at < timedelta(minutes=1):
                kept = self._cached_sums[period] = await self._read(period, now)
            return kept

    async def _read(self, period: RankingPeriod, now: datetime) -> _Sums:
        until = now.astimezone(UTC).replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)
        if period is not RankingPeriod.DAY and until.hour:
            until = until.replace(hour=0) + timedelta(days=1)
        since = until - period.length
        before = await self._reader.by_target(since - period.length, since)
        return _Sums(now, since, until, await self._reader.by_target(since, until), before)


def _ranking(period: RankingPeriod, sums: _Sums, name: Callable[[_Served], str]) -> Ranking:
    now, before = _by_name(sums.now, name), _by_name(sums.before, name)
    ranks_before = {each: rank for rank, each in enumerate(before, 1)}
    rows = [
        Ranked(each, rank, use.tokens, use.requests, ranks_before.get(each))
        for rank, (each, use) in enumerate(now.items(), 1)
    ]
    return Ranking(period, sums.since, sums.until, rows)


def _by_name(sums: _Use, name: Callable[[_Served], str]) -> Mapping[str, TargetUse]:
    found: dict[str, TargetUse] = {}
    for served, use in sums.items():
        if use.tokens and (each := name(served)):
            so_far = found.get(each, TargetUse(0, 0))
            found[each] = TargetUse(so_far.tokens + use.tokens, so_far.requests + use.requests)
    return dict(sorted(found.items(), key=lambda pair: (-pair[1].tokens, pair[0])))
