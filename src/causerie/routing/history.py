"""A target's last day in quarters of an hour: how often it answered, how soon, how fast.

For pages that show how it went; nothing is decided by it. It lives as long as
the process, like all else that is measured of a target.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from statistics import median

from causerie.protocol.standing import QUARTER_SECONDS, Stretch

_QUARTER_NS = QUARTER_SECONDS * 1_000_000_000
_MOST = 96  # of a day
_SAMPLES = 500  # of a quarter, the newest; medians are of these


class _Quarter:
    """One that is going on."""

    __slots__ = ("answered", "failed", "first_tokens", "number", "speeds")

    def __init__(self, number: int) -> None:
        self.number = number
        self.answered = 0
        self.failed = 0
        self.first_tokens: deque[float] = deque(maxlen=_SAMPLES)
        self.speeds: deque[float] = deque(maxlen=_SAMPLES)

    def stretch(self) -> Stretch:
        """What it was so far."""
        return Stretch(
            start=self.number * QUARTER_SECONDS,
            answered=self.answered,
            failed=self.failed,
            first_token=median(self.first_tokens) if self.first_tokens else None,
            speed=median(self.speeds) if self.speeds else None,
        )


class History:
    """Of one target. ``wall`` gives Unix nanoseconds; ``now`` is seconds of a steady clock."""

    __slots__ = ("_current", "_ends", "_past", "_wall")

    def __init__(self, wall: Callable[[], int] = time.time_ns) -> None:
        self._wall = wall
        self._past: deque[Stretch] = deque(maxlen=_MOST - 1)
        self._current = _Quarter(0)  # which nothing happened in
        self._ends = float("-inf")  # when the current one does, by the steady clock

    def answered(self, seconds: float, now: float) -> None:
        """It began to answer after so long."""
        quarter = self._current if now < self._ends else self._next(now)
        quarter.answered += 1
        quarter.first_tokens.append(seconds)

    def failed(self, now: float) -> None:
        """It should have answered and did not."""
        quarter = self._current if now < self._ends else self._next(now)
        quarter.failed += 1

    def wrote(self, speed: float, now: float) -> None:
        """A reply came at so many tokens a second."""
        quarter = self._current if now < self._ends else self._next(now)
        quarter.speeds.append(speed)

    def day(self) -> Sequence[Stretch]:
        """Those quarters of the last day in which it was asked, the oldest first."""
        since = (self._wall() // _QUARTER_NS - _MOST + 1) * QUARTER_SECONDS
        found = [one for one in self._past if one.start >= since]
        if self._current.number * QUARTER_SECONDS >= since:
            found.append(self._current.stretch())
        return found

    def _next(self, now: float) -> _Quarter:
        """That of now; where the wall's clock was put back it is the one that is there."""
        wall = self._wall()
        number = wall // _QUARTER_NS
        self._ends = now + (_QUARTER_NS - wall % _QUARTER_NS) / 1_000_000_000
        if number > self._current.number:
            if self._current.number:
                self._past.append(self._current.stretch())
            self._current = _Quarter(number)
        return self._current
