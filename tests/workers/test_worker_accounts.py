"""Workers with accounts: limits and budgets are one count in Valkey, records one ledger."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from decimal import Decimal
from pathlib import Path

import aiohttp
import pytest
from hostedkit import Office, office
from ledgerkit import record
from sqlalchemy import select
from valkeyserver import ValkeyServer
from waiting import eventually
from workerkit import Setup, asked, body, replaced, stream_of, two_workers

from causerie.composition.account_backend import account_backend, opened
from causerie.hosted.accounts.bounds import Budget, Limit, LimitsAndBudgets
from causerie.hosted.store.tables import usage_records
from causerie.metering.write_ahead_log import WriteAheadLog
from causerie.settings.credentials import NO_CREDENTIALS
from causerie.settings.store import StoreSettings
from causerie.settings.tree import Settings

CONFIG = """
[server]
workers = 2
drain_seconds = 20

[store]
folder = "data"

[shared]
url = "VALKEY"

[[doors]]
name = "hosted"
kind = "hosted"

[[providers]]
name = "there"
base_url = "{base_url}"
max_concurrent = {concurrent}
health = {{ path = "" }}

[[aliases]]
id = "fast"
targets = [{{ provider = "there", model = "m" }}]
price = {{ prompt = "1000", completion = "2000" }}

[[aliases]]
id = "other"
targets = [{{ provider = "there", model = "m" }}]
"""
HOSTED = "/hosted/v1/chat/completions"
COST = Decimal("0.009")  # of a request, and as estimated before it
AT_MOST = {"max_completion_tokens": 2}


@asynccontextmanager
async def hosted(
    folder: Path, valkey: ValkeyServer, bounds: LimitsAndBudgets
) -> AsyncIterator[tuple[Setup, Office]]:
    """The service, whose client comes with a key that has these bounds, and its database."""
    async with office(folder / "data") as made:
        key = await made.key(bounds=bounds, models=frozenset({"fast", "other"}))
        config = CONFIG.replace("VALKEY", valkey.url)
        async with two_workers(folder, config, key=key.credential) as setup:
            setup.path = HOSTED
            yield setup, made


async def recorded(books: Office, number: int) -> bool:
    """So many records are in the database."""
    return len(await books.records()) == number


@pytest.mark.full
async def test_limits_are_those_of_all_workers(tmp_path: Path, valkey: ValkeyServer) -> None:
    bounds = LimitsAndBudgets((Limit("other", requests_per_minute=25, concurrent=6),), ())
    async with hosted(tmp_path, valkey, bounds) as (made, books):
        made.provider.open.clear()
        waiting = [asyncio.create_task(made.ask("other")) for _ in range(30)]
        await eventually(lambda: asked(made, 6))
        await eventually(lambda: _left(waiting, 6))
        made.provider.open.set()
        statuses = Counter(status for status, _ in await asyncio.gather(*waiting))
        assert statuses == {200: 6, 429: 24}  # so many at once
        more = Counter([(await made.ask("other"))[0] for _ in range(30)])
        assert more == {200: 19, 429: 11}  # and so many in a minute
        assert made.provider.asked == 25
        await eventually(lambda: recorded(books, 60))
        assert Counter(one.status for one in await books.records()) == {200: 25, 429: 35}


async def test_a_budget_is_one_for_all_workers(tmp_path: Path, valkey: ValkeyServer) -> None:
    amount = Decimal("0.05")
    async with hosted(tmp_path, valkey, LimitsAndBudgets((), (Budget(amount),))) as (made, books):
        made.provider.open.clear()
        waiting = [asyncio.create_task(made.ask("fast", **AT_MOST)) for _ in range(12)]
        await eventually(lambda: asked(made, 6))
        await eventually(lambda: _left(waiting, 6))  # each holds its estimate: room for six
        made.provider.open.set()
        first = Counter(status for status, _ in await asyncio.gather(*waiting))
        assert first == {200: 6, 402: 6}
        later = [(await made.ask("fast", **AT_MOST))[0] for _ in range(6)]
        assert later == [402] * 6
        await eventually(lambda: recorded(books, 18))
        found = await books.records()
        cost = sum((one.amount for one in found), Decimal())
        assert cost == made.provider.asked * COST
        assert amount <= cost < amount + COST  # the last one admitted may cross the line


async def _left(waiting: list[asyncio.Task[tuple[int, dict[str, object]]]], left: int) -> bool:
    return sum(not one.done() for one in waiting) == left


async def test_requests_of_a_killed_worker_are_recorded_by_the_next(
    tmp_path: Path, valkey: ValkeyServer
) -> None:
    bounds = LimitsAndBudgets((), (Budget(Decimal(20)),))
    async with hosted(tmp_path, valkey, bounds) as (made, books):
        made.provider.open.clear()
        streams = [asyncio.create_task(stream_of(made, "fast", **AT_MOST)) for _ in range(12)]
        await eventually(lambda: asked(made, 12))
        victim, _ = await made.workers()
        os.kill(victim, signal.SIGKILL)
        await eventually(lambda: replaced(made, victim))
        made.provider.open.set()
        ended = Counter(await asyncio.gather(*streams))
        await eventually(lambda: recorded(books, 12))  # each of them once
        found = Counter(one.status for one in await books.records())
        assert found[200] == ended["One two."]


@pytest.mark.full
async def test_quick_requests_at_two_workers_are_all_recorded_in_sqlite(
    tmp_path: Path, valkey: ValkeyServer
) -> None:
    requests, connections = 20, 16
    async with hosted(tmp_path, valkey, LimitsAndBudgets((), ())) as (made, books):

        async def one_after_the_other() -> list[int]:
            async with aiohttp.ClientSession(
                made.service.root, headers=made.session.headers
            ) as session:
                found = []
                for _ in range(requests):
                    async with session.post(HOSTED, json=body("fast", **AT_MOST)) as answer:
                        found.append(answer.status)
                        await answer.read()
                return found

        statuses = await asyncio.gather(*(one_after_the_other() for _ in range(connections)))
        assert Counter(status for each in statuses for status in each) == {
            200: requests * connections
        }
        await eventually(lambda: recorded(books, requests * connections))
        found = await books.records()
        assert sum((one.amount for one in found), Decimal()) == requests * connections * COST


@pytest.mark.full
async def test_journals_that_no_worker_has_any_more_are_written_at_the_next_start(
    tmp_path: Path,
) -> None:
    """Three workers were killed; then there is one."""
    store = StoreSettings(folder=str(tmp_path), url=f"sqlite:///{tmp_path}/causerie.db")
    left = [record(), record(), record()]
    for number, each in enumerate(left, start=1):
        journal = WriteAheadLog(tmp_path / "journal" / (str(number) if number > 1 else ""))
        journal.begin()
        journal.begin_request(each)
        journal.close()
    async with account_backend(Settings(store=store), NO_CREDENTIALS):
        pass
    async with opened(store) as database, database.reading() as connection:
        found = (await connection.execute(select(usage_records.c.id))).scalars()
        assert sorted(found) == sorted(each.id for each in left)
