"""Alerts, deliveries, probe results and target measurements, and the deletion of old rows."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from msgspec import Struct
from sqlalchemy import Select, Table, func, or_, select, tuple_
from sqlalchemy.ext.asyncio import AsyncConnection

from causerie.hosted.store.database import Database
from causerie.hosted.store.repository import row_of, upsert
from causerie.hosted.store.tables import (
    alert_deliveries,
    alerts,
    audit,
    microseconds,
    probe_results,
    recordings,
    target_days,
    target_quarters,
    usage_records,
)
from causerie.hosted.store.usage import adding
from causerie.observe.alerts import AlertKind, Condition, Delivery, DeliveryState, StoredAlert
from causerie.protocol.targets import DAY_SECONDS
from causerie.routing.measurements import Row, Sums


class SqlAlertBook(Struct, frozen=True):
    """Implements :class:`AlertBook`; of racing processes, the one whose update comes first wins."""

    _database: Database

    async def alerts(self) -> Sequence[StoredAlert]:
        query = select(alerts).where(alerts.c.kind.in_(AlertKind))
        query = query.order_by(alerts.c.since.desc(), alerts.c.key)
        return [StoredAlert(**row) for row in await self._database.rows(query)]

    async def fire(
        self,
        condition: Condition,
        deliveries: Sequence[Delivery],
        now: datetime,
        quiet_since: datetime,
    ) -> bool:
        values = row_of(alerts, StoredAlert.fired(condition, now))
        over = alerts.c.resolved_at
        where = (alerts.c.level < condition.level) & or_(over.is_(None), over <= quiet_since)
        async with self._database.writing() as connection:
            first = await upsert(connection, alerts, values, where=where)
            if first:
                await _insert_deliveries(connection, deliveries)
        return first

    async def seen(self, keys: Sequence[str], now: datetime) -> None:
        if keys:
            seen = alerts.update().where(alerts.c.key.in_(keys))
            await self._database.write(seen.values(seen_at=now))

    async def resolve(
        self, key: str, deliveries: Sequence[Delivery], now: datetime, unseen_since: datetime
    ) -> bool:
        where = (alerts.c.key == key) & (alerts.c.level > 0) & (alerts.c.seen_at <= unseen_since)
        statement = alerts.update().where(where).values(level=0, resolved_at=now)
        async with self._database.writing() as connection:
            first = (await connection.execute(statement)).rowcount == 1
            if first:
                await _insert_deliveries(connection, deliveries)
        return first

    async def sent(self, since: datetime) -> Mapping[tuple[str, str], int]:
        table = alert_deliveries
        query = (
            select(table.c.channel, table.c.to, func.count().label("count"))
            .where(table.c.at >= since, table.c.state != DeliveryState.DROPPED)
            .group_by(table.c.channel, table.c.to)
        )
        found = await self._database.rows(query)
        return {(row["channel"], row["to"]): row["count"] for row in found}

    async def claim(self, now: datetime, until: datetime, most: int) -> Sequence[Delivery]:
        table = alert_deliveries
        query = _select_known_kind_deliveries().where(table.c.next_at <= now)
        query = query.order_by(table.c.next_at).limit(most)
        due = [Delivery(**row) for row in await self._database.rows(query)]
        if not due:
            return ()
        taken = []
        async with self._database.writing() as connection:
            for each in due:
                mine = replace(each, next_at=until, attempts=each.attempts + 1)
                where = (table.c.id == each.id) & (table.c.next_at == each.next_at)
                values = {"next_at": mine.next_at, "attempts": mine.attempts}
                done = await connection.execute(table.update().where(where).values(values))
                if done.rowcount == 1:
                    taken.append(mine)
        return taken

    async def settle(self, delivery: Delivery) -> None:
        async with self._database.writing() as connection:
            await upsert(connection, alert_deliveries, row_of(alert_deliveries, delivery))

    async def deliveries(self, most: int) -> Sequence[Delivery]:
        table = alert_deliveries
        query = _select_known_kind_deliveries().order_by(table.c.at.desc(), table.c.id).limit(most)
        return [Delivery(**row) for row in await self._database.rows(query)]

    async def forget(self, before: datetime) -> None:
        table = alert_deliveries
        async with self._database.writing() as connection:
            await connection.execute(alerts.delete().where(alerts.c.seen_at < before))
            await connection.execute(
                table.delete().where(table.c.at < before, table.c.next_at.is_(None))
            )


def _select_known_kind_deliveries() -> Select[Any]:
    # A newer version has other kinds and states.
    columns = alert_deliveries.c
    known = columns.kind.in_(AlertKind) & columns.state.in_(DeliveryState)
    return select(alert_deliveries).where(known)


async def _insert_deliveries(connection: AsyncConnection, deliveries: Sequence[Delivery]) -> None:
    if deliveries:
        rows = [row_of(alert_deliveries, each) for each in deliveries]
        await connection.execute(alert_deliveries.insert(), rows)


class SqlProbeResults(Struct, frozen=True):
    """Implements :class:`ResultStore` in the database."""

    _database: Database

    async def of(self, provider: str) -> Mapping[str, str]:
        table = probe_results
        query = select(table.c.model, table.c.kept).where(table.c.provider == provider)
        return {row["model"]: row["kept"] for row in await self._database.rows(query)}

    async def put(self, provider: str, model: str, kept: str) -> None:
        values = {"provider": provider, "model": model, "kept": kept}
        async with self._database.writing() as connection:
            await upsert(connection, probe_results, values)


MEASURED: tuple[Table, ...] = (target_quarters, target_days)
_NAMES = [column.name for column in target_quarters.c]


class SqlMeasurements(Struct, frozen=True):
    """Implements :class:`MeasurementStore` in the database."""

    _database: Database

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
        return await self._read_rows_since(target_quarters, since)

    async def days(self, since: int) -> Sequence[Row]:
        return await self._read_rows_since(target_days, since)

    async def _read_rows_since(self, table: Table, start: int) -> Sequence[Row]:
        rows = await self._database.rows(select(table).where(table.c.start >= start))
        return await asyncio.to_thread(  # they may be many
            lambda: [
                (row["target"], row["start"], Sums(*(row[name] for name in Sums._fields)))
                for row in rows
            ]
        )


class SqlRetention(Struct, frozen=True):
    """Each method deletes at most ``most`` rows that are too old, and returns their number."""

    _database: Database

    async def requests(self, before: datetime, most: int) -> int:
        over = usage_records.c.at < microseconds(before)
        return await self._delete(usage_records, select(usage_records.c.id).where(over).limit(most))

    async def audit(self, before: datetime, most: int) -> int:
        # The oldest have the lowest ids, and no index has their times.
        of = audit.c
        oldest = select(of.id, of.at).order_by(of.id).limit(most).subquery()
        return await self._delete(audit, select(oldest.c.id).where(oldest.c.at < before))

    async def contents(self, now: datetime, before: datetime | None, most: int) -> int:
        of = recordings.c
        over = of.expires_at <= now
        if before is not None:  # an id begins with the time at which it was made
            time = f"{microseconds(before) // 1000:012x}"
            over = or_(over, of.id < f"{time[:8]}-{time[8:]}-7000-8000-000000000000")
        return await self._delete(recordings, select(of.id).where(over).limit(most))

    async def measurements(self, before: datetime, most: int) -> int:
        start, found = int(before.timestamp()), 0
        for table in (target_quarters, target_days):
            key = tuple_(*table.primary_key)
            over = select(*table.primary_key).where(table.c.start < start).limit(most)
            found += await self._database.write(table.delete().where(key.in_(over)))
        return min(found, most)

    async def _delete(self, table: Table, id_query: Select[Any]) -> int:
        return await self._database.write(table.delete().where(table.c.id.in_(id_query)))
