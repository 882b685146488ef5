"""Statistics of a target: latency, speed, uptime, its last day, and classes of its calls."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from statistics import median

import msgspec
from msgspec import Struct, field

from causerie.protocol.targets import (
    QUARTER_SECONDS,
    CallClass,
    CallCounts,
    Percentiles,
    TimeBucket,
)

FIVE_MINUTES = 300.0
HALF_HOUR = 1800.0
SAMPLES_KEPT = 2000
_SHARES = (0.5, 0.75, 0.9, 0.99)
_NEWEST = 3  # measurements that say how it is now, where they are not older than
_NOW_SECONDS = 5.0
_FRESH_SECONDS = 1.0  # percentiles are not counted again within


class Samples(Struct, eq=False):
    """The newest measurements with their times, for percentiles."""

    _clock: Callable[[], float]
    _made: deque[tuple[float, float]] = field(default_factory=partial(deque, maxlen=SAMPLES_KEPT))
    _empty: bool = False  # a window had nothing when it was last asked for
    _known: dict[float, tuple[float, Percentiles | None]] = {}

    def add(self, value: float, now: float) -> None:
        self._made.append((now, value))
        if self._empty:
            self._empty = False
            self._known.clear()

    def newest(self) -> float | None:
        """Return the median of the newest few of the last seconds; ``None`` with less than two."""
        since = self._clock() - _NOW_SECONDS
        values = sorted(
            value for made, value in islice(reversed(self._made), _NEWEST) if made >= since
        )
        return values[(len(values) - 1) // 2] if len(values) > 1 else None

    def median_since(self, since: float) -> float | None:
        values = [value for made, value in self._made if made >= since]
        return median(values) if values else None

    def percentiles(self, window: float = FIVE_MINUTES) -> Percentiles | None:
        """Return the percentiles of the last ``window`` seconds; ``None`` without measurements."""
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


_SECOND_NS = 1_000_000_000
_QUARTER_NS = QUARTER_SECONDS * _SECOND_NS
QUARTERS_KEPT = 96  # quarters of a day


class Minute(Struct, eq=False):
    """Counts of answered and failed requests in a minute with this number."""

    number: float
    answered: int = 0
    failed: int = 0


class AvailabilityHistory(Struct, eq=False):
    """The last day of a target in quarters of an hour; ``wall`` returns Unix nanoseconds."""

    _first_tokens: Samples
    _speeds: Samples
    _wall: Callable[[], int]
    _past: deque[TimeBucket] = field(default_factory=partial(deque, maxlen=QUARTERS_KEPT - 1))
    _number: int = 0  # of the quarter that is going on
    _began: float = 0.0
    _minutes: list[Minute] = []

    def begin(self, minute: Minute, now: float) -> float:
        """Start a minute; return the seconds until its quarter of an hour ends."""
        number, since = divmod(self._wall(), _QUARTER_NS)
        if number > self._number:
            if self._minutes:
                self._past.append(self._time_bucket())
            self._number, self._began, self._minutes = number, now, []
        self._minutes.append(minute)
        return (_QUARTER_NS - since) / _SECOND_NS

    def day(self) -> Sequence[TimeBucket]:
        """Return the quarters of the last day that had requests, the oldest first."""
        since = self._since()
        going_on = [self._time_bucket()] if self._minutes else []
        return [one for one in (*self._past, *going_on) if one.start >= since]

    def _since(self) -> int:
        return (self._wall() // _QUARTER_NS - QUARTERS_KEPT + 1) * QUARTER_SECONDS

    def _time_bucket(self) -> TimeBucket:
        return TimeBucket(
            start=self._number * QUARTER_SECONDS,
            answered=sum(minute.answered for minute in self._minutes),
            failed=sum(minute.failed for minute in self._minutes),
            first_token=self._first_tokens.median_since(self._began),
            speed=self._speeds.median_since(self._began),
        )


_DAY_MINUTES = 1440
_RECENT_MINUTES = 5
_LEAST_FAILED = 3  # fewer say nothing of a target
_DEGRADED = 3  # at least one of so many recent requests failed
_LEAST_SECONDS = 0.005  # a reply that came at once tells nothing of speed


class LatencyStats:
    """Latency, speed and uptime of one target; ``waiting`` has the start of silent attempts."""

    def __init__(self, clock: Callable[[], float], wall: Callable[[], int] = time.time_ns) -> None:
        self._clock = clock
        self.first_token = Samples(clock)
        self.speed = Samples(clock)
        self.history = AvailabilityHistory(self.first_token, self.speed, wall)
        self.waiting: dict[object, float] = {}
        self._answered_from = float("-inf")  # when the newest of the answered ones began
        self._minute = Minute(0)
        self._past: deque[Minute] = deque()  # of the last day
        self._sums: dict[int, tuple[float, int, int]] = {}  # without the present minute
        self._minute_ends = float("-inf")
        self._fails_until = float("-inf")  # the last failure is recent until then

    def recent_failures(self) -> tuple[int, int] | None:
        """Return failed and all requests of five minutes if a third failed, else ``None``.

        It costs next to nothing where none failed lately.
        """
        if self._fails_until == float("-inf"):
            return None
        if self._clock() >= self._fails_until:
            self._fails_until = float("-inf")
            return None
        answered, failed = self._counted(_RECENT_MINUTES)
        is_degraded = failed >= _LEAST_FAILED and failed * _DEGRADED >= answered + failed
        return (failed, answered + failed) if is_degraded else None

    def expected(self) -> float | None:
        """Return the expected seconds to the first token; ``None`` if unknown.

        The largest of the usual time, that of the newest few, and the wait of a request that began
        after all answered ones, so that a target that has become slow is noticed at once.
        """
        usual = self.first_token.percentiles()
        if usual is None:
            return None
        newest = self.first_token.newest() or 0.0
        since = [at for at in self.waiting.values() if at > self._answered_from]
        waited = self._clock() - min(since) if since else 0.0
        return max(usual.p50, newest, waited)

    def answered(self, seconds: float, now: float) -> None:
        if now >= self._minute_ends:
            self._next_minute(now)
        self._minute.answered += 1
        asked = now - seconds
        if asked > self._answered_from:
            self._answered_from = asked
        self.first_token.add(seconds, now)

    def failed(self) -> None:
        now = self._clock()
        if now >= self._minute_ends:
            self._next_minute(now)
        self._minute.failed += 1
        self._fails_until = now + _RECENT_MINUTES * 60

    def wrote(self, tokens: int, seconds: float, now: float) -> None:
        if tokens > 1 and seconds >= _LEAST_SECONDS:
            if now >= self._minute_ends:
                self._next_minute(now)
            self.speed.add(tokens / seconds, now)

    def uptime(self, minutes: int) -> float | None:
        """Return the share of answered requests in the last 5, 30 or 1440 minutes."""
        answered, failed = self._counted(minutes)
        return answered / (answered + failed) if answered + failed else None

    def _counted(self, minutes: int) -> tuple[int, int]:
        now = self._clock() // 60
        summed, answered, failed = self._sums.get(minutes, (-1.0, 0, 0))
        if summed != now:
            past = [one for one in self._past if one.number > now - minutes]
            answered, failed = sum(one.answered for one in past), sum(one.failed for one in past)
            self._sums[minutes] = now, answered, failed
        if self._minute.number > now - minutes:
            answered, failed = answered + self._minute.answered, failed + self._minute.failed
        return answered, failed

    def _next_minute(self, now: float) -> None:
        number = now // 60
        self._past.append(self._minute)
        while self._past and self._past[0].number <= number - _DAY_MINUTES:
            self._past.popleft()
        self._sums.clear()
        self._minute = Minute(number)
        left = self.history.begin(self._minute, now)
        self._minute_ends = min((number + 1) * 60, now + left)


class CallStats(Struct, eq=False):
    """Classes of a target's delivered calls, since the start and of the last day."""

    _clock: Callable[[], float]
    _quarters: deque[tuple[int, Counter[CallClass]]] = field(
        default_factory=partial(deque, maxlen=QUARTERS_KEPT)
    )
    ever: Counter[CallClass] = field(default_factory=Counter)

    def add(self, classes: Sequence[CallClass]) -> None:
        self.ever.update(classes)
        number = self._number()
        if not self._quarters or self._quarters[-1][0] != number:
            self._quarters.append((number, Counter()))
        self._quarters[-1][1].update(classes)

    def day(self) -> CallCounts | None:
        if not self._quarters:
            return None
        since = self._number() - QUARTERS_KEPT
        newer = (counts for number, counts in self._quarters if number > since)
        total = sum(newer, Counter[CallClass]())
        return msgspec.convert(dict(total), CallCounts) if total else None

    def _number(self) -> int:
        return int(self._clock() // QUARTER_SECONDS)
