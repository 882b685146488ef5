"""Aliases: public model names, and who answers for them; the list and the form."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, Self

from causerie.errors import InvalidRequest
from causerie.hosted.console.entries import (
    EntryFormPages,
    EntryKindWords,
    SettingField,
    SettingsForm,
    typed_number,
)
from causerie.hosted.console.fields import FormFields, page_of
from causerie.hosted.console.request_context import RequestContext
from causerie.hosted.operations.configuring import EntryView

Row = Mapping[str, str]

_TARGET = ("provider", "model", "priority", "weight")
FIELDS = (
    SettingField("id", "ID", missing="is missing; it is what requests name as `model`"),
    *(SettingField(name, "") for name in ("name", "description", "price.prompt")),
    SettingField("price.completion", ""),
)


@dataclass(frozen=True, slots=True)
class AliasForm(SettingsForm):
    """The form of an alias, with a row for each of its targets."""

    targets: Sequence[Row] = ({},)
    row_names = ("targets", *(f"targets[].{name}" for name in _TARGET))

    @classmethod
    def of(cls, fields: Sequence[SettingField], settings: Mapping[str, Any], version: int) -> Self:
        others = {name: value for name, value in settings.items() if name != "targets"}
        form = SettingsForm.of(fields, others, version)
        rows = [{name: _text(each[name]) for name in each} for each in settings["targets"]]
        return cls(fields, form.values, form.more, form.version, rows)

    @classmethod
    def typed(cls, fields: Sequence[SettingField], form: FormFields) -> Self:
        typed = SettingsForm.typed(fields, form)
        columns = [form.every(f"target_{name}") for name in _TARGET]
        rows = [dict(zip(_TARGET, row, strict=True)) for row in zip_longest(*columns, fillvalue="")]
        targets = [row for row in rows if row["model"]]
        return cls(fields, typed.values, typed.more, typed.version, targets)

    def settings(self) -> dict[str, Any]:
        if not self.targets:
            raise InvalidRequest("are missing; name at least one model", param="targets")
        targets = [_target(row) for row in self.targets]
        return {**SettingsForm.settings(self), "targets": targets}


def _target(row: Row) -> dict[str, Any]:
    numbers = {name: typed_number(row[name]) for name in ("priority", "weight") if row.get(name)}
    provider = {"provider": row["provider"]} if row.get("provider") else {}
    return {**provider, "model": row["model"], **numbers}


def _text(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


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


class AliasPages(EntryFormPages):
    def __init__(self) -> None:
        super().__init__(_WORDS, FIELDS, AliasForm)

    async def list(self, context: RequestContext) -> None:
        entries = await context.configuration.every(context.actor)
        aliases = [each for each in entries if each.kind == "alias"]
        page = page_of(aliases, context.query, _texts, _COLUMNS)
        await context.show("operator/aliases.html", page=page, providers=_providers(entries))

    async def _show(
        self,
        context: RequestContext,
        entry: EntryView | None,
        form: SettingsForm,
        failure: InvalidRequest | None = None,
    ) -> None:
        entries = await context.configuration.every(context.actor)
        values: dict[str, Any] = {
            "entry": entry,
            "form": form,
            "providers": _providers(entries),
            "own": any(each.kind == "model" for each in entries),
            "targets": _targets(entries),
            "problems": form.problems(failure, "alias", "id"),
        }
        await context.show_form(_FORM, failure, **values)


def _providers(entries: Sequence[EntryView]) -> Sequence[str]:
    return sorted({each.name for each in entries if each.kind == "provider"})


def _targets(entries: Sequence[EntryView]) -> Sequence[str]:
    found = (each.settings.get("targets", ()) for each in entries if each.kind == "alias")
    return sorted({one.get("model", "") for targets in found for one in targets} - {"", "*"})


def _texts(entry: EntryView) -> Iterator[str]:
    yield entry.name
    yield str(entry.settings.get("name", ""))
    for each in entry.settings.get("targets", ()):
        yield f"{each.get('provider', '')}/{each.get('model', '')}"
