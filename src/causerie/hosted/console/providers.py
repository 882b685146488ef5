"""Providers for operators: how they stand, what they can do, probes of them, and the models that
are taken over from them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from urllib.parse import urlencode

import msgspec
from msgspec import Struct, structs

from causerie.errors import InvalidRequest, NotFound
from causerie.hosted.console.entries import EntryProblems, entry_named, picked_model, provider_asked
from causerie.hosted.console.request_context import RequestContext
from causerie.hosted.operations.configuring import EntryView, ListedModel
from causerie.hosted.operations.ports import ProbedModelView, ProviderView
from causerie.hosted.operations.probes import Cell, groups
from causerie.hosted.operations.provider_models import (
    ComparedModel,
    aliases_of,
    compared,
    taken_over,
)

_PATH = "/operator/providers"
_MOST_TARGETS = 12  # of each provider, in the list of all
_MOST_MODELS = 12  # that a provider's page compares, those probed first


class MatrixColumn(Struct, frozen=True):
    provider: str
    title: str
    model: ProbedModelView
    cells: Mapping[str, Cell]


def column(view: ProviderView, model: ProbedModelView, title: str) -> MatrixColumn:
    return MatrixColumn(view.name, title, model, {cell.parameter: cell for cell in model.cells})


async def show_list(context: RequestContext) -> None:
    views = await context.operations.providers(context.actor)
    served = {one.model for view in views for each in view.targets for one in each.serves}
    model = context.query.get("model")
    shown = model if model in served else ""
    if shown:
        views = [_only(view, shown) for view in views]
    columns = [column(view, one, f"{view.name}/{one.id}") for view in views for one in view.models]
    entries = await context.configuration.every(context.actor)
    away = [each for each in entries if each.kind == "provider" and not each.in_force]
    await context.show(
        "operator/providers.html",
        views=[view for view in views if view.targets or not shown],
        entries={one.name: one for one in entries if one.kind == "provider" and one.in_force},
        away=() if shown else away,
        models=sorted(served),
        model=shown,
        compared=columns if shown else (),
        groups=groups(),
        query=urlencode({"model": shown}) if shown else "",
        most=_MOST_TARGETS,
    )


async def see(context: RequestContext) -> None:
    entries = await context.configuration.every(context.actor)
    name = context.params["provider"]
    filed, kept = (entry_named(entries, "provider", name, locked=one) for one in (True, False))
    try:
        view = await _view(context)
    except NotFound:
        if kept is None:
            raise
        aliases = aliases_of(name, entries)
        by = await _author(context, kept)
        await context.show(
            "operator/provider_away.html", entry=kept, aliases=aliases, changed_by=by
        )
        return
    probed = sorted(view.models, key=lambda one: one.probed is None and one.newest is None)
    shown = structs.replace(view, models=tuple(probed[:_MOST_MODELS]))
    await context.show(
        "operator/provider.html",
        view=shown,
        left_out=len(view.models) - len(shown.models),
        others=probed[_MOST_MODELS:],
        entry=filed or kept,
        shadowed=kept if filed is not None else None,
        aliases=aliases_of(name, entries),
        changed_by=await _author(context, filed or kept),
        columns=[column(shown, model, model.id) for model in shown.models],
        groups=groups(),
    )


async def show_progress(context: RequestContext) -> None:
    """Answer the script that fetches the state of a probe again and again."""
    view = await _view(context)
    if view.probe is None or view.probe.state != "asking":
        context.go(f"{_PATH}/{view.name}")
        return
    await context.show("operator/progress.html", view=view)


async def ask_probe(context: RequestContext) -> None:
    view = await _view(context)
    model = _model(view, context.form.get("model", context.query.get("model")))
    await context.show("operator/probe.html", view=view, model=model)


async def probe(context: RequestContext) -> None:
    name, model = context.params["provider"], context.form.get("model")
    quick = bool(context.form.get("quick"))
    await context.operations.probe(context.actor, name, model, quick=quick)
    context.go(f"{_PATH}/{name}")


async def cancel_probe(context: RequestContext) -> None:
    name = context.params["provider"]
    await context.operations.cancel(context.actor, name)
    context.go(f"{_PATH}/{name}", done="probe-cancelled")


async def use_result(context: RequestContext) -> None:
    name, model = context.params["provider"], context.form.get("model")
    used = await context.operations.use(context.actor, name, model)
    if used.in_force:
        context.go(f"{_PATH}/{name}", done="probe-used")
        return
    await context.show("operator/by_hand.html", name=name, model=model, used=used)


async def _view(context: RequestContext) -> ProviderView:
    return await context.operations.provider(context.actor, context.params["provider"])


def _model(view: ProviderView, id: str) -> ProbedModelView:
    for model in view.models:
        if model.id == id and model.cost is not None:
            return model
    raise NotFound("There is no such model at this provider that could be probed.")


async def _author(context: RequestContext, entry: EntryView | None) -> str:
    kind, _, id = (entry.updated_by if entry else "").partition(":")
    if kind != "user":
        return kind
    try:
        return (await context.accounts.users.see(context.actor, id)).name
    except NotFound:
        return id


def _only(view: ProviderView, model: str) -> ProviderView:
    targets = [one for one in view.targets if model in {each.model for each in one.serves}]
    named = {one.model for one in targets}
    models = tuple(one for one in view.models if one.id in named)
    return structs.replace(view, targets=tuple(targets), models=models)


_LONGEST_PREFIX = 64


async def show_models(context: RequestContext) -> None:
    provider, entries = await provider_asked(context)
    trial = await context.configuration.listed(context.actor, provider.name)
    find, form = context.query.get("find"), context.form
    rows = compared(provider, trial.models, entries) if trial.listing.ok else ()
    await context.show(
        "operator/provider_models.html",
        provider=provider,
        listing=trial.listing,
        find=find,
        rows=[(each, _value(each)) for each in rows if find.casefold() in _text(each)],
        states=[each.state for each in rows],
        picked=frozenset([*form.every("pick"), *form.every("gone")]),
        prefix_typed=form.get("prefix")[:_LONGEST_PREFIX],
        problems=EntryProblems(context.problem),
        wildcard=any("*" in _targets(each, provider.name) for each in entries),
    )


async def take_over(context: RequestContext) -> None:
    provider, entries = await provider_asked(context)
    prefix = context.form.get("prefix")[:_LONGEST_PREFIX]
    picked = [picked_model(each) for each in context.form.every("pick")]
    steps = [*taken_over(provider, entries, picked, context.form.every("gone"), prefix)]
    if context.form.get("all"):
        every = prefix or f"{provider.name}/"
        steps += taken_over(provider, entries, [ListedModel(id="*")], prefix=every)
    if not steps:
        raise InvalidRequest("Nothing was picked that would change.", param="pick")
    await context.configuration.apply(context.actor, steps)
    context.go(f"{_PATH}/{provider.name}", done="models-taken")


def _value(row: ComparedModel) -> str:
    if row.listed is None:
        return row.id
    taken = msgspec.structs.replace(row.listed, description=None, max_output_tokens=None)
    return msgspec.json.encode(taken).decode()


def _text(row: ComparedModel) -> str:
    name = row.listed.name if row.listed is not None else None
    return f"{row.id} {name or ''}".casefold()


def _targets(entry: EntryView, provider: str) -> Sequence[str]:
    if entry.kind != "alias":
        return ()
    targets = entry.settings.get("targets", ())
    return [each["model"] for each in targets if each.get("provider") == provider]
