"""Read the fields that only a router's door knows: fallback models and provider preferences."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import get_args

from causerie.protocol.body import ObjectReader, missing, unsupported, wrong_type, wrong_value
from causerie.protocol.body_types import MAX_PROVIDER_NAMES, PriceCeiling
from causerie.protocol.declaration import declared
from causerie.protocol.known_fields import Known, known_of, refusal, sift
from causerie.protocol.numbers import money
from causerie.protocol.parameters import MAX_ID, MAX_MODELS, ParsingRules, RouterParameters
from causerie.protocol.targets import ANY_PRICE, NO_PREFERENCES, MostPrice, Preferences, SortBy

ROUTER_FIELDS = frozenset(each.name for each in declared(RouterParameters))
_KNOWN = Known({each.name: known_of(each.type) for each in declared(RouterParameters)})
_SORTS: tuple[SortBy, ...] = get_args(SortBy)


def read_models(fields: ObjectReader, rules: ParsingRules) -> tuple[str, tuple[str, ...]]:
    """Return the model and its fallbacks."""
    if not rules.router or not fields.has("models"):
        return fields.required_string("model", most=MAX_ID), ()
    asked = fields.string("model", most=MAX_ID)
    named = fields.strings("models", most=MAX_MODELS, longest=MAX_ID)
    if asked == "":
        raise wrong_value("model", "must not be empty.")
    every = [*([asked] if asked is not None else []), *named]
    if not every:
        raise missing("model", "a string")
    first, *others = dict.fromkeys(every)
    return first, tuple(others)


def unknown_preferences(fields: ObjectReader, rules: ParsingRules) -> Sequence[str]:
    """Return the reports of unknown fields within the fields of a router, which are dropped.

    Raises :class:`InvalidRequest` where unknown fields are refused.
    """
    own = {name: fields.values[name] for name in ROUTER_FIELDS if name in fields.values}
    _, unlisted = sift(own, _KNOWN)
    if unlisted is None:
        return ()
    if unlisted.names and rules.reject_unknown and (refused := refusal(own, _KNOWN)) is not None:
        raise refused
    return unlisted.changes


def read_preferences(fields: ObjectReader) -> Preferences:
    """``provider``; the other fields of this door are checked, too."""
    fields.word("route", ("fallback",))
    for name in ("transforms", "plugins"):
        if fields.array(name, most=MAX_PROVIDER_NAMES):
            raise unsupported(name, "Messages and replies are never altered here; leave it out.")
    provider = fields.child("provider")
    if provider is None:
        return NO_PREFERENCES
    allow, require = provider.boolean("allow_fallbacks"), provider.boolean("require_parameters")
    collection = provider.word("data_collection", ("allow", "deny"))
    return Preferences(
        order=tuple(provider.strings("order", most=MAX_PROVIDER_NAMES)),
        only=_set(provider, "only"),
        ignore=_set(provider, "ignore") or frozenset(),
        quantizations=_set(provider, "quantizations"),
        allow_fallbacks=allow is not False,
        require_parameters=require or False,
        private=collection == "deny" or provider.boolean("zdr") or False,
        sort=_sort(provider),
        max_price=MostPrice(*(_money(prices, name) for name in PriceCeiling.__struct_fields__))
        if (prices := provider.child("max_price"))
        else ANY_PRICE,
    )


def _set(fields: ObjectReader, name: str) -> frozenset[str] | None:
    # Programs send an empty list where nothing was chosen.
    return frozenset(fields.strings(name, most=MAX_PROVIDER_NAMES)) or None


def _sort(provider: ObjectReader) -> SortBy | None:
    value = provider.get("sort")
    place, name = provider, "sort"
    if isinstance(value, dict):
        place, name = ObjectReader(value, provider.param("sort")), "by"
    word = place.word(name, _SORTS)
    return next((sort for sort in _SORTS if sort == word), None)


def _money(prices: ObjectReader, name: str) -> Decimal | None:
    value = prices.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise wrong_type(prices.param(name), "a number", value)
    try:
        return money(value)
    except ValueError as failure:
        raise wrong_value(
            prices.param(name), f"must be an amount of money: {failure}."
        ) from failure
