"""What replicas tell each other of their targets, and what they make of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

import msgspec
import pytest
from routingkit import BROKEN, REPLY, Clock, Scripted, middle, told

from causerie.composition.replica_reports import ReplicaReport, ReplicaReports
from causerie.distributed.broadcast import Broadcast
from causerie.errors import UpstreamFailed
from causerie.routing.router import Router, begin_reported_target
from causerie.routing.target_reports import SAMPLES, TargetReporter
from causerie.routing.target_state import TargetState
from causerie.runtime.circuit_breaker import LONGEST_WAIT_SECONDS, THRESHOLD


class Replica:
    """One with a target named t0, and a clock of its own."""

    def __init__(self, now: float) -> None:
        self.clock = Clock()
        self.clock.now = now
        self.target = Scripted(REPLY)
        self.router = Router({}, clock=self.clock, chance=middle)
        self.router.begin_target = begin_reported_target
        self.router.replace({"t0": self.target}, {})
        self.reporter = TargetReporter(self.router.target_states)
        self.reporter.taken()

    @property
    def state(self) -> TargetState:
        (found,) = self.router.target_states()
        return found

    async def asked(self, count: int = 1) -> None:
        for _ in range(count):
            await told(self.router, 1)

    async def failed(self, count: int = THRESHOLD) -> None:
        self.target.script = [BROKEN]
        for _ in range(count):
            with pytest.raises(UpstreamFailed):
                await told(self.router, 1)
        self.target.script = REPLY

    def tells(self, *others: Replica) -> bool:
        """Report what is new to the others; whether there was anything."""
        reports = self.reporter.taken()
        for other in others:
            for name, report in reports.items():
                other.reporter.learn(name, report)
        return bool(reports)


async def test_a_breaker_opens_and_closes_in_all_replicas_and_nobody_repeats_it() -> None:
    here, there = Replica(1000.0), Replica(5.0)
    await here.failed()
    assert here.state.state() == "down"
    assert here.tells(there)
    assert there.state.state() == "down"
    assert there.state.breaker.reason == here.state.breaker.reason
    assert 0 < there.state.breaker.wait() <= 1
    assert not there.tells(here)
    for replica in (here, there):
        replica.clock.now += 2
        assert replica.state.state() == "half_open"
    assert not here.tells(there)
    assert not there.tells(here)
    here.clock.now += LONGEST_WAIT_SECONDS
    await here.asked()
    assert here.tells(there)
    assert there.state.state() == "up"
    assert not there.tells(here)


async def test_the_wait_ends_where_it_was_told_too_and_one_request_tries() -> None:
    here, there = Replica(0.0), Replica(0.0)
    await here.failed()
    here.tells(there)
    there.clock.now += LONGEST_WAIT_SECONDS
    assert there.state.state() == "half_open"
    await there.asked()
    assert there.state.state() == "up"
    assert there.tells(here)
    assert here.state.state() == "up"


async def test_a_replica_that_was_answered_just_now_trusts_that() -> None:
    here, there = Replica(0.0), Replica(0.0)
    await there.asked()
    await here.failed()
    here.tells(there)
    assert there.state.state() == "up"
    there.clock.now += 1.9
    await there.asked()
    there.clock.now += 5
    there.tells(here)
    assert there.state.state() == "up"
    here.clock.now += LONGEST_WAIT_SECONDS
    await here.failed(1)  # longer: told again
    here.tells(there)
    assert there.state.state() == "down"


async def test_news_against_an_answer_count_once_that_is_old_and_no_other_came() -> None:
    here, there = Replica(0.0), Replica(0.0)
    await there.asked()
    there.tells(here)
    await here.failed()
    here.tells(there)
    there.clock.now += 1.9
    assert not there.tells(here)
    assert there.state.state() == "up"
    there.clock.now += 0.2
    assert not there.tells(here), "what was told is not told again"
    assert there.state.state() == "down"
    there.clock.now += 1.5
    there.tells(here)
    assert there.state.state() == "half_open"


async def test_news_against_an_answer_are_forgotten_once_the_target_is_well() -> None:
    here, there = Replica(0.0), Replica(0.0)
    await there.asked()
    await here.failed()
    here.tells(there)
    here.clock.now += LONGEST_WAIT_SECONDS
    await here.asked()
    here.tells(there)
    there.clock.now += 5
    there.tells(here)
    assert there.state.state() == "up"


async def test_a_target_that_is_full_is_full_for_all() -> None:
    here, there = Replica(0.0), Replica(0.0)
    here.state.breaker.full(30, "rate_limit_exceeded")
    assert here.tells(there)
    assert there.state.state() == "full"
    assert 29 < there.state.breaker.wait() <= 30
    assert not there.tells(here)
    here.clock.now += 31
    there.clock.now += 31
    here.tells(there)
    assert there.state.state() == "up"


async def test_measurements_and_calls_are_those_of_all_and_metrics_those_of_one() -> None:
    here, there = Replica(100.0), Replica(9000.0)
    count = SAMPLES + 50
    await here.asked(count)
    await here.failed(1)
    here.state.call_stats.add(["fine", "invalid_json"])
    assert here.tells(there)
    assert there.router.target_stats("t0") is not None
    for replica in (here, there):
        stats = replica.state.target_stats()
        assert stats.uptime == count / (count + 1)
        assert stats.first_token is not None
        assert stats.calls_day is not None
        assert stats.calls_day.invalid_json == 1
    assert (there.state.answered, there.state.failures) == (0, {})
    assert not there.state.call_stats.ever
    assert not there.tells(here)
    assert not here.tells(there)


async def test_a_target_that_is_not_here_is_passed_over() -> None:
    here, there = Replica(0.0), Replica(0.0)
    there.router.replace({}, {})
    there.reporter.taken()
    await here.asked()
    assert here.tells(there)
    assert not there.router.target_states()


class Channel:
    """A channel without a server: ``heard`` are the messages of another replica."""

    def __init__(self, *heard: bytes) -> None:
        self.heard = heard
        self.read = asyncio.Event()

    def send(self, message: bytes) -> None:
        pass

    async def listen(self, received: Callable[[bytes], None]) -> None:
        for message in self.heard:
            received(message)
        self.read.set()


@pytest.mark.parametrize("others", [1, 40_000])
async def test_a_report_that_would_take_long_is_not_read(others: int) -> None:
    here, there = Replica(0.0), Replica(0.0)
    await here.failed()
    targets = here.reporter.taken()
    [report] = targets.values()
    targets |= {f"another target, which is not here, number {n}": report for n in range(others)}
    channel = Channel(msgspec.msgpack.encode(ReplicaReport(targets)))
    reports = ReplicaReports(cast(Broadcast, channel), there.reporter)
    running = asyncio.create_task(reports.run())
    await channel.read.wait()
    running.cancel()
    assert there.state.state() == ("down" if others == 1 else "up")
