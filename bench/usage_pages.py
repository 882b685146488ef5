"""Database queries of the pages of usage and activity, over ten million requests.

A database file is filled with records of ninety days (50 projects, 500 keys, 20 models)
and their sums, then every question of the pages is asked, as the pages ask it: how long
it takes (median of five, after one that warms up), and how the database goes about it.

    make bench BENCH=bench/usage_pages.py
    make bench BENCH=bench/usage_pages.py ARGS="--records 1000000"
"""

from __future__ import annotations

import argparse
import asyncio
import sqlite3
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from typing import Any

from sqlalchemy import Select
from sqlalchemy.dialects import sqlite

from causerie.hosted.accounts.usage import PERCENTILES, By, RecordFilter, Step, UsageQuery
from causerie.hosted.store.database import Database, upgrade
from causerie.hosted.store.usage import (
    SqlUsageReader,
    first_token_query,
    last_used_query,
    records_query,
    spent_query,
    sums_query,
)

_DAYS = 90
_NOW = datetime(2026, 11, 21, tzinfo=UTC)
_SINCE = _NOW - timedelta(days=_DAYS)
_HOUR = 3_600_000_000
_DAY = 24 * _HOUR

_RECORDS = """
WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < :count)
INSERT INTO usage_records (id, request_id, at, project_id, key_id, user_id, door, model, served_by,
  stream, status, code, finish, attempts, prompt, cached, completion, reasoning, cost, queue_us,
  first_token_us, duration_us)
SELECT printf('%032x', i), 'req-' || lower(hex(randomblob(8))), :since + i * :step,
  'prj_' || (i % 50), 'ck_' || (i % 500), 'usr_' || (i % 200), 'hosted', 'model-' || (i * 7 % 20),
  'somebody', i % 2, CASE WHEN i % 50 = 7 THEN 429 WHEN i % 100 = 3 THEN 502 ELSE 200 END, NULL,
  'stop', 1, 500 + i % 1000, i % 300, 100 + i % 400, i % 50, 1000000 + i % 5000000, 100,
  200000 + abs(random() % 1000000), 2000000 + abs(random() % 5000000)
FROM n
"""
_NUMBERS = """requests, refused, failed, aborted, prompt, cached, completion, reasoning, cost,
  first_token_us, first_tokens, duration_us, charged"""
_SUMMED = """count(*),
  sum(status >= 400), sum(status >= 500), sum(status = 499), sum(prompt), sum(cached),
  sum(completion), sum(reasoning), sum(cost), sum(first_token_us), count(first_token_us),
  sum(duration_us), sum(iif(status < 400 OR status = 499, prompt + completion, 0))"""
_SUMS = f"""
INSERT INTO {{table}} (project_id, start, key_id, user_id, model, door, {_NUMBERS})
SELECT project_id, at - at % {{span}}, key_id, user_id, model, door, {_SUMMED}
FROM usage_records GROUP BY 1, 2, 3, 4, 5, 6
"""
_APPS = f"""
INSERT INTO usage_apps (project_id, start, app, model, {_NUMBERS})
SELECT project_id, at - at % {_HOUR}, app, model, {_SUMMED}
FROM usage_records GROUP BY 1, 2, 3, 4
"""
_FIRST_TOKENS = """
INSERT INTO usage_first_token (project_id, start, model, key_id, user_id, bucket, requests)
SELECT project_id, at - at % {span}, model, key_id, user_id, 60 + abs(first_token_us) / 50000,
  count(*)
FROM usage_records GROUP BY 1, 2, 3, 4, 5, 6
"""


@dataclass(frozen=True, slots=True)
class Asked:
    """A question of a page: its words, how it is asked, and its SQL."""

    words: str
    ask: Callable[[SqlUsageReader], Awaitable[object]]
    query: Select[Any]


def main() -> None:
    """Fill, ask, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=10_000_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "usage.db"
        asyncio.run(_tables(file))
        _fill(file, options.records)
        print(f"{options.records:,} records, {file.stat().st_size / 1e9:.1f} GB\n", flush=True)
        asyncio.run(_asked(file))


async def _tables(file: Path) -> None:
    database = Database(f"sqlite:///{file}")
    await upgrade(database)
    await database.close()


def _fill(file: Path, count: int) -> None:
    started = time.monotonic()
    with sqlite3.connect(file, isolation_level=None) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("PRAGMA cache_size = -500000")
        found = connection.execute(
            "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL "
            "AND tbl_name LIKE 'usage%'"
        ).fetchall()
        for name, _ in found:
            connection.execute(f"DROP INDEX {name}")
        span = _DAYS * _DAY
        since = int(_SINCE.timestamp()) * 1_000_000
        steps = [(_RECORDS, {"count": count, "since": since, "step": span // count})]
        steps += [
            (_SUMS.format(table="usage_hourly", span=_HOUR), {}),
            (_SUMS.format(table="usage_daily", span=_DAY), {}),
            (_APPS, {}),
            (_FIRST_TOKENS.format(span=_HOUR), {}),
        ]
        for number, (sql, values) in enumerate([*steps, *((sql, {}) for _, sql in found)]):
            connection.execute(sql, values)
            whole = len(steps) + len(found)
            print(
                f"\r{number + 1}/{whole} filled, {time.monotonic() - started:.0f} s",
                end="",
                file=sys.stderr,
                flush=True,
            )
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    print(file=sys.stderr)


def _questions(request_id: str) -> Sequence[Asked]:
    month = UsageQuery(_NOW - timedelta(days=30), _NOW, Step.DAY, (By.MODEL,), project="prj_7")
    models = replace(month, step=Step.ALL)
    keys = replace(models, by=(By.KEY,))
    over_time = replace(month, by=())
    users = UsageQuery(_NOW - timedelta(days=7), _NOW, Step.ALL, (By.USER,))
    everybody = UsageQuery(_NOW - timedelta(days=90), _NOW, Step.DAY, (By.MODEL,))
    hours = UsageQuery(_NOW - timedelta(days=3), _NOW, Step.HOUR, (By.KEY,), project="prj_7")
    newest = RecordFilter(_NOW - timedelta(days=7), _NOW, project="prj_7")
    failed = RecordFilter(_SINCE, _NOW, project="prj_3", failures_only=True)
    of_key = RecordFilter(_SINCE, _NOW, project="prj_7", key="ck_7")
    all_over = RecordFilter(_SINCE, _NOW)
    one = RecordFilter(_SINCE, _NOW, request_id=request_id)
    none = RecordFilter(_SINCE, _NOW, project="prj_7", request_id="req-unknown")
    midnight = _NOW - timedelta(days=20)

    def sums(words: str, question: UsageQuery) -> Asked:
        return Asked(words, lambda reader: reader.sums(question), sums_query(question))

    def first_tokens(words: str, question: UsageQuery) -> Asked:
        query = first_token_query(question)
        return Asked(words, lambda reader: reader.first_tokens(question, PERCENTILES), query)

    def records(words: str, filter: RecordFilter) -> Asked:
        return Asked(words, lambda reader: reader.records(filter), records_query(filter))

    return [
        sums("usage of a project, 30 days by model", month),
        sums("usage of a project, 3 days by hour and key", hours),
        sums("usage of the service, 90 days by model", everybody),
        first_tokens("first-token percentiles of a project, 30 days by model", models),
        first_tokens("first-token percentiles of a project, 30 days by key", keys),
        first_tokens("first-token percentiles of a project, 30 days by day", over_time),
        first_tokens("first-token percentiles of the service, 7 days by user", users),
        records("activity of a project, newest 100", newest),
        records("activity of a project, failures only, 90 days", failed),
        records("activity of one key, 90 days", of_key),
        records("activity of the service, newest 100", all_over),
        records("a request by its id", one),
        records("a request id that nobody has", none),
        Asked(
            "when each key was last used",
            lambda reader: reader.last_used("prj_7"),
            last_used_query("prj_7"),
        ),
        Asked(
            "what a budget's key has spent this month",
            lambda reader: reader.spent("key:ck_7", "", midnight),
            spent_query("key:ck_7", "", midnight),
        ),
    ]


async def _asked(file: Path) -> None:
    database = Database(f"sqlite:///{file}")
    reader = SqlUsageReader(database)
    [known] = await reader.records(RecordFilter(_SINCE, _NOW, limit=1))
    print("| question | ms | how |\n|---|---|---|")
    for each in _questions(known.request_id):
        await each.ask(reader)
        times = []
        for _ in range(5):
            started = time.perf_counter()
            await each.ask(reader)
            times.append((time.perf_counter() - started) * 1000)
        print(f"| {each.words} | {median(times):.1f} | {_plan(file, each.query)} |", flush=True)
    await database.close()


def _plan(file: Path, query: Select[Any]) -> str:
    compiled = query.compile(dialect=sqlite.dialect(paramstyle="named"))
    with sqlite3.connect(file) as connection:
        rows = connection.execute(
            f"EXPLAIN QUERY PLAN {compiled}", {k: str(v) for k, v in compiled.params.items()}
        )
        return "; ".join(row[3] for row in rows)


if __name__ == "__main__":
    main()
