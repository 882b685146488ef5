"""The page of models, and the part of it that is fetched again while it is open."""

from __future__ import annotations

from collections.abc import Sequence

from causerie.console.catalogue import ModelRow, target_badges, view
from causerie.console.ports import ServiceView
from causerie.console.request_context import RequestContext


class ModelsPages:
    """Pages of the models that are served here."""

    def __init__(self, service_view: ServiceView) -> None:
        self._service_view = service_view

    async def show(self, context: RequestContext) -> None:
        """``GET /projects/{project}/models``; ``?find=`` narrows them down."""
        await context.project()
        find = context.query.get("find")[:100]
        await context.show(
            "models.html",
            models=self._found(find),
            target_badges=target_badges(self._service_view),
            find=find,
            nothing=not self._service_view.models(),
        )

    async def states(self, context: RequestContext) -> None:
        """``GET /projects/{project}/models/states``: how those that were found stand now."""
        await context.project()
        await context.show(
            "models_states.html",
            models=self._found(context.query.get("find")),
            target_badges=target_badges(self._service_view),
        )

    def _found(self, find: str) -> Sequence[ModelRow]:
        models = [view(entry) for entry in self._service_view.models()]
        return [each for each in models if _fits(find, each.id, each.name, each.description)]


def _fits(find: str, *texts: str) -> bool:
    wanted = find.casefold().split()
    return all(any(word in text.casefold() for text in texts) for word in wanted)
