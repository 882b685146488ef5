"""First pages of whoever has signed in: the start, the overview of a project, and the palette that
leads anywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from urllib.parse import quote

from causerie.hosted.accounts.people import Action, Project
from causerie.hosted.accounts.spending import SpendingReader
from causerie.hosted.accounts.usage import RecordFilter, Step, UsageQuery, UsageSum
from causerie.hosted.console.activity import RequestExplanation, explain
from causerie.hosted.console.navigation import sections
from causerie.hosted.console.request_context import RequestContext
from causerie.hosted.console.service_view import StatusBadge, service_badges, troubled
from causerie.hosted.console.usage import total_usage


async def show_start(context: RequestContext) -> None:
    """Lead to the overview of the project that was open last; without one, what to do about it."""
    found = context.usual([each for each, _ in await context.accounts.projects.of(context.me)])
    if found is not None:
        context.go(f"/projects/{found.id}/overview", done=context.query.get("done"))
    elif context.me.operator:
        context.go("/operator/projects")
    else:
        await context.show("start.html")


_ERRORS = 5
_ERROR_DAYS = 7
_TROUBLED = 8


@dataclass(frozen=True, slots=True)
class FirstStep:
    """A step from a new project to its first answer; ``path`` leads to where it is taken."""

    title: str
    hint: str
    done: bool
    path: str


@dataclass(frozen=True, slots=True)
class ServiceHealth:
    """State of the targets of the whole service, and its counts of today."""

    ready: int
    troubled: Sequence[StatusBadge]
    today: UsageSum

    @property
    def shown(self) -> Sequence[StatusBadge]:
        return self.troubled[:_TROUBLED]


async def show_overview(context: RequestContext) -> None:
    view = await context.project()
    project, now = view.project, context.services.clock()
    reader = SpendingReader(context.accounts.usage, context.actor, project.id, now)
    steps = await _steps(context, project)
    await context.show(
        "overview.html",
        today=await _used(context, project.id, _midnight(now)),
        spending=await reader.of_project(view.bounds.budgets),
        own_spending=await context.accounts.person_bounds.spending(context.actor, context.me.id),
        errors=await _errors(context, project.id),
        error_days=_ERROR_DAYS,
        steps=() if all(each.done for each in steps) else steps,
        health=await _service_health(context) if await context.may(Action.SERVICE_SEE) else None,
    )


async def _steps(context: RequestContext, project: Project) -> Sequence[FirstStep]:
    base = f"/projects/{project.id}"
    ever = await _used(context, project.id, project.created_at)
    keys = await context.accounts.keys.of(context.actor, project.id)
    models = bool(context.service_view.models())
    return (
        await _first_step(context, f"{base}/models", models=models),
        FirstStep(
            "Create an API key",
            "Programs send it with every request.",
            bool(keys),
            f"{base}/keys",
        ),
        FirstStep(
            "Send the first request",
            "With the key, or from the playground.",
            ever.requests > 0,
            f"{base}/playground",
        ),
    )


async def _first_step(context: RequestContext, path: str, *, models: bool) -> FirstStep:
    hint = "There are models to ask." if models else "An operator does this."
    if not models and await context.may(Action.CONFIGURATION_CHANGE):
        hint = "Choose a provider and paste its API key, or add a model that this service runs."
        path = "/operator/providers/add/new"
    return FirstStep("Add a provider or a model", hint, models, path)


async def _service_health(context: RequestContext) -> ServiceHealth:
    badges = service_badges(context.service_view)
    ailing = troubled(badges)
    today = await _used(context, None, _midnight(context.services.clock()))
    return ServiceHealth(len(badges) - len(ailing), ailing, today)


async def _used(context: RequestContext, project: str | None, since: datetime) -> UsageSum:
    until = _midnight(context.services.clock()) + timedelta(days=1)
    question = UsageQuery(_midnight(since), until, Step.ALL)
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
    return [explain(one) for one in found]


def _midnight(at: datetime) -> datetime:
    return at.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)


_MOST_PLACES = 12
_LONGEST_TEXT = 100


@dataclass(frozen=True, slots=True)
class PaletteEntry:
    title: str
    kind: str
    path: str
    icon: str


async def show_palette(context: RequestContext) -> None:
    """``GET /go``: what has all words of ``?find=`` in its name."""
    _ = context.me
    here = context.query.get("project")
    if here:
        context.params = {**context.params, "project": here}
        await context.project()
    find = context.query.get("find")[:_LONGEST_TEXT]
    found = list(_fitting(await _entries(context), find))
    await context.show("palette.html", find=find, found=found[:_MOST_PLACES], here=here)


async def _entries(context: RequestContext) -> list[PaletteEntry]:
    mine = [project for project, _ in await context.accounts.projects.of(context.me)]
    every = await context.accounts.projects.every(context.actor) if context.me.operator else mine
    current = context.view.project if context.view else next(iter(mine), None)
    has_catalog = context.services.has_catalog
    groups = sections(current, "", operator=context.me.operator, has_catalog=has_catalog)
    pages = [
        PaletteEntry(link.title, "operator" if group.icon else "page", link.path, link.icon)
        for group in groups
        for link in group.links
    ]
    projects = [
        PaletteEntry(each.name, "project", f"/projects/{each.id}/overview", "folder")
        for each in every
    ]
    return [
        *pages,
        PaletteEntry("Profile", "page", "/profile", "person"),
        *projects,
        *(_models(context, current.id) if current else ()),
    ]


def _models(context: RequestContext, project: str) -> Iterator[PaletteEntry]:
    for entry in context.service_view.models():
        id = str(entry.get("id", ""))
        path = f"/projects/{project}/playground?model={quote(id, safe='')}"
        yield PaletteEntry(id, "model", path, "cube")


def _fitting(entries: Iterable[PaletteEntry], find: str) -> Iterator[PaletteEntry]:
    words = find.casefold().split()
    for entry in entries:
        text = f"{entry.title} {entry.kind}".casefold()
        if all(word in text for word in words):
            yield entry
