"""Provider pages for operators: state, probes, settings, models to take over and to publish."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any
from urllib.parse import urlencode

import msgspec
from msgspec import Struct, structs

from causerie.errors import InvalidRequest, NotFound
from causerie.hosted.console.entries import (
    EntryPages,
    EntryProblems,
    SettingsForm,
    entry_named,
    form_fields,
    picked_model,
    provider_asked,
)
from causerie.hosted.console.fields import Column, FormFields, page_of
from causerie.hosted.console.health import provider_health
from causerie.hosted.console.request_context import RequestContext
from causerie.hosted.console.service_view import target_badge
from causerie.hosted.operations.configuring import (
    EntryStep,
    EntryView,
    ListedModel,
    TestProvider,
)
from causerie.hosted.operations.ports import ProbedModelView, ProviderView
from causerie.hosted.operations.probes import Cell, groups
from causerie.hosted.operations.provider_models import (
    ComparedModel,
    Offer,
    PickedModel,
    PriceRules,
    aliases_of,
    compared,
    models_of,
    offers,
    publication,
    removal,
    router_door,
    taken_over,
    withdrawal,
)
from causerie.protocol.numbers import money
from causerie.providers.dialects import DIALECTS, KNOWN_PROVIDERS

_PATH = "/operator/providers"
_MOST_TARGETS = 12  # of a provider, in the list of all
_MOST_MODELS = 12  # that a provider's page compares, those probed first


class MatrixColumn(Struct, frozen=True):
    provider: str
    title: str
    model: ProbedModelView
    cells: Mapping[str, Cell]


def column(view: ProviderView, model: ProbedModelView, title: str) -> MatrixColumn:
    return MatrixColumn(view.name, title, model, {cell.parameter: cell for cell in model.cells})


async def show_list(context: RequestContext) -> None:
    """Show a row for each provider; ``?open=`` names the one whose targets are shown, too.

    ``?model=`` narrows both down to those that answer for a model, side by side.
    """
    views = await context.operations.providers(context.actor)
    served = {one.model for view in views for each in view.targets for one in each.serves}
    model, opened = context.query.get("model"), context.query.get("open")
    shown = model if model in served else ""
    if shown:
        narrowed = [_keep_targets_that_serve_model(view, shown) for view in views]
        views = [view for view in narrowed if view.targets]
    columns = [column(view, one, f"{view.name}/{one.id}") for view in views for one in view.models]
    entries = await context.configuration.every(context.actor)
    away = [each for each in entries if each.kind == "provider" and not each.in_force]
    badges = {view.name: [target_badge(one.name, one) for one in view.targets] for view in views}
    await context.send_page(
        "operator/providers.html",
        rows=[*zip(views, await provider_health(context, badges), strict=True)],
        entries={one.name: one for one in entries if one.kind == "provider" and one.in_force},
        away=() if shown else away,
        models=sorted(served),
        model=shown,
        opened={view.name for view in views if shown or view.name == opened},
        compared=columns if shown else (),
        groups=groups(),
        query=urlencode({"model": shown} if shown else {"open": opened} if opened else {}),
        most=_MOST_TARGETS,
    )


async def see(context: RequestContext) -> None:
    entries = await context.configuration.every(context.actor)
    name = context.params["provider"]
    filed, kept = (entry_named(entries, "provider", name, locked=one) for one in (True, False))
    try:
        view = await _read_provider_view(context)
    except NotFound:
        if kept is None:
            raise
        aliases, by = aliases_of(name, entries), await _find_last_editor_name_or_kind(context, kept)
        away = {"entry": kept, "aliases": aliases, "changed_by": by}
        await context.send_page("operator/provider_away.html", **away)
        return
    probed = sorted(view.models, key=lambda one: one.probed is None and one.newest is None)
    shown = structs.replace(view, models=tuple(probed[:_MOST_MODELS]))
    await context.send_page(
        "operator/provider.html",
        view=shown,
        left_out=len(view.models) - len(shown.models),
        others=probed[_MOST_MODELS:],
        entry=filed or kept,
        shadowed=kept if filed is not None else None,
        aliases=aliases_of(name, entries),
        changed_by=await _find_last_editor_name_or_kind(context, filed or kept),
        columns=[column(shown, model, model.id) for model in shown.models],
        groups=groups(),
    )


async def show_progress(context: RequestContext) -> None:
    """Send the state of a running probe to the script that polls it; redirect when it has ended."""
    view = await _read_provider_view(context)
    if view.probe is None or view.probe.state != "asking":
        context.go(f"{_PATH}/{view.name}")
        return
    await context.send_page("operator/progress.html", view=view)


async def ask_probe(context: RequestContext) -> None:
    view = await _read_provider_view(context)
    model = _find_probeable_model(view, context.form.get("model", context.query.get("model")))
    await context.send_page("operator/probe.html", view=view, model=model)


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
    await context.send_page("operator/by_hand.html", name=name, model=model, used=used)


async def _read_provider_view(context: RequestContext) -> ProviderView:
    return await context.operations.provider(context.actor, context.params["provider"])


def _find_probeable_model(provider_view: ProviderView, model_id: str) -> ProbedModelView:
    for model in provider_view.models:
        if model.id == model_id and model.cost is not None:
            return model
    raise NotFound("There is no such model at this provider that could be probed.")


async def _find_last_editor_name_or_kind(context: RequestContext, entry: EntryView | None) -> str:
    kind, _, id = (entry.updated_by if entry else "").partition(":")
    if kind != "user":
        return kind
    try:
        return (await context.accounts.users.see(context.actor, id)).name
    except NotFound:
        return id


def _keep_targets_that_serve_model(view: ProviderView, model_id: str) -> ProviderView:
    targets = [one for one in view.targets if model_id in {each.model for each in one.serves}]
    named = {one.model for one in targets}
    models = tuple(one for one in view.models if one.id in named)
    return structs.replace(view, targets=tuple(targets), models=models)


_LONGEST_PREFIX = 64


async def show_models(context: RequestContext) -> None:
    provider, entries = await provider_asked(context)
    trial = await context.configuration.listed(context.actor, provider.name)
    find = context.query.get("find").casefold()
    rows = compared(provider, trial.models, entries) if trial.listing.ok else ()
    await context.send_page(
        "operator/provider_models.html",
        provider=provider,
        listing=trial.listing,
        rows=[(one, _encode_model_or_id(one)) for one in rows if find in _build_search_text(one)],
        states=[each.state for each in rows],
        problems=EntryProblems(context.problem),
        wildcard=any("*" in _list_alias_models(each, provider.name) for each in entries),
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


def _encode_model_or_id(row: ComparedModel) -> str:
    if row.listed is None:
        return row.id
    taken = msgspec.structs.replace(row.listed, description=None, max_output_tokens=None)
    return msgspec.json.encode(taken).decode()


def _build_search_text(row: ComparedModel) -> str:
    name = row.listed.name if row.listed is not None else None
    return f"{row.id} {name or ''}".casefold()


def _list_alias_models(entry: EntryView, provider_name: str) -> Sequence[str]:
    if entry.kind != "alias":
        return ()
    targets = entry.settings.get("targets", ())
    return [each["model"] for each in targets if each.get("provider") == provider_name]


FIELDS = form_fields("provider")
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
        await context.send_page("operator/pick_provider.html", found=found, find=find, other=_OTHER)
        return
    chosen = [("name", known.name), ("known", known.name)] if known else []
    shown = SettingsForm(FIELDS, form or FormFields(chosen))
    await _show_provider_form(context, "add_provider", shown, trial=None, tested=False)


async def create(context: RequestContext) -> None:
    """Add a provider; leads to the choice of its models."""
    form = SettingsForm(FIELDS, context.form)
    step = EntryStep(kind="provider", wish=form.wish(key=context.form.get("key") or None))
    await context.configuration.apply(context.actor, [step])
    context.go(f"{_PATH}/{form.values['name']}/models", done="provider-added")


async def test(context: RequestContext) -> None:
    form, trial = SettingsForm(FIELDS, context.form), None
    key, model = context.form.get("key"), context.form.get("test_model")
    wanted = TestProvider(settings=form.settings(), key=key, model=model)
    try:
        trial = await context.configuration.test(context.actor, wanted)
    except InvalidRequest as failure:
        context.problem = failure
    await _show_provider_form(context, "add_provider", form, trial=trial, tested=trial is None)


async def edit(context: RequestContext) -> None:
    entry, _ = await _get_stored_and_entries(context)
    form = SettingsForm.shown(FIELDS, context.form, entry)
    await _show_provider_form(context, "edit_provider", form, entry=entry)


async def change(context: RequestContext) -> None:
    """Replace the settings of a provider; an empty key field keeps the stored key."""
    entry, _ = await _get_stored_and_entries(context)
    form = SettingsForm(FIELDS, context.form)
    key = "" if context.form.get("no_key") else context.form.get("key") or None
    wish = form.wish(key=key, enabled=entry.enabled)
    await context.configuration.change(context.actor, entry.id, wish)
    context.go(f"{_PATH}/{form.values['name']}", done="provider-saved")


async def try_kept(context: RequestContext) -> None:
    entries = await context.configuration.every(context.actor)
    name, model = context.params["provider"], context.form.get("test_model")
    entry = entry_named(entries, "provider", name, locked=True)
    wanted = TestProvider(model=model, filed=name)
    if entry is None:
        entry, _ = await _get_stored_and_entries(context)
        wanted = TestProvider(model=model, entry=entry.id)
    trial = await context.configuration.test(context.actor, wanted)
    await context.send_page("operator/provider_trial.html", entry=entry, trial=trial)


async def ask_deletion(context: RequestContext) -> None:
    entry, entries = await _get_stored_and_entries(context)
    served: dict[str, Sequence[EntryView]] = {"aliases": (), "models": ()}
    if not _is_shadowed(entry, entries):
        models = [each for each in models_of(entry.name, entries) if not each.locked]
        served = {"aliases": aliases_of(entry.name, entries), "models": models}
    await context.send_page("operator/delete_provider.html", entry=entry, **served)


async def delete(context: RequestContext) -> None:
    entry, entries = await _get_stored_and_entries(context)
    steps: Sequence[EntryStep] = [EntryStep(kind="provider", id=entry.id)]
    if not _is_shadowed(entry, entries):
        steps = [*withdrawal(entry, entries), *removal(entry, entries)]
    await context.configuration.apply(context.actor, steps)
    context.go(_PATH, done="provider-deleted")


async def switch(context: RequestContext, *, enabled: bool) -> None:
    entry, _ = await _get_stored_and_entries(context)
    await context.configuration.switch(context.actor, entry.id, enabled=enabled)
    done = "provider-enabled" if enabled else "provider-disabled"
    context.go(f"{_PATH}/{entry.name}", done=done)


async def _get_stored_and_entries(context: RequestContext) -> tuple[EntryView, Sequence[EntryView]]:
    entries = await context.configuration.every(context.actor)
    found = entry_named(entries, "provider", context.params["provider"], locked=False)
    if found is None:
        raise NotFound("No provider of this name is in the database.")
    return found, entries


async def _show_provider_form(
    context: RequestContext, template: str, form: SettingsForm, **values: Any
) -> None:
    known = KNOWN_PROVIDERS.get(form.values.get("known", ""))
    usual = f"As known: {known.dialect}" if known is not None else "generic: chat completions"
    await context.send_page(
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


class CatalogModelPages(EntryPages):
    """Models of the catalog; a new one may begin as a copy of another, or as its free variant."""

    async def new(self, context: RequestContext) -> None:
        """Show the form of a new entry: empty, a copy (``?like=``), or the copy's free variant."""
        like = context.query.get("like")
        if context.form or not like:
            await super().new(context)
            return
        source = await context.configuration.see(context.actor, like)
        settings: dict[str, Any] = msgspec.to_builtins(source.settings)
        settings["id"] = f"{settings['id'].partition(':')[0]}:free"
        if context.query.get("free") != "yes":
            settings["id"] = f"{source.settings['id'].partition(':')[0]}-copy"
        else:
            settings["name"] = f"{settings.get('name') or source.name} (free)"
            for each in settings["endpoints"]:
                each.pop("price", None)
                each.pop("cost", None)
        await self._show_entry_form(context, None, SettingsForm.of(self.fields, settings, 0))


CATALOG_MODELS = CatalogModelPages.of("catalog_model")
_AMOUNT = re.compile(r"\d{1,9}(\.\d{1,9})?", re.ASCII)
_MOST_MARGIN = 1000
_ORDER = ("gone", "changed", "new", "joins", "same", "filed")


async def show_publishing(context: RequestContext) -> None:
    """Show which models of a provider may be published, and prices with ``?margin=`` in percent."""
    provider, entries = await provider_asked(context)
    form, rules = context.form or context.query, PriceRules()
    try:
        rules = _parse_price_rules(form)
    except InvalidRequest as failure:
        context.problem = failure
    trial = await context.configuration.listed(context.actor, provider.name)
    found = offers(provider, trial.models, entries, rules) if trial.listing.ok else ()
    found = sorted(found, key=lambda one: _ORDER.index(one.state))
    kept = form.given(("margin",))
    await context.send_page(
        "operator/publish.html",
        provider=provider,
        listing=trial.listing,
        page=page_of(found, context.query, _list_offer_search_texts, _OFFER_COLUMNS, kept),
        value=_encode_offered_model_or_id,
        states=[each.state for each in found],
        unpriced=any(each.listed is not None and each.price is None for each in found),
        no_door=router_door(entries) is not None,
    )


async def publish(context: RequestContext) -> None:
    provider, entries = await provider_asked(context)
    form = context.form
    rules, listed = _parse_price_rules(form), [picked_model(each) for each in form.every("pick")]
    picked = [PickedModel(each, form.get(f"as:{each.id}")) for each in listed]
    steps = [*publication(provider, entries, picked, form.every("gone"), rules)]
    if not steps:
        raise InvalidRequest("Nothing was picked that would change.", param="pick")
    door = router_door(entries) if form.get("door") else None
    await context.configuration.apply(context.actor, [*([door] if door else []), *steps])
    context.go("/operator/catalog", done="models-published")


def _get_context_length(offer: Offer) -> int | None:
    return offer.listed.context_length if offer.listed is not None else offer.context_before


def _build_price_reader(price_part: str) -> Callable[[Offer], Decimal | None]:

    def of(offer: Offer) -> Decimal | None:
        price = offer.price or offer.price_before
        return money(price[price_part]) if price is not None and price_part in price else None

    return of


_OFFER_COLUMNS: Mapping[str, Column] = {
    "state": lambda each: _ORDER.index(each.state),
    "id": "catalog_id",
    "context": _get_context_length,
    "input": _build_price_reader("prompt"),
    "output": _build_price_reader("completion"),
}


def _parse_price_rules(form: FormFields) -> PriceRules:
    typed = _decimal_text(form, "margin")
    margin = None if typed is None else money(typed)
    if margin is not None and margin > _MOST_MARGIN:
        raise InvalidRequest(f"A margin is at most {_MOST_MARGIN} percent.", param="margin")
    return PriceRules(margin, _decimal_text(form, "prompt"), _decimal_text(form, "completion"))


def _decimal_text(form: FormFields, field_name: str) -> str | None:
    text = form.get(field_name)
    if not text:
        return None
    if not _AMOUNT.fullmatch(text):
        raise InvalidRequest("It is a number like `20` or `0.15`.", param=field_name)
    return text


def _encode_offered_model_or_id(offer: Offer) -> str:
    return offer.id if offer.listed is None else msgspec.json.encode(offer.listed).decode()


def _list_offer_search_texts(offer: Offer) -> Iterator[str]:
    yield offer.id
    yield offer.catalog_id
    if offer.listed is not None:
        yield offer.listed.name or ""
