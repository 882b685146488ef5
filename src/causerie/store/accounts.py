"""The store that ``accounts`` asks for: all books over one transaction."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from sqlalchemy.ext.asyncio import AsyncConnection

from causerie.accounts.seal import Seal
from causerie.store.books.audit import SqlAudit
from causerie.store.books.credits import SqlCredits
from causerie.store.books.keys import SqlKeys
from causerie.store.books.people import SqlPeople, SqlProjects
from causerie.store.books.proof import SqlAttempts, SqlFactors, SqlLinks, SqlSessions
from causerie.store.books.recordings import SqlRecordings
from causerie.store.database import Database


@dataclass(frozen=True, slots=True)
class SqlBooks:
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

    @staticmethod
    def over(connection: AsyncConnection, seal: Seal, *, writing: bool) -> SqlBooks:
        """The books as this connection sees them."""
        return SqlBooks(
            SqlPeople(connection, writing),
            SqlProjects(connection, writing),
            SqlLinks(connection),
            SqlSessions(connection),
            SqlFactors(connection, seal),
            SqlAttempts(connection),
            SqlKeys(connection, writing),
            SqlAudit(connection),
            SqlCredits(connection),
            SqlRecordings(connection, seal),
        )


class SqlStore:
    """The books of one database. Without a ``seal`` second factors cannot be used."""

    def __init__(self, database: Database, seal: Seal | None = None) -> None:
        self._database = database
        self._seal = seal or Seal(())

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[SqlBooks]:
        """See :class:`causerie.accounts.ports.Store`."""
        async with self._database.reading() as connection:
            yield SqlBooks.over(connection, self._seal, writing=False)

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[SqlBooks]:
        """See :class:`causerie.accounts.ports.Store`."""
        async with self._database.writing() as connection:
            yield SqlBooks.over(connection, self._seal, writing=True)
