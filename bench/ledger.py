"""Speed of making usage safe: records a second, and the time of one `commit`.

make bench BENCH=bench/ledger.py ARGS="--records 20000 --clients 16 --journal write"

Without options every combination of clients and journal is measured on SQLite in a
folder of its own. `--url` names another database, empty.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from itertools import product
from pathlib import Path

from ledgerkit import record

from causerie.hosted.store.database import Database, upgrade
from causerie.hosted.store.usage import SqlUsage
from causerie.metering.ledger import Ledger
from causerie.metering.write_ahead_log import WriteAheadLog

JOURNALS = ("none", "write", "sync")


async def measure(url: str, folder: Path, clients: int, journal: str, records: int) -> str:
    """One line: committed and written a second, and the times of `commit`."""
    database = Database(url)
    await upgrade(database)
    written = (
        WriteAheadLog(folder / "journal", sync=journal == "sync") if journal != "none" else None
    )
    times: list[float] = []
    began = time.perf_counter()
    used = time.process_time()
    async with Ledger(SqlUsage(database), written) as ledger:

        async def client(number: int) -> None:
            for each in range(records // clients):
                made = record(
                    at=time.time_ns() // 1000,
                    project=f"prj_{number % 7}",
                    key=f"ck_{number % 50}",
                    model=f"model-{each % 3}",
                    first_token_us=10_000 + each,
                )
                start = time.perf_counter()
                await ledger.commit(made)
                times.append(time.perf_counter() - start)
                await asyncio.sleep(0)

        async with asyncio.TaskGroup() as group:
            for number in range(clients):
                group.create_task(client(number))
        committed = time.perf_counter() - began
    kept = time.perf_counter() - began
    processor = (time.process_time() - used) / len(times)
    await database.close()
    if written is not None:
        written.close()
    times.sort()
    return (
        f"{clients:4} clients, journal {journal:5}: {len(times) / committed:8,.0f} committed/s, "
        f"{len(times) / kept:7,.0f} in the database/s, {processor * 1e6:4.0f} us of processor; "
        f"commit median {times[len(times) // 2] * 1e3:.2f} ms, "
        f"99th {times[int(len(times) * 0.99)] * 1e3:.2f} ms"
    )


def main() -> None:
    """Measure what the options ask for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=20_000)
    parser.add_argument("--clients", type=int, action="append")
    parser.add_argument("--journal", choices=JOURNALS, action="append")
    parser.add_argument("--url", help="a database that is there and empty")
    options = parser.parse_args()
    for clients, journal in product(options.clients or [16, 256], options.journal or JOURNALS):
        with tempfile.TemporaryDirectory() as folder:
            url = options.url or f"sqlite:///{folder}/causerie.db"
            work = measure(url, Path(folder), clients, journal, options.records)
            print(asyncio.run(work), flush=True)


if __name__ == "__main__":
    main()
