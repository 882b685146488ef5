"""Measurements of targets, which all processes add to."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from sqlalchemy import Table, select

from causerie.hosted.store.database import Database
from causerie.hosted.store.tables import target_days, target_quarters
from causerie.hosted.store.usage import adding
from causerie.protocol.targets import DAY_SECONDS
from causerie.routing.measurements import Row, Sums

MEASURED: tuple[Table, ...] = (target_quarters, target_days)
_NAMES = [column.name for column in target_quarters.c]


class SqlMeasurements:
    """Implements :class:`MeasurementStore`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, quarters: Sequence[Row]) -> None:
        sums: dict[tuple[str, int], Sums] = {}
        for target, start, each in quarters:
            day = target, start - start % DAY_SECONDS
            sums[day] = sums.get(day, Sums()).plus(each)
        days = [(*day, each) for day, each in sums.items()]
        async with self._database.writing() as connection:
            for table, rows in zip(MEASURED, (quarters, days), strict=True):
                # In the same order by everybody, so that processes wait instead of deadlocking.
                values = [
                    dict(zip(_NAMES, (target, start, *each), strict=True))
                    for target, start, each in sorted(rows)
                ]
                await connection.execute(adding(self._database, table), values)

    async def quarters(self, since: int) -> Sequence[Row]:
        return await self._rows_since(target_quarters, since)

    async def days(self, since: int) -> Sequence[Row]:
        return await self._rows_since(target_days, since)

    async def _rows_since(self, table: Table, start: int) -> Sequence[Row]:
        rows = await self._database.rows(select(table).where(table.c.start >= start))
        return await asyncio.to_thread(  # they may be many
            lambda: [
                (row["target"], row["start"], Sums(*(row[name] for name in Sums._fields)))
                for row in rows
            ]
        )
