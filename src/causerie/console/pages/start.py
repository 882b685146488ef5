"""Where somebody comes in."""

from __future__ import annotations

from causerie.console.visit import Visit


async def show(visit: Visit) -> None:
    """The keys of the first project; without one, what to do about it."""
    found = await visit.accounts.projects.of(visit.me)
    if found:
        visit.go(f"/projects/{found[0][0].id}/keys", done=visit.query.get("done"))
    elif visit.me.operator:
        visit.go("/operator/projects")
    else:
        await visit.show("start.html")
