"""Providers of the public catalog: what each offers, and how it has answered."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from urllib.parse import quote

from causerie.catalog.door_catalog import DayReader
from causerie.catalog.listing import Listing
from causerie.console.market.endpoints import EndpointRow, endpoints
from causerie.console.market.row import path_of


@dataclass(frozen=True, slots=True)
class ProviderOffer:
    """One endpoint of a provider, and the model that it is of."""

    id: str
    name: str
    endpoint: EndpointRow

    @property
    def path(self) -> str:
        """Of the model's page, below the console's own."""
        return path_of(self.id)


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
        return _median(each.endpoint.latency for each in self.offers)

    @property
    def throughput(self) -> float | None:
        """Return the median over its endpoints, as far as they were measured."""
        return _median(each.endpoint.throughput for each in self.offers)

    @property
    def free(self) -> int:
        """Return how many of its endpoints cost nothing."""
        return sum(each.endpoint.price.free for each in self.offers)

    @property
    def private(self) -> int:
        """Return how many of its endpoints store nothing that they are sent."""
        return sum(each.endpoint.private for each in self.offers)

    @property
    def down(self) -> int:
        """Return how many of its endpoints get no requests now."""
        return sum(not each.endpoint.up for each in self.offers)


def path_of_provider(name: str) -> str:
    """Of a provider's page, below the console's own."""
    return f"/providers/{quote(name, safe='')}"


def providers(entries: Sequence[Listing], history: DayReader) -> Sequence[ProviderRow]:
    """Return all providers by name; their offers are in the order of the models' names."""
    found: dict[str, list[ProviderOffer]] = {}
    for one in sorted(entries, key=lambda each: (each.card.name.casefold(), each.id)):
        for endpoint, told in zip(one.endpoints, endpoints(one), strict=True):
            offer = ProviderOffer(one.id, one.card.name, told)
            found.setdefault(endpoint.provider, []).append(offer)
    return [
        ProviderRow(name, offers, _uptime(offers, history))
        for name, offers in sorted(found.items())
    ]


def _uptime(offers: Iterable[ProviderOffer], history: DayReader) -> float | None:
    targets: Mapping[str, None] = dict.fromkeys(each.endpoint.target for each in offers)
    days = [bucket for target in targets for bucket in history(target)]
    answered = sum(bucket.answered for bucket in days)
    asked = answered + sum(bucket.failed for bucket in days)
    return 100 * answered / asked if asked else None


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None
