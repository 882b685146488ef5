"""Credits, which are only added to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from causerie.accounts.credit import Credit
from causerie.store.repositories.rows import insert, nouns_of
from causerie.store.tables import credits


@dataclass(frozen=True, slots=True)
class SqlCredits:
    """Implements :class:`~causerie.accounts.ports.CreditRepository`."""

    connection: AsyncConnection

    async def add(self, credit: Credit) -> None:
        await insert(self.connection, credits, credit)

    async def of(self, project_id: str) -> Sequence[Credit]:
        query = (
            select(credits)
            .where(credits.c.project_id == project_id)
            .order_by(credits.c.at.desc(), credits.c.id)
        )
        return await nouns_of(await self.connection.execute(query), lambda row: Credit(**row))

    async def total(self, project_id: str) -> Decimal | None:
        query = select(func.sum(credits.c.amount)).where(credits.c.project_id == project_id)
        total: Decimal | None = await self.connection.scalar(query)
        return total
