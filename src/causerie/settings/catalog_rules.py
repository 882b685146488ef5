"""What must hold of the router's catalog: offers that are there, and free ones that are free."""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from causerie.protocol.parsing.rules import HINTS, HONOURED
from causerie.settings.catalog import Entry, Offer
from causerie.settings.lines import Path as KeyPath
from causerie.settings.price import Price
from causerie.settings.problems import Broken
from causerie.settings.tree import Settings


def catalog_rules(settings: Settings) -> Iterator[Broken]:
    """Everything that is wrong with the catalog."""
    for index, entry in enumerate(settings.catalog):
        yield from _entry(("catalog", index), entry, settings)


def _entry(at: KeyPath, entry: Entry, settings: Settings) -> Iterator[Broken]:
    if not entry.offers:
        yield Broken((*at, "offers"), "is empty; name at least one who answers")
    seen: set[str] = set()
    for index, offer in enumerate(entry.offers):
        place: KeyPath = (*at, "offers", index)
        if offer.name in seen:
            yield Broken(place, f'"{offer.name}" is in the list already')
        seen.add(offer.name)
        if entry.id.endswith(":free") and offer.price != Price():
            yield Broken((*place, "price"), f'is set, and "{entry.id}" is free; remove it')
        yield from _offer(place, offer, settings)


def _offer(at: KeyPath, offer: Offer, settings: Settings) -> Iterator[Broken]:
    endpoints = [endpoint.name for endpoint in settings.endpoints]
    models = [model.id for model in settings.models]
    if offer.endpoint is not None and offer.endpoint not in endpoints:
        known = ", ".join(endpoints) or "none"
        advice = f'no endpoint is named "{offer.endpoint}"; known: {known}'
        yield Broken((*at, "endpoint"), advice, relies_on=(("endpoints",),))
    if offer.endpoint is None and offer.model not in models:
        known = ", ".join(models) or "none"
        yield Broken(
            (*at, "model"),
            f'no model of our own has the id "{offer.model}"; known: {known}; '
            "a model of an endpoint needs `endpoint`",
            relies_on=(("models",), (*at, "endpoint")),
        )
    parameters = HONOURED | HINTS
    for name in offer.supported_parameters or ():
        if name not in parameters:
            near = difflib.get_close_matches(name, parameters, n=1)
            hint = f"; did you mean `{near[0]}`?" if near else ""
            advice = f'"{name}" is no parameter of a request{hint}'
            yield Broken((*at, "supported_parameters"), advice)
