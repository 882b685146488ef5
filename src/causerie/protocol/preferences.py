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
    """``provider`` of a request: providers by their names, first to last.

    ``only`` and ``quantizations`` ``None`` are no bound. Without
    ``allow_fallbacks`` nobody but the first choice is asked. ``require_parameters``
    leaves out providers of which it is not known what they support, ``private``
    those that keep what they are sent, or may.
    """

    order: tuple[str, ...] = ()
    only: frozenset[str] | None = None
    ignore: frozenset[str] = frozenset()
    quantizations: frozenset[str] | None = None
    allow_fallbacks: bool = True
    require_parameters: bool = False
    private: bool = False
    sort: SortBy | None = None
    max_price: MostPrice = UNBOUNDED


INDIFFERENT = Preferences()
"""Of requests that say nothing."""
