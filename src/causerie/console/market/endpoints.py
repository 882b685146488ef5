"""The endpoints of one model as its page shows them: what each can do, asks for, and has shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from typing import Any

from causerie.console.catalogue import grouped
from causerie.console.market.listed import Listed, Supply
from causerie.console.market.row import Price, price


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Times are in seconds, speeds in tokens a second, both medians of the last half hour;
    ``uptimes`` are percents of five minutes, half an hour and a day. ``None``: not known."""

    name: str
    target: str
    up: bool
    context: int | None
    output: int | None
    price: Price
    quantization: str | None
    private: bool
    measured: bool
    probed: date | None
    parameters: Sequence[tuple[str, Sequence[str]]]
    count: int
    uptimes: Sequence[float | None]
    latency: float | None
    throughput: float | None

    @property
    def probed_at(self) -> datetime | None:
        """The day of the measurement, as a moment."""
        return datetime.combine(self.probed, time(), UTC) if self.probed else None


def endpoints(one: Listed) -> Sequence[Endpoint]:
    """In the order of the configuration."""
    names = names_of(one)
    told = one.endpoints()["endpoints"]
    return [
        _endpoint(names[supply.name], supply, figures)
        for supply, figures in zip(one.supplies, told, strict=True)
    ]


def names_of(one: Listed) -> Mapping[str, str]:
    """What endpoints are called, by target: the provider, and its model where it has several."""
    providers = [supply.provider for supply in one.supplies]
    return {
        supply.name: supply.name if providers.count(supply.provider) > 1 else supply.provider
        for supply in one.supplies
    }


def _endpoint(name: str, supply: Supply, figures: Mapping[str, Any]) -> Endpoint:
    profile = supply.profile
    latency, throughput = figures["latency_last_30m"], figures["throughput_last_30m"]
    return Endpoint(
        name=name,
        target=supply.name,
        up=figures["status"] == 0,
        context=profile.context_length,
        output=profile.max_output_tokens,
        price=price(supply.tariff),
        quantization=supply.quantization,
        private=supply.private,
        measured=supply.measured,
        probed=supply.probed,
        parameters=grouped(sorted(supply.parameters)),
        count=len(supply.parameters),
        uptimes=[figures[f"uptime_last_{span}"] for span in ("5m", "30m", "1d")],
        latency=latency["p50"] / 1000 if latency else None,
        throughput=throughput["p50"] if throughput else None,
    )
