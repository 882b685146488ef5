"""First pages of whoever has signed in: the start, the overview of a project, and the palette that
leads anywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

from msgspec.structs import replace

from causerie.hosted.accounts.people import Action
from causerie.hosted.accounts.spending import SpendingReader
from causerie.hosted.accounts.usage import RecordFilter, Step, UsageQuery, UsageSum
from causerie.hosted.console.activity import RequestExplanation
from causerie.hosted.console.navigation import NavigationLink, sections
from causerie.hosted.console.request_context import RequestContext
from causerie.hosted.console.service_view import service_badges, troubled
from causerie.hosted.console.usage import total_usage


async def show_start(context: RequestContext) -> None:
    """Lead to the overview of the project that was open last; without one, what to do about it."""
    found = context.usual([each for each, _ in await context.accounts.projects.of(context.me)])
    if context.services.sales.open and await context.may(Action.USAGE_SEE_ALL):
        context.go("/operator/business", done=context.query.get("done"))
    elif found is not None:
        context.go(f"/projects/{found.id}/overview", done=context.query.get("done"))
    elif context.me.operates:
        seen = await context.may(Action.USERS_SEE)
        context.go("/operator/projects" if seen else "/operator")
    else:
        await context.show("start.html")


_ERRORS = 5
_ERROR_DAYS = 7
_TROUBLED = 8


async def show_overview(context: RequestContext) -> None:
    view = await context.project()
    project, now = view.project, context.services.clock()
    reader = SpendingReader(context.accounts.usage, context.actor, project.id, now)
    ever = await _used(context, project.id, project.created_at)
    done = {
        "models": bool(context.service_view.models()),
        "keys": bool(await context.accounts.keys.of(context.actor, project.id)),
        "requests": ever.requests > 0,
    }
    await context.show(
        "overview.html",
        today=await _used(context, project.id, midnight(now)),
        spending=await reader.of_project(view.bounds.budgets),
        own_spending=await context.accounts.person_bounds.spending(context.actor, context.me.id),
        errors=await _errors(context, project.id),
        error_days=_ERROR_DAYS,
        done=done,
        configures=await context.may(Action.CONFIGURATION_CHANGE),
        health=await _service_health(context) if await _sees_service(context) else None,
        most_troubled=_TROUBLED,
    )


async def _sees_service(context: RequestContext) -> bool:
    may = await context.rights()
    return may(Action.SERVICE_SEE) and may(Action.USAGE_SEE_ALL)


async def _service_health(context: RequestContext) -> dict[str, Any]:
    badges = service_badges(context.service_view)
    ailing = troubled(badges)
    today = await _used(context, None, midnight(context.services.clock()))
    unpriced = context.service_view.unpriced()
    if unpriced and not await context.accounts.projects.any_budget(context.actor):
        unpriced = ()
    return {
        **{"ready": len(badges) - len(ailing), "troubled": ailing, "today": today},
        "unpriced": unpriced,
    }


async def _used(context: RequestContext, project: str | None, since: datetime) -> UsageSum:
    until = midnight(context.services.clock()) + timedelta(days=1)
    question = UsageQuery(midnight(since), until, Step.ALL)
    usage = context.accounts.usage
    return total_usage(await usage.sums(context.actor, project, question))


async def _errors(context: RequestContext, project: str) -> Sequence[RequestExplanation]:
    now = context.services.clock()
    wanted = RecordFilter(
        now - timedelta(days=_ERROR_DAYS),
        now + timedelta(seconds=1),
        failures_only=True,
        limit=_ERRORS,
    )
    found = await context.accounts.usage.requests(context.actor, project, wanted)
    return [RequestExplanation(one) for one in found]


def midnight(at: datetime) -> datetime:
    return at.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)


_MOST_PLACES = 12
_LONGEST_TEXT = 100


async def show_palette(context: RequestContext) -> None:
    """``GET /go``: what has all words of ``?find=`` in its name."""
    _ = context.me
    here = context.query.get("project")
    if here:
        context.params = {**context.params, "project": here}
        await context.project()
    find = context.query.get("find")[:_LONGEST_TEXT]
    words = find.casefold().split()
    found = [
        link
        for link in await _palette_links(context)
        if all(word in f"{link.title} {link.section}".casefold() for word in words)
    ]
    await context.show("palette.html", find=find, found=found[:_MOST_PLACES], here=here)


async def _palette_links(context: RequestContext) -> list[NavigationLink]:
    mine = [project for project, _ in await context.accounts.projects.of(context.me)]
    may = await context.rights()
    seen = may(Action.USERS_SEE)
    every = await context.accounts.projects.every(context.actor) if seen else mine
    current = context.view.project if context.view else next(iter(mine), None)
    has_catalog = context.services.has_catalog
    groups = sections(current, "", may=may, has_catalog=has_catalog)
    pages = [
        replace(link, section="operator" if group.icon else "page")
        for group in groups
        for link in group.links
    ]
    projects = [
        NavigationLink(each.name, f"/projects/{each.id}/overview", "folder", "project")
        for each in every
    ]
    models = []
    for entry in context.service_view.models() if current else ():
        id = str(entry.get("id", ""))
        path = f"/projects/{current.id}/playground?model={quote(id, safe='')}" if current else ""
        models.append(NavigationLink(id, path, "cube", "model"))
    profile = NavigationLink("Profile", "/profile", "person", "page")
    return [*pages, profile, *projects, *models]
