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

from hostedkit import Office, office
from valkeyserver import ValkeyServer
from waiting import eventually
from workerkit import Setup, asked, replaced, stream_of, two_workers

from causerie.accounts.bounds import Budget, Limit, LimitsAndBudgets

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
COST = Decimal("0.009")  # of three tokens of prompt and two of completion, and one of each estimate


@asynccontextmanager
async def hosted(
    folder: Path, valkey: ValkeyServer, bounds: LimitsAndBudgets, **draft: object
) -> AsyncIterator[tuple[Setup, Office]]:
    """The service, whose client comes with a key that has these bounds, and its database."""
    async with office(folder / "data") as made:
        key = await made.key(bounds=bounds, **draft)
        config = CONFIG.replace("VALKEY", valkey.url)
        async with two_workers(folder, config, key=key.credential) as setup:
            setup.path = HOSTED
            yield setup, made


async def recorded(books: Office, number: int) -> bool:
    """So many records are in the database."""
    return len(await books.records()) == number


async def test_limits_budgets_and_records_are_those_of_all_workers(
    tmp_path: Path, valkey: ValkeyServer
) -> None:
    bounds = LimitsAndBudgets(
        (Limit("other", requests_per_minute=25, concurrent=6),), (Budget(Decimal("0.05")),)
    )
    models = frozenset({"fast", "other"})
    async with hosted(tmp_path, valkey, bounds, models=models) as (made, books):
        made.provider.open.clear()
        waiting = [asyncio.create_task(made.ask("other")) for _ in range(30)]
        await eventually(lambda: asked(made, 6))
        await eventually(lambda: _left(waiting, 6))
        made.provider.open.set()
        statuses = Counter(status for status, _ in await asyncio.gather(*waiting))
        assert statuses == {200: 6, 429: 24}  # so many at once
        more = Counter([(await made.ask("other"))[0] for _ in range(30)])
        assert more == {200: 19, 429: 11}  # and so many in a minute
        paid = Counter([(await made.ask("fast"))[0] for _ in range(12)])
        assert set(paid) == {200, 402}
        await eventually(lambda: recorded(books, 72))
        found = await books.records()
        assert sum(one.status == 200 for one in found) == 25 + paid[200]
        assert made.provider.asked == 25 + paid[200]
        cost = sum((one.cost for one in found), Decimal())
        assert cost <= Decimal("0.05") + 2 * COST  # one request at each worker crosses the line


async def _left(waiting: list[asyncio.Task[tuple[int, dict[str, object]]]], left: int) -> bool:
    return sum(not one.done() for one in waiting) == left


async def test_requests_of_a_killed_worker_are_recorded_by_the_next(
    tmp_path: Path, valkey: ValkeyServer
) -> None:
    bounds = LimitsAndBudgets((), (Budget(Decimal(20)),))
    async with hosted(tmp_path, valkey, bounds) as (made, books):
        made.provider.open.clear()
        streams = [asyncio.create_task(stream_of(made, "fast")) for _ in range(12)]
        await eventually(lambda: asked(made, 12))
        victim, _ = await made.workers()
        os.kill(victim, signal.SIGKILL)
        await eventually(lambda: replaced(made, victim))
        made.provider.open.set()
        ended = Counter(await asyncio.gather(*streams))
        await eventually(lambda: recorded(books, 12))  # each of them once
        found = Counter(one.status for one in await books.records())
        assert found[200] == ended["One two."]
