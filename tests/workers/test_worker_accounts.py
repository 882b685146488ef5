"""Workers answer callers with keys of accounts; what they may and what they use is one count."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

from hostedkit import Office, office
from waiting import eventually
from workerkit import PATH, Setup, asked, body, replaced, stream_of, two_workers

from causerie.accounts.bounds import Budget, Limit, LimitsAndBudgets
from causerie.accounts.people import SYSTEM

CONFIG = """
[server]
workers = 2
drain_seconds = 20

[store]
folder = "data"

[[doors]]
name = "hosted"
kind = "hosted"

[[doors]]
name = "gateway"
kind = "gateway"

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
COST = Decimal("0.009")  # of five tokens of prompt and two of completion


@asynccontextmanager
async def hosted(
    folder: Path, bounds: LimitsAndBudgets, **draft: object
) -> AsyncIterator[tuple[Setup, Office]]:
    """The service, whose client comes with a key that has these bounds, and its database."""
    async with office(folder / "data") as made:
        key = await made.key(bounds=bounds, **draft)
        async with two_workers(folder, CONFIG, key=key.credential) as setup:
            setup.path = HOSTED
            yield setup, made


async def test_limits_budgets_and_records_are_those_of_all_processes(tmp_path: Path) -> None:
    bounds = LimitsAndBudgets(
        (Limit("other", requests_per_minute=25, concurrent=6),), (Budget(Decimal("0.05")),)
    )
    async with hosted(tmp_path, bounds, models=frozenset({"fast", "other"})) as (made, books):
        made.provider.open.clear()
        waiting = [asyncio.create_task(made.ask("other")) for _ in range(30)]
        await eventually(lambda: asked(made, 6))
        await eventually(lambda: refused_all_but(waiting, 6))
        made.provider.open.set()
        statuses = Counter(status for status, _ in await asyncio.gather(*waiting))
        assert statuses == {200: 6, 429: 24}  # so many at once
        more = Counter([(await made.ask("other"))[0] for _ in range(30)])
        assert more == {200: 19, 429: 11}  # and so many in a minute
        paid = Counter([(await made.ask("fast"))[0] for _ in range(12)])
        assert paid == {200: 6, 402: 6}  # the one that crosses the line is let in
        assert made.provider.asked == 31
        made.path = PATH
        assert (await made.ask("fast"))[0] == 200  # at a door without accounts
        await eventually(lambda: recorded(books, 73))
        found = await books.records()
        assert Counter(one.status for one in found) == {200: 32, 429: 35, 402: 6}
        assert sum(one.cost for one in found if one.project) == 6 * COST


async def refused_all_but(
    waiting: list[asyncio.Task[tuple[int, dict[str, Any]]]], left: int
) -> bool:
    """So few still wait for their answer."""
    return sum(not one.done() for one in waiting) == left


async def recorded(books: Office, number: int) -> bool:
    """So many records are in the database."""
    return len(await books.records()) == number


async def test_a_killed_worker_frees_what_its_requests_held(tmp_path: Path) -> None:
    bounds = LimitsAndBudgets((Limit(concurrent=6),), (Budget(Decimal(20)),))
    async with hosted(tmp_path, bounds) as (made, books):
        made.provider.open.clear()
        streams = [asyncio.create_task(stream_of(made, "fast", max_tokens=1000)) for _ in range(6)]
        await eventually(lambda: asked(made, 6))
        assert (await made.ask("fast"))[0] == 429
        victim, _ = await made.workers()
        os.kill(victim, signal.SIGKILL)
        await eventually(lambda: recorded(books, 4))  # three that were interrupted, and the 429
        await eventually(lambda: replaced(made, victim))
        more = [asyncio.create_task(stream_of(made, "fast", max_tokens=1000)) for _ in range(3)]
        await eventually(lambda: arrived(made, 9))  # in the place of those
        assert (await made.ask("fast"))[0] == 429
        made.provider.open.set()
        ended = Counter(await asyncio.gather(*streams, *more))
        assert ended == {"One two.": 6, "broken": 3}
        await eventually(lambda: recorded(books, 11))
        found = await books.records()
        assert Counter(one.code for one in found) == {None: 6, "concurrency": 2, "interrupted": 3}
        assert {one.cost for one in found if one.code == "interrupted"} == {Decimal(0)}


async def arrived(made: Setup, number: int) -> bool:
    """So many requests have come to the provider, in all."""
    return made.provider.asked == number


async def test_who_may_what_is_decided_by_the_accounts(tmp_path: Path) -> None:
    async with hosted(tmp_path, LimitsAndBudgets()) as (made, books):
        assert {(await made.ask("fast"))[0] for _ in range(4)} == {200}
        elsewhere = await books.key(doors=frozenset({"gateway"}))
        assert await answers(made, elsewhere.credential) == {403}
        assert await answers(made, "ck_unknown") == {401}
        gone = await books.key()
        assert await answers(made, gone.credential) == {200}
        await books.accounts.keys.delete(SYSTEM, gone.key.id)
        await eventually(lambda: refused(made, gone.credential))
        await books.accounts.recordings.keep(SYSTEM, books.project, 7)
        await eventually(lambda: kept(made, books))


async def refused(made: Setup, key: str) -> bool:
    """No worker lets the bearer of this key in."""
    return await answers(made, key) == {401}


async def kept(made: Setup, books: Office) -> bool:
    """The contents of one more request are kept."""
    assert (await made.ask("fast"))[0] == 200
    ids = [one.id for one in await books.records()]
    return bool(await books.accounts.recordings.kept(SYSTEM, books.project, ids))


async def answers(made: Setup, key: str) -> set[int]:
    """The statuses of requests with this key, at both workers."""
    headers = {"Authorization": f"Bearer {key}"}
    found = set()
    for _ in range(2):
        async with made.session.post(HOSTED, json=body("fast"), headers=headers) as answer:
            found.add(answer.status)
    return found
