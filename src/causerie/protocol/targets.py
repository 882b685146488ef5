"""Data on targets that several rooms share: candidates, preferences, statistics."""

from __future__ import annotations

from decimal import Decimal
from typing import Literal

from msgspec import Struct

# A target that may answer a request for a model: its name, and its rank among the others.


class TokenBounds(Struct, frozen=True):
    """In tokens; ``None`` is as much as whoever answers can. A context is of prompt and output."""

    context_length: int | None = None
    max_output_tokens: int | None = None


UNBOUNDED_TOKENS = TokenBounds()


class Candidate(Struct, frozen=True):
    """``priority`` 0 is asked first; inside a group more ``weight`` means more requests.

    ``bounds`` are of what it is asked here, whatever the target could do.
    """

    name: str
    priority: int = 0
    weight: float = 1.0
    bounds: TokenBounds = UNBOUNDED_TOKENS


# Preferences of a request at the router's door: providers, and their order.

SortBy = Literal["price", "throughput", "latency"]


class MostPrice(Struct, frozen=True):
    """The most that a provider may cost; ``None`` is no bound.

    Money per 1M tokens of the prompt and of the reply, and for one request.
    """

    prompt: Decimal | None = None
    completion: Decimal | None = None
    request: Decimal | None = None


ANY_PRICE = MostPrice()


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
    max_price: MostPrice = ANY_PRICE


NO_PREFERENCES = Preferences()
"""Of requests that say nothing."""


# Classes of the calls of a reply, as metrics and catalog count them.

CallClass = Literal["fine", "invalid_json", "unknown_name", "schema_mismatch", "unchecked"]
"""``unchecked``: too large for the check, or its schema is one that nobody here can check."""


class CallCounts(Struct, frozen=True):
    """Delivered calls, by class."""

    fine: int = 0
    invalid_json: int = 0
    unknown_name: int = 0
    schema_mismatch: int = 0
    unchecked: int = 0


# State of a target as observed, for the choice among targets.


class Percentiles(Struct, frozen=True):
    """Of many measurements: so much or less was half of them, three quarters, and so on."""

    p50: float
    p75: float
    p90: float
    p99: float


class TargetStats(Struct, frozen=True):
    """Measurements of a target, of the last five minutes unless the name says otherwise.

    ``None`` is what nobody has measured lately.
    """

    up: bool = True
    """Requests are sent to it."""
    idle: bool = True
    """Nothing is running there."""
    first_token: Percentiles | None = None
    """In seconds."""
    speed: Percentiles | None = None
    """In output tokens per second."""
    first_token_half_hour: Percentiles | None = None
    speed_half_hour: Percentiles | None = None
    uptime: float | None = None  # of five minutes
    """Share of answered requests among those that it could have answered."""
    expected: float | None = None  # seconds to the first token, by what was seen just now
    """Median of ``first_token``, or more if the newest requests indicate it."""
    uptime_half_hour: float | None = None
    uptime_day: float | None = None
    calls_day: CallCounts | None = None
    """Checked calls that it delivered."""


QUARTER_SECONDS = 900


class TimeBucket(Struct, frozen=True):
    """Observations of a target in a quarter of an hour."""

    start: int
    """Unix seconds."""
    answered: int
    failed: int
    first_token: float | None
    """Median, in seconds."""
    speed: float | None
    """Median of output tokens per second."""


UNKNOWN_STATS = TargetStats()
"""Of a target that nobody has asked yet."""
