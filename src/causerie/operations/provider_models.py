"""Models that a provider lists, compared with what is configured, and the changes that follow."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any, Literal

from causerie.errors import NotFound
from causerie.operations.configuring import EntryStep, EntryView, EntryWish
from causerie.operations.trial import PRICE_PARTS, ListedModel
from causerie.protocol.numbers import money

_DIGITS = Decimal("0.000000001")  # of money in the configuration

State = Literal["new", "changed", "same", "gone"]


@dataclass(frozen=True, slots=True)
class ComparedModel:
    """A model of a provider: as it is listed now, and as it is configured."""

    id: str
    state: State
    listed: ListedModel | None
    alias: EntryView | None
    context_before: int | None
    price_before: Mapping[str, str] | None

    @property
    def alone(self) -> bool:
        """Return true if no other model answers for its alias, so that their prices are one."""
        return self.alias is None or len(self.alias.settings["targets"]) == 1


def compared(
    provider: EntryView, listed: Sequence[ListedModel], entries: Sequence[EntryView]
) -> Sequence[ComparedModel]:
    """Compare the list with what is configured: first the models listed, then those gone."""
    aliases = _served(provider.name, entries)
    contexts = _contexts(provider.settings)
    found = [_compared(one, aliases.get(one.id), contexts) for one in listed]
    there = {one.id for one in listed}
    gone = [
        ComparedModel(id, "gone", None, alias, contexts.get(id), _price(alias))
        for id, alias in aliases.items()
        if id not in there and "*" not in id
    ]
    return [*found, *gone]


def taken_over(
    provider: EntryView,
    entries: Sequence[EntryView],
    picked: Sequence[ListedModel],
    gone: Collection[str] = (),
    prefix: str = "",
) -> Sequence[EntryStep]:
    """Return the changes that configure the models picked as they are listed, and drop those gone.

    Entries of the file stay as they are.
    """
    aliases = _served(provider.name, entries)
    made: dict[str, EntryStep] = {}
    for one in picked:
        alias = aliases.get(one.id)
        if alias is None:
            wish = EntryWish(settings=_alias(provider.name, one, prefix))
            made[one.id] = EntryStep(kind="alias", wish=wish)
        elif not alias.locked and len(alias.settings["targets"]) == 1:
            settings = {**alias.settings, **_published(one)}
            if settings != alias.settings:
                made[one.id] = changed(alias, settings)
    dropped = _without(provider.name, entries, gone)
    contexts = _with_contexts(provider, picked, gone)
    return [*contexts, *made.values(), *dropped]


def provider_in_force(entries: Sequence[EntryView], name: str) -> EntryView:
    """Return the entry of a provider, that of the file first; raise :class:`NotFound`."""
    found = [each for each in entries if (each.kind, each.name) == ("provider", name)]
    for each in sorted(found, key=lambda one: not one.locked):
        if each.in_force:
            return each
    raise NotFound("No provider of this name is in force; switch it on first.", code="not_found")


def removal(provider: EntryView, entries: Sequence[EntryView]) -> Sequence[EntryStep]:
    """Return the changes that delete a provider, its targets, and aliases with no other target."""
    targets = [model for each in _aliases(entries) for model in _models(provider.name, each)]
    end = EntryStep(kind="provider", id=provider.id)
    return [*_without(provider.name, entries, targets), end]


def aliases_of(provider: str, entries: Sequence[EntryView]) -> Sequence[EntryView]:
    return [each for each in _aliases(entries) if _models(provider, each)]


def _compared(
    one: ListedModel, alias: EntryView | None, contexts: Mapping[str, int]
) -> ComparedModel:
    price, context = _price(alias), contexts.get(one.id)
    state: State = "new" if alias is None else "same"
    found = ComparedModel(one.id, state, one, alias, context, price)
    if alias is None:
        return found
    new_context = one.context_length is not None and one.context_length != context
    new_price = found.alone and any(
        money(amount) != money((price or {}).get(part, "0"))
        for part, amount in published_price(one).items()
    )
    if not new_context and not new_price:
        return found
    return ComparedModel(one.id, "changed", one, alias, context, price)


def _aliases(entries: Sequence[EntryView]) -> Iterator[EntryView]:
    return (each for each in entries if each.kind == "alias")


def _models(provider: str, alias: EntryView) -> Sequence[str]:
    targets = alias.settings.get("targets")
    return [
        str(each.get("model"))
        for each in (targets if isinstance(targets, list) else ())
        if isinstance(each, Mapping) and each.get("provider") == provider
    ]


def _served(provider: str, entries: Sequence[EntryView]) -> Mapping[str, EntryView]:
    """Return the alias of each model; one that has no other target goes first."""
    found: dict[str, EntryView] = {}
    for each in sorted(_aliases(entries), key=lambda one: len(one.settings.get("targets", ()))):
        for model in _models(provider, each):
            found.setdefault(model, each)
    return found


def _contexts(settings: Mapping[str, Any]) -> Mapping[str, int]:
    return {
        each["id"]: each["context_length"]
        for each in settings.get("models", ())
        if "id" in each and each.get("context_length") is not None
    }


def _price(alias: EntryView | None) -> Mapping[str, str] | None:
    return alias.settings.get("price") if alias is not None else None


def published_price(one: ListedModel) -> Mapping[str, str]:
    """Return the price as the configuration has it; what is not published is left out."""
    found = {part: getattr(one, f"{part}_price") for part in PRICE_PARTS}
    return {part: configured(money(amount)) for part, amount in found.items() if amount is not None}


def configured(amount: Decimal) -> str:
    """Return an amount of money as the configuration has it."""
    try:
        return f"{amount.quantize(_DIGITS).normalize():f}"
    except InvalidOperation:
        return f"{amount:f}"  # more than the configuration accepts


def _published(one: ListedModel) -> dict[str, Any]:
    price = published_price(one)
    return {"price": dict(price)} if price else {}


def _alias(provider: str, one: ListedModel, prefix: str) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "id": prefix + one.id,
        "targets": [{"provider": provider, "model": one.id}],
        **_published(one),
    }
    if one.name and one.name != one.id:
        settings["name"] = one.name
    return settings


def changed(entry: EntryView, settings: dict[str, Any]) -> EntryStep:
    """Return the change of an entry that was read before to these settings."""
    wish = EntryWish(settings=settings, enabled=entry.enabled, version=entry.version)
    return EntryStep(kind=entry.kind, id=entry.id, wish=wish)


def _without(
    provider: str, entries: Sequence[EntryView], models: Collection[str]
) -> Iterator[EntryStep]:
    """Yield the changes after which these models of a provider are no targets any more."""
    for alias in _aliases(entries):
        if alias.locked or not set(models).intersection(_models(provider, alias)):
            continue
        kept = [
            each
            for each in alias.settings["targets"]
            if each.get("provider") != provider or each.get("model") not in models
        ]
        if kept:
            yield changed(alias, {**alias.settings, "targets": kept})
        else:
            yield EntryStep(kind="alias", id=alias.id)


def _with_contexts(
    provider: EntryView, picked: Sequence[ListedModel], gone: Collection[str]
) -> Iterator[EntryStep]:
    """Yield the change of the provider itself, if what it says of its models changes."""
    if provider.locked:
        return
    before = provider.settings.get("models", [])
    models = {each["id"]: each for each in before if each["id"] not in gone}
    for one in picked:
        if one.context_length is not None:
            known = models.get(one.id, {"id": one.id})
            models[one.id] = {**known, "context_length": one.context_length}
    if list(models.values()) != before:
        yield changed(provider, {**provider.settings, "models": list(models.values())})
