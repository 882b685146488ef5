"""The store of accounts: all repositories over one database transaction."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial

from sqlalchemy.ext.asyncio import AsyncConnection

from causerie.hosted.accounts.encryption import Cipher
from causerie.hosted.accounts.records import AuditEntry
from causerie.hosted.store.database import Database
from causerie.hosted.store.encrypted import SqlEntries, SqlRecordings
from causerie.hosted.store.keys import SqlCredits, SqlKeys, SqlOperatorKeys
from causerie.hosted.store.people import (
    SqlAttempts,
    SqlAudit,
    SqlFactors,
    SqlGroups,
    SqlLinks,
    SqlPeople,
    SqlProjects,
    SqlSessions,
)
from causerie.hosted.store.usage import SqlUsageReader

_present_time = partial(datetime.now, UTC)


class Transaction:
    """All repositories of one transaction, all of which happens at the time ``now``."""

    def __init__(
        self, connection: AsyncConnection, cipher: Cipher, now: datetime, *, writing: bool
    ) -> None:
        parts = connection, cipher, now, writing
        self.now = now
        self.people = SqlPeople(*parts)
        self.projects = SqlProjects(*parts)
        self.groups = SqlGroups(*parts)
        self.links = SqlLinks(*parts)
        self.sessions = SqlSessions(*parts)
        self.factors = SqlFactors(*parts)
        self.attempts = SqlAttempts(*parts)
        self.keys = SqlKeys(*parts)
        self.operator_keys = SqlOperatorKeys(*parts)
        self.audit = SqlAudit(*parts)
        self.credits = SqlCredits(*parts)
        self.recordings = SqlRecordings(*parts)
        self.entries = SqlEntries(*parts)


@dataclass(eq=False)
class SqlStore:
    """Begins transactions; two-factor authentication and credentials need a ``cipher``.

    Leaving a writing block without an exception commits everything; an exception rolls everything
    back. In a writing block, what ``find``, ``operators``, ``owners`` and ``identities`` read is
    locked until its end. Entering a block and every method of a repository raise
    :class:`~causerie.errors.StoreUnavailable`. ``on_audit`` gets each entry of the audit log once
    it is stored. ``clock`` returns the present time.
    """

    _database: Database
    _cipher: Cipher = field(default_factory=lambda: Cipher(()))
    clock: Callable[[], datetime] = _present_time
    on_audit: Callable[[AuditEntry], None] | None = None

    def __post_init__(self) -> None:
        self.usage = SqlUsageReader(self._database)

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[Transaction]:
        async with self._database.reading() as connection:
            yield Transaction(connection, self._cipher, self.clock(), writing=False)

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[Transaction]:
        async with self._database.writing() as connection:
            tx = Transaction(connection, self._cipher, self.clock(), writing=True)
            yield tx
        if self.on_audit is not None:
            for entry in tx.audit.added:
                self.on_audit(entry)
