"""Start page."""

from __future__ import annotations

from causerie.console.request_context import RequestContext


async def show(context: RequestContext) -> None:
    """Lead to the overview of the first project; without one, what to do about it."""
    found = await context.accounts.projects.of(context.me)
    if found:
        context.go(f"/projects/{found[0][0].id}/overview", done=context.query.get("done"))
    elif context.me.operator:
        context.go("/operator/projects")
    else:
        await context.show("start.html")
