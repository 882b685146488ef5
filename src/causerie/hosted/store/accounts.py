"""The store of accounts: all repositories over one database transaction."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from sqlalchemy.ext.asyncio import AsyncConnection

from causerie.hosted.accounts.audit import AuditEntry
from causerie.hosted.accounts.encryption import Cipher
from causerie.hosted.accounts.ports import Transaction
from causerie.hosted.store.database import Database
from causerie.hosted.store.encrypted import SqlEntries, SqlRecordings
from causerie.hosted.store.groups import SqlGroups
from causerie.hosted.store.keys import SqlCredits, SqlKeys, SqlOperatorKeys
from causerie.hosted.store.people import SqlAudit, SqlPeople, SqlProjects
from causerie.hosted.store.sign_in import SqlAttempts, SqlFactors, SqlLinks, SqlSessions


class SqlStore:
    """Implements ``AccountStore``; two-factor authentication and credentials need a ``cipher``.

    ``on_audit`` gets each entry of the audit log once it is stored.
    """

    def __init__(self, database: Database, cipher: Cipher | None = None) -> None:
        self._database = database
        self._cipher = cipher or Cipher(())
        self.on_audit: Callable[[AuditEntry], None] | None = None

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[Transaction]:
        async with self._database.reading() as connection:
            yield self._transaction(connection, [], writing=False)

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[Transaction]:
        added: list[AuditEntry] = []
        async with self._database.writing() as connection:
            yield self._transaction(connection, added, writing=True)
        if self.on_audit is not None:
            for entry in added:
                self.on_audit(entry)

    def _transaction(
        self, connection: AsyncConnection, added: list[AuditEntry], *, writing: bool
    ) -> Transaction:
        parts = connection, self._cipher, writing
        return Transaction(
            people=SqlPeople(*parts),
            projects=SqlProjects(*parts),
            groups=SqlGroups(*parts),
            links=SqlLinks(*parts),
            sessions=SqlSessions(*parts),
            factors=SqlFactors(*parts),
            attempts=SqlAttempts(*parts),
            keys=SqlKeys(*parts),
            operator_keys=SqlOperatorKeys(*parts),
            audit=SqlAudit(*parts, added),
            credits=SqlCredits(*parts),
            recordings=SqlRecordings(*parts),
            entries=SqlEntries(*parts),
        )
