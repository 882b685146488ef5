"""Tariff of an endpoint, as the router's catalog shows and compares it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import ROUND_HALF_EVEN, Decimal

from msgspec import UNSET

from causerie.protocol.events import Usage
from causerie.protocol.model_entries import Pricing

_MILLION = 1_000_000
_REQUESTS = 1000
_SMALLEST = Decimal("0.000000001")
_PROMPT_SHARE = Decimal("0.75")  # of the tokens of a usual request


@dataclass(frozen=True, slots=True)
class Tariff:
    """Money for one token of the prompt, of the reply, of the prompt from the cache (``None``:
    like any other of the prompt), for one request, and for one token of reasoning (``None``:
    like any other of the reply).

    ``usual`` is what endpoints are compared by: a million tokens in a thousand
    requests, three in four tokens of the prompt.
    """

    prompt: Decimal = Decimal(0)
    completion: Decimal = Decimal(0)
    cached: Decimal | None = None
    request: Decimal = Decimal(0)
    reasoning: Decimal | None = None
    usual: Decimal = field(init=False)

    def __post_init__(self) -> None:
        tokens = self.prompt * _PROMPT_SHARE + self.completion * (1 - _PROMPT_SHARE)
        object.__setattr__(self, "usual", tokens * _MILLION + self.request * _REQUESTS)

    def cost(self, usage: Usage) -> Decimal:
        """Of one reply, to a billionth, rounded half to even; without output it is nothing."""
        if not usage.completion:
            return Decimal(0)
        cached = self.prompt if self.cached is None else self.cached
        thought = self.completion if self.reasoning is None else self.reasoning
        cost = (
            self.prompt * (usage.prompt - usage.cached)
            + cached * usage.cached
            + self.completion * (usage.completion - usage.reasoning)
            + thought * usage.reasoning
            + self.request
        )
        return cost.quantize(_SMALLEST, ROUND_HALF_EVEN)

    @property
    def free(self) -> bool:
        """Return true if nothing costs anything."""
        tokens = (self.prompt, self.completion, self.cached, self.reasoning)
        return not (any(tokens) or self.request)

    @property
    def by_million(self) -> Mapping[str, Decimal]:
        """By the names of ``provider.max_price``."""
        return {
            "prompt": self.prompt * _MILLION,
            "completion": self.completion * _MILLION,
            "request": self.request,
        }

    def entry(self) -> Pricing:
        return Pricing(
            prompt=plain(self.prompt),
            completion=plain(self.completion),
            request=plain(self.request),
            input_cache_read=UNSET if self.cached is None else plain(self.cached),
            internal_reasoning=UNSET if self.reasoning is None else plain(self.reasoning),
        )


def plain(price: Decimal) -> str:
    """Return a price in decimal notation, without zeros at its end."""
    text = f"{price:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
