"""Pages of the catalog: list, one model, several compared, providers, and rankings by tokens.

What strangers may see of rankings: `console.public_rankings` opens models and providers to them,
and of apps those that `console.public_apps` names. Operators see all.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from causerie.catalog.catalog import DoorCatalog
from causerie.catalog.listing import Listing
from causerie.catalog.model import OWN_PROVIDER
from causerie.errors import InvalidRequest, NotFound
from causerie.hosted.accounts.people import Action
from causerie.hosted.accounts.reports import Naming
from causerie.hosted.accounts.usage import Ranked, Ranking, RankingPeriod
from causerie.hosted.console.catalog_search import (
    SORTS,
    USUAL_LOAD,
    CatalogQuery,
    CostAssumptions,
    costs,
)
from causerie.hosted.console.catalog_view import (
    MOST_COMPARED,
    Offer,
    ProviderRow,
    ServedOffer,
    comparison,
    endpoint_names,
    endpoints,
    facets,
    list_row,
    model_price,
    offers,
    parameter_groups,
    similar,
    sources,
    variants,
    with_variants,
)
from causerie.hosted.console.charts import Chart, Strip, Values, stacked, trend
from causerie.hosted.console.fields import ListPage, ReportPeriod
from causerie.hosted.console.playground import router_snippets
from causerie.hosted.console.request_context import RequestContext
from causerie.hosted.console.service_view import StatusBadge, anchor, best, target_badges

_FRONT = 6  # models on the first page
_MOST_APPS = 10  # of a model


async def show_models(context: RequestContext) -> None:
    entries = context.service_view.models(rules=await context.rules())
    await _show_models_page(context, callable_ids={str(entry.get("id", "")) for entry in entries})


async def show_catalog(context: RequestContext) -> None:
    _ = _require_catalog(context)
    if (project := await context.last_project()) is not None:
        query = f"?{context.exchange.head.query}" if context.exchange.head.query else ""
        context.go(f"/projects/{project.id}/models{query}")
        return
    await _show_models_page(context, public=True)


async def show_front(context: RequestContext) -> None:
    """Show the catalog's first page: a search, the most used models, and a sample request."""
    market, tokens = _require_catalog(context), await _read_tokens_by_model(context)
    every = await CatalogQuery(sort="popular").of(offers(context.service_view, public=True), tokens)
    shown = [one for one, _ in with_variants(every) if isinstance(one, Listing)]
    free = next((one for one in every if one.price == 0), every[0] if every else None)
    base = context.base + market.prefix
    [request, *_] = router_snippets(base, "$API_KEY", free.id if free is not None else "MODEL")
    await context.send_public_page(
        "catalog/front.html",
        rows=[list_row(one) for one in shown[:_FRONT]],
        tokens=tokens or {},
        total=len(with_variants(every)),
        providers=len({each.provider for one in shown for each in one.endpoints}),
        curl=request.snippets[0].text,
        base=base,
    )


async def show_states(context: RequestContext) -> None:
    tokens = await _read_tokens_by_model(context)
    search = _parse_query_with_default_sort(context, tokens)
    found = with_variants(await search.of(offers(context.service_view, public=False), tokens))
    badges = _at_most_one_badge_by_model(context, [one for one, _ in search.on_page(found)])
    states = [(anchor(id), found) for id, found in badges.items()]
    await context.send_page("models_states.html", states=states)


async def _show_models_page(
    context: RequestContext, *, public: bool = False, callable_ids: Collection[str] = ()
) -> None:
    entries = offers(context.service_view, public=public)
    search, found, tokens = CatalogQuery(), list[Offer](), await _read_tokens_by_model(context)
    try:
        search = _parse_query_with_default_sort(context, tokens)
        found = list(await search.of(entries, tokens))
    except InvalidRequest as failure:
        context.problem = failure
    folded, total = with_variants(found), len(with_variants(entries))
    shown = search.on_page(folded)
    engines = frozenset(each.model for each in context.service_view.status())
    rows = []
    for one, others in shown:
        row = one.view if isinstance(one, ServedOffer) else list_row(one)
        rows.append((row, sources(one, engines), anchor(one.id), others))
    values: dict[str, Any] = {
        "public": public,
        "search": search,
        "page": ListPage(rows, search.page, len(folded), total, search.text, rows=search.rows),
        "tokens": tokens,
        "states": {} if public else _at_most_one_badge_by_model(context, [one for one, _ in shown]),
        "callable_ids": callable_ids,
        "most": MOST_COMPARED,
    }
    if context.by_script:
        await context.send_public_page("catalog/results.html", **values)
        return
    sorts = {name: title for name, (title, _) in SORTS.items()}
    if tokens is None:
        del sorts["popular"]
    await context.send_public_page(
        "catalog/list.html", **values, facets=facets(entries), sorts=sorts
    )


def _at_most_one_badge_by_model(
    context: RequestContext, shown_offers: Sequence[Offer]
) -> Mapping[str, Sequence[StatusBadge]]:
    found = target_badges(context.service_view, {one.id: one.targets for one in shown_offers})
    return {id: best(badges) for id, badges in found.items()}


def _parse_query_with_default_sort(
    context: RequestContext, tokens_by_model: Mapping[str, int] | None
) -> CatalogQuery:
    return CatalogQuery.parse(context.query, "newest" if tokens_by_model is None else "popular")


async def show_comparison(context: RequestContext) -> None:
    market = _require_catalog(context)
    names = list(dict.fromkeys(filter(None, context.query.every("model"))))
    chosen = [_find_catalog_entry(market, name) for name in names[:MOST_COMPARED]]
    await context.send_public_page(
        "catalog/compare.html",
        comparison=comparison(chosen, market.entries()),
        left_out=max(len(names) - MOST_COMPARED, 0),
        most=MOST_COMPARED,
    )


async def show_model(context: RequestContext) -> None:
    """Show the page of a catalog model, or to a script only its cost estimates."""
    market = _require_catalog(context)
    one = _find_catalog_entry(market, f"{context.params['author']}/{context.params['slug']}")
    every = [one if each.id == one.id else each for each in variants(one.id, market.entries())]
    load = USUAL_LOAD
    try:
        load = CostAssumptions.parse(context.query)
    except InvalidRequest as failure:
        context.problem = failure
    values = {"load": load, "costs": costs(every, load), "one": one, "several": len(every) > 1}
    if context.by_script:
        await context.send_public_page("catalog/costs.html", **values)
        return
    names, asked = endpoint_names(one), f"{one.id}:{one.twist}" if one.twist else one.id
    rows, (used, apps) = endpoints(one), await _read_usage_chart_and_apps(context, every)
    days = {names[each.name]: market.history(each.name) for each in one.endpoints}
    await context.send_public_page(
        "catalog/model.html",
        **values,
        row=list_row(one),
        released=datetime.fromtimestamp(one.created, UTC) if one.created else None,
        chat=context.services.public_chat.offers(one),
        endpoints=rows,
        groups=parameter_groups(rows),
        used=used,
        apps=apps,
        alike=[list_row(each) for each in similar(one, market.entries())],
        variants=[each.id for each in every],
        trend=trend(days, context.services.clock()),
        prices=[model_price(each.tariff) for one in every for each in one.endpoints],
        code=router_snippets(context.base + market.prefix, "YOUR_API_KEY", asked),
        base=context.base + market.prefix,
    )


async def show_providers(context: RequestContext) -> None:
    found = [row for row, _ in await _get_provider_rows(context)]
    await asyncio.to_thread(lambda: [(row.figures, row.uptime) for row in found])  # of thousands
    await context.send_public_page("catalog/providers.html", providers=found)


async def show_provider(context: RequestContext) -> None:
    market, name = _require_catalog(context), context.params["provider"]
    found = {row.name: (row, days) for row, days in await _get_provider_rows(context)}
    if name not in found:
        raise NotFound("The catalog has no provider of this name.")
    row, days = found[name]
    shown = {"base": context.base + market.prefix, "policy": context.service_view.policy(name)}
    await context.send_public_page("catalog/provider.html", row=row, days=days, **shown)


async def show_status(context: RequestContext) -> None:
    """Show the state of all providers now and in the last 90 days."""
    if not (context.services.open_to.status or await context.may(Action.USAGE_SEE_ALL)):
        raise NotFound("There is no such page.")
    await context.send_public_page("catalog/status.html", rows=await _get_provider_rows(context))


async def _get_provider_rows(context: RequestContext) -> Sequence[tuple[ProviderRow, Strip]]:
    return await context.services.board.rows(_require_catalog(context))


async def send_logo(context: RequestContext) -> None:
    found = context.services.site.logos.get(context.params["name"])
    if found is None:
        raise NotFound("There is no such logo.")
    context.send_image(*found)


def _require_catalog(context: RequestContext) -> DoorCatalog:
    market = context.service_view.market()
    if market is None:
        raise NotFound("There is no such page.")
    return market


def _find_catalog_entry(catalog: DoorCatalog, model_id: str) -> Listing:
    """Return a model's catalog entry; raise :class:`NotFound` with words for people."""
    try:
        return catalog.entry(model_id)
    except NotFound as failure:
        guess = failure.message.partition(" Did you mean ")[2]
        words = f" Did you mean {guess}" if guess else " Look for it in the list of models."
        raise NotFound(f"The catalog has no model {model_id[:200]}.{words}") from failure


async def _read_tokens_by_model(context: RequestContext) -> Mapping[str, int] | None:
    # Of the last week; ``None`` where the visitor may not see rankings.
    market = context.service_view.market()
    if market is None or not await _may_see_rankings(context):
        return None
    naming = _make_group_pair_namer("model", market.entries())
    found = await context.accounts.rankings.ranked("model", RankingPeriod.WEEK, naming)
    return {each.name: each.tokens for each in found.rows}


async def _read_usage_chart_and_apps(
    context: RequestContext, variants: Sequence[Listing]
) -> tuple[Chart | None, Sequence[Ranked]]:
    # Of a month: tokens per day, and the apps that use the model most. Empty without the right.
    if not await _may_see_rankings(context):
        return None, ()
    rankings, month = context.accounts.rankings, RankingPeriod.MONTH
    naming, ids = _make_group_pair_namer("model", variants), [one.id for one in variants]
    values = await rankings.over_time("model", month, naming, ids)
    naming = _make_group_pair_namer("app", variants, await _get_app_names_none_if_all(context))
    apps = await rankings.ranked("app", month, naming)
    chart = stacked(_list_column_starts(apps), values, whole=True) if values else None
    return chart, apps.rows[:_MOST_APPS]


async def show_rankings(context: RequestContext) -> None:
    """Show models, providers or apps (``?by=``) ranked by tokens; ``?as=share`` charts shares."""
    by, entries, ranking, naming = await _read_kind_entries_ranking_and_naming(context)
    values = await context.accounts.rankings.over_time(by, ranking.period, naming)
    drawn, starts = context.query.one_of("as", ("tokens", "share")), _list_column_starts(ranking)
    if drawn == "share":
        values = _compute_column_shares(values, starts)
    names = {OWN_PROVIDER: context.services.site.brand.name} if by == "provider" else {}
    if by == "model":
        names = {one.id: one.card.name for one in entries}
    told = Counter(names.get(each, each) for each in values)  # two models may have one name
    titles = {each: title if told[title := names.get(each, each)] < 2 else each for each in values}
    await context.send_public_page(
        "catalog/rankings.html",
        by=by,
        kinds=await _list_ranking_kind_names(context),
        ranking=ranking,
        names=names,
        drawn=drawn,
        chart=stacked(
            starts, {titles[each]: of for each, of in values.items()}, whole=drawn == "tokens"
        ),
        last=ranking.until - timedelta(seconds=1),
        all_apps=await _get_app_names_none_if_all(context) is None,
    )


async def send_rankings(context: RequestContext) -> None:
    by, _, ranking, _ = await _read_kind_entries_ranking_and_naming(context)
    rows = [asdict(each) for each in ranking.rows]
    told = {
        "since": ranking.since,
        "until": ranking.until,
        "data": [{by: each.pop("name"), **each} for each in rows],
    }
    context.send_json(msgspec.json.encode(told))


async def _read_kind_entries_ranking_and_naming(
    context: RequestContext,
) -> tuple[str, Sequence[Listing], Ranking, Naming]:
    market = context.service_view.market()
    if market is None or not await _may_see_rankings(context):
        raise NotFound("There is no such page.")
    entries, kinds = market.entries(), await _list_ranking_kind_names(context)
    by = context.query.one_of("by", kinds)
    period = RankingPeriod(context.query.one_of("period", list(RankingPeriod), "week"))
    naming = _make_group_pair_namer(by, entries, await _get_app_names_none_if_all(context))
    return by, entries, await context.accounts.rankings.ranked(by, period, naming), naming


async def _list_ranking_kind_names(context: RequestContext) -> Sequence[str]:
    named = await _get_app_names_none_if_all(context) != frozenset()
    return ("model", "provider", "app") if named else ("model", "provider")


def _make_group_pair_namer(
    by: str, entries: Sequence[Listing], apps: frozenset[str] | None = None
) -> Naming:
    """Return a function from two usage groups to the name to rank; an empty name is left out."""
    if by == "provider":
        found = {(one.id, each.name): each.provider for one in entries for each in one.endpoints}
        return lambda model, target: found.get((model, target), "")
    ids = {one.id for one in entries}
    if by == "model":
        return lambda model, _: model if model in ids else ""
    return lambda app, model: app if model in ids and (apps is None or app in apps) else ""


async def _may_see_rankings(context: RequestContext) -> bool:
    return context.services.open_to.rankings or await _get_app_names_none_if_all(context) is None


async def _get_app_names_none_if_all(context: RequestContext) -> frozenset[str] | None:
    """Return the apps that may be named to this visitor; ``None``: all, for operators."""
    if context.user is not None and await context.may(Action.USAGE_SEE_ALL):
        return None
    return context.services.open_to.apps


def _list_column_starts(ranking: Ranking) -> Sequence[datetime]:
    return ReportPeriod("ranking", ranking.since, ranking.until).starts()


def _compute_column_shares(series: Values, starts: Sequence[datetime]) -> Values:
    sums = {start: sum(each.get(start, 0.0) for each in series.values()) for start in starts}
    return {
        name: {start: value / sums[start] for start, value in found.items()}
        for name, found in series.items()
    }
