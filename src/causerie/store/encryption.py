"""Encrypts secrets again with the first key, after a key was added, when the service starts.

The former values are overwritten in the file, not only marked as free, so that an old key opens
nothing of it.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Update, select
from sqlalchemy.ext.asyncio import AsyncConnection

from causerie.accounts.encryption import Cipher, WrongKey
from causerie.store.database import Database
from causerie.store.repositories.entries import purpose as purpose_of_entry
from causerie.store.tables import configuration_entries, totp


async def seal_secrets(database: Database, cipher: Cipher) -> int:
    """Encrypt with the first key what an older one encrypted; return the number of secrets.

    Raises :class:`WrongKey` if no key opens a two-factor secret; nothing has changed then. An
    entry of the configuration whose credential no key opens stays as it is, and is shown as broken.
    Also raises :class:`~causerie.errors.StoreUnavailable`.
    """
    async with database.reading() as connection:
        if not await _stale(connection, cipher):
            return 0
    async with database.writing() as connection:
        if database.sqlite:
            await connection.exec_driver_sql("PRAGMA secure_delete = ON")
        stale = await _stale(connection, cipher)
        for statement in stale:
            await connection.execute(statement)
    if database.sqlite:
        await database.checkpoint()
    return len(stale)


async def unopened_entries(database: Database, cipher: Cipher) -> Sequence[str]:
    """Return the entries whose credentials cannot be decrypted, as kind and name.

    Raises :class:`~causerie.errors.StoreUnavailable`.
    """
    table = configuration_entries
    query = select(table.c.id, table.c.kind, table.c.name, table.c.credential)
    found = []
    async with database.reading() as connection:
        rows = await connection.execute(
            query.where(table.c.credential.is_not(None)).order_by(table.c.kind, table.c.name)
        )
        for id, kind, name, kept in rows:
            try:
                cipher.open(kept, purpose_of_entry(id))
            except WrongKey:
                found.append(f"{kind.replace('_', ' ')} {name}")
    return found


async def holds_secrets(database: Database) -> bool:
    """Return true if anything in the database is encrypted.

    Raises :class:`~causerie.errors.StoreUnavailable`.
    """
    credential = configuration_entries.c.credential
    kept = select(credential).where(credential.is_not(None)).union_all(select(totp.c.secret))
    async with database.reading() as connection:
        return (await connection.execute(kept.limit(1))).first() is not None


def purpose(user_id: str) -> str:
    """Return the purpose that a two-factor secret is sealed for."""
    return f"totp:{user_id}"


async def _stale(connection: AsyncConnection, cipher: Cipher) -> Sequence[Update]:
    return [*await _factors(connection, cipher), *await _credentials(connection, cipher)]


async def _factors(connection: AsyncConnection, cipher: Cipher) -> list[Update]:
    found = await connection.execute(select(totp.c.user_id, totp.c.secret).with_for_update())
    stale = []
    for user_id, kept in found:
        try:
            secret = cipher.open(kept, purpose(user_id))
        except WrongKey as failure:
            raise WrongKey(f"two-factor authentication of {user_id}: {failure}") from failure
        if not cipher.fresh(kept):
            sealed = cipher.seal(secret, purpose(user_id))
            stale.append(totp.update().where(totp.c.user_id == user_id).values(secret=sealed))
    return stale


async def _credentials(connection: AsyncConnection, cipher: Cipher) -> list[Update]:
    table = configuration_entries
    query = select(table.c.id, table.c.credential).where(table.c.credential.is_not(None))
    stale = []
    for id, kept in await connection.execute(query.with_for_update()):
        try:
            secret = cipher.open(kept, purpose_of_entry(id))
        except WrongKey:
            continue
        if not cipher.fresh(kept):
            sealed = cipher.seal(secret, purpose_of_entry(id))
            stale.append(table.update().where(table.c.id == id).values(credential=sealed))
    return stale
