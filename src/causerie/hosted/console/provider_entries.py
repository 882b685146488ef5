"""Providers as operators add, try, change, switch off and delete them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from causerie.errors import InvalidRequest
from causerie.hosted.console.entries import (
    SettingField,
    SettingsForm,
    changeable_provider,
    entry_named,
)
from causerie.hosted.console.request_context import RequestContext
from causerie.hosted.operations.configuring import EntryStep, EntryView, Trial
from causerie.hosted.operations.provider_models import aliases_of, models_of, removal, withdrawal
from causerie.providers.dialects import DIALECTS, KNOWN_PROVIDERS, KnownProvider

FIELDS = (
    SettingField("name", "Name", missing="is missing; programs and logs show it"),
    *(SettingField(name, "") for name in ("known", "base_url", "dialect", "api_version")),
    SettingField("max_concurrent", "", "number"),
)
_PATH = "/operator/providers"
_OTHER = "other"


async def new(context: RequestContext) -> None:
    await context.configuration.every(context.actor)
    asked = context.query.get("known")
    known = KNOWN_PROVIDERS.get(asked)
    if known is None and asked != _OTHER and not context.form:
        find = context.query.get("find")
        await context.show(
            "operator/pick_provider.html", found=_found(find), find=find, other=_OTHER
        )
        return
    values = {"name": known.name, "known": known.name} if known else {}
    form = (
        SettingsForm.typed(FIELDS, context.form) if context.form else SettingsForm(FIELDS, values)
    )
    await _show_add_form(context, form)


async def create(context: RequestContext) -> None:
    """Add a provider; leads to the choice of its models."""
    form = SettingsForm.typed(FIELDS, context.form)
    step = EntryStep(kind="provider", wish=form.wish(key=context.form.get("key") or None))
    await context.configuration.apply(context.actor, [step])
    context.go(f"{_PATH}/{form.values['name']}/models", done="provider-added")


async def test(context: RequestContext) -> None:
    form, trial = SettingsForm.typed(FIELDS, context.form), None
    key, model = context.form.get("key"), context.form.get("test_model")
    try:
        trial = await context.configuration.test(context.actor, form.settings(), key, model, "")
    except InvalidRequest as failure:
        context.problem = failure
    await _show_add_form(context, form, trial, tested=trial is None)


async def edit(context: RequestContext) -> None:
    entry = await _entry(context)
    values = _around(context, SettingsForm.shown(FIELDS, context.form, entry))
    await context.show("operator/edit_provider.html", entry=entry, **values)


async def change(context: RequestContext) -> None:
    """Replace the settings of a provider; an empty key leaves the one there is."""
    entry, form = await _entry(context), SettingsForm.typed(FIELDS, context.form)
    key = "" if context.form.get("no_key") else context.form.get("key") or None
    wish = form.wish(key=key, enabled=entry.enabled)
    await context.configuration.change(context.actor, entry.id, wish)
    context.go(f"{_PATH}/{form.values['name']}", done="provider-saved")


async def try_kept(context: RequestContext) -> None:
    entries = await context.configuration.every(context.actor)
    name, model = context.params["provider"], context.form.get("test_model")
    filed = entry_named(entries, "provider", name, locked=True)
    entry = filed or changeable_provider(entries, name)
    if filed is not None:
        trial = await context.configuration.test_filed(context.actor, name, model)
    else:
        trial = await context.configuration.test(context.actor, {}, "", model, entry.id)
    await context.show("operator/provider_trial.html", entry=entry, trial=trial)


async def enable(context: RequestContext) -> None:
    await _switch(context, enabled=True)


async def disable(context: RequestContext) -> None:
    await _switch(context, enabled=False)


async def ask_deletion(context: RequestContext) -> None:
    entries = await context.configuration.every(context.actor)
    entry = changeable_provider(entries, context.params["provider"])
    served: dict[str, Sequence[EntryView]] = {"aliases": (), "models": ()}
    if _answers(entry, entries):
        models = [each for each in models_of(entry.name, entries) if not each.locked]
        served = {"aliases": aliases_of(entry.name, entries), "models": models}
    await context.show("operator/delete_provider.html", entry=entry, **served)


async def delete(context: RequestContext) -> None:
    entries = await context.configuration.every(context.actor)
    entry = changeable_provider(entries, context.params["provider"])
    steps: Sequence[EntryStep] = [EntryStep(kind="provider", id=entry.id)]
    if _answers(entry, entries):
        steps = [*withdrawal(entry, entries), *removal(entry, entries)]
    await context.configuration.apply(context.actor, steps)
    context.go(_PATH, done="provider-deleted")


async def _switch(context: RequestContext, *, enabled: bool) -> None:
    entry = await _entry(context)
    await context.configuration.switch(context.actor, entry.id, enabled=enabled)
    done = "provider-enabled" if enabled else "provider-disabled"
    context.go(f"{_PATH}/{entry.name}", done=done)


async def _entry(context: RequestContext) -> EntryView:
    entries = await context.configuration.every(context.actor)
    return changeable_provider(entries, context.params["provider"])


async def _show_add_form(
    context: RequestContext, form: SettingsForm, trial: Trial | None = None, *, tested: bool = False
) -> None:
    values = _around(context, form)
    await context.show("operator/add_provider.html", trial=trial, tested=tested, **values)


def _around(context: RequestContext, form: SettingsForm) -> dict[str, Any]:
    known = KNOWN_PROVIDERS.get(form.values.get("known", ""))
    usual = f"As known: {known.dialect}" if known is not None else "generic: chat completions"
    return {
        "form": form,
        "known": known,
        "problems": form.problems(context.problem, "provider"),
        "dialects": [("", usual), *((name, name) for name in sorted(DIALECTS))],
    }


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
