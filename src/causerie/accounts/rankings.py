"""Models and providers by tokens of requests: sums over all projects, never those of one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from causerie.accounts.authorization import Clock, require
from causerie.accounts.people import Actor
from causerie.accounts.ports import AccountStore
from causerie.accounts.rights import Action
from causerie.accounts.usage import By, Step, TargetUse, UsageQuery, UsageReader, provider_of

_FRESH = timedelta(minutes=1)
_HOUR = timedelta(hours=1)


class RankingPeriod(StrEnum):
    """The last 24 hours, or the last 7 or 30 days with today; hours and days are whole in UTC."""

    DAY = "day"
    WEEK = "week"
    MONTH = "month"

    @property
    def length(self) -> timedelta:
        return timedelta(days={"day": 1, "week": 7, "month": 30}[self.value])


@dataclass(frozen=True, slots=True)
class Ranked:
    """A model or provider, and the tokens of its prompts and replies, whoever sent them."""

    name: str
    rank: int
    """From 1; equal tokens have ranks by their names."""
    tokens: int
    requests: int
    rank_before: int | None
    """Its rank in the period before; ``None`` if it was not used then."""


@dataclass(frozen=True, slots=True)
class Ranking:
    """Those with the most tokens first, over a period that ends at ``until``."""

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


class Rankings:
    """Rankings of one service. The sums are read once a minute, however often they are asked."""

    def __init__(self, store: AccountStore, reader: UsageReader, clock: Clock) -> None:
        self._store = store
        self._reader = reader
        self._clock = clock
        self._kept: dict[tuple[RankingPeriod, bool], _Sums] = {}
        self._reading = asyncio.Lock()

    async def models_of_all(self, actor: Actor, period: RankingPeriod) -> Ranking:
        """Return all models, for operators; raise :class:`Forbidden` for others."""
        await self._require(actor)
        return _ranking(period, await self._sums(period), lambda served: served[0])

    async def providers_of_all(self, actor: Actor, period: RankingPeriod) -> Ranking:
        """Return all providers, for operators; raise :class:`Forbidden` for others."""
        await self._require(actor)
        sums = await self._sums(period, by_target=True)
        return _ranking(period, sums, lambda served: provider_of(served[1]))

    async def models(self, models: Collection[str], period: RankingPeriod) -> Ranking:
        """Return these models only, for everybody: the caller decides whether that is allowed."""
        sums = await self._sums(period)
        return _ranking(period, sums, lambda served: served[0] if served[0] in models else "")

    async def providers(self, endpoints: Mapping[_Served, str], period: RankingPeriod) -> Ranking:
        """Return the providers of these endpoints, by what these have answered, for everybody.

        ``endpoints`` has the provider of each model and target.
        """
        sums = await self._sums(period, by_target=True)
        return _ranking(period, sums, lambda served: endpoints.get(served, ""))

    async def _require(self, actor: Actor) -> None:
        async with self._store.reading() as repositories:
            await require(repositories, actor, Action.SERVICE_SEE)

    async def _sums(self, period: RankingPeriod, *, by_target: bool = False) -> _Sums:
        async with self._reading:
            kept, now = self._kept.get((period, by_target)), self._clock()
            if kept is None or not timedelta() <= now - kept.read_at < _FRESH:
                read = self._reader.by_target if by_target else self._by_model
                kept = self._kept[period, by_target] = await _read(read, period, now)
            return kept

    async def _by_model(self, since: datetime, until: datetime) -> _Use:
        question = UsageQuery(since, until, step=Step.ALL, by=(By.MODEL,))
        sums = await self._reader.sums(question)
        return {
            (each.group[By.MODEL], ""): TargetUse(each.prompt + each.completion, each.requests)
            for each in sums
        }


async def _read(
    read: Callable[[datetime, datetime], Awaitable[_Use]], period: RankingPeriod, now: datetime
) -> _Sums:
    until = now.astimezone(UTC).replace(minute=0, second=0, microsecond=0) + _HOUR
    if period is not RankingPeriod.DAY and until.hour:
        until = until.replace(hour=0) + timedelta(days=1)
    since = until - period.length
    before = await read(since - period.length, since)
    return _Sums(now, since, until, await read(since, until), before)


def _ranking(period: RankingPeriod, sums: _Sums, name: Callable[[_Served], str]) -> Ranking:
    now, before = _by_name(sums.now, name), _by_name(sums.before, name)
    ranks_before = {each: rank for rank, each in enumerate(before, 1)}
    rows = [
        Ranked(each, rank, use.tokens, use.requests, ranks_before.get(each))
        for rank, (each, use) in enumerate(now.items(), 1)
    ]
    return Ranking(period, sums.since, sums.until, rows)


def _by_name(sums: _Use, name: Callable[[_Served], str]) -> Mapping[str, TargetUse]:
    """Return the use of each name, the first first."""
    found: dict[str, TargetUse] = {}
    for served, use in sums.items():
        if use.tokens and (each := name(served)):
            so_far = found.get(each, TargetUse(0, 0))
            found[each] = TargetUse(so_far.tokens + use.tokens, so_far.requests + use.requests)
    return dict(sorted(found.items(), key=lambda pair: (-pair[1].tokens, pair[0])))
