"""Handlers of operations that call more than one service method; others are in ``acts.toml``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Annotated, Any, Self

import msgspec
from msgspec import Meta, Struct

from causerie.access.allowed import Access
from causerie.errors import InvalidRequest, NotFound
from causerie.hosted.accounts.bounds import LimitsAndBudgets
from causerie.hosted.accounts.issuing import Word
from causerie.hosted.accounts.recordings import RECORD_ID
from causerie.hosted.accounts.records import AuditFilter, EntryKind
from causerie.hosted.accounts.reports import (
    Month,
    UsageBucket,
    request_rows,
    statement_rows,
    time_buckets,
)
from causerie.hosted.accounts.usage import (
    TOKEN_CLASSES,
    By,
    RankingPeriod,
    RecordFilter,
    Step,
    UsageQuery,
    UsageSum,
)
from causerie.hosted.management import requests, views
from causerie.hosted.management.requests import Body
from causerie.hosted.management.routing import ApiCall, Call, WithBody, WithQuery, moment, route
from causerie.hosted.management.views import Answering, ListView, View, viewed
from causerie.hosted.operations.configuring import EntryKey, EntryView, EntryWish, Settings
from causerie.hosted.operations.ports import ProbeView, ProviderView, RouteQuery, TargetView
from causerie.hosted.operations.provider_models import (
    Offer,
    PickedModel,
    PriceRules,
    models_of,
    offers,
    provider_in_force,
    publication,
    router_door,
)
from causerie.http.answers import Export, Rows, csv_pieces
from causerie.protocol.numbers import money


class ProviderSummary(View, frozen=True, kw_only=True):
    """A provider, and how its targets stand now; `base_url` is empty for this service itself."""

    name: str
    base_url: str
    dialect: str
    max_concurrent: int | None
    models: tuple[str, ...]
    targets: tuple[TargetView, ...]

    @classmethod
    def of(cls, found: ProviderView, call: Answering) -> Self:
        return viewed(cls, found, models=tuple(model.id for model in found.models))


class ProviderList(ListView, frozen=True, kw_only=True):
    """Providers in the configured order."""

    data: list[ProviderSummary]


class ProbeModel(Body, frozen=True):
    """Model to probe."""

    model: Word
    quick: bool = False


class UseProbe(Body, frozen=True):
    """Model whose newest result is put in force."""

    model: Word


class ExplainRoute(Body, frozen=True):
    """A request whose routing is explained without sending it."""

    request: dict[str, Any]
    door: Annotated[str, Meta(max_length=200)] = ""
    key: Annotated[str, Meta(max_length=64)] = ""
    session: Annotated[str, Meta(max_length=256)] = ""
    strict: bool = False

    def arguments(self) -> dict[str, Any]:
        body = msgspec.json.encode(self.request)
        return {"question": RouteQuery(body, self.door, self.key, self.session, self.strict)}


@route("GET /providers/{provider}/probe", "Get the state of the last probe")
async def see_probe(call: Call, provider: str) -> ProbeView:
    view = await call.operations.provider(call.actor, provider)
    if view.probe is None:
        words = "It has not been probed since the service was started."
        raise NotFound(words, code="not_found")
    return view.probe


class EntryList(ListView, frozen=True, kw_only=True):
    """Entries by kind, providers first; of each kind those of the file first."""

    data: list[EntryView]


class CreateEntry(Body, frozen=True):
    """Body of a request to add an entry to the configuration, or to extend one of its file."""

    kind: EntryKind
    settings: Settings
    key: EntryKey = ""
    enabled: bool = True

    def arguments(self) -> dict[str, Any]:
        wish = EntryWish(settings=self.settings, key=self.key, enabled=self.enabled)
        return {"kind": self.kind, "wish": wish}


Amount = Annotated[str, Meta(pattern=r"^([0-9]{1,6}(\.[0-9]{1,9})?)?$")]
Margin = Annotated[str, Meta(pattern=r"^([0-9]{1,3}(\.[0-9]{1,4})?)?$")]


class OfferQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Rules that compute catalog prices from the prices that the provider publishes."""

    margin: Margin = ""
    prompt: Amount = ""
    completion: Amount = ""


class PublishedModel(Body, frozen=True):
    """A model of the provider's list that is to be published, and its id in the catalog."""

    id: Word
    catalog_id: Annotated[str, Meta(max_length=140)] = ""


class PublishModels(OfferQuery, frozen=True, kw_only=True):
    """Models to publish as the provider lists them now, and those to drop."""

    models: Annotated[tuple[PublishedModel, ...], Meta(max_length=500)] = ()
    gone: Annotated[tuple[Word, ...], Meta(max_length=500)] = ()
    open_door: bool = False


class OfferList(Struct, frozen=True, kw_only=True):
    """Models in the order of the provider's list; those that are gone come last."""

    data: list[Offer]


class PublishedList(Struct, frozen=True, kw_only=True):
    """Entries of the catalog that have an endpoint of the provider."""

    data: list[EntryView]


@route("GET /providers/{provider}/offers", "Compare a provider's list with the catalog")
async def list_offers(call: WithQuery[OfferQuery], provider: str) -> OfferList:
    _, _, found = await _get_provider_entries_offers(call, provider, _parse_price_rules(call.query))
    return OfferList(data=[*found])


@route("POST /providers/{provider}/offers", "Publish models of a provider in the catalog")
async def publish_models(call: WithBody[PublishModels], provider: str) -> PublishedList:
    body, rules = call.body, _parse_price_rules(call.body)
    source, entries, listed = await _get_provider_entries_offers(call, provider, rules)
    found = {each.id: each for each in listed}
    picked = []
    for each in body.models:
        offer = found.get(each.id)
        if offer is None or offer.listed is None:
            raise InvalidRequest(f"The provider lists no model {each.id}.", param="models")
        picked.append(PickedModel(offer.listed, each.catalog_id or offer.catalog_id))
    steps = [*publication(source, entries, picked, body.gone, rules)]
    door = router_door(entries) if body.open_door else None
    if steps or door:
        await call.operations.configuration.apply(call.actor, [*([door] if door else []), *steps])
    entries = await call.operations.configuration.every(call.actor)
    return PublishedList(data=[*models_of(provider, entries)])


async def _get_provider_entries_offers(
    call: ApiCall[Any, Any], provider_name: str, price_rules: PriceRules
) -> tuple[EntryView, Sequence[EntryView], Sequence[Offer]]:
    entries = await call.operations.configuration.every(call.actor)
    provider = provider_in_force(entries, provider_name)
    trial = await call.operations.configuration.listed(call.actor, provider.name)
    if not trial.listing.ok:
        words = f"The list of {provider.name} could not be read: {trial.listing.problem}"
        raise InvalidRequest(words, code="not_listed", status=409)
    return provider, entries, offers(provider, trial.models, entries, price_rules)


def _parse_price_rules(query: OfferQuery) -> PriceRules:
    margin = money(query.margin) if query.margin else None
    return PriceRules(margin, query.prompt or None, query.completion or None)


@route("GET /me", "Get the identity of the key")
async def me(call: Call) -> views.Me:
    return viewed(views.Me, call.actor)


@route("PUT /bounds", "Set limits and budgets of many users and projects")
async def set_many_bounds(call: WithBody[requests.ManyBounds]) -> views.ChangedView:
    actor, body = call.actor, call.body
    users = set(body.users)
    if body.everyone:
        users |= {each.id for each in await call.accounts.users.every(actor)}
    if body.members_of is not None:
        members = await call.accounts.projects.members(actor, body.members_of)
        users |= {each.user.id for each in members}
    changed = await call.accounts.bulk_bounds.set(
        actor,
        LimitsAndBudgets(body.limits, body.budgets),
        users=[*users],
        projects=[*body.projects],
        keep=body.keep,
    )
    return views.ChangedView(changed=changed)


@route("GET /projects", "List projects")
async def list_projects(call: WithQuery[requests.PageQuery]) -> views.ProjectList:
    projects = call.accounts.projects
    if call.actor.project is not None:
        found = [(await projects.see(call.actor, call.actor.project)).project]
    else:
        found = [*await projects.every(call.actor)]
    page: views.ProjectList = views.page_of(views.ProjectList, found, call.query, call)
    return page


async def _get_access_rule(call: Call, project: str = "", user: str = "") -> views.AccessView:
    return views.AccessView.of(await call.accounts.access.see(call.actor, project, user), call)


async def _set_access_rule(
    call: WithBody[Access], project: str = "", user: str = ""
) -> views.AccessView:
    await call.accounts.access.set(call.actor, call.body, project, user)
    return views.AccessView.of(call.body, call)


_WHOSE, _WHAT = "/projects/{project}", "the models and doors that"
see_project_access = route(f"GET {_WHOSE}/access", f"Get {_WHAT} a project may use")(
    _get_access_rule
)
set_project_access = route(f"PUT {_WHOSE}/access", f"Set {_WHAT} a project may use")(
    _set_access_rule
)
see_user_access = route("GET /users/{user}/access", f"Get {_WHAT} a user may use")(_get_access_rule)
set_user_access = route("PUT /users/{user}/access", f"Set {_WHAT} a user may use")(_set_access_rule)
_WHOSE += "/members/{user}"
see_member_access = route(f"GET {_WHOSE}/access", f"Get {_WHAT} a member may use")(_get_access_rule)
set_member_access = route(f"PUT {_WHOSE}/access", f"Set {_WHAT} a member may use")(_set_access_rule)


@route("GET /projects/{project}/credits", "Get credits added, spent and left")
async def see_credits(call: Call, project: str) -> views.CreditsView:
    balance = await call.accounts.credits.balance(call.actor, project)
    listed = await call.accounts.credits.of(call.actor, project)
    data = [views.CreditView.of(each, call) for each in listed]
    return viewed(views.CreditsView, balance, data=data)


_NARROWING = ("key", "user", "model")
_USUAL_SPAN = timedelta(days=30)
_LONGEST_SPAN = {
    Step.HOUR: timedelta(days=92),
    Step.DAY: timedelta(days=3660),
    Step.ALL: timedelta(days=3660),
}


def between(query: requests.Span, now: datetime) -> tuple[datetime, datetime]:
    """Return the times that a query names, or the last 30 days; raise :class:`InvalidRequest`."""
    end = moment(query.until, "until") or now
    start = moment(query.since, "since") or end - _USUAL_SPAN
    if end <= start:
        raise InvalidRequest("`until` has to be after `since`.", param="until")
    return start, end


def usage_query(query: requests.UsageSpan, now: datetime) -> UsageQuery:
    """Convert the parameters of a request to a query of sums; raise :class:`InvalidRequest`."""
    since, until = between(query, now)
    longest = _LONGEST_SPAN[query.step]
    if until - since > longest:
        raise InvalidRequest(
            f"With the step `{query.step}` the time asked for is at most {longest.days} days.",
            param="since",
        )
    by = tuple(By(name) for name in query.by.split(",") if name)
    if len(set(by)) != len(by):
        raise InvalidRequest("`by` takes each name once.", param="by")
    narrowed = _get_named_values_or_none(query, *_NARROWING, "door")
    return UsageQuery(since=since, until=until, step=query.step, by=by, **narrowed)


def _get_named_values_or_none(query: Struct, *names: str) -> dict[str, Any]:
    return {name: getattr(query, name) or None for name in names}


CSV_TYPE = "text/csv; charset=utf-8; header=present"
_COUNTED = ("requests", "refused", "failed", "aborted", *TOKEN_CLASSES)


async def _stream_csv_cell_rows(query: UsageQuery, buckets: AsyncGenerator[UsageBucket]) -> Rows:
    counted = [views.TOKENS.get(name, name) for name in _COUNTED]
    yield [["start", *query.by, *counted, "cost", "first_token_seconds", "duration_seconds"]]
    async with aclosing(buckets):
        async for _, sums in buckets:
            yield (_build_csv_row(each, query) for each in sums)


def _build_csv_row(usage_sum: UsageSum, query: UsageQuery) -> list[str]:
    start, group = _get_start_and_group(usage_sum, query)
    return [
        start,
        *group,
        *(str(getattr(usage_sum, name)) for name in _COUNTED),
        views.amount(usage_sum.cost),
        "" if usage_sum.first_token_seconds is None else f"{usage_sum.first_token_seconds:.6f}",
        f"{usage_sum.duration_seconds:.6f}",
    ]


_LARGEST = 2**62
Place = tuple[str, tuple[str, ...]]


@route("GET /rankings", "Models or providers by tokens, over all projects")
async def see_ranking(call: WithQuery[requests.RankingQuery]) -> views.RankingList:
    period = RankingPeriod(call.query.period)
    by = call.query.by
    found = await call.accounts.rankings.of_all(by, call.actor, period)
    return views.RankingList.of(found, by)


@route("GET /usage", "Usage and cost over time")
async def list_usage(call: WithQuery[requests.UsagePage]) -> views.UsageList:
    query = call.query
    asked = usage_query(query, call.now)
    after = views.place_of(query.cursor, tuple[str, tuple[str, ...]])
    found: list[UsageSum] = []
    remaining = _start_at_cursor(asked, after)
    rest = time_buckets(call.accounts.usage, call.actor, call.project, remaining)
    async with aclosing(rest):
        async for _, sums in rest:
            found += [
                sum for sum in sums if after is None or _get_start_and_group(sum, asked) > after
            ]
            if len(found) > query.limit:
                break
    taken = found[: query.limit]
    more = len(found) > len(taken)
    return views.UsageList(
        data=await asyncio.to_thread(lambda: [views.UsageView.of(each, call) for each in taken]),
        next=views.cursor(_get_start_and_group(taken[-1], asked)) if more else None,
    )


@route("GET /usage.csv", "Usage and cost as CSV")
async def export_usage(call: WithQuery[requests.UsageSpan]) -> Export:
    asked = usage_query(call.query, call.now)
    buckets = time_buckets(call.accounts.usage, call.actor, call.project, asked)
    return Export(CSV_TYPE, "usage.csv", csv_pieces(_stream_csv_cell_rows(asked, buckets)))


@route("GET /statement.csv", "Statement of a month as CSV")
async def export_statement(call: WithQuery[requests.StatementQuery]) -> Export:
    month = Month.named(call.query.month, call.now)
    services = call.accounts.usage, call.accounts.projects
    rows = statement_rows(*services, call.actor, call.project, month)
    return Export(CSV_TYPE, f"statement-{month.name}.csv", csv_pieces(rows))


@route("GET /projects/{project}/spending", "Spending against the budgets of a project")
async def project_spending(call: Call, project: str) -> views.OwnerSpending:
    budgets = (await call.accounts.projects.see(call.actor, project)).bounds.budgets
    found = await call.accounts.usage.spending(call.actor, By.PROJECT, {project: budgets}, project)
    return views.OwnerSpending.of(found[project], call)


@route("GET /keys/{key}/spending", "Spending against the budgets of a key")
async def key_spending(call: Call, key: str) -> views.KeySpending:
    seen = await call.accounts.keys.see(call.actor, key)
    used = await call.accounts.usage.last_used(call.actor, seen.project_id)
    budgets = {key: seen.bounds.budgets}
    found = await call.accounts.usage.spending(call.actor, By.KEY, budgets, seen.project_id)
    spent = [views.BudgetSpending.of(each, call) for each in found[key]]
    return views.KeySpending(last_used_at=used.get(key), budgets=spent)


@route("GET /usage/first-token", "Time to first token")
async def list_first_tokens(call: WithQuery[requests.LatencySpan]) -> views.LatencyList:
    query = call.query
    since, until = between(query, call.now)
    by = (By(query.by),) if query.by else ()
    narrowed = _get_named_values_or_none(query, *_NARROWING)
    asked = UsageQuery(since=since, until=until, step=Step.ALL, by=by, **narrowed)
    found = await call.accounts.usage.first_tokens(call.actor, call.project, asked)
    found = sorted(found, key=lambda each: each.group)
    return views.LatencyList(data=[views.LatencyView.of(each, by) for each in found])


@route("GET /requests", "Single requests")
async def list_requests(call: WithQuery[requests.RequestPage]) -> views.RequestList:
    query = call.query
    before = views.place_of(query.cursor, tuple[int, str])
    if before is not None and not (0 <= before[0] < _LARGEST and RECORD_ID.fullmatch(before[1])):
        raise views.no_cursor()
    wanted = replace(_build_record_filter(query, call.now), before=before, limit=query.limit)
    found = await call.accounts.usage.requests(call.actor, call.project, wanted)
    last = found[-1] if len(found) == wanted.count else None
    return views.RequestList(
        data=[views.RequestView.of(each, call) for each in found],
        next=views.cursor((last.at, last.id)) if last is not None else None,
    )


@route("GET /requests.csv", "Single requests as CSV")
async def export_requests(call: WithQuery[requests.RequestSpan]) -> Export:
    wanted = _build_record_filter(call.query, call.now)
    rows = request_rows(call.accounts.usage, call.actor, call.project, wanted)
    return Export(CSV_TYPE, "requests.csv", csv_pieces(rows))


def _build_record_filter(query: requests.RequestSpan, now: datetime) -> RecordFilter:
    since, until = between(query, now)
    own = ("door", "status", "request_id", "tag", "operation")
    narrowed = _get_named_values_or_none(query, *_NARROWING, *own)
    return RecordFilter(since, until, failures_only=query.failures == "true", **narrowed)


@route("GET /audit", "Audit log")
async def list_audit(call: WithQuery[requests.AuditQuery]) -> views.AuditList:
    query = call.query
    before = views.place_of(query.cursor, int)
    if before is not None and not 0 <= before < _LARGEST:
        raise views.no_cursor()
    narrowed = _get_named_values_or_none(query, "actor", "action", "subject", "kind")
    wanted = AuditFilter(before=before, limit=query.limit, **narrowed)
    found = await call.accounts.projects.audit(call.actor, call.project, wanted)
    full = len(found) == wanted.count
    return views.AuditList(
        data=[views.AuditView.of(each, call) for each in found],
        next=views.cursor(found[-1].id) if full else None,
    )


def _get_start_and_group(usage_sum: UsageSum, query: UsageQuery) -> Place:
    start = "" if usage_sum.start is None else f"{usage_sum.start:%Y-%m-%dT%H:%M:%SZ}"
    return start, tuple(usage_sum.group[by] for by in query.by)


def _start_at_cursor(query: UsageQuery, cursor: Place | None) -> UsageQuery:
    if cursor is None or query.step is Step.ALL:
        return query
    try:
        start = moment(cursor[0], "cursor") or query.since
    except InvalidRequest as failure:
        raise views.no_cursor() from failure
    if start >= query.until:
        raise views.no_cursor()
    return replace(query, since=max(query.since, start))
