"""Statistics of a target's requests: latency, speed and uptime.

Percentiles are of up to half an hour, shares of answered requests are by the minute, for a day.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from causerie.routing.history import AvailabilityHistory, Minute
from causerie.routing.samples import Samples
from causerie.routing.uptime import Uptime

_LEAST_SECONDS = 0.005  # a reply that came at once tells nothing of speed


class LatencyStats:
    """Of one target. Times are in seconds, by ``clock`` where they are moments.

    ``wall`` gives Unix nanoseconds. ``waiting`` tells who waits for a first token
    now, and since when.
    """

    __slots__ = (
        "_answered_from", "_clock", "_minute", "_minute_ends", "_uptime", "first_token",
        "history", "speed", "waiting",
    )  # fmt: skip

    def __init__(self, clock: Callable[[], float], wall: Callable[[], int] = time.time_ns) -> None:
        self._clock = clock
        self.first_token = Samples(clock)
        self.speed = Samples(clock)
        self.history = AvailabilityHistory(self.first_token, self.speed, wall)
        self.waiting: dict[object, float] = {}
        self._answered_from = float("-inf")  # when the newest of the answered ones began
        self._uptime = Uptime()
        self._minute = Minute(0)
        self._minute_ends = float("-inf")

    def expected(self) -> float | None:
        """Seconds to the first token, for one who asks now; ``None`` where nobody knows.

        The largest of these is used: the usual time, that of the newest few, and the wait so far of
        a request that began after all that were answered. So one that has become slow is known as
        soon as it should have answered.
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
        minute = self._minute if now < self._minute_ends else self._next_minute(now)
        minute.answered += 1
        asked = now - seconds
        if asked > self._answered_from:
            self._answered_from = asked
        self.first_token.add(seconds, now)

    def count_answered(self, number: int) -> None:
        """Count requests that it began to answer lately, of which no more is known."""
        if number > 0:
            now = self._clock()
            minute = self._minute if now < self._minute_ends else self._next_minute(now)
            minute.answered += number

    def failed(self) -> None:
        """It should have answered and did not."""
        now = self._clock()
        minute = self._minute if now < self._minute_ends else self._next_minute(now)
        minute.failed += 1

    def wrote(self, tokens: int, seconds: float, now: float) -> None:
        """So many tokens came, from the first on in so long."""
        if tokens > 1 and seconds >= _LEAST_SECONDS:
            if now >= self._minute_ends:
                self._next_minute(now)
            self.speed.add(tokens / seconds, now)

    def uptime(self, minutes: int) -> float | None:
        """Return the share of requests that it answered in the last 5, 30 or 1440 minutes.

        ``None`` where there were none.
        """
        return self._uptime.share(minutes, self._clock() // 60)

    def _next_minute(self, now: float) -> Minute:
        """The minute of now; it is a shorter one where its quarter of an hour ends before."""
        number = now // 60
        self._minute = Minute(number)
        self._uptime.begin(self._minute)
        left = self.history.begin(self._minute, now)
        self._minute_ends = min((number + 1) * 60, now + left)
        return self._minute
