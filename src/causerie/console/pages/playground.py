"""The playground: the page, and where its script sends the requests that it makes."""

from __future__ import annotations

from causerie.console.catalogue import view
from causerie.console.playground_fields import SCHEMA, TOOLS, number_fields
from causerie.console.ports import ServiceView
from causerie.console.request_context import PREFIX, RequestContext
from causerie.errors import Forbidden


class PlaygroundPages:
    """A place to try models in."""

    def __init__(self, service_view: ServiceView) -> None:
        self._service_view = service_view

    async def show(self, context: RequestContext) -> None:
        """``GET /projects/{project}/playground``; ``?model=`` chooses one."""
        await context.project()
        entries = [view(entry) for entry in self._service_view.models()]
        wanted = context.query.get("model")
        chosen = wanted if any(each.id == wanted for each in entries) else ""
        await context.show(
            "playground.html",
            entries=entries,
            chosen=chosen,
            allowed=await _may_ask(context),
            doors=[context.base + door.prefix for door in self._service_view.doors()],
            numbers=number_fields(),
            example_tools=TOOLS,
            example_schema=SCHEMA,
            keys_at=f"{PREFIX}/projects/{context.params['project']}/keys",
        )

    async def complete(self, context: RequestContext) -> None:
        """``POST /projects/{project}/playground``: a chat completion, streamed or whole."""
        view = await context.accounts.projects.ask(context.actor, context.params["project"])
        await self._service_view.complete(context.exchange, context.me, view.project.id)


async def _may_ask(context: RequestContext) -> bool:
    try:
        await context.accounts.projects.ask(context.actor, context.params["project"])
    except Forbidden:
        return False
    return True
