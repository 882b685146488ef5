"""Compare a provider's models with aliases and catalog, and plan the configuration changes."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from causerie.errors import InvalidRequest, NotFound
from causerie.hosted.accounts.records import EntryKind
from causerie.hosted.operations.configuring import (
    PRICE_PARTS,
    EntryStep,
    EntryView,
    EntryWish,
    ListedModel,
)
from causerie.protocol.numbers import money

_DIGITS = Decimal("0.000000001")  # of money in the configuration

State = Literal["new", "changed", "same", "gone"]


class ComparedModel(Struct, frozen=True):
    """One model of a provider: its listing, its configured alias, and how the two differ."""

    id: str
    state: State
    listed: ListedModel | None
    alias: EntryView | None
    context_before: int | None
    price_before: Mapping[str, str] | None

    @property
    def alone(self) -> bool:
        """Return whether its alias, if any, has no other target, so that both have one price."""
        return self.alias is None or len(self.alias.settings["targets"]) == 1


def compared(
    provider: EntryView, listed: Sequence[ListedModel], entries: Sequence[EntryView]
) -> Sequence[ComparedModel]:
    """Compare a provider's listed models with its aliases; aliased models not listed come last."""
    aliases = {id: one.entry for id, one in _index_aliases_by_model(provider.name, entries).items()}
    models = provider.settings.get("models", ())
    contexts = {each.get("id"): each.get("context_length") for each in models}
    there = {one.id for one in listed}
    gone = [(id, None) for id in aliases if id not in there and "*" not in id]
    return [
        _build_compared_model(id, one, aliases.get(id), contexts.get(id))
        for id, one in [*((one.id, one) for one in listed), *gone]
    ]


def _build_compared_model(
    model_id: str, model: ListedModel | None, alias: EntryView | None, known_context: int | None
) -> ComparedModel:
    price = alias.settings.get("price") if alias is not None else None
    state: State = "gone" if model is None else "new" if alias is None else "same"
    found = ComparedModel(model_id, state, model, alias, known_context, price)
    if model is None or alias is None:
        return found
    new_context = model.context_length not in (None, known_context)
    new_price = found.alone and any(
        money(amount) != money((price or {}).get(part, "0"))
        for part, amount in published_price(model).items()
    )
    return replace(found, state="changed") if new_context or new_price else found


def taken_over(
    provider: EntryView,
    entries: Sequence[EntryView],
    picked: Sequence[ListedModel],
    gone: Collection[str] = (),
    prefix: str = "",
) -> Sequence[EntryStep]:
    """Return the changes that add or update aliases of ``picked`` models and drop ``gone`` models.

    Entries of the file stay as they are.
    """
    aliases, drafts, new = (
        _index_aliases_by_model(provider.name, entries),
        _Drafts("alias", entries),
        [],
    )
    for one in picked:
        alias = aliases[one.id].entry if one.id in aliases else None
        if alias is None:
            settings: dict[str, Any] = {
                "id": prefix + one.id,
                "targets": [{"provider": provider.name, "model": one.id}],
                **_build_price_settings_or_empty(one),
            }
            if one.name and one.name != one.id:
                settings["name"] = one.name
            new.append(EntryStep(kind="alias", wish=EntryWish(settings=settings)))
        elif not alias.locked and len(alias.settings["targets"]) == 1:
            drafts[alias.name] |= _build_price_settings_or_empty(one)
    drafts.remove(provider.name, gone)
    return [*_plan_provider_entry_change(provider, picked, gone), *new, *drafts.steps()]


def provider_in_force(entries: Sequence[EntryView], name: str) -> EntryView:
    """Return the provider's entry in force, the file's if there is one; raise :class:`NotFound`."""
    for each in sorted(entries, key=lambda one: not one.locked):
        if (each.kind, each.name, each.in_force) == ("provider", name, True):
            return each
    raise NotFound("No provider of this name is in force; switch it on first.", code="not_found")


def removal(provider: EntryView, entries: Sequence[EntryView]) -> Sequence[EntryStep]:
    """Return the changes that delete a provider, its targets, and aliases without other targets."""
    drafts = _Drafts("alias", entries)
    drafts.remove(provider.name, _index_aliases_by_model(provider.name, entries))
    return [*drafts.steps(), EntryStep(kind="provider", id=provider.id)]


def aliases_of(provider: str, entries: Sequence[EntryView]) -> Sequence[EntryView]:
    return [
        each
        for each in entries
        if each.kind == "alias" and _index_aliases_by_model(provider, [each])
    ]


_PLACES: Mapping[EntryKind, str] = {"alias": "targets", "catalog_model": "endpoints"}


class _Place(Struct, frozen=True):
    entry: EntryView
    settings: Mapping[str, Any]


def _index_targets_by_model(
    entry_kind: EntryKind, provider_name: str, entries: Iterable[EntryView]
) -> Mapping[str, _Place]:
    # What entries of a kind say of each model of a provider; the first entry with it.
    found: dict[str, _Place] = {}
    for entry in entries:
        for each in entry.settings.get(_PLACES[entry_kind], ()) if entry.kind == entry_kind else ():
            if isinstance(each, Mapping) and each.get("provider") == provider_name:
                found.setdefault(str(each.get("model")), _Place(entry, each))
    return found


def _index_aliases_by_model(provider: str, entries: Iterable[EntryView]) -> Mapping[str, _Place]:
    # If several aliases have a model, the one with the fewest other targets.
    fewest = sorted(entries, key=lambda one: len(one.settings.get("targets", ())))
    return _index_targets_by_model("alias", provider, fewest)


class _Drafts(dict[str, dict[str, Any]]):
    # New settings of the entries of a kind, but for those of the file.

    def __init__(self, kind: EntryKind, entries: Iterable[EntryView]) -> None:
        self._entry_kind = kind
        changeable = (each for each in entries if each.kind == kind and not each.locked)
        self._entry_by_name = {each.name: each for each in changeable}
        super().__init__({name: dict(each.settings) for name, each in self._entry_by_name.items()})

    def remove(self, provider: str, gone: Collection[str]) -> None:
        name = _PLACES[self._entry_kind]
        for draft in self.values():
            if isinstance(draft.get(name), list):
                draft[name] = [
                    each
                    for each in draft[name]
                    if each.get("provider") != provider or each.get("model") not in gone
                ]

    def steps(self) -> Iterator[EntryStep]:
        for name, draft in self.items():
            entry = self._entry_by_name.get(name)
            if entry is None:
                yield EntryStep(kind=self._entry_kind, wish=EntryWish(settings=draft))
            elif draft != entry.settings and draft[_PLACES[self._entry_kind]]:
                yield changed(entry, draft)
            elif draft != entry.settings:
                yield EntryStep(kind=self._entry_kind, id=entry.id)


def published_price(one: ListedModel) -> Mapping[str, str]:
    """Return the price parts that a provider publishes for a model, as configuration texts."""
    found = {part: getattr(one, f"{part}_price") for part in PRICE_PARTS}
    return {part: configured(money(amount)) for part, amount in found.items() if amount is not None}


def configured(amount: Decimal) -> str:
    """Format an amount of money as the configuration's decimal text, rounded to nine places."""
    try:
        return f"{amount.quantize(_DIGITS).normalize():f}"
    except InvalidOperation:
        return f"{amount:f}"  # more than the configuration accepts


def _build_price_settings_or_empty(model: ListedModel) -> dict[str, Any]:
    price = published_price(model)
    return {"price": dict(price)} if price else {}


def changed(entry: EntryView, settings: dict[str, Any]) -> EntryStep:
    """Return the step that replaces the settings of an entry by these."""
    wish = EntryWish(settings=settings, enabled=entry.enabled, version=entry.version)
    return EntryStep(kind=entry.kind, id=entry.id, wish=wish)


def _plan_provider_entry_change(
    provider: EntryView, picked_models: Sequence[ListedModel], removed_model_ids: Collection[str]
) -> Iterator[EntryStep]:
    if provider.locked:
        return
    before = provider.settings.get("models", [])
    models = {each["id"]: each for each in before if each["id"] not in removed_model_ids}
    for one in picked_models:
        told = {"context_length": one.context_length, "claims": _build_capability_claims(one)}
        if found := {name: each for name, each in told.items() if each}:
            models[one.id] = {**models.get(one.id, {"id": one.id}), **found}
    if list(models.values()) != before:
        yield changed(provider, {**provider.settings, "models": list(models.values())})


_KIND: EntryKind = "catalog_model"
_VARIANTS = ("free", "extended")
_UNFIT = re.compile(r"[^a-z0-9._-]+")
_LONGEST_PART = 63

OfferState = Literal["new", "joins", "changed", "same", "gone", "filed"]


class Offer(Struct, frozen=True, kw_only=True):
    """A model of a provider, as it is listed and as the catalog has it."""

    id: str
    state: OfferState
    catalog_id: str
    listed: ListedModel | None
    price: dict[str, str] | None = None
    price_before: dict[str, str] | None = None
    context_before: int | None = None


@dataclass(frozen=True, slots=True)
class PriceRules:
    """Rules of sale prices: the margin on a provider's prices, and prices of models without one."""

    margin: Decimal | None = None
    """In percent. ``None``: 0 for new endpoints; others keep theirs."""
    prompt: str | None = None
    """Per 1M tokens of models whose price is not published."""
    completion: str | None = None


class PickedModel(Struct, frozen=True):
    """A listed model to publish under this id of the catalog."""

    listed: ListedModel
    catalog_id: str


def offers(
    provider: EntryView,
    listed: Sequence[ListedModel],
    entries: Sequence[EntryView],
    rules: PriceRules = PriceRules(),  # frozen
) -> Sequence[Offer]:
    """Compare a provider's listed models with its endpoints; endpoints not listed come last."""
    known, there = _index_endpoints(provider.name, entries), {one.id for one in listed}
    catalog = [each for each in entries if each.kind == _KIND]
    gone = [(id, None) for id, one in known.items() if id not in there and not one.entry.locked]
    return [
        _build_offer(provider.name, id, one, known.get(id), catalog, rules)
        for id, one in [*((one.id, one) for one in listed), *gone]
    ]


def publication(
    provider: EntryView,
    entries: Sequence[EntryView],
    picked: Sequence[PickedModel],
    gone: Collection[str] = (),
    rules: PriceRules = PriceRules(),  # frozen
) -> Sequence[EntryStep]:
    """Return the changes that publish ``picked`` models as listed, and remove ``gone`` models.

    Models picked for one id become endpoints of one model. Entries of the file stay as they are.
    Raises :class:`InvalidRequest` for a model without a price, or one of the file.
    """
    known = _index_endpoints(provider.name, entries)
    filed = {each.name for each in entries if each.kind == _KIND and each.locked}
    drafts = _Drafts(_KIND, [each for each in entries if each.name not in filed])
    for one in picked:
        there = known.get(one.listed.id)
        name = there.entry.name if there is not None else one.catalog_id
        if name in filed:
            raise InvalidRequest(
                f"The configuration file has {name}; change it there, or publish "
                f"{one.listed.id} under another id.",
                param="catalog_id",
            )
        draft = drafts.setdefault(name, _build_model_settings(name, one.listed))
        if one.listed.created is not None:
            draft.setdefault("created", one.listed.created.isoformat())
        endpoints = {(each.get("provider"), each.get("model")): each for each in draft["endpoints"]}
        endpoints[provider.name, one.listed.id] = _build_endpoint_settings(
            provider.name, one.listed, there, rules
        )
        draft["endpoints"] = list(endpoints.values())
    drafts.remove(provider.name, gone)
    return [*drafts.steps()]


def models_of(provider: str, entries: Iterable[EntryView]) -> Sequence[EntryView]:
    return [each for each in entries if each.kind == _KIND and _index_endpoints(provider, [each])]


def withdrawal(provider: EntryView, entries: Sequence[EntryView]) -> Sequence[EntryStep]:
    """Return the changes that remove a provider's endpoints from the catalog of the database."""
    return publication(provider, entries, (), gone=_index_endpoints(provider.name, entries).keys())


def router_door(entries: Iterable[EntryView]) -> EntryStep | None:
    """Return the step that adds a router door for the catalog; ``None`` if one is configured."""
    if any(each.kind == "door" and each.settings.get("kind") == "router" for each in entries):
        return None
    return EntryStep(kind="door", wish=EntryWish(settings={"name": "router", "kind": "router"}))


def catalog_id(provider: str, model: str) -> str:
    """Return the ``author/slug`` of a provider's model, with the provider for a missing author."""
    base, _, variant = model.partition(":")
    parts = [part for part in base.split("/") if part]
    author = parts[0] if len(parts) == 2 else provider
    slug = parts[-1] if parts else "model"
    suffix = f":{variant}" if variant in _VARIANTS else ""
    rest = f"-{variant}" if variant and not suffix else ""
    return f"{_sanitize_id_part(author)}/{_sanitize_id_part(slug + rest)}{suffix}"


def _sanitize_id_part(text: str) -> str:
    return _UNFIT.sub("-", text.lower()).strip("-._")[:_LONGEST_PART] or "model"


def _index_endpoints(provider: str, entries: Iterable[EntryView]) -> Mapping[str, _Place]:
    return _index_targets_by_model(_KIND, provider, sorted(entries, key=lambda one: one.locked))


def _build_offer(
    provider: str,
    model_id: str,
    model: ListedModel | None,
    endpoint: _Place | None,
    catalog: Sequence[EntryView],
    rules: PriceRules,
) -> Offer:
    entry = endpoint.entry if endpoint is not None else _match_entry(provider, model_id, catalog)
    state: OfferState = "new" if entry is None else "joins"
    if model is None:
        state = "gone"
    elif entry is not None and entry.locked:
        state = "filed"
    elif endpoint is not None:
        now = _build_endpoint_settings(provider, model, endpoint, rules)
        state = "same" if now == endpoint.settings else "changed"
    before = endpoint.settings if endpoint is not None else {}
    return Offer(
        id=model_id,
        state=state,
        catalog_id=entry.name if entry is not None else catalog_id(provider, model_id),
        listed=model,
        price=_compute_sale_price(model, endpoint, rules) if model is not None else None,
        price_before=before.get("price"),
        context_before=before.get("context_length"),
    )


def _match_entry(provider: str, model_id: str, catalog: Sequence[EntryView]) -> EntryView | None:
    wanted = catalog_id(provider, model_id)
    for each in catalog:
        if each.name.casefold() == wanted:
            return each
    if "/" in model_id:
        return None
    slug = wanted.partition("/")[2]
    found = [each for each in catalog if each.name.casefold().partition("/")[2] == slug]
    return found[0] if len(found) == 1 else None


def _build_model_settings(model_id: str, model: ListedModel) -> dict[str, Any]:
    words = {
        "name": model.name if model.name != model.id else None,
        "description": model.description,
        "created": model.created and model.created.isoformat(),
    }
    return {"id": model_id, "endpoints": [], **{key: each for key, each in words.items() if each}}


def _build_capability_claims(model: ListedModel) -> dict[str, Any]:
    found = {
        "supported_parameters": model.supported_parameters,
        "input_modalities": model.input_modalities,
        "output_modalities": model.output_modalities,
    }
    return {name: [*each] for name, each in found.items() if each is not None}


def _build_endpoint_settings(
    provider: str, model: ListedModel, endpoint: _Place | None, rules: PriceRules
) -> dict[str, Any]:
    made: dict[str, Any] = dict(endpoint.settings) if endpoint is not None else {}
    made |= {"provider": provider, "model": model.id}
    price = _compute_sale_price(model, endpoint, rules)
    if price is None:
        raise InvalidRequest(
            f"The provider publishes no price for {model.id}; type the price of such models, which "
            "may be 0.",
            param="prompt",
        )
    cost = dict(published_price(model))
    if cost and (endpoint is None or "cost" in made or rules.margin is not None):
        made |= {"price": price, "cost": cost}
    elif endpoint is None:
        made["price"] = price
    for name in ("context_length", "max_output_tokens"):
        if (tokens := getattr(model, name)) is not None:
            made[name] = tokens
    if claims := _build_capability_claims(model):
        made["claims"] = claims
    return made


def _compute_sale_price(
    model: ListedModel, endpoint: _Place | None, rules: PriceRules
) -> dict[str, str] | None:
    before = endpoint.settings if endpoint is not None else {}
    price, cost = before.get("price", {}), before.get("cost")
    if endpoint is not None and cost is None and rules.margin is None:
        return dict(price)  # typed by a person, so no list changes it
    published = published_price(model)
    found = {part: _sale_amount(part, amount, before, rules) for part, amount in published.items()}
    typed = {"prompt": rules.prompt, "completion": rules.completion}
    for part in [each for each in typed if each not in found]:
        amount = price.get(part, "0") if endpoint is not None else typed[part]
        if amount is None:
            return None
        found[part] = amount
    return found


def _sale_amount(part: str, amount: str, endpoint: Mapping[str, Any], rules: PriceRules) -> str:
    if rules.margin is not None:
        return configured(money(amount) * (1 + rules.margin / 100))
    cost = money(endpoint.get("cost", {}).get(part, "0"))
    price = endpoint.get("price", {}).get(part)
    if price is None or not cost:
        return amount
    if cost == money(amount):
        return str(price)
    return configured(money(amount) * money(price) / cost)
