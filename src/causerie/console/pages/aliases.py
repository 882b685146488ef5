"""Aliases: public model names, and who answers for them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from causerie.console.alias_form import FIELDS, AliasForm
from causerie.console.entries import EntryProblems, entries_of, origin_of
from causerie.console.fields import FormFields
from causerie.console.pages.entry_pages import EntryFormPages, EntryKindWords
from causerie.console.paging import page_of
from causerie.console.request_context import RequestContext
from causerie.errors import InvalidRequest
from causerie.operations.configuring import EntryView
from causerie.operations.ports import Operations

_PATH = "/operator/aliases"
_FORM = "operator/alias.html"
_WORDS = EntryKindWords(
    kinds=frozenset({"alias"}),
    noun="alias",
    notice="alias",
    list_path=_PATH,
    path=_PATH,
    delete_button="Delete alias",
    deletion="Requests for this model are rejected at once. Its usage is kept.",
)
_COLUMNS = {"id": lambda one: one.name.casefold(), "origin": lambda one: one.origin}


class AliasPages(EntryFormPages[AliasForm]):
    """Their list, and the form of one."""

    def __init__(self, operations: Operations) -> None:
        super().__init__(operations.configuration, _WORDS)

    async def list(self, context: RequestContext) -> None:
        entries = await entries_of(self._configuration, context.actor)
        aliases = [each for each in entries if each.kind == "alias"]
        page = page_of(aliases, context.query, _texts, _COLUMNS)
        await context.show("operator/aliases.html", page=page, providers=_providers(entries))

    def _empty(self) -> AliasForm:
        return AliasForm()

    def _typed(self, form: FormFields) -> AliasForm:
        return AliasForm.typed(form)

    def _kept(self, entry: EntryView) -> AliasForm:
        return AliasForm.of(entry.settings, entry.version)

    async def _show(
        self,
        context: RequestContext,
        entry: EntryView | None,
        form: AliasForm,
        failure: InvalidRequest | None = None,
    ) -> None:
        entries = await self._configuration.every(context.actor)
        values: dict[str, Any] = {
            "entry": entry,
            "form": form,
            "providers": _providers(entries),
            "own": any(each.kind == "model" for each in entries),
            "targets": _targets(entries),
            "problems": EntryProblems(failure, origin_of("alias", form.id), FIELDS),
        }
        await context.show_form(_FORM, failure, **values)


def _providers(entries: Sequence[EntryView]) -> Sequence[str]:
    return sorted({each.name for each in entries if each.kind == "provider"})


def _targets(entries: Sequence[EntryView]) -> Sequence[str]:
    """Return the models that aliases are sent to already, to be offered while typing."""
    found = (each.settings.get("targets", ()) for each in entries if each.kind == "alias")
    return sorted({one.get("model", "") for targets in found for one in targets} - {"", "*"})


def _texts(entry: EntryView) -> Iterator[str]:
    yield entry.name
    yield str(entry.settings.get("name", ""))
    for each in entry.settings.get("targets", ()):
        yield f"{each.get('provider', '')}/{each.get('model', '')}"
