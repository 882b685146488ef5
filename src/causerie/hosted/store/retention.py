"""Deletion of rows whose time is over, a bounded number at a time; the sums of usage stay."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import Select, Table, or_, select, tuple_

from causerie.hosted.store.database import Database
from causerie.hosted.store.tables import (
    audit,
    microseconds,
    recordings,
    target_days,
    target_quarters,
    usage_records,
)


class SqlRetention:
    """Deletes at most so many rows that are older, and returns their number."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def requests(self, before: datetime, most: int) -> int:
        of = usage_records.c
        return await self._delete(
            usage_records, select(of.id).where(of.at < microseconds(before)).limit(most)
        )

    async def audit(self, before: datetime, most: int) -> int:
        # The oldest have the lowest ids, and no index has their times.
        of = audit.c
        oldest = select(of.id, of.at).order_by(of.id).limit(most).subquery()
        return await self._delete(audit, select(oldest.c.id).where(oldest.c.at < before))

    async def contents(self, now: datetime, before: datetime | None, most: int) -> int:
        of = recordings.c
        over = of.expires_at <= now
        if before is not None:  # an id begins with the time at which it was made
            over = or_(over, of.id < _first_id(before))
        return await self._delete(recordings, select(of.id).where(over).limit(most))

    async def measurements(self, before: datetime, most: int) -> int:
        start, found = int(before.timestamp()), 0
        for table in (target_quarters, target_days):
            key = tuple_(*table.primary_key)
            over = select(*table.primary_key).where(table.c.start < start).limit(most)
            async with self._database.writing() as connection:
                found += (await connection.execute(table.delete().where(key.in_(over)))).rowcount
        return min(found, most)

    async def _delete(self, table: Table, over: Select[Any]) -> int:
        async with self._database.writing() as connection:
            return (await connection.execute(table.delete().where(table.c.id.in_(over)))).rowcount


def _first_id(at: datetime) -> str:
    text = f"{microseconds(at) // 1000:012x}"
    return f"{text[:8]}-{text[8:]}-7000-8000-000000000000"
