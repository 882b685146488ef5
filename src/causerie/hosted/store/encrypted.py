"""Encrypted columns: credentials, contents of requests, and re-encryption with a new key."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

from sqlalchemy import BigInteger, RowMapping, Select, Update, bindparam, select, type_coerce
from sqlalchemy.ext.asyncio import AsyncConnection

from causerie.errors import NotFound
from causerie.hosted.accounts.encryption import Cipher, WrongKey
from causerie.hosted.accounts.records import Recording, StoredEntry
from causerie.hosted.store.database import Database
from causerie.hosted.store.repository import SqlRepository, row_of
from causerie.hosted.store.tables import configuration_entries as table
from causerie.hosted.store.tables import projects, recordings, totp


def entry_purpose(id: str) -> str:
    return f"configuration:{id}"


def totp_purpose(user_id: str) -> str:
    return f"totp:{user_id}"


class SqlEntries(SqlRepository):
    """Entries of the configuration, with their credentials."""

    async def every(self) -> Sequence[StoredEntry]:
        """Return all entries, oldest first."""
        query = select(table).order_by(table.c.created_at, table.c.id)
        return await self._read_all(query, self._build_entry_with_decrypted_credential)

    async def add(self, entries: Sequence[StoredEntry]) -> None:
        """Insert entries; raise :class:`Taken` if one with the same kind and name exists."""
        await self._insert_rows(table, [self._row_with_sealed_credential(each) for each in entries])

    async def change(self, entries: Sequence[StoredEntry]) -> bool:
        """Update entries; return false and change none unless each stored version is one lower."""
        if not entries:
            return True
        query = select(table.c.id, table.c.version).order_by(table.c.id).with_for_update()
        if len(entries) == 1:
            query = query.where(table.c.id == entries[0].id)
        found = await self._execute(query)
        versions = {row.id: row.version for row in found}
        if any(versions.get(each.id) != each.version - 1 for each in entries):
            return False
        rows = [self._row_with_sealed_credential(each) | {"changed": each.id} for each in entries]
        unreadable = [row for row, each in zip(rows, entries, strict=True) if each.unreadable]
        for row in unreadable:
            del row["credential"]  # stays as it is, for the key may come back
        statement = table.update().where(table.c.id == bindparam("changed"))
        for each in ([row for row in rows if "credential" in row], unreadable):
            if each:
                await self._execute(statement, each)
        return True

    async def remove(self, id: str) -> bool:
        return await self._delete_matching(table, id=id)

    def _row_with_sealed_credential(self, entry: StoredEntry) -> dict[str, Any]:
        values = row_of(table, entry)
        if entry.credential is not None:
            values["credential"] = self.cipher.seal(entry.credential, entry_purpose(entry.id))
        return values

    def _build_entry_with_decrypted_credential(self, row: RowMapping) -> StoredEntry:
        values = dict(row)
        sealed = values.pop("credential")
        try:
            credential = self.cipher.open(sealed, entry_purpose(row["id"])) if sealed else None
        except WrongKey:
            return StoredEntry(**values, unreadable=True)
        return StoredEntry(**values, credential=credential)


_MICROSECOND = timedelta(microseconds=1)


class SqlRecordings(SqlRepository):
    """Recorded contents of requests of the projects that keep them, until they expire."""

    async def put(self, kept: Sequence[Recording]) -> None:
        names = sorted({each.project_id for each in kept})
        query = (
            select(projects.c.id, projects.c.recording_days)
            .where(projects.c.id.in_(names), projects.c.recording_days.is_not(None))
            .order_by(projects.c.id)
            .with_for_update(read=True)
        )
        days = {row.id: row.recording_days for row in await self._execute(query)}
        wanted = [each for each in kept if each.project_id in days]
        if wanted:
            rows = await asyncio.to_thread(self._encrypt_recordings, wanted, days)
            await self._execute(recordings.insert(), rows)

    async def find(self, id: str) -> Recording | None:
        """Return an unexpired recording; raise :class:`NotFound` for one that no key decrypts."""
        row = await self._read_first_row(
            self._only_unexpired(select(recordings)).where(recordings.c.id == id)
        )
        if row is None:
            return None
        try:
            return await asyncio.to_thread(self._decrypt_recording, row)
        except WrongKey as failure:
            raise NotFound(
                "What was said cannot be read: it was encrypted with a key that is not in "
                "`store.secret_keys` any more.",
                code="not_found",
            ) from failure

    async def several(self, project_id: str, ids: Sequence[str]) -> Sequence[Recording]:
        """Return a project's recordings with these ids, but not expired or undecryptable ones."""
        query = self._only_unexpired(select(recordings), project_id).where(recordings.c.id.in_(ids))
        rows = (await self._execute(query)).mappings().all()
        return await asyncio.to_thread(self._decrypt_readable_recordings, rows)

    async def users(self, project_id: str, ids: Sequence[str]) -> Mapping[str, str]:
        """Return the user id of each unexpired recording among these ids, by recording id."""
        of = recordings.c
        query = self._only_unexpired(select(of.id, of.user_id), project_id).where(of.id.in_(ids))
        return {row.id: row.user_id for row in await self._execute(query)}

    async def forget(self, project_id: str) -> None:
        await self._delete_matching(recordings, project_id=project_id)

    async def shorten(self, project_id: str, kept: timedelta) -> None:
        end = type_coerce(recordings.c.at, BigInteger) + kept // _MICROSECOND
        await self._execute(
            recordings.update()
            .where(
                recordings.c.project_id == project_id,
                type_coerce(recordings.c.expires_at, BigInteger) > end,
            )
            .values(expires_at=end)
        )

    async def page(
        self, project_id: str, after: str, most: int
    ) -> tuple[Sequence[Recording], str | None]:
        """Return a page of recordings after an id, and its last id, ``None`` on the last page."""
        query = self._only_unexpired(select(recordings), project_id)
        if after:
            query = query.where(recordings.c.id > after)
        rows = (await self._execute(query.order_by(recordings.c.id).limit(most))).mappings().all()
        last = rows[-1]["id"] if len(rows) == most else None
        return await asyncio.to_thread(self._decrypt_readable_recordings, rows), last

    def _only_unexpired(self, query: Select[Any], project_id: str | None = None) -> Select[Any]:
        query = query.where(recordings.c.expires_at > self.now)
        return query.where(recordings.c.project_id == project_id) if project_id else query

    def _encrypt_recordings(
        self, new_recordings: Sequence[Recording], days_by_project: Mapping[str, int]
    ) -> list[dict[str, Any]]:
        return [
            {
                **row_of(recordings, each),
                "expires_at": each.at + timedelta(days=days_by_project[each.project_id]),
                "request": self.cipher.seal(each.request, f"request:{each.id}"),
                "reply": self.cipher.seal(each.reply, f"reply:{each.id}"),
            }
            for each in new_recordings
        ]

    def _decrypt_readable_recordings(self, rows: Sequence[RowMapping]) -> list[Recording]:
        found = []
        for row in rows:
            with suppress(WrongKey):
                found.append(self._decrypt_recording(row))
        return found

    def _decrypt_recording(self, row: RowMapping) -> Recording:
        values = {name: value for name, value in row.items() if name != "expires_at"}
        for name in ("request", "reply"):
            values[name] = self.cipher.open(row[name], f"{name}:{row['id']}")
        return Recording(**values)


async def seal_secrets(database: Database, cipher: Cipher) -> tuple[int, Sequence[str]]:
    """Re-encrypt secrets of older keys with the first key; return how many, and unreadable entries.

    The former values are overwritten in the file, so that an old key opens nothing of it. Raises
    :class:`WrongKey`, without a change, if no key opens a two-factor secret, and
    :class:`~causerie.errors.StoreUnavailable`. A credential that no key opens stays as it is; its
    entry is shown as broken, and returned as kind and name.
    """
    async with database.reading() as connection:
        stale, unopened = await _list_reencryption_updates_and_unreadable(connection, cipher)
    if not stale:
        return 0, unopened
    async with database.writing() as connection:
        if database.sqlite:
            await connection.exec_driver_sql("PRAGMA secure_delete = ON")
        stale, unopened = await _list_reencryption_updates_and_unreadable(connection, cipher)
        for statement in stale:
            await connection.execute(statement)
    if database.sqlite:
        await database.checkpoint()
    return len(stale), unopened


async def holds_secrets(database: Database) -> bool:
    """Return whether the database has encrypted secrets.

    Raises :class:`~causerie.errors.StoreUnavailable`.
    """
    credential = table.c.credential
    kept = select(credential).where(credential.is_not(None)).union_all(select(totp.c.secret))
    return bool(await database.rows(kept.limit(1)))


async def _list_reencryption_updates_and_unreadable(
    connection: AsyncConnection, cipher: Cipher
) -> tuple[Sequence[Update], Sequence[str]]:
    stale, unopened = [], []
    for owner, key, column, purpose in (
        (totp, totp.c.user_id, totp.c.secret, totp_purpose),
        (table, table.c.id, table.c.credential, entry_purpose),
    ):
        query = select(owner).where(column.is_not(None)).with_for_update()
        for row in (await connection.execute(query)).mappings():
            id = row[key]
            try:
                secret = cipher.open(row[column], purpose(id))
            except WrongKey as failure:
                if owner is totp:
                    raise WrongKey(f"two-factor authentication of {id}: {failure}") from failure
                unopened.append(f"{row['kind'].replace('_', ' ')} {row['name']}")
                continue
            if not cipher.fresh(row[column]):
                values = {column.name: cipher.seal(secret, purpose(id))}
                stale.append(owner.update().where(key == id).values(values))
    return stale, sorted(unopened)
