"""Providers as operators add, try, change, switch off and delete them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from causerie.errors import InvalidRequest, NotFound
from causerie.hosted.console.entries import SettingField, SettingsForm, entry_named
from causerie.hosted.console.request_context import RequestContext
from causerie.hosted.operations.configuring import EntryStep, EntryView
from causerie.hosted.operations.provider_models import aliases_of, models_of, removal, withdrawal
from causerie.providers.dialects import DIALECTS, KNOWN_PROVIDERS

FIELDS = (
    SettingField("name", "Name", missing="is missing; programs and logs show it"),
    *(SettingField(name, "") for name in ("known", "base_url", "dialect", "api_version")),
    SettingField("max_concurrent", "", "number"),
)
_PATH = "/operator/providers"
_OTHER = "other"


async def new(context: RequestContext) -> None:
    await context.configuration.every(context.actor)
    asked, form = context.query.get("known"), context.form
    known = KNOWN_PROVIDERS.get(asked)
    if known is None and asked != _OTHER and not form:
        find = context.query.get("find")
        words = find.casefold().split()
        found = [
            each
            for each in KNOWN_PROVIDERS.values()
            if all(word in f"{each.title} {each.name} {each.base_url}".casefold() for word in words)
        ]
        await context.show("operator/pick_provider.html", found=found, find=find, other=_OTHER)
        return
    values = {"name": known.name, "known": known.name} if known else {}
    shown = SettingsForm.typed(FIELDS, form) if form else SettingsForm(FIELDS, values)
    await _show(context, "add_provider", shown, trial=None, tested=False)


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
    await _show(context, "add_provider", form, trial=trial, tested=trial is None)


async def edit(context: RequestContext) -> None:
    entry, _ = await _stored_provider(context)
    form = SettingsForm.shown(FIELDS, context.form, entry)
    await _show(context, "edit_provider", form, entry=entry)


async def change(context: RequestContext) -> None:
    """Replace the settings of a provider; an empty key leaves the one there is."""
    entry, _ = await _stored_provider(context)
    form = SettingsForm.typed(FIELDS, context.form)
    key = "" if context.form.get("no_key") else context.form.get("key") or None
    wish = form.wish(key=key, enabled=entry.enabled)
    await context.configuration.change(context.actor, entry.id, wish)
    context.go(f"{_PATH}/{form.values['name']}", done="provider-saved")


async def try_kept(context: RequestContext) -> None:
    entries = await context.configuration.every(context.actor)
    name, model = context.params["provider"], context.form.get("test_model")
    entry = entry_named(entries, "provider", name, locked=True)
    if entry is not None:
        trial = await context.configuration.test_filed(context.actor, name, model)
    else:
        entry, _ = await _stored_provider(context)
        trial = await context.configuration.test(context.actor, {}, "", model, entry.id)
    await context.show("operator/provider_trial.html", entry=entry, trial=trial)


async def ask_deletion(context: RequestContext) -> None:
    entry, entries = await _stored_provider(context)
    served: dict[str, Sequence[EntryView]] = {"aliases": (), "models": ()}
    if not _is_shadowed(entry, entries):
        models = [each for each in models_of(entry.name, entries) if not each.locked]
        served = {"aliases": aliases_of(entry.name, entries), "models": models}
    await context.show("operator/delete_provider.html", entry=entry, **served)


async def delete(context: RequestContext) -> None:
    entry, entries = await _stored_provider(context)
    steps: Sequence[EntryStep] = [EntryStep(kind="provider", id=entry.id)]
    if not _is_shadowed(entry, entries):
        steps = [*withdrawal(entry, entries), *removal(entry, entries)]
    await context.configuration.apply(context.actor, steps)
    context.go(_PATH, done="provider-deleted")


async def switch(context: RequestContext, *, enabled: bool) -> None:
    entry, _ = await _stored_provider(context)
    await context.configuration.switch(context.actor, entry.id, enabled=enabled)
    done = "provider-enabled" if enabled else "provider-disabled"
    context.go(f"{_PATH}/{entry.name}", done=done)


async def _stored_provider(context: RequestContext) -> tuple[EntryView, Sequence[EntryView]]:
    entries = await context.configuration.every(context.actor)
    found = entry_named(entries, "provider", context.params["provider"], locked=False)
    if found is None:
        raise NotFound("No provider of this name is in the database.")
    return found, entries


async def _show(context: RequestContext, template: str, form: SettingsForm, **values: Any) -> None:
    known = KNOWN_PROVIDERS.get(form.values.get("known", ""))
    usual = f"As known: {known.dialect}" if known is not None else "generic: chat completions"
    await context.show(
        f"operator/{template}.html",
        form=form,
        known=known,
        problems=form.problems(context.problem, "provider"),
        dialects=[("", usual), *((name, name) for name in sorted(DIALECTS))],
        **values,
    )


def _is_shadowed(entry: EntryView, entries: Sequence[EntryView]) -> bool:
    # A provider of the file that has this name comes first.
    return entry_named(entries, "provider", entry.name, locked=True) is not None
