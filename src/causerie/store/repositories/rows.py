"""From rows to the nouns of ``accounts`` and back: columns and fields have the same names."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, CursorResult, RowMapping, Select, Table, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from causerie.accounts.ports import Taken

T = TypeVar("T")


def row_of(table: Table, noun: Any) -> dict[str, Any]:
    names = {each.name for each in fields(noun)}
    return {column.name: getattr(noun, column.name) for column in table.c if column.name in names}


def part_of(table: Table, row: RowMapping) -> dict[str, Any]:
    """Of a row that was joined, the columns of one table."""
    return {column.name: row[column.name] for column in table.c}


def one_of(table: Table, id: str, *, writing: bool) -> Select[Any]:
    """The row with this id; a writing block keeps it from others until its end.

    So nobody writes a row back as it was before somebody else has changed it.
    """
    query = select(table).where(table.c.id == id)
    return query.with_for_update(key_share=True) if writing else query


async def nouns_of(found: CursorResult[Any], noun: Callable[[RowMapping], T]) -> list[T]:
    """Return what ``noun`` makes of each row, off the event loop: there may be thousands."""
    return await asyncio.to_thread(lambda: [noun(row) for row in found.mappings()])


async def insert(connection: AsyncConnection, table: Table, noun: Any) -> None:
    """Add a row; raises :class:`Taken` where what should be unique is there already."""
    try:
        await connection.execute(table.insert().values(row_of(table, noun)))
    except IntegrityError as failure:
        raise Taken(table.name) from failure


async def update(
    connection: AsyncConnection, table: Table, where: ColumnElement[bool], noun: Any
) -> None:
    await connection.execute(table.update().where(where).values(row_of(table, noun)))


async def upsert(
    connection: AsyncConnection,
    table: Table,
    values: Mapping[str, Any],
    changed: Mapping[str, Any] | None = None,
) -> None:
    """Add a row, or change the one with its primary key, to ``values`` or as ``changed`` says."""
    make = sqlite.insert if connection.dialect.name == "sqlite" else postgresql.insert
    keys = [column.name for column in table.primary_key]
    new = changed or {name: value for name, value in values.items() if name not in keys}
    statement = make(table).values(**values)
    await connection.execute(statement.on_conflict_do_update(index_elements=keys, set_=dict(new)))
