"""The base classes of database repositories, and conversions between records and rows.

Columns and fields have the same names.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, ClassVar, Generic, TypeVar

from sqlalchemy import (
    ColumnElement,
    CursorResult,
    Executable,
    RowMapping,
    Select,
    Table,
    func,
    select,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from causerie.hosted.accounts.encryption import Cipher
from causerie.hosted.accounts.records import Taken

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SqlRepository:
    """A repository in one transaction, all of which happens at the time ``now``.

    If it is ``writing``, rows that are found are locked.
    """

    connection: AsyncConnection
    cipher: Cipher
    now: datetime
    writing: bool

    async def _execute(
        self, statement_in_transaction: Executable, rows: Sequence[Mapping[str, Any]] | None = None
    ) -> CursorResult[*tuple[Any, ...]]:
        return await self.connection.execute(statement_in_transaction, rows)

    async def _read_first_row(self, query: Executable) -> RowMapping | None:
        row: RowMapping | None = (await self._execute(query)).mappings().first()
        return row

    async def _find_one(self, query: Executable, build: Callable[[RowMapping], T]) -> T | None:
        row = await self._read_first_row(query)
        return build(row) if row else None

    async def _changes_one_row(self, statement: Executable) -> bool:
        return (await self._execute(statement)).rowcount == 1

    async def _delete_matching(self, table: Table, **values: Any) -> bool:
        return (await self._execute(table.delete().where(*equal(table, **values)))).rowcount > 0

    async def _scalar(self, query: Executable) -> Any:
        return await self.connection.scalar(query)

    def _build_locking_select_by_id(self, table: Table, row_id: str) -> Select[Any]:
        query = select(table).where(table.c.id == row_id)
        return query.with_for_update(key_share=True) if self.writing else query

    async def _read_all(self, query: Select[Any], build: Callable[[RowMapping], T]) -> list[T]:
        # In a thread, because there may be thousands of rows.
        found = await self._execute(query)
        return await asyncio.to_thread(lambda: [build(row) for row in found.mappings()])

    async def _insert(self, table: Table, record: Any) -> None:
        await self._insert_rows(table, [row_of(table, record)])

    async def _insert_rows(self, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
        try:
            if rows:
                await self._execute(table.insert(), rows)
        except IntegrityError as failure:
            raise Taken(table.name) from failure

    async def _overwrite_row_of(self, table: Table, record: Any) -> None:
        await self._execute(
            table.update().where(table.c.id == record.id).values(row_of(table, record))
        )


class SqlRows(SqlRepository, Generic[T]):
    """A repository of one table, whose rows are read and written as records."""

    table: ClassVar[Table]
    kind: ClassVar[Callable[..., Any]]

    async def add(self, value: T, /) -> None:
        """Insert a record as a row; raise :class:`Taken` for a unique value that exists."""
        await self._insert(self.table, value)

    async def change(self, value: T, /) -> None:
        await self._overwrite_row_of(self.table, value)

    async def find(self, id: str) -> T | None:
        return await self._read_record(self._build_locking_select_by_id(self.table, id))

    async def one(self, **values: Any) -> T | None:
        """Return the record whose columns have these values or ``None``, without a lock."""
        return await self._read_record(select(self.table).where(*equal(self.table, **values)))

    async def remove(self, **values: Any) -> bool:
        """Delete the rows with these values of their columns; return whether there were any."""
        return await self._delete_matching(self.table, **values)

    async def _read_record(self, query: Executable) -> T | None:
        return await self._find_one(query, self._build_record)

    async def _read_records(self, query: Select[Any]) -> list[T]:
        return await self._read_all(query, self._build_record)

    async def _count_and_read_page(
        self, query: Select[Any], start: int, count: int
    ) -> tuple[int, list[T]]:
        total = await self._scalar(select(func.count()).select_from(query.subquery()))
        page = query.order_by(self.table.c.created_at, self.table.c.id).offset(start).limit(count)
        return total, await self._read_records(page)

    def _build_record(self, row: RowMapping) -> T:
        made: T = self.kind(**row)
        return made


def equal(table: Table, **values: Any) -> list[ColumnElement[bool]]:
    """Return one condition for each given column, that it equals its value."""
    return [table.c[name] == value for name, value in values.items()]


def row_of(table: Table, value: Any) -> dict[str, Any]:
    names = {each.name for each in fields(value)}
    return {column.name: getattr(value, column.name) for column in table.c if column.name in names}


def part_of(table: Table, row: RowMapping) -> dict[str, Any]:
    return {column.name: row[column.name] for column in table.c}


async def upsert(
    connection: AsyncConnection,
    table: Table,
    values: Mapping[str, Any],
    changed: Mapping[str, Any] | None = None,
    where: ColumnElement[bool] | None = None,
) -> bool:
    """Insert a row, or set ``changed`` (default: ``values``) in the one with its primary key.

    With ``where``, only one that fits is changed. Returns whether a row was written.
    """
    insert = sqlite.insert if connection.dialect.name == "sqlite" else postgresql.insert
    keys = [column.name for column in table.primary_key]
    new = changed or {name: value for name, value in values.items() if name not in keys}
    statement = insert(table).values(**values)
    statement = statement.on_conflict_do_update(index_elements=keys, set_=dict(new), where=where)
    found = await connection.execute(statement.returning(*table.primary_key))
    return found.first() is not None
