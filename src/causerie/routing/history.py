"""A target's last day in quarters of an hour: how often it answered, how soon, how fast.

For pages that show how it went; nothing is decided by it. It lives as long as
the process, like all else that is measured of a target.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from causerie.protocol.target_stats import QUARTER_SECONDS, TimeBucket
from causerie.routing.samples import Samples

_SECOND_NS = 1_000_000_000
_QUARTER_NS = QUARTER_SECONDS * _SECOND_NS
MOST = 96  # quarters of a day


class Minute:
    """Counts of answered and failed requests in a minute, which has a number."""

    __slots__ = ("answered", "failed", "number")

    def __init__(self, number: float) -> None:
        self.number = number
        self.answered = self.failed = 0


class AvailabilityHistory:
    """Of one target. ``wall`` gives Unix nanoseconds; what is measured has a steady clock."""

    __slots__ = ("_began", "_first_tokens", "_minutes", "_number", "_past", "_speeds", "_wall")

    def __init__(self, first_tokens: Samples, speeds: Samples, wall: Callable[[], int]) -> None:
        self._first_tokens = first_tokens
        self._speeds = speeds
        self._wall = wall
        self._past: deque[TimeBucket] = deque(maxlen=MOST - 1)
        self._number = 0  # of the quarter that is going on
        self._began = 0.0
        self._minutes: list[Minute] = []

    def begin(self, minute: Minute, now: float) -> float:
        """A minute begins now, by the steady clock; the seconds until its quarter ends.

        If the wall's clock was put back, the present quarter goes on.
        """
        number, since = divmod(self._wall(), _QUARTER_NS)
        if number > self._number:
            if self._minutes:
                self._past.append(self._time_bucket())
            self._number, self._began, self._minutes = number, now, []
        self._minutes.append(minute)
        return (_QUARTER_NS - since) / _SECOND_NS

    def day(self) -> Sequence[TimeBucket]:
        """Those quarters of the last day in which it was asked, the oldest first."""
        since = self._since()
        going_on = [self._time_bucket()] if self._minutes else []
        return [one for one in (*self._past, *going_on) if one.start >= since]

    def requests(self) -> int:
        """Return how many requests the last day had, at a fraction of the cost of :meth:`day`."""
        since = self._since()
        counted = sum(one.answered + one.failed for one in self._past if one.start >= since)
        if self._number * QUARTER_SECONDS >= since:
            counted += sum(minute.answered + minute.failed for minute in self._minutes)
        return counted

    def _since(self) -> int:
        """Return when the first quarter of the last day began, in Unix seconds."""
        return (self._wall() // _QUARTER_NS - MOST + 1) * QUARTER_SECONDS

    def _time_bucket(self) -> TimeBucket:
        """Return the time bucket of the current quarter of an hour, as it is so far."""
        return TimeBucket(
            start=self._number * QUARTER_SECONDS,
            answered=sum(minute.answered for minute in self._minutes),
            failed=sum(minute.failed for minute in self._minutes),
            first_token=self._first_tokens.median_since(self._began),
            speed=self._speeds.median_since(self._began),
        )
