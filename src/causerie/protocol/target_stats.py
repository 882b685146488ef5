"""State of a target as observed, for the choice among targets."""

from __future__ import annotations

from msgspec import Struct

from causerie.protocol.call_class import CallCounts


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


UNKNOWN = TargetStats()
"""Of a target that nobody has asked yet."""
