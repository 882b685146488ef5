"""The endpoints of one model as its page shows them: what each can do, asks for, and has shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time

from causerie.catalog.endpoint import CatalogEndpoint
from causerie.catalog.listing import Listing
from causerie.console.catalogue import grouped
from causerie.console.market.row import ModelPrice, price
from causerie.protocol.call_class import CallCounts
from causerie.protocol.model_entries import RouterEndpoint


@dataclass(frozen=True, slots=True)
class EndpointRow:
    """Times are in seconds, speeds in tokens per second, both medians of the last half hour;
    ``uptimes`` are percents of five minutes, half an hour and a day. ``None``: not known.
    ``valid_calls`` is the percent of the checked calls of a day that a client can run."""

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
        """The day of the measurement, as a moment."""
        return datetime.combine(self.probed, time(), UTC) if self.probed else None


def endpoints(one: Listing) -> Sequence[EndpointRow]:
    """In the order of the configuration."""
    names = names_of(one)
    told = one.with_endpoints().endpoints
    return [
        _endpoint(names[endpoint.name], endpoint, figures)
        for endpoint, figures in zip(one.endpoints, told, strict=True)
    ]


def names_of(one: Listing) -> Mapping[str, str]:
    """Names of endpoints, by target: the provider, and its model where it has several."""
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
        price=price(endpoint.tariff),
        quantization=endpoint.quantization,
        private=endpoint.private,
        measured=endpoint.measured,
        probed=endpoint.probed,
        parameters=grouped(figures.supported_parameters),
        count=len(figures.supported_parameters),
        uptimes=[figures.uptime_last_5m, figures.uptime_last_30m, figures.uptime_last_1d],
        latency=latency.p50 / 1000 if latency else None,
        throughput=throughput.p50 if throughput else None,
        valid_calls=valid,
        checked_calls=checked,
    )


def _valid_calls(counts: CallCounts | None) -> tuple[float | None, int]:
    """Return the percent of valid calls, and of how many."""
    counts = counts or CallCounts()
    checked = counts.fine + counts.invalid_json + counts.unknown_name + counts.schema_mismatch
    return (100 * counts.fine / checked if checked else None), checked
