"""A target's day in quarters of an hour."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from causerie.protocol.standing import QUARTER_SECONDS
from causerie.routing.history import History

SECOND = 1_000_000_000


class Wall:
    """A clock on the wall, which the test sets."""

    def __init__(self) -> None:
        self.now = 1_800_000_000
        self.put = 0

    def __call__(self) -> int:
        return self.now * SECOND

    @property
    def steady(self) -> float:
        """What a clock says that nobody sets."""
        return self.now - self.put


def test_what_happened_is_in_its_quarter() -> None:
    wall = Wall()
    history = History(wall)
    assert history.day() == []
    history.answered(0.2, wall.steady)
    history.answered(0.4, wall.steady)
    history.answered(0.9, wall.steady)
    history.failed(wall.steady)
    history.wrote(50.0, wall.steady)
    wall.now += QUARTER_SECONDS
    history.failed(wall.steady)
    first, second = history.day()
    assert (first.answered, first.failed, first.first_token, first.speed) == (3, 1, 0.4, 50.0)
    assert (second.answered, second.failed, second.first_token, second.speed) == (0, 1, None, None)
    assert second.start - first.start == QUARTER_SECONDS
    assert first.start <= 1_800_000_000 < first.start + QUARTER_SECONDS


def test_what_is_older_than_a_day_is_gone() -> None:
    wall = Wall()
    history = History(wall)
    history.answered(0.2, wall.steady)
    wall.now += 24 * 3600 - QUARTER_SECONDS
    assert len(history.day()) == 1
    wall.now += QUARTER_SECONDS
    assert history.day() == []
    history.answered(0.3, wall.steady)
    assert [one.first_token for one in history.day()] == [0.3]


def test_a_clock_that_is_put_back_loses_nothing() -> None:
    wall = Wall()
    history = History(wall)
    history.answered(0.2, wall.steady)
    wall.now -= 3600
    wall.put -= 3600
    history.answered(0.4, wall.steady)
    wall.now += 3600
    (only,) = history.day()
    assert only.answered == 2


@given(st.lists(st.tuples(st.integers(0, 4000), st.booleans()), max_size=200))
def test_everything_of_a_day_is_counted_once(steps: list[tuple[int, bool]]) -> None:
    wall = Wall()
    history, made = History(wall), []
    for wait, good in steps:
        wall.now += wait
        made.append((wall.now // QUARTER_SECONDS, good))
        history.answered(0.1, wall.steady) if good else history.failed(wall.steady)
    last = wall.now // QUARTER_SECONDS
    recent = [good for quarter, good in made if quarter > last - 96]
    day = history.day()
    assert sum(one.answered for one in day) == sum(recent)
    assert sum(one.failed for one in day) == len(recent) - sum(recent)
    assert [one.start for one in day] == sorted({one.start for one in day})
