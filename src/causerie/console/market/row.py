"""An entry as lists and comparisons show it. Prices are per 1M tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from urllib.parse import quote

from causerie.catalog.listing import Listing
from causerie.catalog.tariff import Tariff

_MILLION = 1_000_000
_WORDS = (("tools", "tools"), ("response_format", "structured output"), ("reasoning", "thinking"))


@dataclass(frozen=True, slots=True)
class ModelPrice:
    """Of a million tokens of each kind, and of one request."""

    prompt: Decimal
    completion: Decimal
    cached: Decimal | None
    reasoning: Decimal | None
    request: Decimal

    @property
    def free(self) -> bool:
        """Return true if nothing costs anything."""
        tokens = (self.prompt, self.completion, self.cached, self.reasoning)
        return not (any(tokens) or self.request)


@dataclass(frozen=True, slots=True)
class ModelListRow:
    """``latency`` is in seconds, ``throughput`` in tokens per second."""

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
        """Of its page, below the console's own; empty for a model that the catalog has not."""
        return path_of(self.id) if self.public else ""


def row(one: Listing) -> ModelListRow:
    """With the figures of now; abilities are those that were measured, or configured."""
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
        price=price(one.cheapest.tariff),
        latency=one.latency,
        throughput=one.throughput,
        endpoints=len(one.endpoints),
        abilities=abilities,
        ends=one.ends,
    )


def price(tariff: Tariff) -> ModelPrice:
    """By the million."""
    cached = None if tariff.cached is None else tariff.cached * _MILLION
    reasoning = None if tariff.reasoning is None else tariff.reasoning * _MILLION
    prompt, completion = tariff.prompt * _MILLION, tariff.completion * _MILLION
    return ModelPrice(prompt, completion, cached, reasoning, tariff.request)


def path_of(id: str) -> str:
    """The page of a model, below the console's own."""
    return f"/catalog/{quote(id, safe='/:')}"
