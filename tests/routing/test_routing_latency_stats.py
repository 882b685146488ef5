"""Latency, speed and uptime of targets, measured from their replies."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st
from routingkit import (
    ASK,
    BROKEN,
    FULL,
    REPLY,
    Clock,
    Scripted,
    begun,
    in_turn,
    middle,
    router,
    streamed,
)

from causerie.errors import InvalidRequest, UpstreamFailed
from causerie.protocol.events import Batch
from causerie.routing.circuit_breaker import CircuitBreaker
from causerie.routing.target_selector import Attempt
from causerie.routing.target_state import (
    FIVE_MINUTES,
    HALF_HOUR,
    LatencyStats,
    Samples,
    TargetState,
)

START = Clock().now
values = st.lists(st.floats(0, 1000), min_size=1, max_size=300)


@given(values)
def test_percentiles_are_values_that_were_measured(measured: list[float]) -> None:
    samples = Samples(Clock())
    for value in measured:
        samples.add(value, START)
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
    samples.add(1.0, clock.now)
    assert samples.percentiles() is not None
    clock.now += FIVE_MINUTES + 1
    assert samples.percentiles() is None
    assert samples.percentiles(HALF_HOUR) is not None
    samples.add(3.0, clock.now)
    found = samples.percentiles()
    assert found is not None
    assert found.p50 == 3.0
    clock.now += HALF_HOUR + 1
    assert samples.percentiles(HALF_HOUR) is None


def test_uptime_is_the_share_of_what_could_have_been_answered() -> None:
    clock = Clock()
    latency_stats = LatencyStats(clock)
    assert latency_stats.uptime(5) is None
    for _ in range(3):
        latency_stats.answered(0.1, clock.now)
    latency_stats.failed()
    assert latency_stats.uptime(5) == pytest.approx(0.75)
    clock.now += 6 * 60
    assert latency_stats.uptime(5) is None
    latency_stats.answered(0.1, clock.now)
    assert latency_stats.uptime(5) == 1
    assert latency_stats.uptime(30) == pytest.approx(0.8)
    clock.now += 25 * 60 * 60
    assert latency_stats.uptime(1440) is None


def test_a_reply_that_came_at_once_tells_nothing_of_speed() -> None:
    latency_stats = LatencyStats(Clock())
    latency_stats.wrote(500, 0.0, START)
    latency_stats.wrote(1, 1.0, START)
    assert latency_stats.speed.percentiles() is None
    latency_stats.wrote(100, 2.0, START)
    found = latency_stats.speed.percentiles()
    assert found is not None
    assert found.p50 == 50


def test_failures_of_a_target_count_and_those_of_clients_and_full_ones_do_not() -> None:
    target_state = TargetState("t", Scripted(REPLY), None, CircuitBreaker(Clock(), middle))
    target_state.failed(InvalidRequest("Wrong."))
    target_state.failed(FULL)
    assert target_state.target_stats().uptime is None
    target_state.failed(BROKEN)
    assert target_state.target_stats().uptime == 0
    assert target_state.target_stats().uptime_day == 0


async def test_a_request_on_its_way_is_measured() -> None:
    way = router(Scripted(REPLY))
    assert way.target_stats("gone") is None
    async with begun(way.generate(in_turn(1), ASK)) as execution:
        during = way.target_stats("t0")
        await streamed(execution)
    after = way.target_stats("t0")
    assert during is not None
    assert after is not None
    assert (during.idle, after.idle) == (False, True)
    assert after.first_token is not None
    assert (after.up, after.uptime) == (True, 1)


def measured(clock: Clock, seconds: float = 0.1, count: int = 50) -> LatencyStats:
    """One that has answered so quickly all the time."""
    latency_stats = LatencyStats(clock)
    for _ in range(count):
        clock.now += 1
        latency_stats.answered(seconds, clock.now)
    return latency_stats


def test_what_is_usual_is_expected() -> None:
    assert LatencyStats(Clock()).expected() is None
    assert measured(Clock()).expected() == 0.1


def test_who_waits_longer_than_usual_is_known_at_once() -> None:
    clock = Clock()
    latency_stats = measured(clock)
    clock.now += 1
    latency_stats.waiting["a"] = clock.now
    clock.now += 0.05
    assert latency_stats.expected() == 0.1
    clock.now += 0.35
    assert latency_stats.expected() == pytest.approx(0.4)
    del latency_stats.waiting["a"]
    assert latency_stats.expected() == 0.1


def test_one_that_waits_says_nothing_where_later_ones_were_answered() -> None:
    clock = Clock()
    latency_stats = measured(clock)
    latency_stats.waiting["a very long prompt"] = clock.now
    clock.now += 3
    latency_stats.waiting["b"] = clock.now
    clock.now += 0.1
    del latency_stats.waiting["b"]
    latency_stats.answered(0.1, clock.now)
    assert latency_stats.expected() == pytest.approx(0.1)


def test_two_slow_ones_of_three_are_remembered_for_seconds() -> None:
    clock = Clock()
    latency_stats = measured(clock)
    latency_stats.answered(0.9, clock.now)
    assert latency_stats.expected() == 0.1
    latency_stats.answered(0.8, clock.now)
    assert latency_stats.expected() == 0.8
    clock.now += 6
    assert latency_stats.expected() == 0.1  # it may be well again: the next request finds out


@dataclass
class Held(Scripted):
    """Says nothing until it may."""

    gate: asyncio.Event = field(default_factory=asyncio.Event)

    async def _events(self, start: int, counts: list[int]) -> AsyncIterator[Batch]:
        await self.gate.wait()
        async for batch in super()._events(start, counts):
            yield batch


async def test_a_request_that_waits_is_known_to_those_who_choose() -> None:
    clock = Clock()
    target = Held(REPLY)
    target_state = TargetState("t", target, None, CircuitBreaker(clock, middle))
    for _ in range(3):
        target_state.latency_stats.answered(0.1, clock.now)
    clock.now += 10
    attempt = Attempt(target_state, ASK, None)
    async with asyncio.TaskGroup() as group:
        group.create_task(attempt.begin())
        await target.begun.wait()
        clock.now += 2
        assert target_state.target_stats().expected == 2
        target.gate.set()
    await attempt.leave()
    assert target_state.target_stats().first_token is not None
    assert target_state.target_stats().expected == pytest.approx(0.1)


async def test_a_request_that_fails_or_leaves_waits_no_more() -> None:
    clock = Clock()
    target_state = TargetState("t", Scripted([BROKEN]), None, CircuitBreaker(clock, middle))
    target_state.latency_stats.answered(0.1, clock.now)
    clock.now += 1
    with pytest.raises(UpstreamFailed):
        await Attempt(target_state, ASK, None).begin()
    clock.now += 60
    assert target_state.target_stats().expected == 0.1


def test_one_that_becomes_slow_gets_few_more_requests() -> None:
    """Twenty requests per second to whoever is expected to be quickest; one turns eight times
    slower.

    By the median of minutes alone it would get all of the next four seconds.
    """
    clock = Clock()
    paces = {"quick": LatencyStats(clock), "other": LatencyStats(clock)}
    under_way: list[tuple[float, str, int, float]] = []  # when it begins to answer, who, which

    def seconds(name: str, at: float) -> float:
        slow = name == "quick" and at > 1030
        return {"quick": 0.06, "other": 0.1}[name] * (8 if slow else 1)

    met_slow = 0
    for number in range(34 * 20):
        clock.now = 1000 + number / 20
        for each in sorted(each for each in under_way if each[0] <= clock.now):
            under_way.remove(each)
            now, clock.now = clock.now, each[0]
            del paces[each[1]].waiting[each[2]]
            paces[each[1]].answered(each[3], clock.now)
            clock.now = now
        known = {name: latency_stats.expected() for name, latency_stats in paces.items()}
        asked = next((name for name, one in known.items() if one is None), None)
        name = asked or min(known, key=lambda name: known[name] or 0.0)
        taken = seconds(name, clock.now)
        met_slow += taken > 0.4
        paces[name].waiting[number] = clock.now
        under_way.append((clock.now + taken, name, number, taken))
    assert 0 < met_slow <= 8  # of eighty


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 3), st.integers(0, 3)), max_size=80))
def test_uptime_adds_up_as_counting_anew_does(steps: list[tuple[int, int, int]]) -> None:
    clock = Clock()
    latency_stats = LatencyStats(clock)
    counted: list[tuple[float, int, int]] = []
    for minutes, answered, failed in steps:
        clock.now += minutes * 60.0
        for _ in range(answered):
            latency_stats.answered(0.1, clock.now)
        for _ in range(failed):
            latency_stats.failed()
        counted.append((clock.now // 60, answered, failed))
        for length in (5, 30, 1440):
            lately = [each for each in counted if each[0] > clock.now // 60 - length]
            fine = sum(each[1] for each in lately)
            every = fine + sum(each[2] for each in lately)
            assert latency_stats.uptime(length) == (fine / every if every else None)
