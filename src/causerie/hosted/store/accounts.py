"""The store that ``accounts`` asks for: all books over one transaction."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from sqlalchemy.ext.asyncio import AsyncConnection

from causerie.hosted.accounts.encryption import Cipher
from causerie.hosted.store.database import Database
from causerie.hosted.store.encrypted import SqlEntries, SqlRecordings
from causerie.hosted.store.keys import SqlCredits, SqlKeys
from causerie.hosted.store.people import SqlAudit, SqlPeople, SqlProjects
from causerie.hosted.store.sign_in import SqlAttempts, SqlFactors, SqlLinks, SqlSessions


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
        """See :class:`causerie.hosted.accounts.ports.AccountStore`."""
        async with self._database.reading() as connection:
            yield SqlRepositories.over(connection, self._cipher, writing=False)

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[SqlRepositories]:
        """See :class:`causerie.hosted.accounts.ports.AccountStore`."""
        async with self._database.writing() as connection:
            yield SqlRepositories.over(connection, self._cipher, writing=True)
