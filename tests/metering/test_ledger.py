"""The ledger: one record a request, once, and safe when `commit` has returned."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from uuid import UUID

import pytest
from casekit import first_of
from ledgerkit import NOON, ledger, record
from msgspec import structs
from sqlalchemy import select, text

from causerie.catalog.model import Tariff
from causerie.errors import StoreUnavailable
from causerie.hosted.accounts.bookkeeping import Bookkeeping, ModelPrices, RequestHold
from causerie.hosted.accounts.bounds import Budget
from causerie.hosted.accounts.budgets import Budgets, Claim
from causerie.hosted.accounts.usage import Spent
from causerie.hosted.store.database import Database, upgrade
from causerie.hosted.store.tables import usage_records
from causerie.hosted.store.usage import SqlUsage
from causerie.metering.ledger import INTERRUPTED, Ledger, UsageRecord, record_id
from causerie.metering.write_ahead_log import WriteAheadLog, WriteAheadLogTaken
from causerie.protocol.money import BILLION


class Memory:
    """A store that can be away, slow, or picky."""

    def __init__(self) -> None:
        self.records: list[UsageRecord] = []
        self.batches: list[int] = []
        self.away = False
        self.open = asyncio.Event()
        self.open.set()
        self.refuses: str | None = None

    async def append(self, records: Sequence[UsageRecord]) -> None:
        await self.open.wait()
        if self.away:
            raise StoreUnavailable()
        if any(each.request_id == self.refuses for each in records):
            raise ValueError("no")
        self.batches.append(len(records))
        self.records.extend(records)


async def rows(database: Database) -> list[str]:
    async with database.reading() as connection:
        return list((await connection.execute(select(usage_records.c.id))).scalars())


async def test_a_committed_record_is_in_the_database_as_it_was(database: Database) -> None:
    whole = record(code="length", finish="length", stream=True, cost=12_345_678_901)
    bare = record(project="", key="", user="", first_token_us=None, finish=None, status=503)
    async with Ledger(SqlUsage(database)) as made:
        await asyncio.gather(made.commit(whole), made.commit(bare))
        async with database.reading() as connection:
            found = (await connection.execute(select(usage_records))).mappings().all()
    by_id = {row["id"]: row for row in found}
    for each in (whole, bare):
        row = dict(by_id[each.id])
        names = {"project_id": "project", "key_id": "key", "user_id": "user"}
        assert {names.get(name, name): row[name] for name in row} == {
            name: getattr(each, name) for name in UsageRecord.__struct_fields__
        }


async def test_a_record_counts_once_however_often_it_comes(database: Database) -> None:
    store = SqlUsage(database)
    one, other = record(), record()
    await store.append([one, one, other])
    await store.append([other, one])
    await asyncio.gather(*(store.append([other, one]) for _ in range(5)))
    assert sorted(await rows(database)) == sorted([one.id, other.id])
    async with database.reading() as connection:
        for table in ("usage_hourly", "usage_daily"):
            sums = (await connection.execute(text(f"SELECT * FROM {table}"))).mappings().all()
            assert [row["requests"] for row in sums] == [2]
            assert sums[0]["cost"] == 2 * 123_456


async def test_the_request_id_may_repeat(database: Database) -> None:
    """A caller names its requests; one name for all of them must not make them one."""
    await SqlUsage(database).append([record(request_id="mine") for _ in range(3)])
    assert len(await rows(database)) == 3


async def test_sums_are_what_the_records_add_up_to(database: Database) -> None:
    rng = random.Random(7)
    made = [
        record(
            at=1_795_262_400_000_000 + rng.randrange(3 * 86_400) * 1_000_000,
            project=rng.choice(["prj_a", "prj_b"]),
            key=rng.choice(["ck_a", "ck_b", ""]),
            model=rng.choice(["small", "large"]),
            status=rng.choice([200, 200, 400, 429, 499, 502]),
            prompt=rng.randrange(1000),
            completion=rng.randrange(1000),
            cost=rng.randrange(10**6),
            first_token_us=rng.choice([None, rng.randrange(10**6)]),
        )
        for _ in range(400)
    ]
    async with Ledger(SqlUsage(database), max_batch=37) as opened:
        await asyncio.gather(*map(opened.commit, made))
    columns = "project_id, key_id, model, requests, prompt, completion, cost, aborted, failed"
    for table, span in (("usage_hourly", 3600), ("usage_daily", 86_400)):
        wanted: Counter[tuple[object, ...]] = Counter()
        for each in made:
            place = (each.at // (span * 10**6) * span * 10**6, each.project, each.key, each.model)
            wanted[(*place, "requests")] += 1
            wanted[(*place, "prompt")] += each.prompt
            wanted[(*place, "completion")] += each.completion
            wanted[(*place, "cost")] += each.cost
            wanted[(*place, "aborted")] += each.status == 499
            wanted[(*place, "failed")] += each.status >= 500
        async with database.reading() as connection:
            found = await connection.execute(text(f"SELECT start, {columns} FROM {table}"))
            got: Counter[tuple[object, ...]] = Counter()
            for row in found.mappings():
                place = (row["start"], row["project_id"], row["key_id"], row["model"])
                for name in ("requests", "prompt", "completion", "cost", "aborted", "failed"):
                    got[(*place, name)] += row[name]
        assert got == wanted
    async with database.reading() as connection:
        first = await connection.scalar(text("SELECT SUM(requests) FROM usage_first_token"))
    assert first == sum(each.first_token_us is not None for each in made)


async def test_records_that_wait_share_a_transaction() -> None:
    store = Memory()
    store.open.clear()
    async with Ledger(store, max_batch=10) as made:
        commits = asyncio.gather(*(made.commit(record()) for _ in range(25)))
        await asyncio.sleep(0)
        store.open.set()
        await commits
    assert sum(store.batches) == 25
    assert len(store.batches) <= 4


async def test_commit_waits_for_the_database() -> None:
    store = Memory()
    store.open.clear()
    async with Ledger(store) as made:
        commit = asyncio.ensure_future(made.commit(record()))
        await asyncio.sleep(0.01)
        assert not commit.done()
        store.open.set()
        await commit
        assert len(store.records) == 1


async def test_a_caller_that_leaves_does_not_take_its_record_along() -> None:
    store = Memory()
    store.open.clear()
    async with Ledger(store) as made:
        commit = asyncio.ensure_future(made.commit(record()))
        await asyncio.sleep(0)
        commit.cancel()
        with pytest.raises(asyncio.CancelledError):
            await commit
        store.open.set()
    assert len(store.records) == 1


async def test_without_a_journal_a_database_that_is_away_is_said_at_once() -> None:
    store = Memory()
    store.away = True
    async with Ledger(store) as made:
        with pytest.raises(StoreUnavailable):
            await made.commit(record())
        store.away = False
        await made.commit(record())
    assert len(store.records) == 2  # the first was not forgotten


async def test_whoever_is_told_that_the_database_is_away_is_not_charged() -> None:
    store = Memory()
    store.away = True
    one = record()
    async with Ledger(store) as made:
        with pytest.raises(StoreUnavailable) as told:
            await made.commit(one)
        store.away = False
        await made.commit(record())
    kept = store.records[0]
    assert (kept.id, kept.prompt, kept.completion) == (one.id, one.prompt, one.completion)
    assert (kept.status, kept.code, kept.cost) == (503, told.value.code, 0)


async def test_a_stream_whose_end_is_not_safe_is_charged_for_what_was_delivered() -> None:
    """Of the budgets too, and though the ledger is full; a plain reply is taken back instead."""
    store = Memory()
    store.away = True
    price = ModelPrices({"small": Tariff(prompt=Decimal("0.01"))})
    async with Ledger(store, max_waiting=1) as made:
        budgets = Budgets(_nothing_spent, lambda: NOON * 1000)
        books = Bookkeeping(made, budgets)
        books.prices = price
        claims = [Claim("key:ck_a", (Budget(Decimal(100)),))]
        for stream in (True, True, False):
            held = await budgets.reserve(claims, "small", 5 * BILLION, 500)
            hold = RequestHold(price, held)
            usage = hold.priced(record(stream=stream, cost=0))
            with pytest.raises(StoreUnavailable):
                await books.keep(usage, hold)
        [counter] = budgets._counters_by_budget_id.values()
        assert (counter.spent, counter.reserved) == (2 * 10**9, 0)
        store.away = False
    kept = store.records
    assert [(one.status, one.cost) for one in kept] == [(503, BILLION), (503, BILLION)]


async def _nothing_spent(owner: str, model: str, since: object) -> Spent:
    return Spent()


async def test_whoever_leaves_while_the_database_is_away_is_told_nothing_and_is_charged() -> None:
    store = Memory()
    store.away = True
    async with Ledger(store) as made:
        commit = asyncio.ensure_future(made.commit(one := record()))
        await asyncio.sleep(0)
        commit.cancel()
        with pytest.raises(asyncio.CancelledError):
            await commit
        with pytest.raises(StoreUnavailable):
            await made.commit(record())
        store.away = False
    assert store.records[0] == one


async def test_what_was_told_is_what_counts_where_the_answer_to_a_commit_was_lost(
    database: Database,
) -> None:
    store = SqlUsage(database)

    class Cut:
        """A database whose connection breaks before the commit is answered, once."""

        lost = False

        async def append(self, records: Sequence[UsageRecord]) -> None:
            await store.append(records)
            if not self.lost:
                self.lost = True
                raise StoreUnavailable()

    one = record()
    async with Ledger(Cut()) as made:
        with pytest.raises(StoreUnavailable):
            await made.commit(one)
        await made.commit(record())
    async with database.reading() as connection:
        found = await connection.execute(select(usage_records).filter_by(id=one.id))
        [row] = found.mappings()
        assert (row["status"], row["code"], row["cost"]) == (503, "store_unavailable", 0)
        for table in ("usage_hourly", "usage_daily", "usage_apps", "usage_tags", "usage_targets"):
            [sums] = (await connection.execute(text(f"SELECT * FROM {table}"))).mappings()
            assert (sums["requests"], sums["failed"], sums["prompt"]) == (2, 1, 200)
            assert (sums["cost"], sums["charged"]) == (123_456, 120)


async def test_with_a_journal_a_database_may_be_away(tmp_path: Path) -> None:
    store, journal = Memory(), WriteAheadLog(tmp_path)
    store.away = True
    many = [record() for _ in range(5)]
    async with Ledger(store, journal) as made:
        for each in many:
            await made.commit(each)
        assert store.records == []
        store.away = False
    assert store.records == many
    journal.close()


async def test_what_is_left_in_the_journal_is_written_at_the_next_start(tmp_path: Path) -> None:
    store, journal = Memory(), WriteAheadLog(tmp_path)
    store.away = True
    many = [record() for _ in range(5)]
    async with Ledger(store, journal, max_batch=2) as made:
        for each in many:
            await made.commit(each)
    journal.close()
    later = Memory()
    journal = WriteAheadLog(tmp_path)
    async with Ledger(later, journal, max_batch=2):
        assert later.records == many
    journal.close()


async def test_what_waits_is_bounded(tmp_path: Path) -> None:
    store, journal = Memory(), WriteAheadLog(tmp_path)
    store.open.clear()
    async with Ledger(store, journal, max_waiting=3) as made:
        for _ in range(3):
            assert not made.full
            await made.commit(record())
        assert made.full
        with pytest.raises(StoreUnavailable):
            await made.commit(record())
        store.open.set()
    assert len(store.records) == 3
    journal.close()


async def test_a_record_that_is_refused_does_not_hold_up_the_others(tmp_path: Path) -> None:
    store, journal = Memory(), WriteAheadLog(tmp_path)
    store.refuses = "bad"
    bad, good = record(request_id="bad"), [record() for _ in range(4)]
    async with Ledger(store, journal) as made:
        for each in (*good[:2], bad, *good[2:]):
            await made.commit(each)
    assert store.records == good
    assert bad.id in (tmp_path / "refused").read_text()
    journal.close()


async def test_a_record_that_was_refused_keeps_no_service_from_starting(tmp_path: Path) -> None:
    """The journal still has it, with others that the database has not seen."""
    store, journal = Memory(), WriteAheadLog(tmp_path)
    bad, good = record(request_id="bad"), [record() for _ in range(3)]
    store.away = True
    async with Ledger(store, journal) as made:
        for each in (good[0], bad, *good[1:]):
            await made.commit(each)
    journal.close()
    later, journal = Memory(), WriteAheadLog(tmp_path)
    later.refuses = "bad"
    async with Ledger(later, journal):
        assert later.records == good
    assert bad.id in (tmp_path / "refused").read_text()
    journal.close()


async def test_without_a_journal_the_caller_hears_that_its_record_is_refused() -> None:
    store = Memory()
    store.refuses = "bad"
    async with Ledger(store) as made:
        bad = made.commit(record(request_id="bad"))
        done = await asyncio.gather(made.commit(record()), bad, return_exceptions=True)
    assert [type(each) for each in done] == [type(None), ValueError]


def test_ids_sort_by_time_and_are_version_7() -> None:
    made = [record_id() for _ in range(1000)]
    assert len(set(made)) == 1000
    assert all(UUID(each).version == 7 for each in made)
    assert made[0][:8] <= made[-1][:8]


@pytest.mark.parametrize("sync", [False, True])
async def test_the_journal_keeps_no_more_than_is_needed(tmp_path: Path, sync: bool) -> None:
    store, journal = Memory(), WriteAheadLog(tmp_path, sync=sync, part_bytes=2000)
    async with Ledger(store, journal) as made:
        await asyncio.gather(*(made.commit(record()) for _ in range(50)))
    assert len(store.records) == 50
    assert len(list(tmp_path.glob("*.journal"))) == 1
    journal.close()


async def test_a_damaged_line_costs_only_itself(tmp_path: Path) -> None:
    store, journal = Memory(), WriteAheadLog(tmp_path)
    store.away = True
    many = [record() for _ in range(3)]
    async with Ledger(store, journal) as made:
        for each in many:
            await made.commit(each)
    journal.close()
    [part] = tmp_path.glob("*.journal")
    lines = part.read_bytes().splitlines(keepends=True)
    part.write_bytes(lines[0] + lines[1].replace(b"hosted", b"h\0sted") + lines[2] + lines[0][:50])
    journal = WriteAheadLog(tmp_path)
    assert list(journal.left()) == [many[0], many[2]]
    journal.close()


async def test_a_full_disk_costs_only_the_record_that_it_did_not_take(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource", reason="only there files have a limit")
    kept = [record() for _ in range(2)]
    journal = WriteAheadLog(tmp_path)
    journal.begin()
    journal.write(kept[0])
    [part] = tmp_path.glob("*.journal")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (part.stat().st_size + 100, before[1]))
    try:
        with pytest.raises(OSError, match="the disk takes no more"):
            journal.write(record())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    journal.write(kept[1])
    journal.close()
    journal = WriteAheadLog(tmp_path)
    assert list(journal.left()) == kept
    journal.close()


def interrupted(**changes: object) -> UsageRecord:
    """A request that has begun."""
    return record(status=500, code=INTERRUPTED, cost=0, completion=0, **changes)


def test_a_check_of_the_disk_leaves_nothing_in_the_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = [record() for _ in range(2)]
    journal = WriteAheadLog(tmp_path)
    journal.begin()
    journal.write(kept[0])
    journal.check()
    write = os.write
    with monkeypatch.context() as full:
        full.setattr("os.write", lambda file, line: write(file, line[:100]))
        with pytest.raises(OSError, match="the disk takes no more"):
            journal.check()
    journal.write(kept[1])
    assert journal.left() == kept
    journal.close()


@pytest.mark.parametrize("part_bytes", [1, 4096])
async def test_a_request_leaves_a_record_even_if_the_process_ends_before_it(
    tmp_path: Path, part_bytes: int
) -> None:
    store, journal = Memory(), WriteAheadLog(tmp_path, part_bytes=part_bytes)
    running, asked_anew, ended = interrupted(), interrupted(), interrupted()
    async with Ledger(store, journal) as made:
        for each in (running, ended, asked_anew):
            made.begin_request(each)
        asked_anew = structs.replace(asked_anew, model="another")
        made.begin_request(asked_anew)
        for one in (structs.replace(ended, status=200), *(record() for _ in range(3))):
            await made.commit(one)
    assert len(store.records) == 4
    journal.close()  # as of a process that was killed: its files stay as they are
    later, journal = Memory(), WriteAheadLog(tmp_path)
    async with Ledger(later, journal):
        left = [each for each in later.records if each.code == INTERRUPTED]
        assert {each.id: each.model for each in left} == {
            running.id: "small",
            asked_anew.id: "another",
        }
        assert journal.left() == []
    journal.close()


async def test_what_a_stream_had_delivered_before_a_kill_is_in_the_ledger(tmp_path: Path) -> None:
    """The next process with the same journal charges it, once."""
    store, journal = Memory(), WriteAheadLog(tmp_path)
    async with Ledger(store, journal) as made:
        running = interrupted(stream=True, first_token_us=None, prompt=9)
        made.begin_request(running)
        for completion in (3, 8):
            so_far = structs.replace(running, completion=completion, first_token_us=1)
            made.begin_request(structs.replace(so_far, cost=completion))
    journal.close()  # as of a process that was killed
    later, journal = Memory(), WriteAheadLog(tmp_path)
    async with Ledger(later, journal):
        pass
    journal.close()
    [kept] = later.records
    assert (kept.id, kept.completion, kept.cost, kept.charged) == (running.id, 8, 8, True)


@pytest.mark.parametrize("part_bytes", [1, 2000, 10**6])
def test_whatever_has_happened_before_a_kill_each_request_has_one_record(
    tmp_path: Path, part_bytes: int
) -> None:
    for seed in range(20):
        rng, folder = random.Random(seed), tmp_path / str(seed)
        journal = WriteAheadLog(folder, part_bytes=part_bytes)
        journal.begin()
        running: list[UsageRecord] = []
        ended: dict[str, UsageRecord] = {}
        kept: dict[str, UsageRecord] = {}  # in the database
        for _ in range(rng.randrange(60)):
            match rng.choice(["begin", "begin", "again", "end", "keep"]):
                case "begin":
                    running.append(interrupted())
                    journal.begin_request(running[-1])
                case "again" if running:
                    journal.begin_request(rng.choice(running))
                case "end" if running:
                    one = structs.replace(running.pop(rng.randrange(len(running))), status=200)
                    ended[one.id] = one
                    mark = journal.write(one)
                case "keep" if ended:
                    kept = dict(ended)
                    journal.applied(mark)
        journal.close()  # its files are as a kill leaves them
        later = WriteAheadLog(folder)
        left = {each.id: each for each in later.left()}
        later.close()
        assert len(left) == len(later.left())
        assert left | kept == ended | {each.id: each for each in running}


async def test_what_was_written_as_a_request_began_takes_the_place_of_no_record(
    database: Database,
) -> None:
    """A full disk may have taken the beginning and not the end, which is in the database then."""
    store, running = SqlUsage(database), interrupted()
    await store.append([structs.replace(running, status=200, code=None, cost=1)])
    await store.append([running])
    async with database.reading() as connection:
        asked = select(usage_records.c.status, usage_records.c.cost)
        assert (await connection.execute(asked)).all() == [(200, 1)]
        sums = (await connection.execute(text("SELECT requests, failed FROM usage_daily"))).all()
    assert sums == [(1, 0)]


async def test_no_request_begins_whose_usage_nobody_would_keep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A target would be paid for a reply that ends with 503 and is not charged."""
    store, journal = Memory(), WriteAheadLog(tmp_path)
    store.away = True
    refused = interrupted()
    async with Ledger(store, journal) as made:
        monkeypatch.setattr("os.write", lambda _file, _line: fails(0))
        made.begin_request(interrupted())  # the database may be there
        assert not made.obstacle()
        with pytest.raises(StoreUnavailable):
            await made.commit(record())
        with pytest.raises(StoreUnavailable):
            made.begin_request(refused)
        await made.commit(refused)  # a failure is told at once, and kept later
        assert made.obstacle().endswith("nor the journal: no space left")
        monkeypatch.undo()
        assert not made.obstacle()
        made.begin_request(interrupted())  # the disk has room again
        store.away = False
    assert [each.status for each in store.records] == [503, 500]
    journal.close()


async def test_a_database_that_is_back_and_refuses_a_record_lets_requests_begin() -> None:
    store = Memory()
    store.away, store.refuses = True, "bad"
    async with Ledger(store) as made:
        with pytest.raises(StoreUnavailable):
            await made.commit(record(request_id="bad"))
        with pytest.raises(StoreUnavailable):
            made.begin_request(interrupted())
        assert made.obstacle() == "the database cannot be used, and there is no journal"
        store.away = False
        with pytest.raises(ValueError, match="no"):
            await made.commit(record(request_id="bad"))
        assert not made.obstacle()
        made.begin_request(interrupted())


async def test_a_disk_that_takes_no_beginning_holds_up_no_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, journal = Memory(), WriteAheadLog(tmp_path, part_bytes=1)
    running, one = interrupted(), record()
    async with Ledger(store, journal) as made:
        made.begin_request(running)
        with monkeypatch.context() as full:
            full.setattr("os.write", lambda _file, _line: fails(0))
            made.begin_request(interrupted())
            await made.commit(one)
        assert journal.left() == [running]
        await made.commit(record())
    assert len(store.records) == 2
    journal.close()


def fails(_file: int) -> None:
    raise OSError("no space left")


@pytest.mark.parametrize("part_bytes", [1, 4096])
async def test_a_record_that_a_disk_does_not_keep_is_safe_in_the_database_or_not_charged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part_bytes: int
) -> None:
    store, journal = Memory(), WriteAheadLog(tmp_path, sync=True, part_bytes=part_bytes)
    monkeypatch.setattr("os.fdatasync", fails)
    one, other = record(), record()
    async with Ledger(store, journal) as made:
        await made.commit(one)
        assert store.records == [one]
        store.away = True
        with pytest.raises(StoreUnavailable):
            await made.commit(other)
        assert [each.status for each in journal.left() if each.id == other.id][-1:] == [503]
        store.away = False
    journal.close()
    kept = store.records[1]
    assert (kept.id, kept.status, kept.cost) == (other.id, 503, 0)


async def test_a_record_that_a_journal_does_not_take_is_safe_in_the_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, journal = Memory(), WriteAheadLog(tmp_path)
    one = record()
    async with Ledger(store, journal) as made:
        monkeypatch.setattr("os.write", lambda _file, _line: fails(0))
        await made.commit(one)
        assert store.records == [one]
        monkeypatch.undo()
        await made.commit(record())
    assert len(store.records) == 2
    journal.close()


async def test_a_disk_says_only_once_that_it_did_not_keep_what_several_wait_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = WriteAheadLog(tmp_path, sync=True)
    journal.begin()
    first, second = journal.write(record()), journal.write(record())
    monkeypatch.setattr("os.fdatasync", fails)
    with pytest.raises(OSError, match="no space left"):
        await journal.flushed(first)
    monkeypatch.undo()
    with pytest.raises(OSError, match="did not keep"):
        await journal.flushed(second)
    await journal.flushed(journal.write(record()))
    journal.close()


async def test_a_file_that_fails_as_it_is_closed_is_not_written_to_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    close = os.close

    def closes(file: int) -> None:
        close(file)
        raise OSError("no space left")

    kept = [record() for _ in range(2)]
    journal = WriteAheadLog(tmp_path, part_bytes=1)
    journal.begin()
    monkeypatch.setattr("os.close", closes)
    journal.write(kept[0])
    monkeypatch.undo()
    journal.write(kept[1])
    journal.close()
    journal = WriteAheadLog(tmp_path)
    assert list(journal.left()) == kept
    journal.close()


async def test_a_file_of_the_journal_goes_on_where_there_can_be_no_other(tmp_path: Path) -> None:
    kept = [record() for _ in range(2)]
    journal = WriteAheadLog(tmp_path, part_bytes=1)
    journal.begin()
    in_the_way = tmp_path / "00000002.journal"
    in_the_way.mkdir()
    journal.write(kept[0])
    in_the_way.rmdir()
    journal.write(kept[1])
    journal.close()
    journal = WriteAheadLog(tmp_path)
    assert list(journal.left()) == kept
    journal.close()


async def test_the_database_is_written_to_whatever_becomes_of_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "journal"
    store, journal = Memory(), WriteAheadLog(folder, part_bytes=1)
    store.refuses = "bad"
    good = [record() for _ in range(3)]
    async with Ledger(store, journal) as made:
        await made.commit(good[0])
        shutil.rmtree(folder)
        for each in (record(request_id="bad"), *good[1:]):
            await made.commit(each)
    assert store.records == good
    journal.close()


async def test_two_processes_cannot_share_a_journal(tmp_path: Path) -> None:
    journal = WriteAheadLog(tmp_path)
    with pytest.raises(WriteAheadLogTaken, match="another process"):
        WriteAheadLog(tmp_path)
    journal.close()


ROUNDS = int(os.environ.get("CAUSERIE_KILL_ROUNDS", "4"))


@pytest.mark.parametrize("journaled", first_of([False, True]))
async def test_what_was_committed_outlives_kill_9_exactly_once(
    tmp_path: Path, journaled: bool
) -> None:
    url = f"sqlite:///{tmp_path / 'causerie.db'}"
    folder = tmp_path / "journal" if journaled else None
    database = Database(url)
    await upgrade(database)
    await database.close()
    rng = random.Random(3)
    told: list[str] = []
    for _ in range(ROUNDS):
        told += await killed(url, folder, after=rng.randrange(1, 400))
    async with ledger(url, folder):
        pass  # what is in the journal goes into the database
    database = Database(url)
    kept = Counter(await rows(database))
    async with database.reading() as connection:
        summed = await connection.scalar(text("SELECT SUM(requests) FROM usage_hourly"))
    await database.close()
    assert told
    assert set(told) <= set(kept), "a record that was called safe is lost"
    assert set(kept.values()) == {1}
    assert summed == len(kept)


async def killed(url: str, folder: Path | None, *, after: int) -> list[str]:
    """The ids that a process said were safe, until it was killed after so many."""
    arguments = [sys.executable, str(Path(__file__).parents[1].joinpath("ledgerkit.py")), url]
    process = await asyncio.create_subprocess_exec(
        *arguments, *([str(folder)] if folder else []), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    told = [(await process.stdout.readline()).decode() for _ in range(after)]
    process.send_signal(signal.SIGKILL)
    rest = await process.stdout.read()
    await process.wait()
    lines = "".join(told) + rest.decode()
    return lines[: lines.rfind("\n")].split("\n")  # a line that was cut off says nothing
