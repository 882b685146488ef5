"""Start page."""

from __future__ import annotations

from causerie.console.request_context import RequestContext


async def show(context: RequestContext) -> None:
    """Lead to the overview of the project that was open last; without one, what to do about it."""
    found = context.usual([each for each, _ in await context.accounts.projects.of(context.me)])
    if found is not None:
        context.go(f"/projects/{found.id}/overview", done=context.query.get("done"))
    elif context.me.operator:
        context.go("/operator/projects")
    else:
        await context.show("start.html")
