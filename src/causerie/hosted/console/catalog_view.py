"""What catalog pages show: models, their endpoints, providers, filters, and comparisons."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from functools import cached_property
from heapq import nsmallest
from math import log2
from statistics import median
from typing import Any
from urllib.parse import quote

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from causerie.catalog.catalog import DayReader, DoorCatalog
from causerie.catalog.endpoint import CatalogEndpoint
from causerie.catalog.listing import Listing
from causerie.catalog.model import ModelCard, Tariff
from causerie.hosted.console.charts import Strip, ninety_days
from causerie.hosted.console.service_view import (
    ModelPrice,
    ModelRow,
    ServiceView,
    grouped_parameters,
    model_row,
)
from causerie.protocol.model_entries import Evidence
from causerie.protocol.targets import (
    UNKNOWN_STATS,
    WINDOWS,
    CallCounts,
    Figure,
    Figures,
    TargetStats,
)

_MILLION = 1_000_000
_BOARD_KEPT = timedelta(seconds=10)
_USUAL_CONTEXT = 32_768  # where none is known


def list_row(one: Listing) -> ModelRow:
    """Return the list row of a catalog entry, with price and figures of its first endpoint now."""
    shown = one.headline
    price = model_price(shown.tariff)
    prices = [model_price(each.tariff) for each in one.endpoints]
    return replace(
        model_row(to_builtins(one.entry())),
        price=price,
        cheaper=model_price(one.cheapest.tariff) if one.price < shown.tariff.usual else None,
        lowest=frozenset(
            kind
            for kind in ("prompt", "completion")
            if getattr(price, kind) == min(found := [getattr(each, kind) for each in prices])
            and max(found) > min(found)
        ),
        context=shown.profile().context_length,
        longest=one.context_length,
        output=shown.profile().max_output_tokens,
        endpoint=endpoint_names(one)[shown.name] if len(one.endpoints) > 1 else "",
        figures=one.figures_of(shown.name),
        ends=one.ends,
        public=True,
    )


def model_price(tariff: Tariff) -> ModelPrice:
    cached = None if tariff.cached is None else tariff.cached * _MILLION
    reasoning = None if tariff.reasoning is None else tariff.reasoning * _MILLION
    prompt, completion = tariff.prompt * _MILLION, tariff.completion * _MILLION
    return ModelPrice(prompt, completion, cached, reasoning, tariff.request)


def path_of_model(id: str) -> str:
    return f"/catalog/{quote(id, safe='/:')}"


@dataclass(frozen=True)
class EndpointRow:
    """An endpoint of a model, with its measurements; ``name`` tells it from the others."""

    name: str
    model: Listing
    endpoint: CatalogEndpoint
    stats: TargetStats

    @cached_property
    def figures(self) -> Figures:
        return self.model.figures_of(self.endpoint.name)

    @property
    def price(self) -> ModelPrice:
        return model_price(self.endpoint.tariff)

    @property
    def against(self) -> int | None:
        """Return how many percent more it costs than the median of the model's other endpoints."""
        every, own = self.model.endpoints, self.endpoint.tariff.usual
        others = [each.tariff.usual for each in every if each.name != self.endpoint.name]
        usual = median(others) if others else None
        return round((own / usual - 1) * 100) if usual else None

    @property
    def parameters(self) -> Sequence[tuple[str, Sequence[str]]]:
        found = self.endpoint
        return grouped_parameters(sorted(found.claimed or found.supported))

    @property
    def evidence(self) -> Evidence:
        return self.endpoint.evidence

    @property
    def state(self) -> str:
        return "down" if not self.stats.up else "degraded" if self.stats.degraded else "up"

    @property
    def probed_at(self) -> datetime | None:
        day = self.endpoint.probed
        return datetime.combine(day, time(), UTC) if day else None

    @property
    def uptime(self) -> float | None:
        """Return the percent of the requests of a day that were answered."""
        return _compute_uptime_percent(self.figures)

    @property
    def checked_calls(self) -> int:
        counts = self.stats.calls_day or CallCounts()
        return counts.fine + counts.invalid_json + counts.unknown_name + counts.schema_mismatch

    @property
    def valid_calls(self) -> float | None:
        counts, checked = self.stats.calls_day, self.checked_calls
        return 100 * counts.fine / checked if counts and checked else None


def _compute_uptime_percent(figures: Figures) -> float | None:
    share = figures.uptime_day
    return None if share is None else round(share * 100, 3)


def endpoints(one: Listing) -> Sequence[EndpointRow]:
    """Return the rows of a model's endpoints, in the order of the default route."""
    names = endpoint_names(one)
    return [_build_endpoint_row(one, each, names[each.name]) for each in one.by_default]


def parameter_groups(every: Sequence[EndpointRow]) -> Sequence[Sequence[EndpointRow]]:
    """Return the endpoints grouped by equal parameters, evidence and day of the last probe."""
    found: dict[Any, list[EndpointRow]] = {}
    for each in every:
        known = each.endpoint
        key = (each.evidence, known.claimed or known.supported, each.probed_at)
        found.setdefault(key, []).append(each)
    return list(found.values())


_MOST_SIMILAR = 4


def similar(one: Listing, entries: Sequence[Listing]) -> Sequence[Listing]:
    """Return models of equal modalities and tool support, nearest in price and context first."""

    def distance(other: Listing) -> float:
        prices = [max(float(each.price), 1e-9) for each in (one, other)]
        contexts = [each.context_length or _USUAL_CONTEXT for each in (one, other)]
        return abs(log2(prices[0] / prices[1])) + abs(log2(contexts[0] / contexts[1]))

    base = one.id.partition(":")[0]
    found = [
        (distance(other), other.id, other)
        for other in entries
        if other.id.partition(":")[0] != base
        and (other.input_modalities, gives(other)) == (one.input_modalities, gives(one))
        and ("tools" in other.parameters) == ("tools" in one.parameters)
    ]
    return [other for *_, other in nsmallest(_MOST_SIMILAR, found)]


def endpoint_names(one: Listing) -> Mapping[str, str]:
    """Return endpoint names by target: the provider, or the target where that has several."""
    providers = [each.provider for each in one.endpoints]
    return {
        each.name: each.name if providers.count(each.provider) > 1 else each.provider
        for each in one.endpoints
    }


def _build_endpoint_row(listing: Listing, endpoint: CatalogEndpoint, row_name: str) -> EndpointRow:
    stats = listing.stats_of(endpoint.name) or UNKNOWN_STATS
    return EndpointRow(row_name, listing, endpoint, stats)


@dataclass(frozen=True)
class ProviderRow:
    """Row of a provider; latency and throughput are medians of its endpoints."""

    name: str
    offers: Sequence[EndpointRow]
    history: DayReader = field(repr=False)

    @cached_property
    def uptime(self) -> float | None:
        """Return the percent of the requests of a day that its endpoints answered."""
        days = [bucket for target in self.targets for bucket in self.history(target)]
        answered = sum(bucket.answered for bucket in days)
        asked = answered + sum(bucket.failed for bucket in days)
        return 100 * answered / asked if asked else None

    @cached_property
    def figures(self) -> Figures:
        every = [each.figures for each in self.offers]
        return Figures(
            _compute_median_figure(each.first_token for each in every),
            _compute_median_figure(each.speed for each in every),
            last=max((each.last for each in every if each.last is not None), default=None),
        )

    @property
    def state(self) -> str:
        """Return ``up`` if all endpoints are up, ``down`` if all are down, else ``degraded``."""
        states = {each.state for each in self.offers}
        return "up" if states == {"up"} else "down" if states == {"down"} else "degraded"

    @property
    def targets(self) -> Sequence[str]:
        return list(dict.fromkeys(each.endpoint.name for each in self.offers))


def path_of_provider(name: str) -> str:
    return f"/providers/{quote(name, safe='')}"


class ProviderBoard:
    """Caches for ten seconds the rows of all providers with their availability in 90 days."""

    def __init__(self, clock: Callable[[], datetime]) -> None:
        self._clock, self._rows_lock = clock, asyncio.Lock()
        self._cached_row_strip_pairs: Sequence[tuple[ProviderRow, Strip]] = ()
        self._cached_entries_and_time: tuple[Sequence[Listing], datetime] | None = None

    async def rows(self, market: DoorCatalog) -> Sequence[tuple[ProviderRow, Strip]]:
        async with self._rows_lock:
            entries, now = market.entries(), self._clock()
            known, made_at = self._cached_entries_and_time or (None, now)
            if known != entries or not timedelta() <= now - made_at < _BOARD_KEPT:
                rows = await asyncio.to_thread(_pair_provider_rows_and_strips, market, entries, now)
                self._cached_entries_and_time, self._cached_row_strip_pairs = (entries, now), rows
            return self._cached_row_strip_pairs


def _pair_provider_rows_and_strips(
    catalog: DoorCatalog, entries: Sequence[Listing], now: datetime
) -> Sequence[tuple[ProviderRow, Strip]]:
    found = providers(entries, catalog.history)
    return [(row, ninety_days(row.name, catalog.days(*row.targets), now)) for row in found]


def providers(entries: Sequence[Listing], history: DayReader) -> Sequence[ProviderRow]:
    """Return all providers, sorted by name; the offers of each are sorted by model name."""
    found: dict[str, list[EndpointRow]] = {}
    for one in sorted(entries, key=lambda each: (each.card.name.casefold(), each.id)):
        for endpoint in one.endpoints:
            row = _build_endpoint_row(one, endpoint, one.card.name)
            found.setdefault(endpoint.provider, []).append(row)
    return [ProviderRow(name, offers, history) for name, offers in sorted(found.items())]


def _compute_median_figure(figures: Iterable[Figure | None]) -> Figure | None:
    known = [each for each in figures if each is not None]
    if not known:
        return None
    longest = max((each.window for each in known), key=WINDOWS.index)
    return Figure(median(each.value for each in known), longest)


def providers_of(one: Offer) -> frozenset[str]:
    found = one.endpoints if isinstance(one, Listing) else ()
    return frozenset(each.provider for each in found)


QUICK = (
    ("Tools", "parameter", "tools"),
    ("Structured output", "parameter", "response_format"),
    ("Thinking", "parameter", "reasoning"),
    ("Images", "takes", "image"),
)
"""Filters that most people use: title, field and value."""


def facets(entries: Sequence[Offer]) -> Mapping[str, Any]:
    """Return the values by which entries can be filtered, such as authors with their counts."""
    authors = Counter(one.id.partition("/")[0] for one in entries if "/" in one.id)
    offering = Counter(name for one in entries for name in providers_of(one))
    parameters = frozenset[str]().union(*{one.parameters for one in entries})
    return {
        "providers": sorted(offering.items(), key=lambda each: each[0].casefold()),
        "quick": [each for each in QUICK if each[1] == "takes" or each[2] in parameters],
        "authors": sorted(authors.items(), key=lambda each: each[0].casefold()),
        "parameters": grouped_parameters(sorted(parameters - {each[2] for each in QUICK})),
        "takes": sorted(frozenset[str]().union(*{one.input_modalities for one in entries})),
        "gives": sorted(frozenset[str]().union(*{gives(one) for one in entries})),
        "ending": any(one.ends is not None for one in entries),
        "free": 0 < sum(one.price == 0 for one in entries) < len(entries),  # some, but not all
    }


_NOT_KNOWN = Decimal("Infinity")
_HERE = "this service"


class ServedOffer(Struct, frozen=True):
    """A model or alias of this service outside the public catalog, shown like its entries."""

    view: ModelRow
    created: int
    targets: Sequence[str]
    """By the names of routing."""
    ends: date | None = None
    throughput: float | None = None
    latency: float | None = None

    @property
    def id(self) -> str:
        return self.view.id

    @property
    def card(self) -> ModelCard:
        return ModelCard(self.view.id, self.view.name, self.view.description, self.created)

    @property
    def price(self) -> Decimal:
        price = self.view.price
        return (3 * price.prompt + price.completion) / 4 if price is not None else _NOT_KNOWN

    @property
    def context_length(self) -> int | None:
        return self.view.context

    @property
    def parameters(self) -> frozenset[str]:
        return frozenset((*self.view.parameters, *self.view.claimed))

    @property
    def input_modalities(self) -> frozenset[str]:
        return frozenset(self.view.modalities)


Offer = Listing | ServedOffer
"""A model of a list. Its ``price`` is that of a usual million tokens; infinite if not known."""


def gives(one: Offer) -> frozenset[str]:
    return frozenset(one.output_modalities if isinstance(one, Listing) else ("text",))


def offers(service_view: ServiceView, *, public: bool) -> Sequence[Offer]:
    """Return the entries of the catalog; unless ``public``, also the service's other models."""
    market = service_view.market()
    listed = market.entries() if market is not None else ()
    if public:
        return listed
    names = {name for one in listed for name in one.names}
    others = (entry for entry in service_view.models() if str(entry.get("id", "")) not in names)
    return [*listed, *(_build_served_offer(entry, service_view) for entry in others)]


def sources(one: Offer, engines: frozenset[str]) -> Sequence[str]:
    """Return the providers that serve a model; targets in ``engines`` are of this service."""
    if isinstance(one, Listing):
        pairs = [(each.name, each.provider) for each in one.endpoints]
    else:
        pairs = [(name, name.partition("/")[0]) for name in one.targets]
    return list(dict.fromkeys(_HERE if name in engines else who for name, who in pairs))


def _build_served_offer(entry: Mapping[str, Any], service_view: ServiceView) -> ServedOffer:
    shown, created = model_row(entry), entry.get("created")
    targets = service_view.answering(shown.id)
    return ServedOffer(shown, created if isinstance(created, int) else 0, targets)


MOST_COMPARED = 4


class Compared(Struct, frozen=True):
    """A model in a comparison."""

    row: ModelRow
    endpoints: Sequence[EndpointRow]
    variants: Sequence[str]

    @property
    def uptime(self) -> float | None:
        return _compute_uptime_percent(self.row.figures)


class ModelComparison(Struct, frozen=True):
    """Models side by side: ``alike`` parameters are measured for all, ``parameters`` the others."""

    models: Sequence[Compared]
    parameters: Sequence[tuple[str, Sequence[str]]]
    alike: Sequence[str]

    def best(self, name: str) -> frozenset[str]:
        """Return ids of the models best in a figure; none if one is unknown or all are equal."""
        value, sign = _FIGURES[name]
        found = {one.row.id: value(one) for one in self.models}
        known = {id: figure * sign for id, figure in found.items() if figure is not None}
        if len(known) < len(found) or len(set(known.values())) < 2:
            return frozenset()
        top = max(known.values())
        return frozenset(id for id, figure in known.items() if figure == top)


_FIGURES: dict[str, tuple[Callable[[Compared], float | None], int]] = {
    "context": (lambda one: one.row.context, 1),
    "output": (lambda one: one.row.output, 1),
    "prompt": (lambda one: None if (p := one.row.price) is None else float(p.prompt), -1),
    "completion": (lambda one: None if (p := one.row.price) is None else float(p.completion), -1),
    "latency": (lambda one: None if (f := one.row.figures.first_token) is None else f.value, -1),
    "throughput": (lambda one: None if (f := one.row.figures.speed) is None else f.value, 1),
    "uptime": (lambda one: one.uptime, 1),
}


def comparison(chosen: Sequence[Listing], entries: Sequence[Listing]) -> ModelComparison:
    models = [
        Compared(list_row(one), endpoints(one), [each.id for each in variants(one.id, entries)])
        for one in chosen
    ]
    every = frozenset[str]().union(*((*one.row.parameters, *one.row.claimed) for one in models))
    alike = every.intersection(*(one.row.parameters for one in models))
    shared = [name for _, names in grouped_parameters(sorted(alike)) for name in names]
    return ModelComparison(models, grouped_parameters(sorted(every - alike)), shared)


def with_variants(found: Sequence[Offer]) -> Sequence[tuple[Offer, Sequence[str]]]:
    """Return each model once, as its standard variant if found, with the suffixes of its others."""
    groups: dict[str, list[Offer]] = {}
    for one in found:
        base = one.id.partition(":")[0] if isinstance(one, Listing) else one.id
        groups.setdefault(base, []).append(one)
    made = []
    for base, every in groups.items():
        shown = next((one for one in every if one.id == base), every[0])
        others = sorted(one.id.partition(":")[2] for one in every if one is not shown)
        made.append((shown, others))
    return made


def variants(id: str, entries: Sequence[Listing]) -> Sequence[Listing]:
    base = id.partition(":")[0]
    found = [one for one in entries if one.id.partition(":")[0] == base]
    return sorted(found, key=lambda one: one.id)
