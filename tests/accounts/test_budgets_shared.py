"""Budgets over several replicas, and what becomes of them when the store or a replica dies."""

from __future__ import annotations

import asyncio
import struct
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path

import pytest
from budgetkit import Books, Services, claim, money, releasing, services
from limitkit import PATIENT
from valkey.asyncio import Valkey
from valkeyserver import ValkeyServer
from waiting import eventually

from causerie.catalog.model import Tariff
from causerie.distributed import connection
from causerie.errors import OverBudget, StoreUnavailable
from causerie.hosted.accounts.bookkeeping import Bookkeeping, ModelPrices, RequestHold
from causerie.hosted.accounts.bounds import BudgetPeriod
from causerie.hosted.accounts.budgets import Budgets, Reservation
from causerie.hosted.accounts.usage import Spent
from causerie.metering.ledger import Ledger, UsageRecord
from causerie.metering.meter import Record
from causerie.metering.write_ahead_log import WriteAheadLog
from causerie.protocol.events import Usage

QUICK = {"reply_seconds": 30.0, "connect_seconds": 30.0, "beat_seconds": 0.1}
HASTY = {"reply_seconds": 1.0, "connect_seconds": 30.0, "beat_seconds": 0.1}
TEN = claim(10)

REPLICA = """
import asyncio, sys
from budgetkit import Books, claim, money
from causerie.hosted.accounts.budgets import Budgets
from causerie.distributed.limits import DistributedBudgets
from causerie.distributed.connection import Replica, DistributedOptions

async def main():
    replica = Replica(sys.argv[1], DistributedOptions(prefix=sys.argv[2], life_seconds=4))
    books = Books()
    async with replica.running():
        await replica.wait()
        budgets = Budgets(books.spent, books.clock, shared_budgets=DistributedBudgets(replica))
        await budgets.reserve(claim(10), "small", money(20), 1)
        print("held", file=sys.stderr, flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


async def noticed(holds: Callable[[], bool]) -> None:
    """When this process has heard what became of another, or of the server."""

    async def now() -> bool:
        return holds()

    await eventually(now)


async def hold(budgets: Budgets, cost: int | str = 1) -> Reservation:
    return await budgets.reserve(TEN, "small", money(cost), 1)


async def spend(budgets: Budgets, cost: int | str) -> None:
    await (await hold(budgets, cost)).settle(money(cost), 1)


async def let_in(budgets: Budgets, cost: int | str = 1) -> bool:
    try:
        (await hold(budgets, cost)).release()
    except OverBudget:
        return False
    return True


async def joined_anew(place: Services, names: list[str]) -> None:
    """Every replica has a new name in the server, and told what it holds."""
    await noticed(
        lambda: all(
            one.here and one.process != name
            for one, name in zip(place.replicas, names, strict=True)
        )
    )


def names(place: Services) -> list[str]:
    return [one.process for one in place.replicas]


async def test_replicas_have_one_budget_together(valkey: ValkeyServer) -> None:
    async with services(valkey) as place:
        every = [await place.budgets(Books()) for _ in range(3)]
        done = await asyncio.gather(
            *(hold(each) for each in every for _ in range(20)), return_exceptions=True
        )
        held = [each for each in done if isinstance(each, Reservation)]
        assert len(held) == 10
        assert all(isinstance(each, (Reservation, OverBudget)) for each in done)
        for number, one in enumerate(held):
            if number < 5:
                await one.settle(money("0.5"), 1)
            else:
                one.release()
        for each in every:
            assert await let_in(each, 0)  # comes after what was given back
        done = await asyncio.gather(*(hold(every[0]) for _ in range(10)), return_exceptions=True)
        assert sum(isinstance(each, Reservation) for each in done) == 8  # 2.5 are spent
        with pytest.raises(OverBudget) as refused:
            await hold(every[2])
        assert refused.value.metadata["retryable"] is True


@pytest.mark.full
async def test_what_a_killed_replica_held_ends(valkey: ValkeyServer) -> None:
    async with services(valkey, **QUICK) as place:
        budgets = await place.budgets(Books())
        other = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", REPLICA, valkey.url, place.prefix),
            env={"PYTHONPATH": ":".join(sys.path)},
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            assert other.stderr is not None
            assert await other.stderr.readline() == b"held\n"
            assert not await let_in(budgets)
            other.kill()
            await other.wait()
            async with asyncio.timeout(60):
                while not await let_in(budgets):  # noqa: ASYNC110 - its life ends in the server
                    await asyncio.sleep(0.1)
        finally:
            if other.returncode is None:
                other.kill()
                await other.wait()


@pytest.mark.parametrize("gone", ["killed", "flushed"])
async def test_a_server_that_forgets_is_told_of_what_is_held_and_spent(
    own_valkey: ValkeyServer, gone: str
) -> None:
    async with services(own_valkey, **QUICK) as place:
        one, two = await place.budgets(repositories := Books()), await place.budgets(repositories)
        await spend(two, 2)
        repositories.known["key:ck_a"] = Spent(money(2))
        running = await hold(one, 7)
        before = names(place)
        if gone == "killed":
            own_valkey.kill()
            await noticed(lambda: not any(each.here for each in place.replicas))
            own_valkey.start()
        else:
            async with Valkey.from_url(own_valkey.url) as client:
                await client.flushall()
        await joined_anew(place, before)
        last = await hold(two)
        assert not await let_in(one)
        assert not await let_in(two)
        last.release()
        await running.settle(money("7.5"), 1)
        assert await let_in(two)
        await spend(two, "0.5")
        assert not await let_in(one)


async def test_what_was_spent_while_the_server_was_away_counts(own_valkey: ValkeyServer) -> None:
    async with services(own_valkey, **QUICK) as place:
        one, two = await place.budgets(Books()), await place.budgets(repositories := Books())
        running = await hold(one, 4)
        assert await let_in(two)
        before = names(place)
        own_valkey.kill()
        await noticed(lambda: not any(each.here for each in place.replicas))
        await running.settle(money(4), 1)
        later = await hold(one, 6)
        assert not await let_in(one)  # it counts alone, all that it knows
        assert await let_in(two)
        repositories.known["key:ck_a"] = Spent(money(4))  # which the first one's does not say
        own_valkey.start()
        await joined_anew(place, before)
        assert not await let_in(two)
        later.release()
        assert await let_in(one)
        await spend(two, 6)
        assert not await let_in(one)


async def test_a_server_that_hangs_keeps_nobody_waiting(own_valkey: ValkeyServer) -> None:
    async with services(own_valkey, **HASTY) as place:
        one, two = await place.budgets(repositories := Books()), await place.budgets(repositories)
        first, second = await hold(one, 3), await hold(two, 3)
        before = names(place)
        own_valkey.pause()
        async with asyncio.timeout(60):
            await first.settle(money(3), 1)
            await second.settle(money(3), 1)
            assert await let_in(one)
        repositories.known["key:ck_a"] = Spent(money(6))
        own_valkey.go_on()  # what it was sent comes late, and is not counted twice
        await joined_anew(place, before)
        for each in (one, two):
            await spend(each, 1)
        assert await let_in(one)
        await spend(one, 2)
        assert not await let_in(two)


async def test_a_settlement_that_comes_late_is_not_counted_twice(
    valkey: ValkeyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given up while the server hung, so the database has it, and another replica told of it."""
    async with services(valkey) as place:
        one, two = await place.budgets(Books()), await place.budgets(repositories := Books())
        running = await hold(one, 6)
        assert await let_in(two)
        in_time = place.replicas[0].waits_until()
        repositories.known["key:ck_a"] = Spent(money(3))
        await two.refresh()
        await spend(two, 1)
        with monkeypatch.context() as patch:
            late = in_time - 60 * 10**6  # whoever waited has left long ago
            patch.setattr(place.replicas[0], "waits_until", lambda: late)
            await running.settle(money(3), 1)
        await spend(two, 5)
        last = await hold(two, 1)
        assert not await let_in(two)
        last.release()
        assert await let_in(two)


async def test_what_is_spent_counts_also_once_the_server_s_clock_was_put_forward(
    valkey: ValkeyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would come late by that clock, and others would hear of it from the database only."""
    async with services(valkey, **QUICK) as place:
        one, two = await place.budgets(Books()), await place.budgets(Books())
        assert await let_in(two)
        ours, hour = connection._monotonic_microseconds, 3600 * 10**6
        before = place.replicas[0].waits_until()
        monkeypatch.setattr(connection, "_monotonic_microseconds", lambda: ours() - hour)
        await noticed(lambda: place.replicas[0].waits_until() > before)
        await spend(one, 10)
        assert not await let_in(two)


async def test_without_the_server_nobody_is_let_in_where_that_is_wanted(
    own_valkey: ValkeyServer,
) -> None:
    async with services(own_valkey, **QUICK, away="refuse") as place:
        budgets = await place.budgets(Books())
        running = await hold(budgets)
        own_valkey.kill()
        await noticed(lambda: not place.replicas[0].here)
        with pytest.raises(StoreUnavailable) as failure:
            await hold(budgets)
        assert (failure.value.status, failure.value.code) == (503, "store_unavailable")
        await running.settle(money(1), 1)
        async with asyncio.timeout(60):
            assert (await budgets.reserve([], "small", money(1), 1)).ends  # none to hold


async def test_where_nobody_knows_what_is_spent_it_is_503(valkey: ValkeyServer) -> None:
    async with services(valkey, **QUICK) as place:
        budgets = await place.budgets(repositories := Books())
        await spend(budgets, 1)
        async with Valkey.from_url(valkey.url) as client:
            await client.delete(*[name async for name in client.scan_iter(f"*{place.prefix}*:b*")])
        repositories.away = True
        with pytest.raises(StoreUnavailable):
            await hold(budgets)
        repositories.away = False
        assert await let_in(budgets)


async def test_cancelled_while_it_waits_nothing_is_held(own_valkey: ValkeyServer) -> None:
    async with services(own_valkey) as place:
        budgets = await place.budgets(Books())
        assert await let_in(budgets)
        own_valkey.pause()
        asking = asyncio.ensure_future(hold(budgets, 20))
        await asyncio.sleep(0.05)  # it has been sent off
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        own_valkey.go_on()
        with suppress(OverBudget):
            await hold(budgets, 0)  # the server has let it in before it hears of it
        assert await let_in(budgets, 20)


async def test_a_hold_that_fails_in_the_server_fails_alone(valkey: ValkeyServer) -> None:
    async with services(valkey) as place, Valkey.from_url(valkey.url) as client:
        one, two = await place.budgets(Books()), await place.budgets(Books())
        assert await let_in(one)
        [key] = [name async for name in client.scan_iter(f"*{place.prefix}*:budget:*")]
        await client.set(key, "not ours")
        before = names(place)
        alone = await hold(one, 3)
        assert await client.get(key) == b"not ours"
        await client.delete(key)
        running = await hold(one, 10)
        alone.release()  # which the server never held
        assert not await let_in(two)
        running.release()
        assert await let_in(one)
        assert await let_in(two)
        assert names(place) == before


async def test_nothing_stays_in_the_server(valkey: ValkeyServer) -> None:
    async with services(valkey) as place, Valkey.from_url(valkey.url) as client:
        budgets = await place.budgets(Books())
        held = await budgets.reserve(claim(10, period=BudgetPeriod.DAY), "small", money(2), 1)
        [key] = [name async for name in client.scan_iter(f"*{place.prefix}*:budget:*")]
        assert key.endswith(b":budget:key:ck_a::money:day:20261121")
        mine = place.replicas[0].process.encode()
        spent = struct.Struct("<?dd")
        assert await client.get(key) == spent.pack(True, 0, 0) + struct.pack("<8s2d", mine, 2, 0)
        assert 86_000 < await client.ttl(key) <= 86_400
        await held.settle(money("1.5"), 1)
        assert await client.get(key) == spent.pack(True, 1, 500_000_000)


@dataclass
class Kept:
    """A ledger's store that keeps records here."""

    records: list[UsageRecord] = field(default_factory=list)

    async def append(self, records: Sequence[UsageRecord]) -> None:
        self.records += records


async def test_a_request_that_is_cancelled_while_it_is_settled_is_recorded(
    own_valkey: ValkeyServer,
) -> None:
    async with services(own_valkey, **PATIENT) as place, Ledger(store := Kept()) as ledger:
        budgets = await place.budgets(Books())
        repositories = Bookkeeping(ledger, budgets)
        repositories.prices = ModelPrices({"small": Tariff(request=Decimal(4))})
        record = Record("r", "hosted", "ck_a", model="small", status=200, used=Usage(1, 1))
        record.held = RequestHold(repositories.prices, await hold(budgets, 4))
        own_valkey.pause()
        ending = asyncio.ensure_future(repositories.enter(record))
        await asyncio.sleep(0.05)  # it waits for the server
        assert not store.records
        ending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await ending
        own_valkey.go_on()
        assert [(one.request_id, one.cost) for one in store.records] == [("r", money(4))]
        await spend(budgets, 5)
        last = await hold(budgets, 1)
        assert not await let_in(budgets)
        last.release()


async def test_what_replicas_count_is_in_the_journal_before(
    own_valkey: ValkeyServer, tmp_path: Path
) -> None:
    """A process that is killed while it settles leaves what the server may have counted by then."""
    journal = WriteAheadLog(tmp_path)
    async with (
        services(own_valkey, **PATIENT) as place,
        Ledger(Kept(), journal) as ledger,
    ):
        budgets = await place.budgets(Books())
        repositories = Bookkeeping(ledger, budgets)
        repositories.prices = ModelPrices({"small": Tariff(request=Decimal(4))})
        record = Record("r", "hosted", "ck_a", model="small", status=200, used=Usage(1, 1))
        record.held = RequestHold(repositories.prices, await hold(budgets, 4))
        repositories.begin_request(record, 1)
        own_valkey.pause()
        ending = asyncio.ensure_future(repositories.enter(record))
        await asyncio.sleep(0.05)  # it waits for the server
        [left] = journal.left()
        own_valkey.go_on()
        await ending
        assert (left.id, left.status, left.cost) == (record.id, 200, money(4))
        assert list(journal.left()) == [left]
    journal.close()


class Away:
    """A ledger's store that takes no records."""

    async def append(self, records: Sequence[UsageRecord]) -> None:
        raise StoreUnavailable()


async def test_what_cannot_be_recorded_is_told_to_nobody_while_the_database_is_away(
    valkey: ValkeyServer,
) -> None:
    """Only what ended before it was known: replicas go on with that."""
    async with services(valkey) as place, Ledger(Away()) as ledger:
        one, other = [await place.budgets(Books()) for _ in range(2)]
        repositories = Bookkeeping(ledger, one)
        repositories.prices = ModelPrices({"small": Tariff(request=Decimal(4))})
        for _ in range(5):
            record = Record("r", "hosted", "ck_a", model="small", status=200, used=Usage(1, 1))
            record.held = RequestHold(repositories.prices, await hold(one, 4))
            with pytest.raises(StoreUnavailable):
                await repositories.enter(record)
        with releasing(await hold(other, 4)):
            assert await let_in(one)
