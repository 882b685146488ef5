"""A few models side by side, one line for each thing that they can be told apart by."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from msgspec import to_builtins

from causerie.catalog.listing import Listing
from causerie.console.catalogue import ModelRow, grouped, view
from causerie.console.market.endpoints import EndpointRow, endpoints
from causerie.console.market.row import ModelListRow, ModelPrice, price, row

MOST = 4


@dataclass(frozen=True, slots=True)
class Compared:
    """One model with all that is compared."""

    row: ModelListRow
    price: ModelPrice
    view: ModelRow
    endpoints: Sequence[EndpointRow]
    takes: Sequence[str]
    variants: Sequence[str]

    @property
    def output(self) -> int | None:
        """The most tokens of a reply."""
        return self.view.output

    @property
    def uptime(self) -> float | None:
        """Of its best endpoint, in percent of a day's requests."""
        found = [each.uptimes[2] for each in self.endpoints]
        return max((one for one in found if one is not None), default=None)

    @property
    def keepers(self) -> int:
        """Endpoints that may keep what they are sent."""
        return sum(not each.private for each in self.endpoints)


@dataclass(frozen=True, slots=True)
class ModelComparison:
    """``parameters`` are those that some of the models support, ``alike`` those of all."""

    models: Sequence[Compared]
    parameters: Sequence[tuple[str, Sequence[str]]]
    alike: Sequence[str]

    def best(self, name: str) -> frozenset[str]:
        """The ids of the models that are ahead in a figure."""
        value, sign = _FIGURES[name]
        found = {one.row.id: value(one) for one in self.models}
        known = {id: figure * sign for id, figure in found.items() if figure is not None}
        if len(known) < len(found) or len(set(known.values())) < 2:
            return frozenset()
        top = max(known.values())
        return frozenset(id for id, figure in known.items() if figure == top)


_FIGURES: dict[str, tuple[Callable[[Compared], float | None], int]] = {
    "context": (lambda one: one.row.context, 1),
    "output": (lambda one: one.output, 1),
    "prompt": (lambda one: float(one.price.prompt), -1),
    "completion": (lambda one: float(one.price.completion), -1),
    "latency": (lambda one: one.row.latency, -1),
    "throughput": (lambda one: one.row.throughput, 1),
    "uptime": (lambda one: one.uptime, 1),
    "endpoints": (lambda one: one.row.endpoints, 1),
}


def comparison(chosen: Sequence[Listing], entries: Sequence[Listing]) -> ModelComparison:
    """Of these, whose variants are among the entries."""
    models = [
        Compared(
            row(one),
            price(one.cheapest.tariff),
            view(to_builtins(one.entry())),
            endpoints(one),
            sorted(one.input_modalities),
            [each.id for each in variants(one.id, entries)],
        )
        for one in chosen
    ]
    sets = [frozenset(each.view.parameters) for each in models]
    every = frozenset[str]().union(*sets)
    alike = every.intersection(*sets)
    shared = [name for _, names in grouped(sorted(alike)) for name in names]
    return ModelComparison(models, grouped(sorted(every - alike)), shared)


def variants(id: str, entries: Sequence[Listing]) -> Sequence[Listing]:
    """The entries of the same model, itself first among those of its name."""
    base = id.partition(":")[0]
    found = [one for one in entries if one.id.partition(":")[0] == base]
    return sorted(found, key=lambda one: one.id)
