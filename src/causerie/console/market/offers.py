"""One list of all models: the entries of the public catalog, and what keys may name besides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any

from causerie.catalog.listing import Listing
from causerie.catalog.model import ModelCard
from causerie.console.catalogue import ModelRow, view
from causerie.console.market.row import ModelListRow, ModelPrice, row
from causerie.console.ports import ServiceView

_NOT_KNOWN = Decimal("Infinity")
_HERE = "this service"


@dataclass(frozen=True, slots=True)
class ServedOffer:
    """A model that is in no public catalog. It is found and sorted like those that are."""

    view: ModelRow
    created: int
    targets: Sequence[str]
    """By the names of routing."""
    ends: date | None = None
    throughput: float | None = None
    latency: float | None = None

    @property
    def id(self) -> str:
        """Return what a request names as ``model``."""
        return self.view.id

    @property
    def card(self) -> ModelCard:
        return ModelCard(self.view.id, self.view.name, self.view.description, self.created)

    @property
    def price(self) -> Decimal:
        """For a usual million tokens, three in four of the prompt."""
        if self.view.price is None:
            return _NOT_KNOWN
        prompt, completion = self.view.price
        return (3 * prompt + completion) / 4

    @property
    def context_length(self) -> int | None:
        """In tokens."""
        return self.view.context

    @property
    def parameters(self) -> frozenset[str]:
        return frozenset(self.view.parameters)

    @property
    def input_modalities(self) -> frozenset[str]:
        """Return what a prompt may hold."""
        return frozenset({"text", "image"}) if self.view.images else frozenset({"text"})


Offer = Listing | ServedOffer


def offers(service_view: ServiceView, *, public: bool) -> Sequence[Offer]:
    """Return the entries of the catalog, and unless all shall be ``public`` the other models."""
    market = service_view.market()
    listed = market.entries() if market is not None else ()
    if public:
        return listed
    names = {name for one in listed for name in one.names}
    others = (entry for entry in service_view.models() if str(entry.get("id", "")) not in names)
    return [*listed, *(_served(entry, service_view) for entry in others)]


def offer_row(one: Offer) -> ModelListRow:
    if isinstance(one, Listing):
        return row(one)
    shown = one.view
    price = ModelPrice(*shown.price, None, None, Decimal(0)) if shown.price is not None else None
    return ModelListRow(
        id=shown.id,
        name=shown.name,
        description=shown.description,
        context=shown.context,
        price=price,
        latency=None,
        throughput=None,
        endpoints=len(one.targets),
        abilities=[*shown.abilities, *(["always thinks"] if shown.must_think else ())],
        ends=None,
        parameters=shown.groups,
        public=False,
    )


def sources(one: Offer, engines: frozenset[str]) -> Sequence[str]:
    """Return who answers for a model; ``engines`` are the targets that run here."""
    if isinstance(one, Listing):
        pairs = [(each.name, each.provider) for each in one.endpoints]
    else:
        pairs = [(name, name.partition("/")[0]) for name in one.targets]
    return list(dict.fromkeys(_HERE if name in engines else who for name, who in pairs))


def _served(entry: Mapping[str, Any], service_view: ServiceView) -> ServedOffer:
    shown = view(entry)
    created = entry.get("created")
    return ServedOffer(
        shown, created if isinstance(created, int) else 0, service_view.answering(shown.id)
    )
