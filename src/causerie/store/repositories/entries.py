"""Entries of the configuration: each credential sealed for its entry."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import RowMapping, select
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
    """Entries, oldest first."""

    connection: AsyncConnection
    _cipher: Cipher

    async def every(self) -> Sequence[StoredEntry]:
        """All of them, with their credentials."""
        query = select(table).order_by(table.c.created_at, table.c.id)
        return await nouns_of(await self.connection.execute(query), self._entry)

    async def add(self, entry: StoredEntry) -> None:
        """Raises :class:`Taken` where there is one of this kind and name."""
        try:
            await self.connection.execute(table.insert().values(self._row(entry)))
        except IntegrityError as failure:
            raise Taken(table.name) from failure

    async def change(self, entry: StoredEntry, version: int) -> bool:
        """Change the entry of this version; false where there is another by now."""
        values = self._row(entry)
        if entry.unreadable:
            del values["credential"]  # stays as it is, for the key may come back
        where = (table.c.id == entry.id) & (table.c.version == version)
        found = await self.connection.execute(table.update().where(where).values(values))
        return found.rowcount == 1

    async def remove(self, id: str) -> bool:
        """Forget it; false where it is gone already."""
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
