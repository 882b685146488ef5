"""The audit log, which only grows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, and_, func, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from causerie.accounts.audit import CONFIGURATION, ENTRY_KINDS, AuditEntry, AuditFilter, AuditKind
from causerie.store.repositories.rows import nouns_of, row_of
from causerie.store.tables import api_keys, audit, projects, users


@dataclass(frozen=True, slots=True)
class SqlAudit:
    """Implements :class:`~causerie.accounts.ports.AuditRepository`."""

    connection: AsyncConnection

    async def add(self, entry: AuditEntry) -> None:
        await self.add_all([entry])

    async def add_all(self, entries: Sequence[AuditEntry]) -> None:
        rows = [row_of(audit, entry) for entry in entries]
        for row in rows:
            del row["id"]
        if rows:
            await self.connection.execute(audit.insert(), rows)

    async def find(self, filter: AuditFilter) -> Sequence[AuditEntry]:
        query = select(audit).order_by(audit.c.id.desc()).limit(filter.count)
        for name in ("project_id", "actor", "action", "subject"):
            wanted = getattr(filter, name)
            if wanted is not None:
                query = query.where(audit.c[name] == wanted)
        if filter.before is not None:
            query = query.where(audit.c.id < filter.before)
        if filter.kind is not None:
            query = query.where(_about(filter.kind))
        page = query.subquery()
        named = (
            select(
                page,
                func.coalesce(api_keys.c.name, users.c.name, projects.c.name).label("subject_name"),
                api_keys.c.deleted_at.is_not(None).label("subject_deleted"),
            )
            .outerjoin(api_keys, api_keys.c.id == page.c.subject)
            .outerjoin(users, users.c.id == page.c.subject)
            .outerjoin(projects, projects.c.id == page.c.subject)
            .order_by(page.c.id.desc())
        )
        return await nouns_of(await self.connection.execute(named), lambda row: AuditEntry(**row))


def _about(kind: AuditKind) -> ColumnElement[bool]:
    """Return the condition for entries about a kind of object."""
    labels = [label for label, of in ENTRY_KINDS.items() if of is kind]
    entries = [audit.c.subject.startswith(f"{label}:", autoescape=True) for label in labels]
    configured = and_(audit.c.action.startswith(CONFIGURATION), or_(False, *entries))
    return or_(audit.c.action.startswith(f"{kind}.", autoescape=True), configured)
