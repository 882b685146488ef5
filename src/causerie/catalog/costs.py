"""Price of a month of requests at each endpoint, to the last digit that is charged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from types import MappingProxyType

from causerie.catalog.endpoint import CatalogEndpoint
from causerie.catalog.fields import Fields, fields, first
from causerie.catalog.listing import Listing
from causerie.errors import InvalidRequest
from causerie.protocol.events import Usage
from causerie.protocol.numbers import whole_number

_MOST = 1_000_000_000
USUAL: Mapping[str, int] = MappingProxyType(
    {"in": 1000, "cached": 0, "out": 500, "thinking": 0, "requests": 10_000}
)
_TITLES = MappingProxyType(
    {
        "in": "input tokens",
        "cached": "cached tokens",
        "out": "output tokens",
        "thinking": "thinking tokens",
        "requests": "requests",
    }
)


@dataclass(frozen=True, slots=True)
class CostAssumptions:
    """Tokens of one request, and how many requests a month."""

    prompt: int
    cached: int
    completion: int
    thinking: int
    requests: int

    @staticmethod
    def parse(given: Iterable[tuple[str, str]]) -> CostAssumptions:
        """Read the fields of an address; raise :class:`InvalidRequest`."""
        query = fields(given)
        prompt, cached = _whole(query, "in"), _whole(query, "cached")
        if cached > prompt:
            raise InvalidRequest(
                f"{cached:,} cached tokens are more than the {prompt:,} input tokens.",
                param="cached",
            )
        completion, thinking = _whole(query, "out"), _whole(query, "thinking")
        if thinking > completion:
            raise InvalidRequest(
                f"{thinking:,} thinking tokens are more than the {completion:,} output tokens.",
                param="thinking",
            )
        return CostAssumptions(prompt, cached, completion, thinking, _whole(query, "requests"))

    @property
    def usage(self) -> Usage:
        return Usage(self.prompt, self.completion, self.cached, self.thinking)


@dataclass(frozen=True, slots=True)
class CostEstimate:
    """``share`` is of the dearest, in percent, for a bar."""

    variant: str
    provider: str
    target: str
    request: Decimal
    month: Decimal
    share: int


def costs(variants: Sequence[Listing], load: CostAssumptions) -> Sequence[CostEstimate]:
    """At every endpoint of every variant, the cheapest first."""
    usage = load.usage
    found = [(one.id, endpoint) for one in variants for endpoint in one.endpoints]
    dearest = max((endpoint.tariff.cost(usage) for _, endpoint in found), default=Decimal(0))
    made = [_cost(variant, endpoint, load, dearest) for variant, endpoint in found]
    return sorted(made, key=lambda each: (each.month, each.variant, each.target))


def _cost(
    variant: str, endpoint: CatalogEndpoint, load: CostAssumptions, dearest: Decimal
) -> CostEstimate:
    cost = endpoint.tariff.cost(load.usage)
    share = int(cost * 100 / dearest) if dearest else 0
    return CostEstimate(
        variant, endpoint.provider, endpoint.name, cost, cost * load.requests, share
    )


def _whole(query: Fields, name: str) -> int:
    text = first(query, name).replace(",", "")
    if not text:
        return USUAL[name] if name not in query else 0
    number = whole_number(text, _MOST)
    if number is None:
        title = _TITLES[name]
        raise InvalidRequest(
            f"{text[:20]} is not a number of {title}; write a whole one up to {_MOST:,}.",
            param=name,
        )
    return number


USUAL_LOAD = CostAssumptions.parse(())
