"""Reports of usage for those who may see it: sums, single requests and rankings."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import Literal

from causerie.hosted.accounts.authorization import AccountService, Clock, require, visible_project
from causerie.hosted.accounts.people import Action, Actor
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


class UsageReports(AccountService):
    """Usage of projects and of the whole service, for actors with the right to see it."""

    async def sums(
        self, actor: Actor, project_id: str | None, question: UsageQuery
    ) -> Sequence[UsageSum]:
        """Return the sums of a project, or with ``None`` of the whole service."""
        await self._require_right(actor, project_id, Action.USAGE_SEE)
        question.check()
        return await self._store.usage.sums(
            replace(question, project=project_id or question.project)
        )

    async def used(
        self, actor: Actor, by: By, since: datetime, project_id: str | None = None
    ) -> Mapping[str, Used]:
        """Return cost and last day of use since a midnight UTC, by project or user.

        With a project, by its keys.
        """
        await self._require_right(actor, project_id, Action.USAGE_SEE)
        return await self._store.usage.used(by, since, project_id)

    async def first_tokens(
        self, actor: Actor, project_id: str | None, question: UsageQuery
    ) -> Sequence[FirstTokens]:
        """Return median, 90th and 99th percentile of the time to the first token, by start.

        They can be grouped by a model, a project, a key or a user. Groups without a first token are
        left out.
        """
        await self._require_right(actor, project_id, Action.USAGE_SEE)
        question.check()
        question.check_times()
        narrowed = replace(question, project=project_id or question.project)
        return await self._store.usage.first_tokens(narrowed, PERCENTILES)

    async def requests(
        self, actor: Actor, project_id: str | None, filter: RecordFilter
    ) -> Sequence[UsageRecord]:
        """Return single requests of a project, or of the whole service, newest first."""
        await self._require_right(actor, project_id, Action.ACTIVITY_SEE)
        return await self._store.usage.records(
            replace(filter, project=project_id or filter.project)
        )

    async def charged(
        self, actor: Actor, question: ChargedQuery
    ) -> AsyncGenerator[Sequence[ChargedSum]]:
        """Yield what was charged for in pieces, which each check the actor's right again."""
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
        """Yield all requests of a filter in pieces, newest first, as :meth:`requests`."""
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
        async with self._store.reading() as tx:
            if project_id is None:
                await require(tx, actor, Action.USAGE_SEE_ALL)
                await require(tx, actor, action)
            else:
                await visible_project(tx, actor, project_id, action)


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

    def __init__(self, store: SqlStore, clock: Clock) -> None:
        super().__init__(store, clock)
        self._cached_sums: dict[tuple[object, RankingPeriod], _Sums] = {}
        self._turn = asyncio.Lock()

    async def of_all(
        self, by: Literal["model", "provider"], actor: Actor, period: RankingPeriod
    ) -> Ranking:
        """Return the ranking of all models or providers for operators; raise :class:`Forbidden`."""
        await self.require(actor, Action.USAGE_SEE_ALL)
        return await self.ranked(
            by, period, lambda model, target: model if by == "model" else provider_of(target)
        )

    async def ranked(self, by: str, period: RankingPeriod, naming: Naming) -> Ranking:
        """Return a ranking for everybody, which the caller has to allow."""
        sums = await self._cached_period_sums(by, period)
        now, before = _by_name(sums.now, naming), _by_name(sums.before, naming)
        ranks_before = {each: rank for rank, each in enumerate(before, 1)}
        rows = [
            Ranked(each, rank, tokens, requests, ranks_before.get(each))
            for rank, (each, (tokens, requests)) in enumerate(now.items(), 1)
        ]
        return Ranking(period, sums.since, sums.until, rows)

    async def over_time(
        self, by: str, period: RankingPeriod, naming: Naming, firsts: Iterable[str] = ()
    ) -> Mapping[str, Mapping[datetime, float]]:
        """Return tokens by name and the start of each hour or day, for everybody.

        ``firsts`` are the first parts of the pairs that count; none: all.
        """
        steps = (await self._cached_period_sums(by, period)).steps
        found = chain.from_iterable(steps.get(each, ()) for each in firsts or steps)
        return await asyncio.to_thread(_tokens_over_time, found, naming)  # of a month's targets

    async def _cached_period_sums(self, by: str, period: RankingPeriod) -> _Sums:
        async with self._turn:
            place, now = (_PAIRS[by], period), self._clock()
            kept = self._cached_sums.get(place)
            if kept is None or not timedelta() <= now - kept.read_at < timedelta(minutes=1):
                kept = self._cached_sums[place] = await self._read_sums(_PAIRS[by], period, now)
            return kept

    async def _read_sums(self, pair: tuple[By, By], period: RankingPeriod, now: datetime) -> _Sums:
        until = now.astimezone(UTC).replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)
        if period is not RankingPeriod.DAY and until.hour:
            until = until.replace(hour=0) + timedelta(days=1)
        since, usage = until - period.length, self._store.usage
        before = await usage.tokens(UsageQuery(since - period.length, since, Step.ALL, pair))
        every = await usage.tokens(UsageQuery(since, until, Step.ALL, pair))
        steps: dict[str, list[TokenSum]] = {}
        for each in await usage.tokens(UsageQuery(since, until, period.step, pair)):
            steps.setdefault(each.group[0], []).append(each)
        return _Sums(now, since, until, before, every, steps)


def _by_name(sums: Iterable[TokenSum], naming: Naming) -> Mapping[str, tuple[int, int]]:
    found: dict[str, tuple[int, int]] = {}
    for _, pair, tokens, requests in sums:
        if tokens and (name := naming(*pair)):
            so_far = found.get(name, (0, 0))
            found[name] = so_far[0] + tokens, so_far[1] + requests
    return dict(sorted(found.items(), key=lambda each: (-each[1][0], each[0])))


def _tokens_over_time(
    found: Iterable[TokenSum], naming: Naming
) -> Mapping[str, Mapping[datetime, float]]:
    made: dict[str, Counter[datetime]] = {}
    for start, pair, tokens, _ in found:
        if start is not None and tokens and (name := naming(*pair)):
            made.setdefault(name, Counter())[start] += tokens
    return made
