"""Usage into the database: the records, and in the same transaction what they add up to.

A record whose id is there already changes nothing, neither its row nor a sum; but one of a
failure takes the place of what it was before: the answer to that commit was lost, and whoever
waited for it was told so. What was only written when a request began is no such failure.
Rows of sums are raised in one order by everybody, so that processes that write
at once wait for each other instead of locking each other out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from operator import attrgetter
from typing import Any

from msgspec import Struct, structs
from sqlalchemy import Table, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection

from causerie.metering.ledger import CLIENT_GONE, INTERRUPTED, UsageRecord
from causerie.store.database import Database
from causerie.store.latency import bucket_of
from causerie.store.tables import (
    usage_apps,
    usage_daily,
    usage_first_token,
    usage_hourly,
    usage_records,
    usage_tags,
    usage_targets,
)

HOUR = 3_600_000_000  # microseconds
DAY = 24 * HOUR

_RENAMED = {"project": "project_id", "key": "key_id", "user": "user_id"}
_COLUMNS = [(_RENAMED.get(name, name), name) for name in UsageRecord.__struct_fields__]
_PLACES = {"key_id": "key", "user_id": "user", "model": "model", "door": "door"}
_APP_PLACES = {"app": "app", "model": "model"}
_TAG_PLACES = {"tag": "tag", "user_id": "user", "model": "model"}
_TARGET_PLACES = {"model": "model", "served_by": "served_by"}
_TOLD = ("status", "code", "reason", "param", "cost")  # of an answer

_UNCHOSEN = frozenset({"model_not_found", "model_not_allowed"})

_Change = tuple[UsageRecord, int]  # how many more, or fewer, of a request


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

    def add(self, record: UsageRecord, times: int) -> None:
        """Count so many more of this request, or fewer."""
        self.requests += times
        if record.status == CLIENT_GONE:
            self.aborted += times
        elif record.status >= 500:
            self.failed += times
        elif record.status >= 400:
            self.refused += times
        self.prompt += times * record.prompt
        self.cached += times * record.cached
        self.completion += times * record.completion
        self.reasoning += times * record.reasoning
        self.cost += times * record.cost
        if record.first_token_us is not None:
            self.first_token_us += times * record.first_token_us
            self.first_tokens += times
        self.duration_us += times * record.duration_us
        if record.charged:
            self.charged += times * (record.prompt + record.completion)


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
            (HOUR, _TAG_PLACES, _adding(insert, usage_tags)),
            (HOUR, _TARGET_PLACES, _adding(insert, usage_targets)),
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
            kept = set((await connection.execute(self._records, rows)).scalars())
            changes = [(unique[id], 1) for id in kept]
            failed = [one for one in unique.values() if _is_told(one) and one.id not in kept]
            if failed:
                changes += await self._corrected(connection, failed)
            await self._add_up(connection, changes)

    async def _corrected(
        self, connection: AsyncConnection, failed: Sequence[UsageRecord]
    ) -> list[_Change]:
        """Have the rows say that these have failed, which may not say so yet."""
        of = usage_records.c
        asked = select(of.id, of.status, of.code, of.cost).where(
            of.id.in_([each.id for each in failed]), of.status < 500
        )
        found = {id: was for id, *was in await connection.execute(asked)}
        changes: list[_Change] = []
        for each in failed:
            if each.id not in found:
                continue
            status, code, cost = found[each.id]
            before = structs.replace(each, status=status, code=code, cost=cost)
            changes += [(before, -1), (each, 1)]
            told = {name: getattr(each, name) for name in _TOLD}
            await connection.execute(update(usage_records).where(of.id == each.id).values(told))
        return changes

    async def _add_up(self, connection: AsyncConnection, changes: Sequence[_Change]) -> None:
        if not changes:
            return
        for span, places, statement in self._sums:
            await connection.execute(statement, _by_place(changes, span, places))
        if first := _by_bucket(changes):
            await connection.execute(self._first_tokens, first)


def _is_told(record: UsageRecord) -> bool:
    """Return true if a client was told of a failure, or would have been."""
    return record.status >= 500 and record.code != INTERRUPTED


def _by_place(
    changes: Iterable[_Change], span: int, places: Mapping[str, str]
) -> list[dict[str, Any]]:
    """One row for each project, start and what ``places`` says, by column."""
    sums: dict[tuple[str, int, tuple[str, ...]], _Sum] = {}
    rest = attrgetter(*places.values())
    for each, times in changes:
        if each.code in _UNCHOSEN:  # a client's words are no place of a sum
            each = structs.replace(each, model="")
        place = (each.project, each.at - each.at % span, rest(each))
        if (found := sums.get(place)) is None:
            found = sums[place] = _Sum()
        found.add(each, times)
    names = ("project_id", "start", *places)
    return [
        dict(zip(names, (project, start, *values), strict=True)) | structs.asdict(found)
        for (project, start, values), found in sorted(sums.items(), key=lambda pair: pair[0])
    ]


def _by_bucket(changes: Iterable[_Change]) -> list[dict[str, Any]]:
    counts: dict[tuple[str, int, str, str, str, int], int] = {}
    for each, times in changes:
        if each.first_token_us is not None:
            start = each.at - each.at % HOUR
            bucket = bucket_of(each.first_token_us)
            place = (each.project, start, each.model, each.key, each.user, bucket)
            counts[place] = counts.get(place, 0) + times
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
