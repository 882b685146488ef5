"""Models of the catalog as operators see them: from the file, or published in the console."""

from __future__ import annotations

from collections.abc import Iterator

from causerie.console.entries import entries_of
from causerie.console.pages.entry_pages import EntryKindWords, EntryPages
from causerie.console.paging import page_of
from causerie.console.request_context import RequestContext
from causerie.operations.configuring import EntryView
from causerie.operations.ports import Operations

_PATH = "/operator/catalog"
_WORDS = EntryKindWords(
    kinds=frozenset({"catalog_model"}),
    noun="model of the catalog",
    notice="catalog-model",
    list_path=_PATH,
    path=_PATH,
    delete_button="Delete model",
    deletion="It leaves the catalog, and requests for it are rejected at once. Its usage is kept.",
)
_COLUMNS = {"id": lambda one: one.name.casefold(), "origin": lambda one: one.origin}


class CatalogEntryPages(EntryPages):
    """Their list; they are published and refreshed from the page of a provider."""

    def __init__(self, operations: Operations) -> None:
        super().__init__(operations.configuration, _WORDS)

    async def list(self, context: RequestContext) -> None:
        entries = await entries_of(self._configuration, context.actor)
        models = [each for each in entries if each.kind == "catalog_model"]
        providers = {each.name for each in entries if each.kind == "provider" and each.in_force}
        await context.show(
            "operator/catalog.html",
            page=page_of(models, context.query, _texts, _COLUMNS),
            providers=sorted(providers),
        )


def _texts(entry: EntryView) -> Iterator[str]:
    yield entry.name
    yield str(entry.settings.get("name", ""))
    for each in entry.settings.get("endpoints", ()):
        yield f"{each.get('provider', '')}/{each.get('model', '')}"
