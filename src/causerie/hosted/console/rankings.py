"""Rankings of the catalog's models, its providers and the apps that use it, by tokens.

What strangers may see: `console.public_rankings` opens models and providers to them, and of apps
those that `console.public_apps` names. Operators see all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, timedelta

import msgspec

from causerie.catalog.listing import Listing
from causerie.catalog.model import OWN_PROVIDER
from causerie.errors import NotFound
from causerie.hosted.accounts.people import Action
from causerie.hosted.accounts.reports import Naming
from causerie.hosted.accounts.usage import Ranked, Ranking, RankingPeriod
from causerie.hosted.console.charts import Chart, Values, stacked
from causerie.hosted.console.fields import ReportPeriod
from causerie.hosted.console.request_context import RequestContext

_MOST_APPS = 10  # of a model


async def popular_tokens(context: RequestContext) -> Mapping[str, int] | None:
    """Return the tokens of a week by model; ``None`` where rankings may not be seen."""
    market = context.service_view.market()
    if market is None or not await _sees_rankings(context):
        return None
    naming = _naming("model", market.entries())
    found = await context.accounts.rankings.ranked("model", RankingPeriod.WEEK, naming)
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
    naming, ids = _naming("model", variants), [one.id for one in variants]
    values = await rankings.over_time("model", month, naming, ids)
    naming = _naming("app", variants, await _shown_apps(context))
    apps = await rankings.ranked("app", month, naming)
    chart = stacked(_starts_of_columns(apps), values, whole=True) if values else None
    return chart, apps.rows[:_MOST_APPS]


async def show(context: RequestContext) -> None:
    """``?by=`` is what is ranked, ``?as=share`` draws shares of each day instead of tokens."""
    by, entries, ranking, naming = await _asked_ranking(context)
    values = await context.accounts.rankings.over_time(by, ranking.period, naming)
    drawn, starts = context.query.one_of("as", ("tokens", "share")), _starts_of_columns(ranking)
    if drawn == "share":
        values = _shares_of_columns(values, starts)
    names = {OWN_PROVIDER: context.services.site.brand.name} if by == "provider" else {}
    if by == "model":
        names = {one.id: one.card.name for one in entries}
    told = Counter(names.get(each, each) for each in values)  # two models may have one name
    titles = {each: title if told[title := names.get(each, each)] < 2 else each for each in values}
    await context.show_openly(
        "catalog/rankings.html",
        by=by,
        kinds=await _kinds_to_rank(context),
        ranking=ranking,
        names=names,
        drawn=drawn,
        chart=stacked(
            starts, {titles[each]: of for each, of in values.items()}, whole=drawn == "tokens"
        ),
        last=ranking.until - timedelta(seconds=1),
        all_apps=await _shown_apps(context) is None,
    )


async def send(context: RequestContext) -> None:
    by, _, ranking, _ = await _asked_ranking(context)
    rows = [asdict(each) for each in ranking.rows]
    told = {
        "since": ranking.since,
        "until": ranking.until,
        "data": [{by: each.pop("name"), **each} for each in rows],
    }
    context.send_json(msgspec.json.encode(told))


async def _asked_ranking(context: RequestContext) -> tuple[str, Sequence[Listing], Ranking, Naming]:
    market = context.service_view.market()
    if market is None or not await _sees_rankings(context):
        raise NotFound("There is no such page.")
    by, entries = context.query.one_of("by", await _kinds_to_rank(context)), market.entries()
    period = RankingPeriod(context.query.one_of("period", list(RankingPeriod), "week"))
    naming = _naming(by, entries, await _shown_apps(context))
    return by, entries, await context.accounts.rankings.ranked(by, period, naming), naming


async def _kinds_to_rank(context: RequestContext) -> Sequence[str]:
    named = await _shown_apps(context) != frozenset()
    return ("model", "provider", "app") if named else ("model", "provider")


def _naming(by: str, entries: Sequence[Listing], apps: frozenset[str] | None = None) -> Naming:
    """Return the naming of what a ranking counts; ``apps`` are those that may be named."""
    if by == "provider":
        found = {(one.id, each.name): each.provider for one in entries for each in one.endpoints}
        return lambda model, target: found.get((model, target), "")
    ids = {one.id for one in entries}
    if by == "model":
        return lambda model, _: model if model in ids else ""
    return lambda app, model: app if model in ids and (apps is None or app in apps) else ""


async def _sees_rankings(context: RequestContext) -> bool:
    return context.services.open_to.rankings or await _shown_apps(context) is None


async def _shown_apps(context: RequestContext) -> frozenset[str] | None:
    """Return the apps that may be named to whoever asks; ``None``: all, to operators."""
    if context.user is not None and await context.may(Action.USAGE_SEE_ALL):
        return None
    return context.services.open_to.apps


def _starts_of_columns(ranking: Ranking) -> Sequence[datetime]:
    return ReportPeriod("ranking", ranking.since, ranking.until).starts()


def _shares_of_columns(values: Values, starts: Sequence[datetime]) -> Values:
    sums = {start: sum(each.get(start, 0.0) for each in values.values()) for start in starts}
    return {
        name: {start: value / sums[start] for start, value in found.items()}
        for name, found in values.items()
    }
