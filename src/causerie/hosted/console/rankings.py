"""Rankings of the catalog's models, its providers and the apps that use it, by tokens.

What strangers may see: `console.public_rankings` opens models and providers to them, and of apps
those that `console.public_apps` names. Operators see all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, timedelta

import msgspec

from causerie.catalog.listing import Listing
from causerie.errors import NotFound
from causerie.hosted.accounts.people import Action
from causerie.hosted.accounts.reports import Naming
from causerie.hosted.accounts.usage import Ranked, Ranking, RankingPeriod, Step
from causerie.hosted.console.charts import Chart, Values, stacked
from causerie.hosted.console.request_context import RequestContext

_MOST_APPS = 10  # of a model
_STEPS = {Step.HOUR: timedelta(hours=1), Step.DAY: timedelta(days=1)}


async def popular_tokens(context: RequestContext) -> Mapping[str, int] | None:
    """Return the tokens of a week by model; ``None`` where rankings may not be seen."""
    market = context.service_view.market()
    if market is None or not await _sees_rankings(context):
        return None
    naming = _naming("model", market.entries())
    found = await context.accounts.rankings.ranked("target", RankingPeriod.WEEK, naming)
    return {each.name: each.tokens for each in found.rows}


async def used_by(
    context: RequestContext, variants: Sequence[Listing]
) -> tuple[Chart | None, Sequence[Ranked]]:
    """Return the tokens of a model per day for a month, and the apps that use it most.

    There is nothing where rankings may not be seen.
    """
    if not await _sees_rankings(context):
        return None, ()
    rankings, month = context.accounts.rankings, RankingPeriod.MONTH
    ids = [one.id for one in variants]
    found = await rankings.ranked("target", month, _naming("model", variants))
    values = await rankings.over_time("target", month, _naming("model", variants), ids)
    apps: Sequence[Ranked] = ()
    if (shown := await _shown_apps(context)) != frozenset():
        apps = (await rankings.ranked("app", month, _naming("app", variants, shown))).rows
    return (stacked(_starts(found), values, whole=True) if values else None), apps[:_MOST_APPS]


async def show(context: RequestContext) -> None:
    """``?by=`` is what is ranked, ``?as=share`` draws shares of each day instead of tokens."""
    by, kinds, entries, ranking, naming = await _asked_ranking(context)
    rankings = context.accounts.rankings
    values = await rankings.over_time(_kind(by), ranking.period, naming)
    drawn = context.query.one_of("as", ("tokens", "share"))
    names = {one.id: one.card.name for one in entries} if by == "model" else {}
    starts = _starts(ranking)
    if drawn == "share":
        values = _shares(values, starts)
    titled = {each: names.get(each, each) for each in values}
    if len({*titled.values()}) < len(titled):  # two models of one name
        titled = {each: each for each in values}
    shown = {titled[each]: found for each, found in values.items()}
    await context.show_openly(
        "catalog/rankings.html",
        by=by,
        kinds=kinds,
        ranking=ranking,
        names=names,
        drawn=drawn,
        chart=stacked(starts, shown, whole=drawn == "tokens"),
        last=ranking.until - timedelta(seconds=1),
        public=context.services.open_to.rankings,
        all_apps=await _shown_apps(context) is None,
    )


async def send(context: RequestContext) -> None:
    by, _, _, ranking, _ = await _asked_ranking(context)
    rows = [asdict(each) for each in ranking.rows]
    told = {
        "since": ranking.since,
        "until": ranking.until,
        "data": [{by: each.pop("name"), **each} for each in rows],
    }
    context.send_json(msgspec.json.encode(told))


async def _asked_ranking(
    context: RequestContext,
) -> tuple[str, Sequence[str], Sequence[Listing], Ranking, Naming]:
    market = context.service_view.market()
    if market is None or not await _sees_rankings(context):
        raise NotFound("There is no such page.")
    entries, apps = market.entries(), await _shown_apps(context)
    kinds = ["model", "provider", *(["app"] if apps != frozenset() else [])]
    by = context.query.one_of("by", kinds)
    period = RankingPeriod(context.query.one_of("period", list(RankingPeriod), "week"))
    naming = _naming(by, entries, apps)
    found = await context.accounts.rankings.ranked(_kind(by), period, naming)
    return by, kinds, entries, found, naming


def _kind(by: str) -> str:
    return "app" if by == "app" else "target"


def _naming(by: str, entries: Sequence[Listing], apps: frozenset[str] | None = None) -> Naming:
    """Return the naming of what a ranking counts; ``apps`` are those that may be named."""
    if by == "provider":
        endpoints = {
            (one.id, each.name): each.provider for one in entries for each in one.endpoints
        }
        return lambda pair: endpoints.get(pair, "")
    ids = {one.id for one in entries}
    if by == "model":
        return lambda pair: pair[0] if pair[0] in ids else ""
    return lambda pair: pair[0] if pair[1] in ids and (apps is None or pair[0] in apps) else ""


async def _sees_rankings(context: RequestContext) -> bool:
    return context.services.open_to.rankings or await _oversees(context)


async def _shown_apps(context: RequestContext) -> frozenset[str] | None:
    """Return the apps that may be named to whoever asks; ``None``: all."""
    return None if await _oversees(context) else context.services.open_to.apps


async def _oversees(context: RequestContext) -> bool:
    return context.user is not None and await context.may(Action.USAGE_SEE_ALL)


def _starts(ranking: Ranking) -> Sequence[datetime]:
    step = _STEPS[ranking.period.step]
    return [ranking.since + step * n for n in range((ranking.until - ranking.since) // step)]


def _shares(values: Values, starts: Sequence[datetime]) -> Values:
    sums = {start: sum(each.get(start, 0.0) for each in values.values()) for start in starts}
    return {
        name: {start: value / sums[start] for start, value in found.items() if sums[start]}
        for name, found in values.items()
    }
