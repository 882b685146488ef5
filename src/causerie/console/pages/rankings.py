"""Rankings of the catalog's models by tokens: public where a setting says so, else operators'."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

import msgspec

from causerie.accounts.rankings import RankedModel, Ranking, RankingPeriod
from causerie.console.market.row import path_of
from causerie.console.ports import ServiceView
from causerie.console.request_context import RequestContext
from causerie.errors import InvalidRequest, NotFound

_TITLES = {
    RankingPeriod.DAY: "24 hours",
    RankingPeriod.WEEK: "7 days",
    RankingPeriod.MONTH: "30 days",
}


@dataclass(frozen=True, slots=True)
class RankingRow:
    """A model as the page shows it; ``share`` is the percent of all tokens."""

    name: str
    model: RankedModel
    share: float
    bar: float
    """Percent of the tokens of the first model."""

    @property
    def path(self) -> str:
        """Of the model's page, below the console's own."""
        return path_of(self.model.model)

    @property
    def risen(self) -> int | None:
        """Return how many ranks it has risen since the period before, or fallen below zero."""
        before = self.model.rank_before
        return before - self.model.rank if before is not None else None


class RankingPages:
    """Only models of the catalog are ranked, and only sums over all projects are shown."""

    def __init__(self, service_view: ServiceView) -> None:
        self._service_view = service_view

    async def show(self, context: RequestContext) -> None:
        """``GET /rankings?period=``: day, week or month."""
        names, ranking = await self._ranking(context)
        await context.show_openly(
            "catalog/rankings.html",
            ranking=ranking,
            rows=[_row(each, names[each.model], ranking) for each in ranking.models],
            titles=[(each.value, title) for each, title in _TITLES.items()],
            public=context.services.public_rankings,
        )

    async def tell(self, context: RequestContext) -> None:
        """``GET /rankings.json?period=``: the same for programs."""
        _, ranking = await self._ranking(context)
        told = {
            "since": ranking.since,
            "until": ranking.until,
            "data": [asdict(each) for each in ranking.models],
        }
        context.send_json(msgspec.json.encode(told))

    async def _ranking(self, context: RequestContext) -> tuple[Mapping[str, str], Ranking]:
        """Return the names of models, and their ranking; raise :class:`NotFound` for strangers."""
        market = self._service_view.market()
        operator = context.user is not None and context.user.operator
        if market is None or not (context.services.public_rankings or operator):
            raise NotFound("There is no such page.")
        names = {one.id: one.card.name for one in market.entries()}
        period = _period(context.query.get("period"))
        return names, await context.accounts.rankings.of_models(names, period)


def _period(text: str) -> RankingPeriod:
    try:
        return RankingPeriod(text or RankingPeriod.WEEK)
    except ValueError as failure:
        known = ", ".join(RankingPeriod)
        words = f"There is no period {text[:20]}; take one of {known}."
        raise InvalidRequest(words, param="period") from failure


def _row(model: RankedModel, name: str, ranking: Ranking) -> RankingRow:
    most = ranking.models[0].tokens
    return RankingRow(name, model, 100 * model.tokens / ranking.tokens, 100 * model.tokens / most)
