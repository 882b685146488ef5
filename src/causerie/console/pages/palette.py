"""The command palette: pages, projects and models by their names, a few letters away."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from urllib.parse import quote

from causerie.console.navigation import sections
from causerie.console.ports import ServiceView
from causerie.console.request_context import RequestContext

_MOST = 12
_LONGEST = 100


@dataclass(frozen=True, slots=True)
class PaletteEntry:
    """Something to go to; ``kind`` says what it is."""

    title: str
    kind: str
    path: str
    icon: str


class PalettePages:
    """Results of the palette; without scripts a page with a search field."""

    def __init__(self, service_view: ServiceView) -> None:
        self._service_view = service_view

    async def show(self, context: RequestContext) -> None:
        """``GET /go``: what has all words of ``?find=`` in its name."""
        _ = context.me
        here = context.query.get("project")
        if here:
            context.params = {**context.params, "project": here}
            await context.project()
        find = context.query.get("find")[:_LONGEST]
        found = list(_fitting(await self._entries(context), find))
        await context.show("palette.html", find=find, found=found[:_MOST], here=here)

    async def _entries(self, context: RequestContext) -> list[PaletteEntry]:
        mine = [project for project, _ in await context.accounts.projects.of(context.me)]
        every = (
            await context.accounts.projects.every(context.actor) if context.me.operator else mine
        )
        current = context.view.project if context.view else next(iter(mine), None)
        groups = sections(context.services.leads_to(), current, "", operator=context.me.operator)
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
            *(self._models(current.id) if current else ()),
        ]

    def _models(self, project: str) -> Iterator[PaletteEntry]:
        """Models, each opened in the playground of the project."""
        for entry in self._service_view.models():
            id = str(entry.get("id", ""))
            path = f"/projects/{project}/playground?model={quote(id, safe='')}"
            yield PaletteEntry(id, "model", path, "cube")


def _fitting(entries: Iterable[PaletteEntry], find: str) -> Iterator[PaletteEntry]:
    words = find.casefold().split()
    for entry in entries:
        text = f"{entry.title} {entry.kind}".casefold()
        if all(word in text for word in words):
            yield entry
