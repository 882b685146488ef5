"""Providers of the public catalog: what each offers, and how it has answered."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from urllib.parse import quote

from causerie.catalog.door_catalog import DayReader
from causerie.catalog.endpoint import CatalogEndpoint
from causerie.catalog.listing import Listing
from causerie.catalog.tariff import Tariff
from causerie.console.market.row import ModelPrice, path_of, price
from causerie.protocol.target_stats import UNKNOWN


@dataclass(frozen=True, slots=True)
class ProviderOffer:
    """One endpoint of a provider, and the model that it is of.

    ``latency`` (seconds) and ``throughput`` (tokens per second) are medians of the last half hour;
    ``uptime`` is the percent of a day's requests that were answered. ``None``: not known.
    """

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
        """Of the model's page, below the console's own."""
        return path_of(self.id)

    @property
    def price(self) -> ModelPrice:
        """By the million, which the list of providers does not need."""
        return price(self.tariff)


@dataclass(frozen=True, slots=True)
class ProviderRow:
    """A provider. ``latency`` (seconds) and ``throughput`` (tokens per second) are medians of its
    endpoints; ``uptime`` is the percent of a day's requests that were answered."""

    name: str
    offers: Sequence[ProviderOffer]
    uptime: float | None

    @property
    def path(self) -> str:
        """Of its page, below the console's own."""
        return path_of_provider(self.name)

    @property
    def latency(self) -> float | None:
        """Return the median over its endpoints, as far as they were measured."""
        return _median(each.latency for each in self.offers)

    @property
    def throughput(self) -> float | None:
        """Return the median over its endpoints, as far as they were measured."""
        return _median(each.throughput for each in self.offers)

    @property
    def free(self) -> int:
        """Return how many of its endpoints cost nothing."""
        return sum(each.tariff.free for each in self.offers)

    @property
    def private(self) -> int:
        """Return how many of its endpoints store nothing that they are sent."""
        return sum(each.private for each in self.offers)

    @property
    def down(self) -> int:
        """Return how many of its endpoints get no requests now."""
        return sum(not each.up for each in self.offers)


def path_of_provider(name: str) -> str:
    """Of a provider's page, below the console's own."""
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
    """Only what is shown: a provider may have thousands of endpoints."""
    stats = one.stats_of(endpoint.name) or UNKNOWN
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
