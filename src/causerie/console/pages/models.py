"""The page of models, and the part of it that is fetched again while it is open."""

from __future__ import annotations

from collections.abc import Sequence

from causerie.console.catalogue import Answering, ModelView, standings, view
from causerie.console.visit import Visit


class ModelsPages:
    """What is served here."""

    def __init__(self, house: Answering) -> None:
        self._house = house

    async def show(self, visit: Visit) -> None:
        """``GET /projects/{project}/models``; ``?find=`` narrows them down."""
        await visit.project()
        find = visit.query.get("find")[:100]
        await visit.show(
            "models.html",
            models=self._found(find),
            standings=standings(self._house),
            find=find,
            nothing=not self._house.models(),
        )

    async def states(self, visit: Visit) -> None:
        """``GET /projects/{project}/models/states``: how those that were found stand now."""
        await visit.project()
        await visit.show(
            "models_states.html",
            models=self._found(visit.query.get("find")),
            standings=standings(self._house),
        )

    def _found(self, find: str) -> Sequence[ModelView]:
        models = [view(entry) for entry in self._house.models()]
        return [each for each in models if _fits(find, each.id, each.name, each.description)]


def _fits(find: str, *texts: str) -> bool:
    wanted = find.casefold().split()
    return all(any(word in text.casefold() for text in texts) for word in wanted)
