"""Forms and pages that list, add, change, switch and delete entries of the configuration."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, get_args

import msgspec
from msgspec import Struct

from causerie.errors import InvalidRequest, NotFound, ServiceError
from causerie.hosted.accounts.records import EntryKind
from causerie.hosted.console.fields import FormFields, listed, page_of
from causerie.hosted.console.request_context import RequestContext
from causerie.hosted.console.service_view import model_row
from causerie.hosted.operations.configuring import EntryView, EntryWish, ListedModel
from causerie.hosted.operations.provider_models import provider_in_force
from causerie.protocol.numbers import money, whole_number

_INDEX = re.compile(r"\[\d+\]")


def entry_named(
    entries: Sequence[EntryView], kind: EntryKind, name: str, *, locked: bool
) -> EntryView | None:
    """Return the entry of this name in the file (``locked``) or in the database."""
    wanted = (kind, name, locked)
    return next((one for one in entries if (one.kind, one.name, one.locked) == wanted), None)


def lowest_price(entry: EntryView, part: str) -> Decimal | None:
    """Return the lowest price of an entry per 1M tokens; ``None`` if it has no valid one."""
    catalog = entry.kind == "catalog_model"
    priced = entry.settings.get("endpoints", ()) if catalog else (entry.settings,)
    try:
        return min((money(each.get("price", {}).get(part, "0")) for each in priced), default=None)
    except (AttributeError, TypeError, ValueError):  # what is left out may hold anything
        return None


async def provider_asked(context: RequestContext) -> tuple[EntryView, Sequence[EntryView]]:
    """Return the entry in force of the provider in the path, and all entries."""
    entries = await context.configuration.every(context.actor)
    return provider_in_force(entries, context.params["provider"]), entries


def picked_model(text: str) -> ListedModel:
    try:
        return msgspec.json.decode(text, type=ListedModel)
    except msgspec.MsgspecError as failure:
        words = "What was picked cannot be read; pick again."
        raise InvalidRequest(words, param="pick") from failure


class EntryProblems:
    """Problems of an entry by field; ``fields`` have no indexes, as in ``targets[].model``."""

    def __init__(
        self, failure: ServiceError | None = None, origin: str = "", fields: Collection[str] = ()
    ) -> None:
        self._problems_by_field: dict[str, InvalidRequest] = {}
        self.rest: list[str] = []
        if failure is None:
            return
        told = f"{failure.param}: {failure.message}" if failure.param else failure.message
        for problem in msgspec.convert(failure.metadata.get("problems", [told]), list[str]):
            own = problem.removeprefix(f"{origin}: ")
            key, _, advice = own.partition(": ")
            if advice and _INDEX.sub("[]", key) in fields:
                refusal = InvalidRequest(_to_sentence(advice), param=key)
                self._problems_by_field.setdefault(key, refusal)
            elif advice and own != problem:
                self.rest.append(f"`{key}` {advice}")
            else:
                self.rest.append(_to_sentence(own))

    def of(self, field: str) -> InvalidRequest | None:
        return self._problems_by_field.get(field)

    @property
    def named(self) -> Sequence[tuple[str, str]]:
        return [(name, each.message) for name, each in self._problems_by_field.items()]

    def any(self, *fields: str) -> bool:
        return any(field in self._problems_by_field for field in fields)


def of_unknown_kinds(entries: Sequence[EntryView]) -> Sequence[EntryView]:
    """Return the entries that a newer version has made and this one skips."""
    return [each for each in entries if each.kind not in get_args(EntryKind)]


def typed_number(text: str) -> int | float | str:
    """Return a typed number; any other text stays as it is, for the settings to refuse."""
    for read in (int, float):
        with suppress(ValueError):
            return read(text)
    return text


def _to_sentence(words: str) -> str:
    if words.startswith(("is ", "are ")):
        words = f"{'It' if words.startswith('is ') else 'They'} {words}"
    return f"{words[:1].upper()}{words[1:]}{'' if words.endswith(('.', '?', '!')) else '.'}"


class SettingField(Struct, frozen=True):
    """A field for one setting. ``name`` is its path, as in ``limits.concurrent``."""

    name: str
    title: str = ""
    kind: Literal["text", "number", "list", "lines", "choice", "flag"] = "text"
    hint: str = ""
    choices: Sequence[tuple[str, str]] = ()
    """Of a choice: values and their words; the empty value leaves the setting out."""
    placeholder: str = ""
    group: str = ""
    """Title of the part of the form that is folded; empty: always shown."""
    missing: str = ""
    """What is wrong if nothing is typed; empty: the field is optional."""


class SettingsForm(Struct, frozen=True):
    """A form of settings: a text for each field, and all other settings as JSON."""

    fields: Sequence[SettingField]
    typed: FormFields = FormFields()
    row_names: ClassVar[Sequence[str]] = ()
    """Names of further fields that can have problems."""

    @classmethod
    def of(cls, fields: Sequence[SettingField], settings: Mapping[str, Any], version: int) -> Self:
        """Return the form of an entry; what no field shows is in ``more``."""
        rest: dict[str, Any] = msgspec.to_builtins(settings)
        shown = [*cls.pop_rows(rest), ("version", str(version))]
        for each in fields:
            if (found := _pop_setting(rest, each.name.split("."))) is not None:
                shown.append((each.name, text_of(found, "\n" if each.kind == "lines" else ", ")))
        more = json.dumps(rest, indent=2, ensure_ascii=False) if rest else ""
        return cls(fields, FormFields([*shown, ("more", more)]))

    @classmethod
    def pop_rows(cls, settings: dict[str, Any]) -> Iterable[tuple[str, str]]:
        """Remove from ``settings`` what the form shows in rows; return the fields of these rows."""
        return ()

    @classmethod
    def shown(
        cls, fields: Sequence[SettingField], form: FormFields, entry: EntryView | None
    ) -> Self:
        """Return the form as typed, else filled from the stored ``entry``, else empty."""
        if entry is None or form:
            return cls(fields, form)
        return cls.of(fields, entry.settings, entry.version)

    @property
    def values(self) -> Mapping[str, str]:
        texts = {each.name: ", ".join(self.typed.every(each.name)) for each in self.fields}
        return {name: text for name, text in texts.items() if text}

    @property
    def groups(self) -> Mapping[str, Sequence[SettingField]]:
        found: dict[str, list[SettingField]] = {}
        for each in self.fields:
            found.setdefault(each.group, []).append(each)
        return found

    def problems(self, failure: ServiceError | None, kind: EntryKind) -> EntryProblems:
        origin = f'the entry of {kind} "{self.values.get(self.fields[0].name, "")}"'
        names = {each.name for each in self.fields} | {"key", "more", *self.row_names}
        return EntryProblems(failure, origin, names)

    def settings(self) -> dict[str, Any]:
        settings, values = _parse_json_object(self.typed.get("more")), self.values
        for each in self.fields:
            if text := values.get(each.name):
                _set_setting(settings, each.name.split("."), _parse_field(each, text))
        return settings

    def wish(self, *, key: str | None = None, enabled: bool = True) -> EntryWish:
        values, version = self.values, whole_number(self.typed.get("version"))
        for each in self.fields:
            if each.missing and not values.get(each.name):
                raise InvalidRequest(each.missing, param=each.name)
        return EntryWish(settings=self.settings(), key=key, enabled=enabled, version=version)


def _parse_field(field: SettingField, text: str) -> Any:
    if field.kind in ("list", "lines"):
        return listed(text)
    if field.kind == "flag":
        return True
    return typed_number(text) if field.kind == "number" else text


def text_of(value: object, between: str = ", ") -> str:
    """Return a setting as its field shows it."""
    if isinstance(value, list | tuple):
        return between.join(map(str, value))
    if isinstance(value, bool):
        return "on" if value else ""
    return f"{value:g}" if isinstance(value, float) else str(value)


def _pop_setting(settings: dict[str, Any], path: Sequence[str]) -> Any:
    name, *inner = path
    found = settings.get(name)
    if not inner:
        return settings.pop(name, None) if not isinstance(found, dict) else None
    if not isinstance(found, dict):
        return None
    value = _pop_setting(found, inner)
    if not found:
        del settings[name]
    return value


def _set_setting(settings: dict[str, Any], path: Sequence[str], setting: Any) -> None:
    name, *inner = path
    if not inner:
        settings[name] = setting
        return
    table = settings.setdefault(name, {})
    if not isinstance(table, dict):
        raise InvalidRequest(f"has `{name}`, which is a table", param="more")
    _set_setting(table, inner, setting)


def _parse_json_object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text or "{}")
    except ValueError as failure:
        words = f"is not valid JSON: {failure}"
        raise InvalidRequest(words, param="more") from failure
    if not isinstance(found, dict):
        raise InvalidRequest("is no JSON object, like `{}`", param="more")
    return found


_FORMS: Mapping[str, Any] = tomllib.loads(Path(__file__).with_name("forms.toml").read_text("utf-8"))


class _FieldGroup(Struct, frozen=True):
    title: str = ""
    limits: bool = False
    fields: Sequence[SettingField] = ()


def form_fields(form: str) -> Sequence[SettingField]:
    """Return the fields of a form in ``forms.toml``."""
    limits = msgspec.convert(_FORMS["limits"], list[SettingField])
    groups = msgspec.convert(_FORMS[form]["groups"], list[_FieldGroup])
    return [
        msgspec.structs.replace(each, group=group.title)
        for group in groups
        for each in (*(limits if group.limits else ()), *group.fields)
    ]


class EntryPages(Struct):
    """Pages that list, add, change, switch and delete entries of kinds that share one list."""

    template: ClassVar[str] = "operator/settings_entry.html"
    form: ClassVar[type[SettingsForm]] = SettingsForm

    kinds: frozenset[EntryKind]
    fields: Sequence[SettingField]
    """The first names the entry."""
    noun: str
    """As in "There is no such alias"; the names of its notices begin with it."""
    list_path: str
    """Of the list, below the console's prefix."""
    deletion: str
    """What deletion does, as a sentence."""
    path: str = ""
    """Entries are below it, by their ids; empty: below the list's."""
    list_template: str = ""
    searched: Sequence[str] = ()
    """Settings that the search of the list looks at, in addition to the name."""

    @classmethod
    def of(cls, form: str) -> Self:
        """Return the pages of a form in ``forms.toml``; forms are named by kinds of entries."""
        return msgspec.convert({"kinds": [form], "fields": form_fields(form)} | _FORMS[form], cls)

    async def list(self, context: RequestContext) -> None:
        entries = await context.configuration.every(context.actor)
        await context.send_page(
            self.list_template,
            page=page_of(
                [each for each in entries if each.kind in self.kinds],
                context.query,
                self._list_search_texts,
                {"id": "name", "origin": "origin"},
            ),
            live={row.id: row for row in map(model_row, context.service_view.models())},
            unpriced=context.service_view.unpriced(),
            unknown=of_unknown_kinds(entries),
            providers=sorted(
                {each.name for each in entries if each.kind == "provider" and each.in_force}
            ),
        )

    async def ask_deletion(self, context: RequestContext) -> None:
        entry = await self._find_entry(context)
        await context.send_page("operator/delete_entry.html", entry=entry, pages=self)

    async def delete(self, context: RequestContext) -> None:
        entry = await self._find_entry(context)
        await context.configuration.delete(context.actor, entry.id)
        self._redirect_to_list(context, "deleted")

    async def switch(self, context: RequestContext, *, enabled: bool) -> None:
        entry = await self._find_entry(context)
        await context.configuration.switch(context.actor, entry.id, enabled=enabled)
        self._redirect_to_list(context, "enabled" if enabled else "disabled")

    async def _find_entry(self, context: RequestContext) -> EntryView:
        entry = await context.configuration.see(context.actor, context.params["entry"])
        if entry.kind not in self.kinds:
            raise NotFound(f"There is no such {self.noun} in the database.")
        return entry

    def _redirect_to_list(self, context: RequestContext, outcome: str) -> None:
        context.go(self.list_path, done=f"{self.noun.replace(' ', '-')}-{outcome}")

    def _list_search_texts(self, entry: EntryView) -> Iterator[str]:
        yield entry.name
        for name in self.searched:
            value = entry.settings.get(name, "")
            if name in ("targets", "endpoints"):
                for each in value:
                    yield f"{each.get('provider', '')}/{each.get('model', '')}"
            else:
                yield str(value)

    async def new(self, context: RequestContext) -> None:
        await self._show_entry_form(context, None)

    async def create(self, context: RequestContext) -> None:
        await self._store_new_entry(context, context.form.get("key") or None)
        self._redirect_to_list(context, "added")

    async def see(self, context: RequestContext) -> None:
        await self._show_entry_form(context, await self._find_entry(context))

    async def change(self, context: RequestContext) -> None:
        """Replace an entry's settings; an empty key field keeps the stored key."""
        entry = await self._find_entry(context)
        form = await self._build_submitted_form(context)
        wish = form.wish(key=context.form.get("key") or None, enabled=entry.enabled)
        await context.configuration.change(context.actor, entry.id, wish)
        self._redirect_to_list(context, "saved")

    async def around(self, context: RequestContext) -> Mapping[str, Any]:
        """Return the values that the template needs besides the form."""
        return {}

    async def _store_new_entry(self, context: RequestContext, secret: str | None) -> None:
        wish = (await self._build_submitted_form(context)).wish(key=secret)
        kind = self._get_kind_of_new_entry(context)
        await context.configuration.create(context.actor, kind, wish)

    async def _build_submitted_form(self, context: RequestContext) -> SettingsForm:
        return self.form(self.fields, context.form)

    def _get_kind_of_new_entry(self, context: RequestContext) -> EntryKind:
        return next(iter(self.kinds))

    async def _show_entry_form(
        self, context: RequestContext, entry: EntryView | None, form: SettingsForm | None = None
    ) -> None:
        form = form or self.form.shown(self.fields, context.form, entry)
        kind = entry.kind if entry is not None else self._get_kind_of_new_entry(context)
        problems = form.problems(context.problem, kind)
        shown = {"entry": entry, "form": form, "kind": kind, "pages": self, "problems": problems}
        await context.send_page(self.template, **shown, **await self.around(context))
