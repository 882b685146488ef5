"""Reports of usage for those who may see it: sums, single requests, rankings and files.

The files are of single requests, or the statement of a month; a row is a list of texts.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import chain
from typing import Literal, TypeVar

from causerie.errors import InvalidRequest
from causerie.hosted.accounts.authorization import AccountService, require
from causerie.hosted.accounts.bounds import Budget, BudgetPeriod, Unit, covers
from causerie.hosted.accounts.people import Action, Actor
from causerie.hosted.accounts.projects import Projects
from causerie.hosted.accounts.usage import (
    PERCENTILES,
    By,
    ChargedQuery,
    ChargedSum,
    FirstTokens,
    Ranked,
    Ranking,
    RankingPeriod,
    RecordFilter,
    Step,
    TokenSum,
    UsageQuery,
    UsageSum,
    Used,
    provider_of,
)
from causerie.hosted.store.accounts import SqlStore
from causerie.metering.ledger import UsageRecord

_NEARLY = Decimal("0.8")
_Question = TypeVar("_Question", UsageQuery, RecordFilter)


@dataclass(frozen=True, slots=True)
class Spending:
    """A budget and what is spent of it; ``resets_at`` is the start of its next period."""

    budget: Budget
    spent: Decimal
    resets_at: datetime | None

    @property
    def is_nothing(self) -> bool:
        """Return whether the budget is zero money, so it admits only what costs nothing."""
        return self.budget.unit is Unit.MONEY and self.budget.amount == 0

    @property
    def share(self) -> Decimal:
        """Return the spent share of the budget, from 0; 1 is all."""
        if self.budget.amount == 0:
            return Decimal(1)
        return self.spent / self.budget.amount

    @property
    def percent(self) -> int:
        """Return the spent percentage of the budget for a bar, from 0 to 100."""
        return min(int(self.share * 100), 100)

    @property
    def level(self) -> str:
        """Return the level of spending for display: ``good``, ``warn`` or ``bad``."""
        return "bad" if self.share >= 1 else "warn" if self.share >= _NEARLY else "good"


class UsageReports(AccountService):
    """Usage of projects and of the whole service, for actors with the right to see it."""

    async def sums(
        self, actor: Actor, project_id: str | None, question: UsageQuery
    ) -> Sequence[UsageSum]:
        """Return the sums of usage of a project, or with ``None`` of the whole service."""
        await self._require_right(actor, project_id, Action.USAGE_SEE)
        question.check()
        return await self._store.usage.sums(_restrict(question, project_id))

    async def spending(
        self,
        actor: Actor,
        by: By,
        budgets: Mapping[str, Sequence[Budget]],
        project_id: str | None = None,
    ) -> Mapping[str, list[Spending]]:
        """Return the state of the budgets of projects, users or keys, by their ids.

        Reads the usage of the project, or of all, once for each period of the budgets.
        """
        now = self._clock()
        until = BudgetPeriod.DAY.start(now) + timedelta(days=1)
        sums: dict[tuple[BudgetPeriod, str], list[UsageSum]] = {}
        for period in {each.period for every in budgets.values() for each in every}:
            question = UsageQuery(period.start(now), until, Step.ALL, (by, By.MODEL))
            for one in await self.sums(actor, project_id, question):
                sums.setdefault((period, one.group[by]), []).append(one)
        return {
            owner: [_build_spending(one, sums.get((one.period, owner), ()), now) for one in every]
            for owner, every in budgets.items()
        }

    async def used(
        self, actor: Actor, by: By, since: datetime, project_id: str | None = None
    ) -> Mapping[str, Used]:
        """Return cost and last day of use since a midnight UTC, by project, user or key."""
        await self._require_right(actor, project_id, Action.USAGE_SEE)
        return await self._store.usage.used(by, since, project_id)

    async def first_tokens(
        self, actor: Actor, project_id: str | None, question: UsageQuery
    ) -> Sequence[FirstTokens]:
        """Return the median, 90th and 99th percentile of times to first token, by interval.

        They can be grouped by a model, a project, a key or a user. Groups without a first token are
        left out.
        """
        await self._require_right(actor, project_id, Action.USAGE_SEE)
        question.check()
        question.check_times()
        return await self._store.usage.first_tokens(_restrict(question, project_id), PERCENTILES)

    async def requests(
        self, actor: Actor, project_id: str | None, filter: RecordFilter
    ) -> Sequence[UsageRecord]:
        """Return single requests of a project, or of the whole service, newest first."""
        await self._require_right(actor, project_id, Action.ACTIVITY_SEE)
        return await self._store.usage.records(_restrict(filter, project_id))

    async def charged(
        self, actor: Actor, question: ChargedQuery
    ) -> AsyncGenerator[Sequence[ChargedSum]]:
        """Yield charged sums in pieces; each piece checks the actor's right again."""
        while True:
            await self._require_right(actor, question.project, Action.USAGE_SEE)
            found = await self._store.usage.charged(question)
            yield found
            if len(found) < question.limit:
                return
            question = replace(question, after=found[-1].place)

    async def every_request(
        self, actor: Actor, project_id: str | None, filter: RecordFilter
    ) -> AsyncGenerator[Sequence[UsageRecord]]:
        """Yield all requests that fit a filter in pieces, newest first, as :meth:`requests`."""
        filter = replace(filter, limit=sys.maxsize)
        while True:
            found = await self.requests(actor, project_id, filter)
            yield found
            if len(found) < filter.count:
                return
            filter = replace(filter, before=(found[-1].at, found[-1].id))

    async def last_used(self, actor: Actor, project_id: str) -> Mapping[str, datetime]:
        """Return when each key of a project was last used, if it was."""
        await self._require_right(actor, project_id, Action.KEYS_SEE)
        return await self._store.usage.last_used(project_id)

    async def _require_right(self, actor: Actor, project_id: str | None, action: Action) -> None:
        async with self._begin_read(actor, action, project_id) as tx:
            if project_id is None:
                await require(tx, actor, Action.USAGE_SEE_ALL)


def _build_spending(budget: Budget, sums: Sequence[UsageSum], now: datetime) -> Spending:
    spent = Decimal(0)
    for each in sums:
        if covers(budget.model, each.group[By.MODEL]):
            spent += each.cost if budget.unit is Unit.MONEY else each.charged
    return Spending(budget, spent, budget.period.end(now))


def _restrict(query: _Question, project_id: str | None) -> _Question:
    return replace(query, project=project_id or query.project)


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


Naming = Callable[[str, str], str]
"""Returns what a pair counts for, which is ranked; empty: nothing."""
_PAIRS: Mapping[str, tuple[By, By]] = {
    "model": (By.MODEL, By.PROVIDER),
    "provider": (By.MODEL, By.PROVIDER),
    "app": (By.APP, By.MODEL),
}


@dataclass(frozen=True, slots=True)
class _Sums:
    read_at: datetime
    since: datetime
    until: datetime
    before: Sequence[TokenSum]
    now: Sequence[TokenSum]
    steps: Mapping[str, Sequence[TokenSum]]
    """Those of each hour or day, by the first of the pair."""


class Rankings(AccountService):
    """Rankings over all projects; the sums are read once a minute at most.

    Sums are of pairs: of a model and the target that answered, or of an ``app`` and a model.
    """

    def __init__(self, store: SqlStore) -> None:
        super().__init__(store)
        self._cached_sums: dict[tuple[object, RankingPeriod], _Sums] = {}
        self._sums_lock = asyncio.Lock()

    async def of_all(
        self, by: Literal["model", "provider"], actor: Actor, period: RankingPeriod
    ) -> Ranking:
        """Return the ranking of all models or providers for operators; raise :class:`Forbidden`."""
        await self.require(actor, Action.USAGE_SEE_ALL)
        return await self.ranked(
            by, period, lambda model, target: model if by == "model" else provider_of(target)
        )

    async def ranked(self, by: str, period: RankingPeriod, naming: Naming) -> Ranking:
        """Return a ranking without checking rights, which the caller has to do."""
        sums = await self._get_cached_sums(by, period)
        now, before = (_tokens_and_requests_by_name(one, naming) for one in (sums.now, sums.before))
        ranks_before = {each: rank for rank, each in enumerate(before, 1)}
        rows = [
            Ranked(each, rank, tokens, requests, ranks_before.get(each))
            for rank, (each, (tokens, requests)) in enumerate(now.items(), 1)
        ]
        return Ranking(period, sums.since, sums.until, rows)

    async def over_time(
        self, by: str, period: RankingPeriod, naming: Naming, firsts: Iterable[str] = ()
    ) -> Mapping[str, Mapping[datetime, float]]:
        """Return tokens by name and the start of each hour or day, without checking rights.

        ``firsts`` are the first parts of the pairs that count; none: all.
        """
        steps = (await self._get_cached_sums(by, period)).steps
        found = chain.from_iterable(steps.get(each, ()) for each in firsts or steps)
        return await asyncio.to_thread(_tokens_over_time, found, naming)  # of a month's targets

    async def _get_cached_sums(self, by: str, period: RankingPeriod) -> _Sums:
        async with self._sums_lock:
            place, now = (_PAIRS[by], period), self._clock()
            kept = self._cached_sums.get(place)
            if kept is None or not timedelta() <= now - kept.read_at < timedelta(minutes=1):
                kept = self._cached_sums[place] = await self._read_sums_of_two_periods(*place, now)
            return kept

    async def _read_sums_of_two_periods(
        self, by: tuple[By, By], period: RankingPeriod, now: datetime
    ) -> _Sums:
        until = now.astimezone(UTC).replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)
        if period is not RankingPeriod.DAY and until.hour:
            until = until.replace(hour=0) + timedelta(days=1)
        since, usage = until - period.length, self._store.usage
        before = await usage.tokens(UsageQuery(since - period.length, since, Step.ALL, by))
        every = await usage.tokens(UsageQuery(since, until, Step.ALL, by))
        steps: dict[str, list[TokenSum]] = {}
        for each in await usage.tokens(UsageQuery(since, until, period.step, by)):
            steps.setdefault(each.group[0], []).append(each)
        return _Sums(now, since, until, before, every, steps)


def _tokens_and_requests_by_name(
    sums: Iterable[TokenSum], name_pair: Naming
) -> Mapping[str, tuple[int, int]]:
    found: dict[str, tuple[int, int]] = {}
    for _, pair, tokens, requests in sums:
        if tokens and (name := name_pair(*pair)):
            so_far = found.get(name, (0, 0))
            found[name] = so_far[0] + tokens, so_far[1] + requests
    return dict(sorted(found.items(), key=lambda each: (-each[1][0], each[0])))


def _tokens_over_time(
    token_sums: Iterable[TokenSum], name_pair: Naming
) -> Mapping[str, Mapping[datetime, float]]:
    made: dict[str, Counter[datetime]] = {}
    for start, pair, tokens, _ in token_sums:
        if start is not None and tokens and (name := name_pair(*pair)):
            made.setdefault(name, Counter())[start] += tokens
    return made


Rows = AsyncGenerator[Iterable[Sequence[str]]]
_SECOND = 1_000_000

_REQUEST = (
    *("at", "request_id", "project", "key", "user", "tag", "app", "door", "operation", "model"),
    *("provider", "served_by", "attempts", "status", "code", "reason", "finish_reason", "stream"),
    *("prompt_tokens", "cached_tokens", "cache_write_tokens", "completion_tokens"),
    *("reasoning_tokens", "units", "cost", "estimated"),
    *("queue_seconds", "first_token_seconds", "duration_seconds"),
)
_STATEMENT = (
    *("month", "project", "project_name", "tag", "provider", "provider_model", "model"),
    *("requests", "input_tokens", "cache_read_tokens", "cache_write_tokens", "output_tokens"),
    *("reasoning_tokens", "units", "cost"),
)


async def request_rows(
    usage: UsageReports, actor: Actor, project: str | None, filter: RecordFilter
) -> Rows:
    """Yield rows of single requests, newest first, of one project or the whole service."""
    yield [_REQUEST]
    async with aclosing(usage.every_request(actor, project, filter)) as pieces:
        async for records in pieces:
            yield map(_format_request_row, records)


def _format_request_row(record: UsageRecord) -> Sequence[str]:
    first = record.first_token_us
    return [
        f"{record.moment:%Y-%m-%dT%H:%M:%S.%fZ}",
        *(record.request_id, record.project, record.key, record.user, record.tag, record.app),
        *(record.door, record.operation, record.model, provider_of(record.served_by)),
        *(record.served_by, str(record.attempts), str(record.status), record.code or ""),
        *(record.reason, record.finish or "", str(record.stream).lower()),
        *map(str, (record.prompt, record.cached, record.written, record.completion)),
        *(str(record.reasoning), str(record.units)),
        *(f"{record.amount:f}", str(record.estimated).lower()),
        *("" if us is None else f"{us / _SECOND:.6f}" for us in (record.queue_us, first)),
        f"{record.duration_us / _SECOND:.6f}",
    ]


@dataclass(frozen=True, slots=True)
class Month:
    """A month in UTC, from ``since`` up to ``until``."""

    since: datetime

    @staticmethod
    def named(text: str, now: datetime) -> Month:
        """Return the month of a name like ``2026-11``, or the month before ``now`` if empty."""
        try:
            this = BudgetPeriod.MONTH.start(now)
            year, month = map(int, (text or f"{this - timedelta(days=1):%Y-%m}").split("-"))
            return Month(this.replace(year=year, month=month))
        except ValueError as failure:
            raise InvalidRequest("A month looks like 2026-11.", param="month") from failure

    @property
    def until(self) -> datetime:
        return BudgetPeriod.MONTH.start(self.since + timedelta(days=31))

    @property
    def name(self) -> str:
        return f"{self.since:%Y-%m}"


async def statement_rows(
    usage: UsageReports, projects: Projects, actor: Actor, project: str | None, month: Month
) -> Rows:
    """Yield rows of what a month's requests cost, by project, tag, target and model.

    Input tokens are those that were neither read from a cache nor written into it.
    """
    yield [_STATEMENT]
    if project is None:
        known = await projects.every(actor)
    else:
        known = [(await projects.see(actor, project)).project]
    names = {one.id: one.name for one in known}
    question = ChargedQuery(month.since, month.until, project)
    async with aclosing(usage.charged(actor, question)) as pieces:
        async for sums in pieces:
            yield (_format_sum_row(one, month.name, names.get(one.project_id, "")) for one in sums)


def _format_sum_row(charge: ChargedSum, month: str, project_name: str) -> Sequence[str]:
    provider = provider_of(charge.served_by)
    plain = charge.prompt - charge.cached - charge.written
    counts = (charge.requests, plain, charge.cached, charge.written, charge.completion)
    return [
        *(month, charge.project_id, project_name, charge.tag, provider),
        charge.served_by.removeprefix(f"{provider}/"),
        *(charge.model, *map(str, (*counts, charge.reasoning, charge.units)), f"{charge.cost:f}"),
    ]
