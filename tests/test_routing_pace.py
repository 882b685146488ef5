"""How fast targets are, and how often they answer: measured from what they did."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from routingkit import ASK, BROKEN, FULL, REPLY, Clock, Scripted, in_turn, middle, router

from causerie.errors import InvalidRequest
from causerie.routing.breaker import Breaker
from causerie.routing.pace import FIVE_MINUTES, HALF_HOUR, Pace, Samples
from causerie.routing.seat import Seat

values = st.lists(st.floats(0, 1000), min_size=1, max_size=300)


@given(values)
def test_percentiles_are_values_that_were_measured(measured: list[float]) -> None:
    samples = Samples(Clock())
    for value in measured:
        samples.add(value)
    found = samples.percentiles()
    assert found is not None
    told = [found.p50, found.p75, found.p90, found.p99]
    assert told == sorted(told)
    assert set(told) <= set(measured)
    assert sum(value <= found.p50 for value in measured) * 2 >= len(measured)
    assert sum(value > found.p99 for value in measured) * 100 <= len(measured)


def test_what_is_old_counts_in_the_longer_window_only_and_then_no_more() -> None:
    clock = Clock()
    samples = Samples(clock)
    assert samples.percentiles() is None
    samples.add(1.0)
    assert samples.percentiles() is not None
    clock.now += FIVE_MINUTES + 1
    assert samples.percentiles() is None
    assert samples.percentiles(HALF_HOUR) is not None
    samples.add(3.0)
    found = samples.percentiles()
    assert found is not None
    assert found.p50 == 3.0
    clock.now += HALF_HOUR + 1
    assert samples.percentiles(HALF_HOUR) is None


def test_uptime_is_the_share_of_what_could_have_been_answered() -> None:
    clock = Clock()
    pace = Pace(clock)
    assert pace.uptime(5) is None
    for _ in range(3):
        pace.answered(0.1)
    pace.failed()
    assert pace.uptime(5) == pytest.approx(0.75)
    clock.now += 6 * 60
    assert pace.uptime(5) is None
    pace.answered(0.1)
    assert pace.uptime(5) == 1
    assert pace.uptime(30) == pytest.approx(0.8)
    clock.now += 25 * 60 * 60
    assert pace.uptime(1440) is None


def test_a_reply_that_came_at_once_tells_nothing_of_speed() -> None:
    pace = Pace(Clock())
    pace.wrote(500, 0.0)
    pace.wrote(1, 1.0)
    assert pace.speed.percentiles() is None
    pace.wrote(100, 2.0)
    found = pace.speed.percentiles()
    assert found is not None
    assert found.p50 == 50


def test_failures_of_a_target_count_and_those_of_clients_and_full_ones_do_not() -> None:
    seat = Seat("t", Scripted(REPLY), None, Breaker(Clock(), middle))
    seat.failed(InvalidRequest("Wrong."))
    seat.failed(FULL)
    assert seat.standing().uptime is None
    seat.failed(BROKEN)
    assert seat.standing().uptime == 0
    assert seat.standing().uptime_day == 0


async def test_a_request_on_its_way_is_measured() -> None:
    way = router(Scripted(REPLY))
    assert way.standing("gone") is None
    async with way.generate(in_turn(1), ASK) as journey:
        during = way.standing("t0")
        async for _ in journey:
            pass
    after = way.standing("t0")
    assert during is not None
    assert after is not None
    assert (during.idle, after.idle) == (False, True)
    assert after.first_token is not None
    assert (after.up, after.uptime) == (True, 1)
