"""How fast a target has answered lately, and how often it has not, from the requests it got.

Percentiles are of up to half an hour, shares of answered requests are by the
minute, for a day.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import islice

from msgspec import Struct

from causerie.protocol.standing import Percentiles
from causerie.routing.history import History

FIVE_MINUTES = 300.0
HALF_HOUR = 1800.0
_MOST = 2000
_SHARES = (0.5, 0.75, 0.9, 0.99)
_NEWEST = 3  # measurements that say how it is now, where they are not older than
_NOW_SECONDS = 5.0
_LEAST_SECONDS = 0.005  # a reply that came at once tells nothing of speed
_FRESH_SECONDS = 1.0  # percentiles are not counted again within
_DAY_MINUTES = 1440


class Samples:
    """Measurements with their times, of half an hour, of the newest few thousand."""

    __slots__ = ("_clock", "_empty", "_known", "_made")

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._made: deque[tuple[float, float]] = deque(maxlen=_MOST)
        self._empty = False  # a window had nothing when it was last asked for
        self._known: dict[float, tuple[float, Percentiles | None]] = {}

    def add(self, value: float, now: float) -> None:
        """One more."""
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

    def percentiles(self, window: float = FIVE_MINUTES) -> Percentiles | None:
        """Of the last so many seconds; ``None`` where nothing was measured in them."""
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


class _Minute(Struct):
    number: float
    answered: int = 0
    failed: int = 0


class Pace:
    """Of one target. Times are in seconds, by ``clock`` where they are moments.

    ``waiting`` tells who waits for a first token now, and since when.
    """

    __slots__ = (
        "_answered_from", "_clock", "_minute", "_minute_ends", "_minutes", "first_token",
        "history", "speed", "waiting",
    )  # fmt: skip

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.first_token = Samples(clock)
        self.speed = Samples(clock)
        self.history = History()
        self.waiting: dict[object, float] = {}
        self._answered_from = float("-inf")  # when the newest of the answered ones began
        self._minutes: deque[_Minute] = deque(maxlen=_DAY_MINUTES)
        self._minute = _Minute(0)
        self._minute_ends = float("-inf")

    def expected(self) -> float | None:
        """Seconds to the first token, for one who asks now; ``None`` where nobody knows.

        What is usual, or what the newest few have met, or how long somebody waits
        already who began after all that were answered: whichever is most. So
        one that has become slow is known as soon as it should have answered.
        """
        usual = self.first_token.percentiles()
        if usual is None:
            return None
        newest = self.first_token.newest() or 0.0
        since = [at for at in self.waiting.values() if at > self._answered_from]
        waited = self._clock() - min(since) if since else 0.0
        return max(usual.p50, newest, waited)

    def answered(self, seconds: float, now: float) -> None:
        """It began to answer, after so long."""
        asked = now - seconds
        if asked > self._answered_from:
            self._answered_from = asked
        self.first_token.add(seconds, now)
        self.history.answered(seconds, now)
        minute = self._minute if now < self._minute_ends else self._next_minute(now)
        minute.answered += 1

    def failed(self) -> None:
        """It should have answered and did not."""
        now = self._clock()
        self.history.failed(now)
        minute = self._minute if now < self._minute_ends else self._next_minute(now)
        minute.failed += 1

    def wrote(self, tokens: int, seconds: float, now: float) -> None:
        """So many tokens came, from the first on in so long."""
        if tokens > 1 and seconds >= _LEAST_SECONDS:
            self.speed.add(tokens / seconds, now)
            self.history.wrote(tokens / seconds, now)

    def uptime(self, minutes: int) -> float | None:
        """The share of requests that it answered in the last so many minutes; ``None``: of none."""
        since = self._clock() // 60 - minutes
        lately = [one for one in self._minutes if one.number > since]
        answered = sum(one.answered for one in lately)
        failed = sum(one.failed for one in lately)
        return answered / (answered + failed) if answered + failed else None

    def _next_minute(self, now: float) -> _Minute:
        number = now // 60
        self._minute = _Minute(number)
        self._minute_ends = (number + 1) * 60
        self._minutes.append(self._minute)
        return self._minute
