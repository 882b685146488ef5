"""Data on targets that several packages share: candidates, preferences, statistics."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Literal

from msgspec import Struct


class TokenBounds(Struct, frozen=True):
    """Token limits of context (prompt and output) and output; ``None``: the target's own."""

    context_length: int | None = None
    max_output_tokens: int | None = None


UNBOUNDED_TOKENS = TokenBounds()


class Candidate(Struct, frozen=True):
    """A target for a request; ``priority`` 0 is the first, and ``weight`` is within a priority."""

    name: str
    priority: int = 0
    weight: float = 1.0
    bounds: TokenBounds = UNBOUNDED_TOKENS


class TargetOffer(Struct, frozen=True):
    """A target of a model with its provider, and its prices of 1M tokens."""

    target: str
    provider: str
    prompt: Decimal
    completion: Decimal


SortBy = Literal["price", "throughput", "latency"]


class MostPrice(Struct, frozen=True):
    """Price limits per 1M tokens of prompt and reply, and per request; ``None``: no limit."""

    prompt: Decimal | None = None
    completion: Decimal | None = None
    request: Decimal | None = None


ANY_PRICE = MostPrice()


class Preferences(Struct, frozen=True):
    """Provider preferences of a request: order, exclusions, sorting and highest price."""

    order: tuple[str, ...] = ()
    only: frozenset[str] | None = None  # `None` is no bound
    ignore: frozenset[str] = frozenset()
    quantizations: frozenset[str] | None = None  # `None` is no bound
    allow_fallbacks: bool = True  # if False, only the first choice is asked
    require_parameters: bool = False  # exclude providers whose supported parameters are unknown
    private: bool = False  # exclude providers that store prompts, or may
    sort: SortBy | None = None
    max_price: MostPrice = ANY_PRICE


NO_PREFERENCES = Preferences()  # of requests that say nothing


CallClass = Literal["fine", "invalid_json", "unknown_name", "schema_mismatch", "unchecked"]
"""``unchecked``: too large, or its schema cannot be checked."""


class CallCounts(Struct, frozen=True):
    """Numbers of delivered tool calls, by the result of their check."""

    fine: int = 0
    invalid_json: int = 0
    unknown_name: int = 0
    schema_mismatch: int = 0
    unchecked: int = 0


class Percentiles(Struct, frozen=True):
    """Percentiles of many measurements: half of them were ``p50`` or less, and so on."""

    p50: float
    p75: float
    p90: float
    p99: float


class TargetStats(Struct, frozen=True):
    """Measurements of a target in the last five minutes unless named otherwise; ``None``: none."""

    up: bool = True  # requests are sent to it
    degraded: bool = False  # fewer than usual, since a third of the recent ones failed
    idle: bool = True  # nothing is running there
    first_token: Percentiles | None = None  # in seconds
    speed: Percentiles | None = None  # in output tokens per second
    first_token_half_hour: Percentiles | None = None
    speed_half_hour: Percentiles | None = None
    uptime: float | None = None  # of five minutes
    """Share of answered requests among those that it could have answered."""
    expected: float | None = None  # seconds to the first token, by what was seen just now
    """Median of ``first_token``, or more if the newest requests indicate it."""
    uptime_half_hour: float | None = None
    uptime_day: float | None = None
    calls_day: CallCounts | None = None  # checked calls that it delivered


QUARTER_SECONDS = 900
DAY_SECONDS = 86_400


class TimeBucket(Struct, frozen=True):
    """Observations of a target in a quarter of an hour."""

    start: int  # Unix seconds
    answered: int
    failed: int
    first_token: float | None  # median, in seconds
    speed: float | None  # median of output tokens per second


WINDOWS = ("5 minutes", "hour", "24 hours")


class Figure(Struct, frozen=True):
    """A median of measurements and its window: `5 minutes`, `hour` or `24 hours`."""

    value: float
    window: str


class Figures(Struct, frozen=True):
    """Measurements of a target as lists show them; ``None``: none within 24 hours."""

    first_token: Figure | None = None  # in seconds
    speed: Figure | None = None  # in output tokens per second
    uptime_day: float | None = None  # share of answered requests
    last: datetime | None = None  # start of the last quarter, or day, that had a request


UNKNOWN_STATS = TargetStats()
