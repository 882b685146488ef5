"""Models by the tokens of their requests: sums over all projects, never those of one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from causerie.accounts.authorization import Clock, require
from causerie.accounts.people import Actor
from causerie.accounts.ports import AccountStore
from causerie.accounts.rights import Action
from causerie.accounts.usage import By, Step, UsageQuery, UsageReader

_FRESH = timedelta(minutes=1)
_HOUR = timedelta(hours=1)


class RankingPeriod(StrEnum):
    """The last 24 hours, or the last 7 or 30 days with today; hours and days are whole in UTC."""

    DAY = "day"
    WEEK = "week"
    MONTH = "month"

    @property
    def length(self) -> timedelta:
        """Return its length."""
        return timedelta(days={"day": 1, "week": 7, "month": 30}[self.value])


@dataclass(frozen=True, slots=True)
class RankedModel:
    """A model, and the tokens of its requests: prompts and replies, whoever sent them."""

    model: str
    rank: int
    """From 1; equal tokens have ranks by the models' names."""
    tokens: int
    requests: int
    rank_before: int | None
    """Its rank in the period before; ``None`` if it was not used then."""


@dataclass(frozen=True, slots=True)
class Ranking:
    """Models with the most tokens first, over a period that ends at ``until``."""

    period: RankingPeriod
    since: datetime
    until: datetime
    models: Sequence[RankedModel]

    @property
    def tokens(self) -> int:
        """Return the tokens of all models together."""
        return sum(each.tokens for each in self.models)


@dataclass(frozen=True, slots=True)
class _Sums:
    read_at: datetime
    since: datetime
    until: datetime
    now: Mapping[str, tuple[int, int]]
    before: Mapping[str, tuple[int, int]]


class Rankings:
    """Rankings of one service. The sums are read once a minute, however often they are asked."""

    def __init__(self, store: AccountStore, reader: UsageReader, clock: Clock) -> None:
        self._store = store
        self._reader = reader
        self._clock = clock
        self._kept: dict[RankingPeriod, _Sums] = {}
        self._reading = asyncio.Lock()

    async def of_all(self, actor: Actor, period: RankingPeriod) -> Ranking:
        """Return all models, for operators; raise :class:`Forbidden` for others."""
        async with self._store.reading() as repositories:
            await require(repositories, actor, Action.SERVICE_SEE)
        return _ranking(period, await self._sums(period), lambda _: True)

    async def of_models(self, models: Collection[str], period: RankingPeriod) -> Ranking:
        """Return these models only, for everybody: the caller decides whether that is allowed."""
        return _ranking(period, await self._sums(period), models.__contains__)

    async def _sums(self, period: RankingPeriod) -> _Sums:
        async with self._reading:
            kept, now = self._kept.get(period), self._clock()
            if kept is None or not timedelta() <= now - kept.read_at < _FRESH:
                kept = self._kept[period] = await self._read(period, now)
            return kept

    async def _read(self, period: RankingPeriod, now: datetime) -> _Sums:
        until = now.astimezone(UTC).replace(minute=0, second=0, microsecond=0) + _HOUR
        if period is not RankingPeriod.DAY and until.hour:
            until = until.replace(hour=0) + timedelta(days=1)
        since = until - period.length
        earlier = since - period.length
        return _Sums(
            now,
            since,
            until,
            await self._by_model(since, until),
            await self._by_model(earlier, since),
        )

    async def _by_model(self, since: datetime, until: datetime) -> Mapping[str, tuple[int, int]]:
        question = UsageQuery(since, until, step=Step.ALL, by=(By.MODEL,))
        sums = await self._reader.sums(question)
        return {
            each.group[By.MODEL]: (each.prompt + each.completion, each.requests)
            for each in sums
            if each.group[By.MODEL] and each.prompt + each.completion
        }


def _ranking(period: RankingPeriod, sums: _Sums, wanted: Callable[[str], bool]) -> Ranking:
    now, before = _ranked(sums.now, wanted), _ranked(sums.before, wanted)
    models = [
        RankedModel(model, rank, *sums.now[model], before.get(model)) for model, rank in now.items()
    ]
    return Ranking(period, sums.since, sums.until, models)


def _ranked(
    sums: Mapping[str, tuple[int, int]], wanted: Callable[[str], bool]
) -> Mapping[str, int]:
    """Return the rank of each model, the first first."""
    found = sorted(filter(wanted, sums), key=lambda model: (-sums[model][0], model))
    return {model: rank for rank, model in enumerate(found, 1)}
