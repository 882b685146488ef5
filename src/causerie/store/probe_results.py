"""Results of probes in the database, so that all processes of a service show the same."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import select

from causerie.store.database import Database
from causerie.store.repositories.rows import upsert
from causerie.store.tables import probe_results


class SqlProbeResults:
    """Implements :class:`ResultStore` in a database, each result as the text that it was given."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def of(self, provider: str) -> Mapping[str, str]:
        table = probe_results
        query = select(table.c.model, table.c.kept).where(table.c.provider == provider)
        async with self._database.reading() as connection:
            found = await connection.execute(query)
        return {row.model: row.kept for row in found}

    async def put(self, provider: str, model: str, kept: str) -> None:
        values = {"provider": provider, "model": model, "kept": kept}
        async with self._database.writing() as connection:
            await upsert(connection, probe_results, values)
