"""Records for tests; run as a program, one that commits records until it is killed.

It says each id on its output once the commit has returned.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from decimal import Decimal
from pathlib import Path

import msgspec

from causerie.hosted.store.database import Database
from causerie.hosted.store.usage import SqlUsage
from causerie.metering.ledger import Ledger, UsageRecord, record_id
from causerie.metering.write_ahead_log import WriteAheadLog
from causerie.protocol.money import billionths

NOON = 1_795_262_400_000_000  # 2026-11-21T12:00:00Z, in microseconds
CLIENTS = 8


def record(*, amount: Decimal | None = None, **changes: object) -> UsageRecord:
    """A request that went well, changed; ``amount`` is its cost in money."""
    made = UsageRecord(
        id=record_id(),
        request_id="chatcmpl-1",
        at=NOON,
        project="prj_a",
        key="ck_a",
        user="usr_a",
        door="hosted",
        model="small",
        served_by="small",
        attempts=1,
        finish="stop",
        prompt=100,
        cached=40,
        completion=20,
        reasoning=5,
        cost=123_456,
        queue_us=1_000,
        first_token_us=15_000,
        duration_us=200_000,
        upstream_us=12_000,
        continued=1,
        estimated=True,
        tried=("near: refused the connection", "small: answered"),
        reason="It took too long.",
        param="messages",
        app="Robot",
        referer="https://robot.example/",
        cache_miss="system prompt changed at messages[0]",
    )
    if amount is not None:
        changes["cost"] = billionths(amount)
    return msgspec.structs.replace(made, **changes)


@asynccontextmanager
async def ledger(url: str, journal: Path | None) -> AsyncIterator[Ledger]:
    """A ledger on a database that has its tables."""
    database = Database(url)
    written = WriteAheadLog(journal) if journal else None
    try:
        async with Ledger(SqlUsage(database), written) as made:
            yield made
    finally:
        if written is not None:
            written.close()
        await database.close()


async def until_killed(url: str, journal: Path | None) -> None:
    """Commit and say so, from several clients at once, for ever."""
    async with ledger(url, journal) as made, asyncio.TaskGroup() as clients:

        async def client() -> None:
            while True:
                each = record(at=time.time_ns() // 1000)
                await made.commit(each)
                os.write(1, f"{each.id}\n".encode())
                await asyncio.sleep(0)

        for _ in range(CLIENTS):
            clients.create_task(client())


if __name__ == "__main__":
    asyncio.run(until_killed(sys.argv[1], Path(sys.argv[2]) if len(sys.argv) > 2 else None))
