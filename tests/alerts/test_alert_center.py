"""Alerts fire once, end once, and their messages arrive at least once, over each kind of book."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from webhookreceiver import Receiver as Hook
from webhookreceiver import webhook_receiver

from causerie.hosted.store.database import Database
from causerie.hosted.store.operations import SqlAlertBook
from causerie.observe.alerts import (
    AlertBook,
    AlertCenter,
    AlertKind,
    AlertOptions,
    Condition,
    Delivery,
    DeliveryState,
    MemoryBook,
    Outcome,
    Receiver,
)

NORTH = Condition("provider:north", AlertKind.PROVIDER, "Provider north gets no requests")
BUDGET = Condition("budget:key:ck_1:month", AlertKind.BUDGET, "Half is used", recovers=False)
OPTIONS = AlertOptions([Receiver("ops"), Receiver("team", "t@example.org")], owners="owners")
OK = Outcome(delivered=True, words="ok")
FAILED = Outcome(delivered=False, words="status 503")


@dataclass
class Recorder:
    """A channel that keeps what it gets; ``outcomes`` are those of the next attempts."""

    got: list[Delivery] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)

    async def send(self, message: Delivery, now: datetime) -> Outcome:
        self.got.append(message)
        return self.outcomes.pop(0) if self.outcomes else OK


@dataclass
class Bench:
    """A center over a book, with channels that keep what they get and a clock that is set."""

    book: AlertBook
    now: datetime = datetime(2026, 11, 25, 12, tzinfo=UTC)
    channels: dict[str, Recorder] = field(
        default_factory=lambda: {name: Recorder() for name in ("ops", "team", "owners")}
    )

    def __post_init__(self) -> None:
        self.center = AlertCenter(
            self.book, lambda: self.now, lambda name, _: self.channels.get(name)
        )

    async def after(
        self, seconds: float, *holds: Condition, options: AlertOptions = OPTIONS
    ) -> None:
        self.now += timedelta(seconds=seconds)
        await self.center.observe(holds, options)
        while await self.center.deliver():
            pass

    def said(self, channel: str = "ops") -> list[str]:
        return [each.title for each in self.channels[channel].got]


@pytest.fixture(params=["memory", "database"])
async def bench(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Bench]:
    if request.param == "memory":
        yield Bench(MemoryBook())
        return
    file = tmp_path / "alerts.db"
    file.write_bytes(request.getfixturevalue("sqlite_template").read_bytes())
    database = Database(f"sqlite:///{file}")
    yield Bench(SqlAlertBook(database))
    await database.close()


async def test_an_alert_fires_once_and_ends_when_nobody_sees_it(bench: Bench) -> None:
    for _ in range(10):
        await bench.after(15, NORTH)
    assert bench.said() == bench.said("team") == [NORTH.summary]
    await bench.after(15)
    assert bench.said() == [NORTH.summary]
    await bench.after(60)
    await bench.after(60)
    assert bench.said() == [NORTH.summary, f"Resolved: {NORTH.summary}"]
    [alert] = await bench.book.alerts()
    assert (alert.firing, alert.level, alert.resolved_at is not None) == (False, 0, True)


async def test_what_comes_and_goes_is_not_told_each_time(bench: Bench) -> None:
    await bench.after(0, NORTH)
    for _ in range(12):
        await bench.after(70)
        await bench.after(70, NORTH)
    said = bench.said()
    assert 6 <= len(said) <= 12  # once in five minutes and its end, in 28 minutes
    assert said[:4] == [NORTH.summary, f"Resolved: {NORTH.summary}"] * 2


async def test_a_higher_level_is_told_and_a_lower_is_not(bench: Bench) -> None:
    for level in (2, 1, 2, 3, 3):
        await bench.after(15, replace(BUDGET, level=level, summary=f"level {level}"))
    await bench.after(3600)
    assert bench.said() == ["level 2", "level 3"]


async def test_kinds_and_owners_get_what_is_theirs(bench: Bench) -> None:
    some = replace(OPTIONS, receivers=[Receiver("ops", "", frozenset({AlertKind.BUDGET}))])
    await bench.after(0, NORTH, replace(BUDGET, owners=("ada@example.org",)), options=some)
    assert bench.said() == bench.said("owners") == [BUDGET.summary]
    assert bench.said("team") == []
    sent = {(each.channel, each.to) for each in await bench.book.deliveries(10)}
    assert sent == {("ops", ""), ("owners", "ada@example.org")}


async def test_a_delivery_is_tried_again_with_the_same_id(bench: Bench) -> None:
    bench.channels["ops"].outcomes = [FAILED, FAILED]
    await bench.after(0, NORTH)
    await bench.after(3, NORTH)
    assert len(bench.channels["ops"].got) == 1
    await bench.after(4, NORTH)
    await bench.after(80, NORTH)
    got = bench.channels["ops"].got
    assert len(got) == 3
    assert len({each.id for each in got}) == 1
    [delivery] = [each for each in await bench.book.deliveries(10) if each.channel == "ops"]
    assert (delivery.state, delivery.attempts, delivery.next_at, delivery.outcome) == (
        *(DeliveryState.DELIVERED, 3, None, "ok"),
    )


async def test_a_delivery_that_fails_for_long_ends(bench: Bench) -> None:
    bench.channels["ops"].outcomes = [FAILED] * 20
    bench.channels["team"].outcomes = [replace(FAILED, final=True)]
    for _ in range(12):
        await bench.after(3600, BUDGET)
    assert len(bench.channels["ops"].got) == 6
    assert len(bench.channels["team"].got) == 1
    states = {each.state for each in await bench.book.deliveries(10)}
    assert states == {DeliveryState.FAILED}


async def test_a_process_that_dies_loses_no_message(bench: Bench) -> None:
    await bench.center.observe([NORTH], OPTIONS)
    taken = await bench.book.claim(bench.now, bench.now + timedelta(minutes=2), 20)
    assert len(taken) == 2  # and the process dies here
    await bench.after(10, NORTH)
    assert bench.said() == []
    await bench.after(120, NORTH)
    assert bench.said() == [NORTH.summary]


async def test_messages_of_an_hour_are_bounded(bench: Bench) -> None:
    few = replace(OPTIONS, receivers=[Receiver("ops")], messages_per_hour=3)
    many = [replace(NORTH, key=f"provider:{n}", recovers=False) for n in range(6)]
    await bench.after(0, *many, options=few)
    assert len(bench.said()) == 3
    states = Counter(each.state for each in await bench.book.deliveries(10))
    assert states == {DeliveryState.DELIVERED: 3, DeliveryState.DROPPED: 3}
    await bench.after(3601, replace(NORTH, key="provider:later"), options=few)
    assert len(bench.said()) == 4


async def test_a_channel_that_is_gone_and_a_test(bench: Bench) -> None:
    del bench.channels["team"]
    await bench.after(0, NORTH)
    await bench.center.test(Receiver("ops"), "A test.")
    assert bench.said() == [NORTH.summary, "A test."]
    found = {(each.channel, each.state) for each in await bench.book.deliveries(10)}
    assert found == {("ops", DeliveryState.DELIVERED), ("team", DeliveryState.FAILED)}
    await bench.after(0)
    bench.now += timedelta(days=41)
    await bench.center.forget()
    assert (*await bench.book.alerts(), *await bench.book.deliveries(10)) == ()


PROCESS = """
import asyncio, sys
from datetime import UTC, datetime, timedelta
from causerie.observe.alerts import AlertCenter, AlertOptions, Receiver
from causerie.observe.alerts import Condition
from causerie.observe.alerts import AlertKind
from causerie.observe.alert_channels import Webhook
from causerie.hosted.store.operations import SqlAlertBook
from causerie.hosted.store.database import Database

async def main(url, hook):
    database = Database(url)
    channel = Webhook(hook, bytes(range(32)))
    center = AlertCenter(
        SqlAlertBook(database), lambda: datetime.now(UTC), lambda *_: channel
    )
    options = AlertOptions([Receiver("ops")], resolve=timedelta(0))
    holds = [Condition(f"provider:{n}", AlertKind.PROVIDER, f"down {n}") for n in range(5)]
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    await center.observe(holds, options)
    while await center.deliver():
        pass
    print("told", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    await center.observe([], options)
    while await center.deliver():
        pass
    await database.close()

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.full
async def test_two_processes_tell_once(sqlite_template: Path, tmp_path: Path) -> None:
    (tmp_path / "alerts.db").write_bytes(sqlite_template.read_bytes())
    url = f"sqlite:///{tmp_path / 'alerts.db'}"
    async with webhook_receiver() as hook:
        processes = [
            await asyncio.create_subprocess_exec(
                *(sys.executable, "-c", PROCESS, url, hook.url),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
            )
            for _ in range(2)
        ]
        try:
            for word in (b"ready\n", b"told\n"):
                for process in processes:
                    assert process.stdout is not None
                    await asyncio.wait_for(process.stdout.readuntil(word), 60)
                for process in processes:
                    assert process.stdin is not None
                    process.stdin.write(b"go\n")
            assert [await asyncio.wait_for(each.wait(), 60) for each in processes] == [0, 0]
        finally:
            for process in processes:
                if process.returncode is None:
                    process.kill()
                    await process.wait()
    assert told(hook) == Counter(
        {
            **{("provider.firing", f"down {n}"): 1 for n in range(5)},
            **{("provider.resolved", f"Resolved: down {n}"): 1 for n in range(5)},
        }
    )
    assert hook.wrong == []


async def test_two_connections_tell_once(made_url: str) -> None:
    """On both kinds of database, at the same moment."""
    now = datetime(2026, 11, 25, 12, tzinfo=UTC)
    databases = [Database(made_url), Database(made_url)]
    channel = Recorder()
    centers = [
        AlertCenter(SqlAlertBook(each), lambda: now, lambda *_: channel) for each in databases
    ]
    options = AlertOptions([Receiver("ops")], quiet=timedelta(0))
    holds = [replace(NORTH, key=f"provider:{n}", summary=f"down {n}") for n in range(5)]
    for held in (holds, (), [replace(each, level=2) for each in holds]):
        await asyncio.gather(*(each.observe(held, options) for each in centers))
        while any(await asyncio.gather(*(each.deliver() for each in centers))):
            pass
        now += timedelta(hours=1)
    titles = Counter(each.title for each in channel.got)
    assert titles == {
        **{f"down {n}": 2 for n in range(5)},
        **{f"Resolved: down {n}": 1 for n in range(5)},
    }
    for database in databases:
        await database.close()


def told(hook: Hook) -> Counter[tuple[str, str]]:
    """The messages, each by its type and words."""
    found: Counter[tuple[str, str]] = Counter()
    while not hook.posted.empty():
        body = hook.posted.get_nowait().body
        found[body["type"], body["data"]["summary"]] += 1
    return found
