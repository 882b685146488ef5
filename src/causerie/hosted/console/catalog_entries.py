"""Models of the catalog as operators see them, and the models of a provider that they publish with
a margin.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from typing import Any

import msgspec

from causerie.errors import InvalidRequest
from causerie.hosted.console.entries import (
    EntryFormPages,
    EntryKindWords,
    SettingField,
    SettingsForm,
    picked_model,
    provider_asked,
)
from causerie.hosted.console.fields import Column, FormFields, page_of
from causerie.hosted.console.request_context import RequestContext
from causerie.hosted.console.settings_entries import LIMITS
from causerie.hosted.operations.provider_models import (
    Offer,
    PickedModel,
    PriceRules,
    offers,
    publication,
    router_door,
)
from causerie.protocol.numbers import money


class CatalogModelPages(EntryFormPages):
    """Models of the catalog; a new one may begin as a copy of another, or as its free variant."""

    async def new(self, context: RequestContext) -> None:
        """``?like=`` names the entry to copy, ``?free=yes`` leaves out its prices."""
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
        await self._show(context, None, SettingsForm.of(self.fields, settings, 0))


CATALOG_MODELS = CatalogModelPages(
    EntryKindWords(
        kinds=frozenset({"catalog_model"}),
        noun="catalog model",
        list_path="/operator/catalog",
        deletion="It leaves the catalog, and requests for it are rejected at once. "
        "Its usage is kept.",
        list_template="operator/catalog.html",
        searched=("name", "endpoints"),
    ),
    fields=(
        SettingField(
            "id",
            "ID",
            hint="`author/slug`, with `:free` behind it for a free variant.",
            missing="is missing; it is what requests name as `model`",
        ),
        SettingField("name", "Name", hint="Shown in lists. Empty: the ID."),
        SettingField("description", "Description"),
        SettingField("created", "Released", placeholder="2026-11-21"),
        SettingField("ends", "Last day", hint="Empty: it stays.", placeholder="2027-01-31"),
        SettingField("aliases", "Other names", "list"),
        *LIMITS,
    ),
)
_AMOUNT = re.compile(r"\d{1,9}(\.\d{1,9})?", re.ASCII)
_MOST_MARGIN = 1000
_ORDER = ("gone", "changed", "new", "joins", "same", "filed")


async def show_publishing(context: RequestContext) -> None:
    """Show what may be published; ``?margin=`` is in percent."""
    provider, entries = await provider_asked(context)
    form, rules = context.form or context.query, PriceRules()
    try:
        rules = _rules(form)
    except InvalidRequest as failure:
        context.problem = failure
    trial = await context.configuration.listed(context.actor, provider.name)
    found = offers(provider, trial.models, entries, rules) if trial.listing.ok else ()
    found = sorted(found, key=lambda one: _ORDER.index(one.state))
    margin = form.get("margin")
    kept = {"margin": margin} if margin else {}
    await context.show(
        "operator/publish.html",
        provider=provider,
        listing=trial.listing,
        page=page_of(found, context.query, _offer_texts, _OFFER_COLUMNS, kept),
        value=_value,
        states=[each.state for each in found],
        picked=frozenset([*form.every("pick"), *form.every("gone")]),
        typed=form,
        unpriced=any(each.listed is not None and each.price is None for each in found),
        no_door=router_door(entries) is not None,
    )


async def publish(context: RequestContext) -> None:
    provider, entries = await provider_asked(context)
    form = context.form
    rules, listed = _rules(form), [picked_model(each) for each in form.every("pick")]
    picked = [PickedModel(each, form.get(f"as:{each.id}")) for each in listed]
    steps = [*publication(provider, entries, picked, form.every("gone"), rules)]
    if not steps:
        raise InvalidRequest("Nothing was picked that would change.", param="pick")
    door = router_door(entries) if form.get("door") else None
    await context.configuration.apply(context.actor, [*([door] if door else []), *steps])
    context.go("/operator/catalog", done="models-published")


def _context(offer: Offer) -> int | None:
    return offer.listed.context_length if offer.listed is not None else offer.context_before


def _price(part: str) -> Callable[[Offer], Decimal | None]:

    def of(offer: Offer) -> Decimal | None:
        price = offer.price or offer.price_before
        return money(price[part]) if price is not None and part in price else None

    return of


_OFFER_COLUMNS: Mapping[str, Column] = {
    "state": lambda each: _ORDER.index(each.state),
    "id": "catalog_id",
    "context": _context,
    "input": _price("prompt"),
    "output": _price("completion"),
}


def _rules(form: FormFields) -> PriceRules:
    typed = _amount(form, "margin")
    margin = None if typed is None else money(typed)
    if margin is not None and margin > _MOST_MARGIN:
        raise InvalidRequest(f"A margin is at most {_MOST_MARGIN} percent.", param="margin")
    return PriceRules(margin, _amount(form, "prompt"), _amount(form, "completion"))


def _amount(form: FormFields, name: str) -> str | None:
    text = form.get(name)
    if not text:
        return None
    if not _AMOUNT.fullmatch(text):
        raise InvalidRequest("It is a number like `20` or `0.15`.", param=name)
    return text


def _value(offer: Offer) -> str:
    return offer.id if offer.listed is None else msgspec.json.encode(offer.listed).decode()


def _offer_texts(offer: Offer) -> Iterator[str]:
    yield offer.id
    yield offer.catalog_id
    if offer.listed is not None:
        yield offer.listed.name or ""
