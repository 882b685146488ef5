"""Seals what is not sealed with the first key yet: after an update, or after a key was added.

Runs when the service starts. The former values are overwritten in the file, not only marked as
free.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Update, select
from sqlalchemy.ext.asyncio import AsyncConnection

from causerie.accounts.encryption import Cipher, WrongKey, is_sealed
from causerie.store.database import Database
from causerie.store.repositories.entries import purpose as purpose_of_entry
from causerie.store.tables import configuration_entries, totp


async def seal_secrets(database: Database, cipher: Cipher) -> int:
    """Return the number of secrets that were sealed anew.

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
    entries = select(configuration_entries.c.credential)
    entries = entries.where(configuration_entries.c.credential.is_not(None)).limit(1)
    async with database.reading() as connection:
        if (await connection.execute(entries)).first() is not None:
            return True
        secrets = await connection.execute(select(totp.c.secret))
        return any(is_sealed(secret) for (secret,) in secrets)


def purpose(user_id: str) -> str:
    """Return the purpose that a two-factor secret is sealed for."""
    return f"totp:{user_id}"


async def _stale(connection: AsyncConnection, cipher: Cipher) -> Sequence[Update]:
    """Return what seals the secrets that are sealed with an older key, or not at all."""
    return [*await _factors(connection, cipher), *await _credentials(connection, cipher)]


async def _factors(connection: AsyncConnection, cipher: Cipher) -> list[Update]:
    found = await connection.execute(select(totp.c.user_id, totp.c.secret).with_for_update())
    stale = []
    for user_id, kept in found:
        try:
            secret = cipher.open(kept, purpose(user_id)) if is_sealed(kept) else kept
        except WrongKey as failure:
            raise WrongKey(f"two-factor authentication of {user_id}: {failure}") from failure
        if not is_sealed(kept) or not cipher.fresh(kept):
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
