"""Measurements of targets, which all processes add to."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from operator import itemgetter

from sqlalchemy import Table, select

from causerie.hosted.store.database import Database
from causerie.hosted.store.tables import target_days, target_quarters
from causerie.hosted.store.usage import adding
from causerie.protocol.targets import DAY_SECONDS, TimeBucket
from causerie.routing.measurements import QuarterSums, Rows


class SqlMeasurements:
    """Implements :class:`MeasurementStore`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, rows: Rows) -> None:
        days: dict[tuple[str, int], QuarterSums] = {}
        for target, start, sums in rows:
            day = target, start - start % DAY_SECONDS
            days[day] = days.get(day, QuarterSums()).plus(sums)
        quarters = [((target, start), sums) for target, start, sums in rows]
        async with self._database.writing() as connection:
            for table, found in ((target_quarters, quarters), (target_days, [*days.items()])):
                names = [column.name for column in table.c]
                # In the same order by everybody, so that processes wait instead of deadlocking.
                values = [
                    dict(zip(names, (*place, *sums), strict=False))
                    for place, sums in sorted(found, key=itemgetter(0))
                ]
                await connection.execute(adding(self._database, table), values)

    async def since(self, start: int) -> Rows:
        of = target_quarters.c
        rows = await self._database.rows(select(target_quarters).where(of.start >= start))
        names = QuarterSums._fields
        return await asyncio.to_thread(
            lambda: [
                (row["target"], row["start"], QuarterSums(*(row[name] for name in names)))
                for row in rows
            ]
        )

    async def days(self, since: int) -> Mapping[str, Sequence[TimeBucket]]:
        of = target_days.c
        query = select(target_days).where(of.start >= since).order_by(of.target, of.start)
        rows = await self._database.rows(query)

        def by_target() -> Mapping[str, Sequence[TimeBucket]]:
            found: dict[str, list[TimeBucket]] = {}
            for row in rows:
                bucket = TimeBucket(row["start"], row["answered"], row["failed"], None, None)
                found.setdefault(row["target"], []).append(bucket)
            return found

        return await asyncio.to_thread(by_target)


KEPT: tuple[Table, ...] = (target_quarters, target_days)
