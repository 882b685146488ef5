"""Seals what is not sealed with the first key yet: after an update, or after a key was added.

Runs when the service starts. The former values are overwritten in the file, not only marked as
free.
"""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from causerie.accounts.encryption import Cipher, WrongKey, is_sealed
from causerie.store.database import Database
from causerie.store.tables import totp


async def seal_secrets(database: Database, cipher: Cipher) -> int:
    """Return the number of secrets that were sealed anew.

    Raises :class:`WrongKey` if no key opens one of them; nothing has changed then. Also raises
    :class:`~causerie.errors.StoreUnavailable`.
    """
    async with database.reading() as connection:
        if not await _stale(connection, cipher):
            return 0
    async with database.writing() as connection:
        if database.sqlite:
            await connection.exec_driver_sql("PRAGMA secure_delete = ON")
        stale = await _stale(connection, cipher)
        for user_id, secret in stale:
            await connection.execute(
                totp.update()
                .where(totp.c.user_id == user_id)
                .values(secret=cipher.seal(secret, purpose(user_id)))
            )
    if database.sqlite:
        await database.checkpoint()
    return len(stale)


def purpose(user_id: str) -> str:
    """Return the purpose that a two-factor secret is sealed for."""
    return f"totp:{user_id}"


async def _stale(connection: AsyncConnection, cipher: Cipher) -> list[tuple[str, str]]:
    """Users and their secrets, where those are sealed with an older key or not at all."""
    found = await connection.execute(select(totp.c.user_id, totp.c.secret).with_for_update())
    stale = []
    for user_id, kept in found:
        if not is_sealed(kept):
            stale.append((user_id, kept))
            continue
        try:
            secret = cipher.open(kept, purpose(user_id))
        except WrongKey as failure:
            raise WrongKey(f"two-factor authentication of {user_id}: {failure}") from failure
        if not cipher.fresh(kept):
            stale.append((user_id, secret))
    return stale
