"""Rankings of the catalog by tokens: public where a setting says so, else operators'."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import TypeVar

import msgspec

from causerie.accounts.rankings import Ranked, Ranking, RankingPeriod, Rankings
from causerie.catalog.listing import Listing
from causerie.console.market.providers import path_of_provider
from causerie.console.market.row import path_of
from causerie.console.ports import ServiceView
from causerie.console.request_context import RequestContext
from causerie.errors import InvalidRequest, NotFound

_TITLES = {
    RankingPeriod.DAY: "24 hours",
    RankingPeriod.WEEK: "7 days",
    RankingPeriod.MONTH: "30 days",
}


_Choice = TypeVar("_Choice", bound=StrEnum)


class RankingBy(StrEnum):
    """The kind of entries that a ranking has."""

    MODEL = "model"
    PROVIDER = "provider"


@dataclass(frozen=True, slots=True)
class RankingRow:
    """A model or provider as the page shows it; ``share`` is the percent of all tokens."""

    title: str
    of: Ranked
    path: str
    """Of its page, below the console's own."""
    logo: str
    """Author or provider."""
    share: float
    bar: float
    """Percent of the tokens of the first."""

    @property
    def risen(self) -> int | None:
        """Return how many ranks it has risen since the period before, or fallen below zero."""
        before = self.of.rank_before
        return before - self.of.rank if before is not None else None


class RankingPages:
    """Only the catalog's models and endpoints are ranked, by sums over all projects."""

    def __init__(self, service_view: ServiceView) -> None:
        self._service_view = service_view

    async def show(self, context: RequestContext) -> None:
        """``GET /rankings?by=&period=``: models or providers, of a day, week or month."""
        by, entries, ranking = await self._ranking(context)
        names = {one.id: one.card.name for one in entries} if by is RankingBy.MODEL else {}
        await context.show_openly(
            "catalog/rankings.html",
            by=by,
            ranking=ranking,
            rows=[_row(each, names, ranking) for each in ranking.rows],
            titles=[(each.value, title) for each, title in _TITLES.items()],
            public=context.services.public_rankings,
        )

    async def tell(self, context: RequestContext) -> None:
        """``GET /rankings.json?by=&period=``: the same for programs."""
        by, _, ranking = await self._ranking(context)
        rows = [asdict(each) for each in ranking.rows]
        told = {
            "since": ranking.since,
            "until": ranking.until,
            "data": [{by.value: each.pop("name"), **each} for each in rows],
        }
        context.send_json(msgspec.json.encode(told))

    async def _ranking(
        self, context: RequestContext
    ) -> tuple[RankingBy, Sequence[Listing], Ranking]:
        """Return what is ranked, the catalog and the ranking; strangers get :class:`NotFound`."""
        market = self._service_view.market()
        operator = context.user is not None and context.user.operator
        if market is None or not (context.services.public_rankings or operator):
            raise NotFound("There is no such page.")
        entries = market.entries()
        by = _one_of(RankingBy, "by", context.query.get("by") or RankingBy.MODEL)
        period = _one_of(RankingPeriod, "period", context.query.get("period") or RankingPeriod.WEEK)
        return by, entries, await _read(context.accounts.rankings, by, entries, period)


async def _read(
    rankings: Rankings, by: RankingBy, entries: Sequence[Listing], period: RankingPeriod
) -> Ranking:
    if by is RankingBy.MODEL:
        return await rankings.models({one.id for one in entries}, period)
    endpoints = {(one.id, each.name): each.provider for one in entries for each in one.endpoints}
    return await rankings.providers(endpoints, period)


def _one_of(kind: type[_Choice], name: str, text: str) -> _Choice:
    try:
        return kind(text)
    except ValueError as failure:
        words = f"There is no {name} {text[:20]}; take one of {', '.join(kind)}."
        raise InvalidRequest(words, param=name) from failure


def _row(one: Ranked, names: Mapping[str, str], ranking: Ranking) -> RankingRow:
    """Return the row of a model, which has a name in ``names``, or of a provider."""
    share, bar = 100 * one.tokens / ranking.tokens, 100 * one.tokens / ranking.rows[0].tokens
    if title := names.get(one.name):
        author = one.name.partition("/")[0]
        return RankingRow(title, one, path_of(one.name), author, share, bar)
    return RankingRow(one.name, one, path_of_provider(one.name), one.name, share, bar)
