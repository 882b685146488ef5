"""Aliases: public model names, and who answers for them; the list and the form."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

from causerie.errors import InvalidRequest
from causerie.hosted.console.entries import (
    EntryFormPages,
    EntryKindWords,
    EntryProblems,
    entries_of,
    origin_of,
    read_rest,
    rest_of,
    typed_number,
)
from causerie.hosted.console.fields import FormFields, page_of
from causerie.hosted.console.request_context import RequestContext
from causerie.hosted.operations.configuring import EntryView, EntryWish
from causerie.hosted.operations.ports import Operations
from causerie.protocol.numbers import whole_number

Row = Mapping[str, str]

_TEXTS = ("id", "name", "description")
_PRICES = ("prompt", "completion")
_TARGET = ("provider", "model", "priority", "weight")
FIELDS = (
    *_TEXTS,
    *(f"price.{part}" for part in _PRICES),
    *(f"targets[].{name}" for name in _TARGET),
    "targets",
    "more",
)


@dataclass(frozen=True, slots=True)
class AliasForm:
    """Contents of the form: texts, rows of targets, and all other settings as JSON."""

    values: Mapping[str, str] = field(default_factory=dict)
    targets: Sequence[Row] = ({},)
    more: str = ""
    version: str = ""

    @staticmethod
    def of(settings: Mapping[str, Any], version: int) -> AliasForm:
        values = {name: str(settings[name]) for name in _TEXTS if name in settings}
        price = dict(settings.get("price", {}))
        values |= {f"price.{part}": price.pop(part) for part in _PRICES if part in price}
        others = {name: value for name, value in settings.items() if name not in values}
        others = {name: value for name, value in others.items() if name not in ("targets", "price")}
        if price:
            others["price"] = price
        rows = [{name: _text(each[name]) for name in each} for each in settings["targets"]]
        return AliasForm(values, rows, rest_of(others), str(version))

    @staticmethod
    def typed(form: FormFields) -> AliasForm:
        """Return the form as it was sent, without rows that name no model."""
        names = (*_TEXTS, *(f"price.{part}" for part in _PRICES))
        columns = [form.every(f"target_{name}") for name in _TARGET]
        rows = [dict(zip(_TARGET, row, strict=True)) for row in zip_longest(*columns, fillvalue="")]
        return AliasForm(
            {name: form.get(name) for name in names if form.get(name)},
            [row for row in rows if row["model"]],
            form.raw("more").strip(),
            form.get("version"),
        )

    @property
    def id(self) -> str:
        return self.values.get("id", "")

    def settings(self) -> dict[str, Any]:
        """Return the settings that were typed; raise :class:`InvalidRequest`."""
        others = read_rest(self.more)
        parts = {part: self.values.get(f"price.{part}") for part in _PRICES}
        price = {**others.pop("price", {}), **{part: each for part, each in parts.items() if each}}
        typed = {name: self.values[name] for name in _TEXTS if name in self.values}
        return {
            **others,
            **typed,
            "targets": [_target(row) for row in self.targets],
            **({"price": price} if price else {}),
        }

    def wish(self, *, enabled: bool = True) -> EntryWish:
        """Return the wanted state; raise :class:`InvalidRequest`."""
        if not self.id:
            raise InvalidRequest("is missing; it is what requests name as `model`", param="id")
        if not self.targets:
            raise InvalidRequest("are missing; name at least one model", param="targets")
        version = whole_number(self.version)
        return EntryWish(settings=self.settings(), enabled=enabled, version=version)


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
    found = (each.settings.get("targets", ()) for each in entries if each.kind == "alias")
    return sorted({one.get("model", "") for targets in found for one in targets} - {"", "*"})


def _texts(entry: EntryView) -> Iterator[str]:
    yield entry.name
    yield str(entry.settings.get("name", ""))
    for each in entry.settings.get("targets", ()):
        yield f"{each.get('provider', '')}/{each.get('model', '')}"
