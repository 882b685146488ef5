"""Entries of the configuration: each credential sealed for its entry."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import RowMapping, bindparam, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from causerie.accounts.encryption import Cipher, WrongKey
from causerie.accounts.entry import StoredEntry
from causerie.accounts.ports import Taken
from causerie.store.repositories.rows import nouns_of, row_of
from causerie.store.tables import configuration_entries as table


def purpose(id: str) -> str:
    """Return the purpose that a credential is sealed for."""
    return f"configuration:{id}"


@dataclass(frozen=True, slots=True)
class SqlEntries:
    """Implements :class:`~causerie.accounts.ports.EntryRepository`."""

    connection: AsyncConnection
    _cipher: Cipher

    async def every(self) -> Sequence[StoredEntry]:
        query = select(table).order_by(table.c.created_at, table.c.id)
        return await nouns_of(await self.connection.execute(query), self._entry)

    async def add(self, entries: Sequence[StoredEntry]) -> None:
        if not entries:
            return
        try:
            await self.connection.execute(table.insert(), [self._row(each) for each in entries])
        except IntegrityError as failure:
            raise Taken(table.name) from failure

    async def change(self, entries: Sequence[StoredEntry]) -> bool:
        if not entries:
            return True
        query = select(table.c.id, table.c.version).order_by(table.c.id).with_for_update()
        if len(entries) == 1:
            query = query.where(table.c.id == entries[0].id)
        found = await self.connection.execute(query)
        versions = {row.id: row.version for row in found}
        if any(versions.get(each.id) != each.version - 1 for each in entries):
            return False
        rows = [self._row(each) | {"changed": each.id} for each in entries]
        unreadable = [row for row, each in zip(rows, entries, strict=True) if each.unreadable]
        for row in unreadable:
            del row["credential"]  # stays as it is, for the key may come back
        statement = table.update().where(table.c.id == bindparam("changed"))
        for each in ([row for row in rows if "credential" in row], unreadable):
            if each:
                await self.connection.execute(statement, each)
        return True

    async def remove(self, id: str) -> bool:
        found = await self.connection.execute(table.delete().where(table.c.id == id))
        return found.rowcount == 1

    def _row(self, entry: StoredEntry) -> dict[str, Any]:
        values = row_of(table, entry)
        if entry.credential is not None:
            values["credential"] = self._cipher.seal(entry.credential, purpose(entry.id))
        return values

    def _entry(self, row: RowMapping) -> StoredEntry:
        values = dict(row)
        sealed = values.pop("credential")
        if sealed is None:
            return StoredEntry(**values)
        try:
            credential = self._cipher.open(sealed, purpose(values["id"]))
        except WrongKey:
            return StoredEntry(**values, unreadable=True)
        return StoredEntry(**values, credential=credential)
