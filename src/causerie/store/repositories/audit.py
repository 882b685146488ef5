"""The audit log, which only grows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from causerie.accounts.audit import AuditEntry, AuditFilter
from causerie.store.repositories.rows import nouns_of, row_of
from causerie.store.tables import audit


@dataclass(frozen=True, slots=True)
class SqlAudit:
    """Entries, added and read."""

    connection: AsyncConnection

    async def add(self, entry: AuditEntry) -> None:
        """One more; the database numbers it."""
        values = row_of(audit, entry)
        del values["id"]
        await self.connection.execute(audit.insert().values(values))

    async def find(self, filter: AuditFilter) -> Sequence[AuditEntry]:
        """Newest first."""
        query = select(audit).order_by(audit.c.id.desc()).limit(filter.count)
        for name in ("project_id", "actor", "action", "subject"):
            wanted = getattr(filter, name)
            if wanted is not None:
                query = query.where(audit.c[name] == wanted)
        if filter.before is not None:
            query = query.where(audit.c.id < filter.before)
        return await nouns_of(await self.connection.execute(query), lambda row: AuditEntry(**row))
