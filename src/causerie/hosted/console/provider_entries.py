"""Providers as operators add, try, change, switch off and delete them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from causerie.errors import InvalidRequest, ServiceError
from causerie.hosted.console.entries import (
    EntryProblems,
    changeable_provider,
    entries_of,
    entry_named,
    origin_of,
    read_rest,
    rest_of,
    typed_number,
)
from causerie.hosted.console.fields import FormFields
from causerie.hosted.console.request_context import RequestContext
from causerie.hosted.operations.configuring import EntryStep, EntryView, EntryWish, Trial
from causerie.hosted.operations.ports import Operations
from causerie.hosted.operations.provider_models import aliases_of, models_of, removal, withdrawal
from causerie.protocol.numbers import whole_number
from causerie.providers.dialects import DIALECTS, KNOWN_PROVIDERS, KnownProvider

_TEXTS = ("name", "known", "base_url", "dialect", "api_version")
_NUMBERS = ("max_concurrent",)
FIELDS = (*_TEXTS, *_NUMBERS, "key", "more")


@dataclass(frozen=True, slots=True)
class ProviderForm:
    """Contents of the form: texts by the names of their settings, and all others as JSON."""

    values: Mapping[str, str] = field(default_factory=dict)
    more: str = ""
    version: str = ""

    @staticmethod
    def new(known: KnownProvider | None) -> ProviderForm:
        """Return an empty form, or one for a known provider."""
        if known is None:
            return ProviderForm()
        return ProviderForm({"name": known.name, "known": known.name})

    @staticmethod
    def of(settings: Mapping[str, Any], version: int) -> ProviderForm:
        values = {name: str(settings[name]) for name in (*_TEXTS, *_NUMBERS) if name in settings}
        others = {name: value for name, value in settings.items() if name not in values}
        return ProviderForm(values, rest_of(others), str(version))

    @staticmethod
    def typed(form: FormFields) -> ProviderForm:
        """Return the form as it was sent; the key is not a part of it."""
        values = {name: form.get(name) for name in (*_TEXTS, *_NUMBERS) if form.get(name)}
        return ProviderForm(values, form.raw("more").strip(), form.get("version"))

    @property
    def name(self) -> str:
        return self.values.get("name", "")

    @property
    def known(self) -> KnownProvider | None:
        """Return the known provider that it is, if it is one."""
        return KNOWN_PROVIDERS.get(self.values.get("known", ""))

    def settings(self) -> dict[str, Any]:
        """Return the settings that were typed; raise :class:`InvalidRequest`."""
        typed: dict[str, Any] = dict(self.values)
        typed |= {name: typed_number(typed[name]) for name in _NUMBERS if name in typed}
        return {**read_rest(self.more), **typed}

    def wish(self, key: str | None, *, enabled: bool = True) -> EntryWish:
        """Return the wanted state; raise :class:`InvalidRequest`."""
        if not self.name:
            raise InvalidRequest("is missing; programs and logs show it", param="name")
        version = whole_number(self.version)
        return EntryWish(settings=self.settings(), key=key, enabled=enabled, version=version)


_PATH = "/operator/providers"
_ADD = "operator/add_provider.html"
_EDIT = "operator/edit_provider.html"
_DELETE = "operator/delete_provider.html"
_OTHER = "other"


class ProviderEntryPages:
    """Changes of the configuration, which checks them; no page holds a key."""

    def __init__(self, operations: Operations) -> None:
        self._configuration = operations.configuration

    async def new(self, context: RequestContext) -> None:
        """``GET /operator/providers/add/new``: known ones to pick from, then the form of one."""
        await self._configuration.every(context.actor)
        asked = context.query.get("known")
        known = KNOWN_PROVIDERS.get(asked)
        if known is None and asked != _OTHER:
            find = context.query.get("find")
            await context.show(
                "operator/pick_provider.html", found=_found(find), find=find, other=_OTHER
            )
            return
        await self._show(context, ProviderForm.new(known))

    async def create(self, context: RequestContext) -> None:
        """``POST /operator/providers/add/new``; leads to the choice of its models."""
        form = ProviderForm.typed(context.form)
        try:
            context.check_form()
            step = EntryStep(kind="provider", wish=form.wish(context.form.get("key") or None))
            await self._configuration.apply(context.actor, [step])
        except InvalidRequest as failure:
            await self._show(context, form, failure)
            return
        context.go(f"{_PATH}/{form.name}/models", done="provider-added")

    async def test(self, context: RequestContext) -> None:
        """``POST /operator/providers/add/try``: try it before it is kept."""
        form = ProviderForm.typed(context.form)
        try:
            trial = await self._configuration.test(
                context.actor,
                form.settings(),
                context.form.get("key"),
                context.form.get("test_model"),
                "",
            )
        except InvalidRequest as failure:
            await self._show(context, form, failure, tested=True)
            return
        await self._show(context, form, trial=trial)

    async def edit(self, context: RequestContext) -> None:
        entry = await self._entry(context)
        await self._edit(context, entry, ProviderForm.of(entry.settings, entry.version))

    async def change(self, context: RequestContext) -> None:
        """``POST /operator/providers/{provider}/edit``; an empty key leaves the one there is."""
        entry, form = await self._entry(context), ProviderForm.typed(context.form)
        key = "" if context.form.get("no_key") else context.form.get("key") or None
        try:
            context.check_form()
            wish = form.wish(key, enabled=entry.enabled)
            await self._configuration.change(context.actor, entry.id, wish)
        except InvalidRequest as failure:
            await self._edit(context, entry, form, failure)
            return
        context.go(f"{_PATH}/{form.name}", done="provider-saved")

    async def try_kept(self, context: RequestContext) -> None:
        """``POST /operator/providers/{provider}/test``: as it is kept or filed, with its key."""
        entries = await entries_of(self._configuration, context.actor)
        name, model = context.params["provider"], context.form.get("test_model")
        filed = entry_named(entries, "provider", name, locked=True)
        entry = filed or changeable_provider(entries, name)
        if filed is not None:
            trial = await self._configuration.test_filed(context.actor, name, model)
        else:
            trial = await self._configuration.test(context.actor, {}, "", model, entry.id)
        await context.show("operator/provider_trial.html", entry=entry, trial=trial)

    async def enable(self, context: RequestContext) -> None:
        await self._switch(context, enabled=True)

    async def disable(self, context: RequestContext) -> None:
        await self._switch(context, enabled=False)

    async def ask_deletion(self, context: RequestContext) -> None:
        entries = await self._configuration.every(context.actor)
        entry = changeable_provider(entries, context.params["provider"])
        await context.show(_DELETE, entry=entry, **_served(entry, entries))

    async def delete(self, context: RequestContext) -> None:
        """``POST /operator/providers/{provider}/delete``, with its targets."""
        entries = await self._configuration.every(context.actor)
        entry = changeable_provider(entries, context.params["provider"])
        try:
            await self._configuration.apply(context.actor, _removal(entry, entries))
        except InvalidRequest as problem:
            await context.show_problem(_DELETE, problem, entry=entry, **_served(entry, entries))
            return
        context.go(_PATH, done="provider-deleted")

    async def _switch(self, context: RequestContext, *, enabled: bool) -> None:
        entry = await self._entry(context)
        await self._configuration.switch(context.actor, entry.id, enabled=enabled)
        done = "provider-enabled" if enabled else "provider-disabled"
        context.go(f"{_PATH}/{entry.name}", done=done)

    async def _entry(self, context: RequestContext) -> EntryView:
        entries = await entries_of(self._configuration, context.actor)
        return changeable_provider(entries, context.params["provider"])

    async def _show(
        self,
        context: RequestContext,
        form: ProviderForm,
        failure: InvalidRequest | None = None,
        trial: Trial | None = None,
        *,
        tested: bool = False,
    ) -> None:
        values = {**_around(form, failure), "tested": tested}
        await context.show_form(_ADD, failure, trial=trial, **values)

    async def _edit(
        self,
        context: RequestContext,
        entry: EntryView,
        form: ProviderForm,
        failure: InvalidRequest | None = None,
    ) -> None:
        values = _around(form, failure)
        await context.show_form(_EDIT, failure, entry=entry, **values)


def _around(form: ProviderForm, failure: ServiceError | None) -> dict[str, Any]:
    problems = EntryProblems(failure, origin_of("provider", form.name), FIELDS)
    return {"form": form, "problems": problems, "dialects": _dialects(form.known)}


def _dialects(known: KnownProvider | None) -> Sequence[tuple[str, str]]:
    usual = f"As known: {known.dialect}" if known is not None else "generic: chat completions"
    return [("", usual), *((name, name) for name in sorted(DIALECTS))]


def _aliases_of(entry: EntryView, entries: Sequence[EntryView]) -> Sequence[EntryView]:
    return aliases_of(entry.name, entries) if _answers(entry, entries) else ()


def _served(entry: EntryView, entries: Sequence[EntryView]) -> dict[str, Any]:
    models = models_of(entry.name, entries) if _answers(entry, entries) else ()
    return {
        "aliases": _aliases_of(entry, entries),
        "models": [each for each in models if not each.locked],
    }


def _removal(entry: EntryView, entries: Sequence[EntryView]) -> Sequence[EntryStep]:
    if _answers(entry, entries):
        return [*withdrawal(entry, entries), *removal(entry, entries)]
    return [EntryStep(kind="provider", id=entry.id)]


def _answers(entry: EntryView, entries: Sequence[EntryView]) -> bool:
    # A provider of the file that has this name comes first.
    same = [each for each in entries if each.kind == "provider" and each.name == entry.name]
    return not any(each.locked for each in same)


def _found(find: str) -> Sequence[KnownProvider]:
    words = find.casefold().split()
    return [
        each
        for each in KNOWN_PROVIDERS.values()
        if all(word in f"{each.title} {each.name} {each.base_url}".casefold() for word in words)
    ]
