"""The public catalog as its pages show it: models, their endpoints, providers, facets, and a few
models side by side.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from statistics import median
from typing import Any
from urllib.parse import quote

from msgspec import to_builtins

from causerie.catalog.catalog import DayReader
from causerie.catalog.endpoint import CatalogEndpoint
from causerie.catalog.listing import Listing
from causerie.catalog.model import ModelCard, Tariff
from causerie.catalog.search import Searchable, gives
from causerie.hosted.console.service_view import (
    ModelRow,
    ServiceView,
    grouped_parameters,
    model_row,
)
from causerie.protocol.model_entries import RouterEndpoint
from causerie.protocol.targets import UNKNOWN_STATS, CallCounts

_MILLION = 1_000_000
_WORDS = (("tools", "tools"), ("response_format", "structured output"), ("reasoning", "thinking"))


@dataclass(frozen=True, slots=True)
class ModelPrice:
    """Price of a million tokens of each kind, and of one request."""

    prompt: Decimal
    completion: Decimal
    cached: Decimal | None
    reasoning: Decimal | None
    request: Decimal

    @property
    def free(self) -> bool:
        tokens = (self.prompt, self.completion, self.cached, self.reasoning)
        return not (any(tokens) or self.request)


@dataclass(frozen=True, slots=True)
class ModelListRow:
    """Row of a model list: ``latency`` in seconds, ``throughput`` in tokens per second."""

    id: str
    name: str
    description: str
    context: int | None
    price: ModelPrice | None
    latency: float | None
    throughput: float | None
    endpoints: int
    abilities: Sequence[str]
    ends: date | None
    parameters: Sequence[tuple[str, Sequence[str]]] = ()
    """By what they are for; only where ``path`` is empty."""
    public: bool = True

    @property
    def path(self) -> str:
        return path_of_model(self.id) if self.public else ""


def list_row(one: Listing) -> ModelListRow:
    """Return the row of a catalog entry, with its current measurements."""
    known = frozenset[str]().union(*(each.parameters for each in one.endpoints if each.measured))
    thinks = any(each.profile.thinks for each in one.endpoints if each.measured)
    abilities = [word for name, word in _WORDS if name in known and (thinks or name != "reasoning")]
    if "image" in one.input_modalities:
        abilities.append("images")
    return ModelListRow(
        id=one.id,
        name=one.card.name,
        description=one.card.description,
        context=one.context_length,
        price=model_price(one.cheapest.tariff),
        latency=one.latency,
        throughput=one.throughput,
        endpoints=len(one.endpoints),
        abilities=abilities,
        ends=one.ends,
    )


def model_price(tariff: Tariff) -> ModelPrice:
    cached = None if tariff.cached is None else tariff.cached * _MILLION
    reasoning = None if tariff.reasoning is None else tariff.reasoning * _MILLION
    prompt, completion = tariff.prompt * _MILLION, tariff.completion * _MILLION
    return ModelPrice(prompt, completion, cached, reasoning, tariff.request)


def path_of_model(id: str) -> str:
    return f"/catalog/{quote(id, safe='/:')}"


@dataclass(frozen=True, slots=True)
class EndpointRow:
    """Row of an endpoint: medians of the last half hour in seconds and tokens per second.

    ``uptimes`` are percents of five minutes, half an hour and a day; ``None``: not known.
    """

    name: str
    provider: str
    target: str
    up: bool
    context: int | None
    output: int | None
    price: ModelPrice
    quantization: str | None
    private: bool
    measured: bool
    probed: date | None
    parameters: Sequence[tuple[str, Sequence[str]]]
    count: int
    uptimes: Sequence[float | None]
    latency: float | None
    throughput: float | None
    valid_calls: float | None
    checked_calls: int

    @property
    def probed_at(self) -> datetime | None:
        """Return the day of the measurement."""
        return datetime.combine(self.probed, time(), UTC) if self.probed else None


def endpoints(one: Listing) -> Sequence[EndpointRow]:
    names = endpoint_names(one)
    told = one.with_endpoints().endpoints
    return [
        _endpoint(names[endpoint.name], endpoint, figures)
        for endpoint, figures in zip(one.endpoints, told, strict=True)
    ]


def endpoint_names(one: Listing) -> Mapping[str, str]:
    """Return the names of endpoints by target: provider, and model where it has several."""
    providers = [endpoint.provider for endpoint in one.endpoints]
    return {
        endpoint.name: endpoint.name
        if providers.count(endpoint.provider) > 1
        else endpoint.provider
        for endpoint in one.endpoints
    }


def _endpoint(name: str, endpoint: CatalogEndpoint, figures: RouterEndpoint) -> EndpointRow:
    profile = endpoint.profile
    valid, checked = _valid_calls(figures.tool_calls_last_1d)
    latency, throughput = figures.latency_last_30m, figures.throughput_last_30m
    return EndpointRow(
        name=name,
        provider=endpoint.provider,
        target=endpoint.name,
        up=figures.status == 0,
        context=profile.context_length,
        output=profile.max_output_tokens,
        price=model_price(endpoint.tariff),
        quantization=endpoint.quantization,
        private=endpoint.private,
        measured=endpoint.measured,
        probed=endpoint.probed,
        parameters=grouped_parameters(figures.supported_parameters),
        count=len(figures.supported_parameters),
        uptimes=[figures.uptime_last_5m, figures.uptime_last_30m, figures.uptime_last_1d],
        latency=latency.p50 / 1000 if latency else None,
        throughput=throughput.p50 if throughput else None,
        valid_calls=valid,
        checked_calls=checked,
    )


def _valid_calls(counts: CallCounts | None) -> tuple[float | None, int]:
    counts = counts or CallCounts()
    checked = counts.fine + counts.invalid_json + counts.unknown_name + counts.schema_mismatch
    return (100 * counts.fine / checked if checked else None), checked


@dataclass(frozen=True, slots=True)
class ProviderOffer:
    """An endpoint of a provider, with its model and medians of the last half hour."""

    id: str
    name: str
    target: str
    up: bool
    context: int | None
    tariff: Tariff
    quantization: str | None
    private: bool
    latency: float | None
    throughput: float | None
    uptime: float | None

    @property
    def path(self) -> str:
        return path_of_model(self.id)

    @property
    def price(self) -> ModelPrice:
        return model_price(self.tariff)


@dataclass(frozen=True, slots=True)
class ProviderRow:
    """Row of a provider; latency and throughput are medians of its endpoints."""

    name: str
    offers: Sequence[ProviderOffer]
    uptime: float | None

    @property
    def path(self) -> str:
        return path_of_provider(self.name)

    @property
    def latency(self) -> float | None:
        return _median(each.latency for each in self.offers)

    @property
    def throughput(self) -> float | None:
        return _median(each.throughput for each in self.offers)

    @property
    def free(self) -> int:
        return sum(each.tariff.free for each in self.offers)

    @property
    def private(self) -> int:
        """Return how many of its endpoints store nothing that they are sent."""
        return sum(each.private for each in self.offers)

    @property
    def down(self) -> int:
        return sum(not each.up for each in self.offers)


def path_of_provider(name: str) -> str:
    return f"/providers/{quote(name, safe='')}"


def providers(entries: Sequence[Listing], history: DayReader) -> Sequence[ProviderRow]:
    """Return all providers by name; their offers are in the order of the models' names."""
    found: dict[str, list[ProviderOffer]] = {}
    for one in sorted(entries, key=lambda each: (each.card.name.casefold(), each.id)):
        for endpoint in one.endpoints:
            found.setdefault(endpoint.provider, []).append(_offer(one, endpoint))
    return [
        ProviderRow(name, offers, _uptime(offers, history))
        for name, offers in sorted(found.items())
    ]


def _offer(one: Listing, endpoint: CatalogEndpoint) -> ProviderOffer:
    # Only what is shown: a provider may have thousands of endpoints.
    stats = one.stats_of(endpoint.name) or UNKNOWN_STATS
    latency, throughput = stats.first_token_half_hour, stats.speed_half_hour
    return ProviderOffer(
        id=one.id,
        name=one.card.name,
        target=endpoint.name,
        up=stats.up,
        context=endpoint.profile.context_length,
        tariff=endpoint.tariff,
        quantization=endpoint.quantization,
        private=endpoint.private,
        latency=latency.p50 if latency else None,
        throughput=throughput.p50 if throughput else None,
        uptime=None if stats.uptime_day is None else 100 * stats.uptime_day,
    )


def _uptime(offers: Iterable[ProviderOffer], history: DayReader) -> float | None:
    targets: Mapping[str, None] = dict.fromkeys(each.target for each in offers)
    days = [bucket for target in targets for bucket in history(target)]
    answered = sum(bucket.answered for bucket in days)
    asked = answered + sum(bucket.failed for bucket in days)
    return 100 * answered / asked if asked else None


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


@dataclass(frozen=True, slots=True)
class Facets:
    """Authors with their number of entries, and parameters by purpose."""

    authors: Sequence[tuple[str, int]]
    parameters: Sequence[tuple[str, Sequence[str]]]
    takes: Sequence[str]
    gives: Sequence[str]
    ending: bool
    free: bool
    """Some cost nothing, and some cost something."""


def facets(entries: Sequence[Searchable]) -> Facets:
    """Return the facets of all entries, whatever is searched for."""
    authors = Counter(one.id.partition("/")[0] for one in entries if "/" in one.id)
    parameters = frozenset[str]().union(*{one.parameters for one in entries})
    return Facets(
        sorted(authors.items(), key=lambda each: each[0].casefold()),
        grouped_parameters(sorted(parameters)),
        sorted(frozenset[str]().union(*{one.input_modalities for one in entries})),
        sorted(frozenset[str]().union(*{gives(one) for one in entries})),
        any(one.ends is not None for one in entries),
        0 < sum(one.price == 0 for one in entries) < len(entries),
    )


_NOT_KNOWN = Decimal("Infinity")
_HERE = "this service"


@dataclass(frozen=True, slots=True)
class ServedOffer:
    """A model outside the public catalog, in the form of a catalog entry."""

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
        if self.view.price is None:
            return _NOT_KNOWN
        prompt, completion = self.view.price
        return (3 * prompt + completion) / 4

    @property
    def context_length(self) -> int | None:
        return self.view.context

    @property
    def parameters(self) -> frozenset[str]:
        return frozenset(self.view.parameters)

    @property
    def input_modalities(self) -> frozenset[str]:
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
        return list_row(one)
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
    shown = model_row(entry)
    created = entry.get("created")
    return ServedOffer(
        shown, created if isinstance(created, int) else 0, service_view.answering(shown.id)
    )


MOST_COMPARED = 4


@dataclass(frozen=True, slots=True)
class Compared:
    """A model in a comparison."""

    row: ModelListRow
    price: ModelPrice
    view: ModelRow
    endpoints: Sequence[EndpointRow]
    takes: Sequence[str]
    variants: Sequence[str]

    @property
    def output(self) -> int | None:
        return self.view.output

    @property
    def uptime(self) -> float | None:
        found = [each.uptimes[2] for each in self.endpoints]
        return max((one for one in found if one is not None), default=None)

    @property
    def keepers(self) -> int:
        return sum(not each.private for each in self.endpoints)


@dataclass(frozen=True, slots=True)
class ModelComparison:
    """``parameters`` are those that some of the models support, ``alike`` those of all."""

    models: Sequence[Compared]
    parameters: Sequence[tuple[str, Sequence[str]]]
    alike: Sequence[str]

    def best(self, name: str) -> frozenset[str]:
        """Return the ids of the models with the best value of a figure."""
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
    """Return the comparison of these models."""
    models = [
        Compared(
            list_row(one),
            model_price(one.cheapest.tariff),
            model_row(to_builtins(one.entry())),
            endpoints(one),
            sorted(one.input_modalities),
            [each.id for each in variants(one.id, entries)],
        )
        for one in chosen
    ]
    sets = [frozenset(each.view.parameters) for each in models]
    every = frozenset[str]().union(*sets)
    alike = every.intersection(*sets)
    shared = [name for _, names in grouped_parameters(sorted(alike)) for name in names]
    return ModelComparison(models, grouped_parameters(sorted(every - alike)), shared)


def variants(id: str, entries: Sequence[Listing]) -> Sequence[Listing]:
    base = id.partition(":")[0]
    found = [one for one in entries if one.id.partition(":")[0] == base]
    return sorted(found, key=lambda one: one.id)
