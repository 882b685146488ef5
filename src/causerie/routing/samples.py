"""Measurements of one kind, for percentiles of the last minutes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import islice
from statistics import median

from causerie.protocol.target_stats import Percentiles

FIVE_MINUTES = 300.0
HALF_HOUR = 1800.0
MOST = 2000
_SHARES = (0.5, 0.75, 0.9, 0.99)
_NEWEST = 3  # measurements that say how it is now, where they are not older than
_NOW_SECONDS = 5.0
_FRESH_SECONDS = 1.0  # percentiles are not counted again within


class Samples:
    """Measurements with their times, of half an hour, of the newest few thousand."""

    __slots__ = ("_clock", "_empty", "_known", "_made")

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._made: deque[tuple[float, float]] = deque(maxlen=MOST)
        self._empty = False  # a window had nothing when it was last asked for
        self._known: dict[float, tuple[float, Percentiles | None]] = {}

    def add(self, value: float, now: float) -> None:
        self._made.append((now, value))
        if self._empty:
            self._empty = False
            self._known.clear()

    def newest(self) -> float | None:
        """The median of the newest few of the last seconds; ``None`` where there is but one."""
        since = self._clock() - _NOW_SECONDS
        values = sorted(
            value for made, value in islice(reversed(self._made), _NEWEST) if made >= since
        )
        return values[(len(values) - 1) // 2] if len(values) > 1 else None

    def median_since(self, since: float) -> float | None:
        """Of all that were measured since, as far as they are still known."""
        values = [value for made, value in self._made if made >= since]
        return median(values) if values else None

    def percentiles(self, window: float = FIVE_MINUTES) -> Percentiles | None:
        """Of the last so many seconds; ``None`` where nothing was measured in them."""
        if not self._made:
            return None
        now = self._clock()
        counted, percentiles = self._known.get(window, (float("-inf"), None))
        if now - counted < _FRESH_SECONDS:
            return percentiles
        values = sorted(value for made, value in self._made if made >= now - window)
        if values:
            last = len(values) - 1
            found = Percentiles(*(values[min(int(len(values) * one), last)] for one in _SHARES))
        else:
            found, self._empty = None, True
        self._known[window] = (now, found)
        return found
