"""Preferences of a request at the router's door: providers, and their order."""

from __future__ import annotations

from decimal import Decimal
from typing import Literal

from msgspec import Struct

SortBy = Literal["price", "throughput", "latency"]


class MostPrice(Struct, frozen=True):
    """The most that a provider may cost; ``None`` is no bound.

    Money per 1M tokens of the prompt and of the reply, and for one request.
    """

    prompt: Decimal | None = None
    completion: Decimal | None = None
    request: Decimal | None = None


UNBOUNDED = MostPrice()


class Preferences(Struct, frozen=True):
    """``provider`` of a request: providers by their names, first to last."""

    order: tuple[str, ...] = ()
    only: frozenset[str] | None = None
    """``None`` is no bound."""
    ignore: frozenset[str] = frozenset()
    quantizations: frozenset[str] | None = None
    """``None`` is no bound."""
    allow_fallbacks: bool = True
    """If False, only the first choice is asked."""
    require_parameters: bool = False
    """Exclude providers whose supported parameters are unknown."""
    private: bool = False
    """Exclude providers that store prompts, or may."""
    sort: SortBy | None = None
    max_price: MostPrice = UNBOUNDED


INDIFFERENT = Preferences()
"""Of requests that say nothing."""
