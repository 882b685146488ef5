"""The store that ``accounts`` asks for: all books over one transaction."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from sqlalchemy.ext.asyncio import AsyncConnection

from causerie.accounts.encryption import Cipher
from causerie.store.database import Database
from causerie.store.repositories.audit import SqlAudit
from causerie.store.repositories.credits import SqlCredits
from causerie.store.repositories.entries import SqlEntries
from causerie.store.repositories.keys import SqlKeys
from causerie.store.repositories.people import SqlPeople, SqlProjects
from causerie.store.repositories.proof import SqlAttempts, SqlFactors, SqlLinks, SqlSessions
from causerie.store.repositories.recordings import SqlRecordings


@dataclass(frozen=True, slots=True)
class SqlRepositories:
    """All books of one transaction."""

    people: SqlPeople
    projects: SqlProjects
    links: SqlLinks
    sessions: SqlSessions
    factors: SqlFactors
    attempts: SqlAttempts
    keys: SqlKeys
    audit: SqlAudit
    credits: SqlCredits
    recordings: SqlRecordings
    entries: SqlEntries

    @staticmethod
    def over(connection: AsyncConnection, cipher: Cipher, *, writing: bool) -> SqlRepositories:
        """The books as this connection sees them."""
        return SqlRepositories(
            SqlPeople(connection, writing),
            SqlProjects(connection, writing),
            SqlLinks(connection),
            SqlSessions(connection),
            SqlFactors(connection, cipher),
            SqlAttempts(connection),
            SqlKeys(connection, writing),
            SqlAudit(connection),
            SqlCredits(connection),
            SqlRecordings(connection, cipher),
            SqlEntries(connection, cipher),
        )


class SqlStore:
    """The books of one database. Without a ``cipher`` two-factor authentication cannot be used."""

    def __init__(self, database: Database, cipher: Cipher | None = None) -> None:
        self._database = database
        self._cipher = cipher or Cipher(())

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[SqlRepositories]:
        """See :class:`causerie.accounts.ports.AccountStore`."""
        async with self._database.reading() as connection:
            yield SqlRepositories.over(connection, self._cipher, writing=False)

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[SqlRepositories]:
        """See :class:`causerie.accounts.ports.AccountStore`."""
        async with self._database.writing() as connection:
            yield SqlRepositories.over(connection, self._cipher, writing=True)
