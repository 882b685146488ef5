"""Rules for the router's catalog: its endpoints exist, and free ones are free."""

from __future__ import annotations

from collections.abc import Iterator

from causerie.protocol.nearest import ALIKE, nearest
from causerie.protocol.parsing.rules import HINTS, HONOURED
from causerie.settings.catalog import CatalogEndpointSettings, CatalogModelSettings
from causerie.settings.lines import Path as KeyPath
from causerie.settings.price import PriceSettings
from causerie.settings.problems import Broken
from causerie.settings.provider_rules import target_rules
from causerie.settings.tree import Settings


def catalog_rules(settings: Settings) -> Iterator[Broken]:
    for index, entry in enumerate(settings.catalog):
        yield from _entry(("catalog", index), entry, settings)


def _entry(at: KeyPath, entry: CatalogModelSettings, settings: Settings) -> Iterator[Broken]:
    if not entry.endpoints:
        yield Broken((*at, "endpoints"), "is empty; name at least one who answers")
    seen: set[str] = set()
    for index, endpoint in enumerate(entry.endpoints):
        place: KeyPath = (*at, "endpoints", index)
        if endpoint.name in seen:
            yield Broken(place, f'"{endpoint.name}" is in the list already')
        seen.add(endpoint.name)
        if entry.id.endswith(":free") and endpoint.price != PriceSettings():
            yield Broken((*place, "price"), f'is set, and "{entry.id}" is free; remove it')
        yield from _endpoint(place, endpoint, settings)


def _endpoint(
    at: KeyPath, endpoint: CatalogEndpointSettings, settings: Settings
) -> Iterator[Broken]:
    yield from target_rules(at, endpoint, settings)
    parameters = HONOURED | HINTS
    for name in endpoint.supported_parameters or ():
        if name not in parameters:
            near = nearest(name, parameters, ALIKE)
            hint = f"; did you mean `{near}`?" if near else ""
            advice = f'"{name}" is no parameter of a request{hint}'
            yield Broken((*at, "supported_parameters"), advice)
