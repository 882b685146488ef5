"""A target's day in quarters of an hour."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from causerie.protocol.targets import QUARTER_SECONDS
from causerie.routing.target_state import LatencyStats

SECOND = 1_000_000_000


class Clocks:
    """One on the wall, which tests put back, and one that nobody sets."""

    def __init__(self) -> None:
        self.now = 1_800_000_000
        self.put_back = 0

    def wall(self) -> int:
        return self.now * SECOND

    def steady(self) -> float:
        return self.now + self.put_back


class Told:
    """A target that tells of its requests."""

    def __init__(self, clocks: Clocks) -> None:
        self._clock = clocks.steady
        self._latency_stats = LatencyStats(clocks.steady, clocks.wall)
        self.failed = self._latency_stats.failed
        self.day = self._latency_stats.history.day

    def answered(self, seconds: float) -> None:
        self._latency_stats.answered(seconds, self._clock())

    def wrote(self, speed: float) -> None:
        self._latency_stats.wrote(round(speed * 10), 10.0, self._clock())


def test_what_happened_is_in_its_quarter() -> None:
    clocks = Clocks()
    history = Told(clocks)
    assert history.day() == []
    history.answered(0.2)
    history.answered(0.4)
    history.answered(0.9)
    history.failed()
    history.wrote(50.0)
    clocks.now += QUARTER_SECONDS
    history.failed()
    first, second = history.day()
    assert (first.answered, first.failed, first.first_token, first.speed) == (3, 1, 0.4, 50.0)
    assert (second.answered, second.failed, second.first_token, second.speed) == (0, 1, None, None)
    assert second.start - first.start == QUARTER_SECONDS
    assert first.start <= 1_800_000_000 < first.start + QUARTER_SECONDS


def test_what_is_older_than_a_day_is_gone() -> None:
    clocks = Clocks()
    history = Told(clocks)
    history.answered(0.2)
    clocks.now += 24 * 3600 - QUARTER_SECONDS
    assert len(history.day()) == 1
    clocks.now += QUARTER_SECONDS
    assert history.day() == []
    history.answered(0.3)
    assert [one.first_token for one in history.day()] == [0.3]


def test_a_clock_that_is_put_back_loses_nothing() -> None:
    clocks = Clocks()
    history = Told(clocks)
    history.answered(0.2)
    clocks.now -= 3600
    clocks.put_back += 3600
    history.answered(0.4)
    clocks.now += 3600
    (only,) = history.day()
    assert only.answered == 2


@given(st.lists(st.tuples(st.integers(0, 4000), st.booleans()), max_size=200))
def test_everything_of_a_day_is_counted_once(steps: list[tuple[int, bool]]) -> None:
    clocks = Clocks()
    history, made = Told(clocks), []
    for wait, good in steps:
        clocks.now += wait
        made.append((clocks.now // QUARTER_SECONDS, good))
        history.answered(0.1) if good else history.failed()
    last = clocks.now // QUARTER_SECONDS
    recent = [good for quarter, good in made if quarter > last - 96]
    day = history.day()
    assert sum(one.answered for one in day) == sum(recent)
    assert sum(one.failed for one in day) == len(recent) - sum(recent)
    assert [one.start for one in day] == sorted({one.start for one in day})
