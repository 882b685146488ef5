"""Measurements of targets in the database: added up, kept over a restart, and deleted."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from msgspec import structs
from routingkit import ASK, BROKEN, REPLY, Clock, Scripted, left, middle

from causerie.errors import StoreUnavailable
from causerie.hosted.store.database import Database
from causerie.hosted.store.operations import SqlMeasurements, SqlRetention
from causerie.hosted.store.tables import moment_of
from causerie.protocol.targets import DAY_SECONDS, QUARTER_SECONDS, Candidate
from causerie.routing.measurements import Measurements, MeasurementStore, Sums
from causerie.routing.router import Router
from causerie.routing.target_state import LatencyStats

NOON = 1_800_014_400 - 1_800_014_400 % DAY_SECONDS + 12 * 3600


class Replica:
    """A process with one target, whose clocks the test moves."""

    def __init__(self, store: MeasurementStore | None, now: int = NOON) -> None:
        self.now, self.clock = now, Clock()
        self.target = Scripted(REPLY)
        self.router = Router({"t0": self.target}, clock=self.clock, chance=middle)
        (state,) = self.router.target_states()
        state.latency_stats = LatencyStats(self.clock, self.wall)
        self.measurements = Measurements(lambda: self.router, store, self.wall)

    def wall(self) -> int:
        return self.now * 1_000_000_000

    def later(self, seconds: int) -> None:
        self.now += seconds
        self.clock.now += seconds

    async def ask(self, count: int = 1, *, fails: bool = False, first: float = 0.0) -> None:
        self.target.script = (BROKEN,) if fails else REPLY
        for _ in range(count):
            if first:
                (state,) = self.router.target_states()
                state.latency_stats.answered(first, self.clock.now)
                continue
            execution = self.router.generate([Candidate("t0")], ASK)
            try:
                await execution.begin()
                await execution.stream(lambda _: None)
            except Exception:  # noqa: BLE001 - what it was told to do
                pass
            finally:
                await left(execution)

    def counts(self) -> list[tuple[int, int]]:
        return [(one.answered, one.failed) for one in self.measurements.history("t0")]


async def test_a_restart_and_other_replicas_change_nothing(database: Database) -> None:
    store = SqlMeasurements(database)
    one, other = Replica(store), Replica(store)
    await one.ask(3, first=0.2)
    await one.ask(1, fails=True)
    await other.ask(1, first=0.6)
    await one.measurements.write()
    await one.measurements.write()  # nothing new: nothing is added twice
    await other.measurements.write()
    await one.ask(2, first=0.2)
    await one.measurements.read()
    assert one.counts() == [(6, 1)]  # with what nobody has written yet
    await one.measurements.write()
    assert one.counts() == [(6, 1)]
    restarted = Replica(store)
    async with restarted.measurements.kept():
        assert restarted.counts() == [(6, 1)]
        (quarter,) = restarted.measurements.history("t0")
        assert quarter.first_token == pytest.approx((5 * 0.2 + 0.6) / 6)
        figures = restarted.measurements.figures("t0")
        assert figures.first_token is not None
        assert figures.first_token.window == "hour"
        assert figures.uptime_day == pytest.approx(6 / 7)
        await restarted.ask(1, first=0.1)
    again = Replica(store)  # the end of the block wrote what was left
    await again.measurements.read()
    assert again.counts() == [(7, 1)]
    days = again.measurements.days("t0")
    assert [(each.start, each.answered, each.failed) for each in days] == [(NOON - 12 * 3600, 7, 1)]
    two_days = [("t1", NOON - 36 * 3600, Sums(2, 1)), ("t1", NOON - 12 * 3600, Sums(1, 4))]
    await store.add(two_days)
    later = Replica(store)
    await later.measurements.read()
    days = later.measurements.days("t0", "t1", "t2")
    assert [(each.answered, each.failed) for each in days] == [(2, 1), (8, 5)]


async def test_figures_are_of_the_shortest_time_that_has_them(database: Database) -> None:
    replica = Replica(SqlMeasurements(database))
    assert replica.measurements.figures("t0").last is None
    await replica.ask(4, first=0.2)
    windows = []
    for seconds in (0, 360, 3000, 20_000, DAY_SECONDS):
        replica.later(seconds)
        await replica.measurements.write()
        found = replica.measurements.figures("t0")
        windows.append(found.first_token and found.first_token.window)
    assert windows == ["5 minutes", "hour", "hour", "24 hours", None]
    restarted = Replica(SqlMeasurements(database), replica.now)
    await restarted.measurements.read()
    last = restarted.measurements.figures("t0").last
    assert last is not None
    assert int(last.timestamp()) == NOON - 12 * 3600  # of older ones the day is known


class Away:
    """A store that is away for a while."""

    def __init__(self, store: SqlMeasurements) -> None:
        self.store, self.away = store, True

    def __getattr__(self, name: str) -> Any:
        if self.away:
            raise StoreUnavailable("Away.")
        return getattr(self.store, name)


async def test_nothing_is_lost_while_the_database_is_away(database: Database) -> None:
    away = Away(SqlMeasurements(database))
    replica = Replica(away)
    await replica.ask(2, first=0.2)
    with pytest.raises(StoreUnavailable):
        await replica.measurements.write()
    replica.later(QUARTER_SECONDS)
    await replica.ask(1, fails=True)
    assert replica.counts() == [(2, 0), (0, 1)]
    away.away = False
    await replica.measurements.write()
    rows = await away.store.quarters(0)
    assert [(sums.answered, sums.failed) for _, _, sums in rows] == [(2, 0), (0, 1)]


async def test_a_replaced_target_is_written_and_forgotten(database: Database) -> None:
    store = SqlMeasurements(database)
    replica = Replica(store)
    await replica.ask(1, first=0.2)
    await replica.measurements.write()
    await replica.ask(1, first=0.2)
    replica.router.replace({"t0": Scripted(REPLY), "t1": Scripted(REPLY)}, {})
    await replica.measurements.write()
    assert [sums.answered for _, _, sums in await store.quarters(0)] == [2]
    assert replica.counts() == [(2, 0)]
    assert not replica.measurements._last_written_quarter  # nothing of the one that is gone


async def test_old_measurements_are_deleted_in_bounded_numbers(database: Database) -> None:
    store = SqlMeasurements(database)
    replica = Replica(store, NOON - 100 * DAY_SECONDS)
    for _ in range(5):
        await replica.ask(1, first=0.2)
        await replica.measurements.write()
        replica.later(QUARTER_SECONDS)
    replica.later(90 * DAY_SECONDS)
    await replica.ask(1, first=0.2)
    await replica.measurements.write()
    retention, before = SqlRetention(database), moment_of(1_000_000 * (NOON - 90 * DAY_SECONDS))
    assert await retention.measurements(before, 3) == 3
    while await retention.measurements(before, 3):
        pass
    assert len(await store.quarters(0)) == 1
    assert len(await store.days(0)) == 1
    assert before - moment_of(0) > timedelta(0)


async def test_without_a_store_they_are_of_this_process_alone() -> None:
    replica = Replica(None)
    async with replica.measurements.kept():
        await replica.ask(2, first=0.3)
        assert replica.counts() == [(2, 0)]
        assert replica.measurements.days("t0") == []
    assert structs.astuple(replica.measurements.history("t0")[0])[1:3] == (2, 0)
