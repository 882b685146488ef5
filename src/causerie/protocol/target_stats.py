"""State of a target as observed, for the choice among targets."""

from __future__ import annotations

from msgspec import Struct


class Percentiles(Struct, frozen=True):
    """Of many measurements: so much or less was half of them, three quarters, and so on."""

    p50: float
    p75: float
    p90: float
    p99: float


class TargetStats(Struct, frozen=True):
    """``None`` is what nobody has measured lately.

    ``first_token`` is in seconds, ``speed`` in tokens of output a second, both of
    the last five minutes where nothing else is said; ``uptime`` the share of
    requests that it answered of those that it could have. ``up``: it is asked;
    ``idle``: nothing is under way there. ``expected`` is ``first_token``'s median,
    or more where the newest requests say so.
    """

    up: bool = True
    idle: bool = True
    first_token: Percentiles | None = None
    speed: Percentiles | None = None
    first_token_half_hour: Percentiles | None = None
    speed_half_hour: Percentiles | None = None
    uptime: float | None = None  # of five minutes
    expected: float | None = None  # seconds to the first token, by what was seen just now
    uptime_half_hour: float | None = None
    uptime_day: float | None = None


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


UNKNOWN = TargetStats()
"""Of a target that nobody has asked yet."""
