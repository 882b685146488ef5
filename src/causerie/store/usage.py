"""Usage into the database: the records, and in the same transaction what they add up to.

A record whose id is there already changes nothing, neither its row nor a sum.
Rows of sums are raised in one order by everybody, so that processes that write
at once wait for each other instead of locking each other out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from operator import attrgetter
from typing import Any

from msgspec import Struct, structs
from sqlalchemy import Table
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection

from causerie.accounts.prices import is_charged
from causerie.metering.ledger import UsageRecord
from causerie.store.database import Database
from causerie.store.latency import bucket_of
from causerie.store.tables import (
    usage_apps,
    usage_daily,
    usage_first_token,
    usage_hourly,
    usage_records,
)

HOUR = 3_600_000_000  # microseconds
DAY = 24 * HOUR
CLIENT_GONE = 499

_RENAMED = {"project": "project_id", "key": "key_id", "user": "user_id"}
_COLUMNS = [(_RENAMED.get(name, name), name) for name in UsageRecord.__struct_fields__]
_PLACES = {"key_id": "key", "user_id": "user", "model": "model", "door": "door"}
_APP_PLACES = {"app": "app", "model": "model"}


class _Sum(Struct):
    requests: int = 0
    refused: int = 0
    failed: int = 0
    aborted: int = 0
    prompt: int = 0
    cached: int = 0
    completion: int = 0
    reasoning: int = 0
    cost: Decimal = Decimal(0)
    first_token_us: int = 0
    first_tokens: int = 0
    duration_us: int = 0
    charged: int = 0

    def add(self, record: UsageRecord) -> None:
        """Count one more request."""
        self.requests += 1
        if record.status == CLIENT_GONE:
            self.aborted += 1
        elif record.status >= 500:
            self.failed += 1
        elif record.status >= 400:
            self.refused += 1
        self.prompt += record.prompt
        self.cached += record.cached
        self.completion += record.completion
        self.reasoning += record.reasoning
        self.cost += record.cost
        if record.first_token_us is not None:
            self.first_token_us += record.first_token_us
            self.first_tokens += 1
        self.duration_us += record.duration_us
        if is_charged(record.status, record.prompt, record.completion):
            self.charged += record.prompt + record.completion


class SqlUsage:
    """The store that the ledger writes to."""

    def __init__(self, database: Database) -> None:
        self._database = database
        insert = sqlite.insert if database.sqlite else postgresql.insert
        self._records = (
            insert(usage_records)
            .on_conflict_do_nothing(index_elements=["id"])
            .returning(usage_records.c.id)
        )
        self._sums: list[tuple[int, Mapping[str, str], Any]] = [
            (HOUR, _PLACES, _adding(insert, usage_hourly)),
            (DAY, _PLACES, _adding(insert, usage_daily)),
            (HOUR, _APP_PLACES, _adding(insert, usage_apps)),
        ]
        self._first_tokens = _adding(insert, usage_first_token)

    async def append(self, records: Sequence[UsageRecord]) -> None:
        """Keep the records that are not there yet; raises ``StoreUnavailable``."""
        unique = {record.id: record for record in records}
        rows = [
            {column: getattr(record, name) for column, name in _COLUMNS}
            for record in unique.values()
        ]
        async with self._database.writing() as connection:
            kept = (await connection.execute(self._records, rows)).scalars().all()
            await self._add_up(connection, [unique[id] for id in kept])

    async def _add_up(self, connection: AsyncConnection, records: Sequence[UsageRecord]) -> None:
        if not records:
            return
        for span, places, statement in self._sums:
            await connection.execute(statement, _by_place(records, span, places))
        if first := _by_bucket(records):
            await connection.execute(self._first_tokens, first)


def _by_place(
    records: Iterable[UsageRecord], span: int, places: Mapping[str, str]
) -> list[dict[str, Any]]:
    """One row for each project, start and what ``places`` says, by column."""
    sums: dict[tuple[str, int, tuple[str, ...]], _Sum] = {}
    rest = attrgetter(*places.values())
    for each in records:
        place = (each.project, each.at - each.at % span, rest(each))
        if (found := sums.get(place)) is None:
            found = sums[place] = _Sum()
        found.add(each)
    names = ("project_id", "start", *places)
    return [
        dict(zip(names, (project, start, *values), strict=True)) | structs.asdict(found)
        for (project, start, values), found in sorted(sums.items(), key=lambda pair: pair[0])
    ]


def _by_bucket(records: Iterable[UsageRecord]) -> list[dict[str, Any]]:
    counts: dict[tuple[str, int, str, str, str, int], int] = {}
    for each in records:
        if each.first_token_us is not None:
            start = each.at - each.at % HOUR
            bucket = bucket_of(each.first_token_us)
            place = (each.project, start, each.model, each.key, each.user, bucket)
            counts[place] = counts.get(place, 0) + 1
    names = ("project_id", "start", "model", "key_id", "user_id", "bucket", "requests")
    return [dict(zip(names, (*place, counts[place]), strict=True)) for place in sorted(counts)]


def _adding(insert: Any, table: Table) -> Any:
    """Insert a row of sums, or add it to the one that is there."""
    statement = insert(table)
    summed = [column.name for column in table.columns if not column.primary_key]
    return statement.on_conflict_do_update(
        index_elements=[column.name for column in table.primary_key],
        set_={name: table.c[name] + statement.excluded[name] for name in summed},
    )
