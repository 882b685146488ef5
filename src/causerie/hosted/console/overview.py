"""First pages after sign-in: the start, the overview of a project, and the palette of links."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import quote

from msgspec import Struct
from msgspec.structs import replace

from causerie.hosted.accounts.keys import ApiKey, KeyState
from causerie.hosted.accounts.people import Action, Project
from causerie.hosted.accounts.reports import Spending
from causerie.hosted.accounts.usage import By, RecordFilter, Step, UsageQuery, UsageSum
from causerie.hosted.console.activity import RequestExplanation
from causerie.hosted.console.catalog import show_front
from causerie.hosted.console.catalog_view import path_of_model
from causerie.hosted.console.charts import stacked
from causerie.hosted.console.fields import FormFields, period
from causerie.hosted.console.navigation import NavigationLink, sections
from causerie.hosted.console.request_context import RequestContext
from causerie.hosted.console.service_view import service_badges, troubled
from causerie.hosted.console.usage import along, total_usage, usage_since
from causerie.metering.ledger import UsageRecord


async def show_start(context: RequestContext) -> None:
    """Redirect to the last opened project's overview; without a project, say how to get one.

    Strangers see what a catalog offers, if there is one.
    """
    if context.user is None and context.services.has_catalog:
        await show_front(context)
        return
    me, session = context.me, context.session
    if session is not None and await context.accounts.sign_in.must_enrol(me, session):
        context.go("/profile", done="factor-required")
        return
    found = await context.last_project()
    if context.services.open_to.sales.open and await context.may(Action.USAGE_SEE_ALL):
        context.go("/operator/business", done=context.query.get("done"))
    elif found is not None:
        context.go(f"/projects/{found.id}/overview", done=context.query.get("done"))
    elif me.operates:
        seen = await context.may(Action.USERS_SEE)
        context.go("/operator/projects" if seen else "/operator")
    else:
        await context.send_page("start.html")


_ERROR_DAYS = 7
_FAILURES = 200  # the newest, that are grouped
_GROUPS = 6
_MODELS = 6
_TROUBLED = 8


class ErrorGroup(Struct, frozen=True):
    """Failures of the same cause at the same model; ``last`` is the newest."""

    last: RequestExplanation
    count: int

    @property
    def query(self) -> str:
        """Return the query of the activity page that lists the failures of this group."""
        record = self.last.record
        if self.count == 1:
            return f"request_id={quote(record.request_id, safe='')}"
        model = f"&model={quote(record.model, safe='')}" if record.model else ""
        return f"range=7d&failures=yes&status={record.status}{model}"


async def show_overview(context: RequestContext) -> None:
    view = context.overview
    project, now = view.project, context.services.clock()
    budgets = {project.id: view.bounds.budgets}
    usage, actor = context.accounts.usage, context.actor
    spent = await usage.spending(actor, By.PROJECT, budgets, project.id)
    ever = await usage_since(context, project.id, project.created_at)
    keys = await context.accounts.keys.of(context.actor, project.id)
    errors, more = await _group_failures_and_tell_if_more(context, project.id)
    may = await context.rights()
    configures, has_models = may(Action.CONFIGURATION_CHANGE), bool(context.service_view.models())
    done = {"keys": bool(keys), "requests": ever.requests > 0}
    if configures or not has_models:  # nobody else adds any, or needs to know that there are some
        done["models"] = has_models
    sees_service = may(Action.SERVICE_SEE) and may(Action.USAGE_SEE_ALL)
    await context.send_page(
        "overview.html",
        **await _read_30_day_spending_values(context, project.id),
        today=await usage_since(context, project.id, now),
        spending=spent[project.id],
        own_spending=await context.accounts.person_bounds.spending(context.actor, context.me.id),
        near=await _find_nearly_spent_keys(context, keys, now),
        errors=errors,
        more_errors=more,
        error_days=_ERROR_DAYS,
        done=done,
        configures=configures,
        health=await _read_health_template_values(context) if sees_service else None,
        most_troubled=_TROUBLED,
    )


async def _read_30_day_spending_values(context: RequestContext, project_id: str) -> dict[str, Any]:
    """Return template values of 30 days' spending and the 30 before: chart, sums, top models."""
    usage, actor = context.accounts.usage, context.actor
    month = period(FormFields([("range", "30d")]), context.services.clock())
    by_model = UsageQuery(month.since, month.until, Step.DAY, by=(By.MODEL,))
    earlier = UsageQuery(month.earlier.since, month.earlier.until, Step.DAY)
    sums = await usage.sums(actor, project_id, by_model)
    before = await usage.sums(actor, project_id, earlier)
    values: dict[str, dict[datetime, float]] = {}
    models: dict[str, list[UsageSum]] = {}
    for each in sums:
        name = each.group[By.MODEL]
        models.setdefault(name, []).append(each)
        if each.start is not None and each.cost:
            values.setdefault(name, {})[each.start] = float(each.cost)
    top = [(name, total_usage(every)) for name, every in models.items()]
    top.sort(key=lambda each: (-each[1].cost, -each[1].requests, each[0]))
    line = along(month.earlier, before, lambda each: float(each.cost))
    return {
        "month": total_usage(sums),
        "month_before": total_usage(before),
        "chart": stacked(month.starts(), values, before=line),
        "top": top[:_MODELS],
        "more_models": max(len(top) - _MODELS, 0),
    }


async def _find_nearly_spent_keys(
    context: RequestContext, keys: Sequence[ApiKey], now: datetime
) -> Sequence[tuple[ApiKey, Spending]]:
    """Return active keys that have nearly spent a budget, each with its fullest budget."""
    limited = [key for key in keys if key.bounds.budgets and key.state(now) is KeyState.ACTIVE]
    budgets = {key.id: key.bounds.budgets for key in limited}
    usage, project = context.accounts.usage, context.project.id
    spent = await usage.spending(context.actor, By.KEY, budgets, project)
    fullest = [(key, max(spent[key.id], key=lambda each: each.share)) for key in limited]
    near = [(key, each) for key, each in fullest if each.level != "good"]
    return sorted(near, key=lambda pair: -pair[1].share)[:_MODELS]


async def _read_health_template_values(context: RequestContext) -> dict[str, Any]:
    badges = service_badges(context.service_view)
    ailing, unpriced = troubled(badges), context.service_view.unpriced()
    today = await usage_since(context, None, context.services.clock())
    if unpriced and not await context.accounts.projects.any_budget(context.actor):
        unpriced = ()
    ready = len(badges) - len(ailing)
    return {"ready": ready, "troubled": ailing, "today": today, "unpriced": unpriced}


async def _group_failures_and_tell_if_more(
    context: RequestContext, project: str
) -> tuple[Sequence[ErrorGroup], bool]:
    """Group the newest failures by cause and model; return groups and whether some are left out."""
    now = context.services.clock()
    since, until = now - timedelta(days=_ERROR_DAYS), now + timedelta(seconds=1)
    wanted = RecordFilter(since, until, failures_only=True, limit=_FAILURES)
    found = await context.accounts.usage.requests(context.actor, project, wanted)
    groups: dict[tuple[object, ...], list[UsageRecord]] = {}
    for one in found:
        groups.setdefault((one.status, one.code, one.model), []).append(one)
    made = [ErrorGroup(RequestExplanation(every[0]), len(every)) for every in groups.values()]
    made.sort(key=lambda each: -each.count)
    return made[:_GROUPS], len(found) >= _FAILURES or len(made) > _GROUPS


_REQUEST_ID = re.compile(r"(req|chatcmpl|resp|msg)[-_][\w-]{4,80}", re.ASCII)
_MOST_PLACES = 12
_LONGEST_TEXT = 100


async def show_palette(context: RequestContext) -> None:
    """Show the palette's links whose names have all words of ``?find=``."""
    _ = context.me
    here = context.query.get("project")
    if here:
        await context.see_project(here)
    find = context.query.get("find")[:_LONGEST_TEXT]
    words = find.casefold().split()
    found = [
        link
        for link in await _build_palette_links(context)
        if all(word in f"{link.title} {link.section}".casefold() for word in words)
    ]
    current = context.view.project.id if context.view else ""
    if current and _REQUEST_ID.fullmatch(find):
        path = f"/projects/{current}/activity?request_id={quote(find)}"
        found.insert(0, NavigationLink(f"Request {find}", path, "list", "action"))
    await context.send_page("palette.html", find=find, found=found[:_MOST_PLACES], here=here)


async def _build_palette_links(context: RequestContext) -> list[NavigationLink]:
    mine = [project for project, _ in await context.accounts.projects.of(context.me)]
    may = await context.rights()
    seen = may(Action.USERS_SEE)
    every = await context.accounts.projects.every(context.actor) if seen else mine
    current = context.view.project if context.view else next(iter(mine), None)
    pages = [
        replace(link, section="operator" if group.icon else "page")
        for group in sections(current, "", may=may, has_catalog=context.services.has_catalog)
        for link in group.links
    ]
    projects = [
        NavigationLink(each.name, f"/projects/{each.id}/overview", "folder", "project")
        for each in every
    ]
    models: Iterable[NavigationLink] = _list_palette_models(context, current) if current else ()
    profile = NavigationLink("Profile", "/profile", "person", "page")
    sells = context.services.open_to.sales.open and may(Action.CREDITS_BUY)
    credits = Action.CREDITS_BUY if sells else Action.CREDITS_PUT
    return [*pages, *_build_palette_actions(current, may, credits), profile, *projects, *models]


def _list_palette_models(context: RequestContext, project: Project) -> Iterator[NavigationLink]:
    """Yield a link for each model: to its catalog page if there is one, else to the playground."""
    market = context.service_view.market()
    listed = {entry.id for entry in market.entries()} if market is not None else set()
    for id in (str(entry.get("id", "")) for entry in context.service_view.models()):
        tried = f"/projects/{project.id}/playground?model={quote(id, safe='')}"
        path, shifted = (path_of_model(id), tried) if id in listed else (tried, "")
        yield NavigationLink(id, path, "cube", "model", shifted=shifted)


def _build_palette_actions(
    project: Project | None, may: Callable[[Action], bool], credits_action: Action
) -> Sequence[NavigationLink]:
    """Return the palette's links to actions that the visitor may do, and the theme switch."""
    base = f"/projects/{quote(project.id)}" if project is not None else ""
    found = [
        ("Create API key", f"{base}/keys/new", "key", Action.KEYS_CREATE),
        ("Invite to the project", f"{base}/invite", "person", Action.MEMBERS_INVITE),
        ("Add credits", f"{base}/credits", "card", credits_action),
        ("Invite to the service", "/operator/invite", "person", Action.USERS_INVITE),
        ("Create project", "/operator/projects/new", "folder", Action.PROJECTS_CREATE),
        ("Add provider", "/operator/providers/add/new", "plug", Action.CONFIGURATION_CHANGE),
    ]
    links = [
        NavigationLink(title, path, icon, "action")
        for title, path, icon, needs in found
        if may(needs) and (base or path.startswith("/operator"))
    ]
    return [*links, NavigationLink("Switch light and dark", "", "theme", "action")]
