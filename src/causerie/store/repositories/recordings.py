"""Contents of requests, of projects that keep them: each sealed for its record, with an expiry."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import BigInteger, RowMapping, select, type_coerce
from sqlalchemy.ext.asyncio import AsyncConnection

from causerie.accounts.encryption import Cipher, WrongKey
from causerie.accounts.recording import Recording
from causerie.errors import NotFound
from causerie.store.repositories.rows import row_of
from causerie.store.tables import projects, recordings

_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class SqlRecordings:
    """Implements :class:`~causerie.accounts.ports.RecordingRepository`."""

    connection: AsyncConnection
    _cipher: Cipher

    async def put(self, kept: Sequence[Recording]) -> None:
        names = sorted({each.project_id for each in kept})
        query = (
            select(projects.c.id, projects.c.recording_days)
            .where(projects.c.id.in_(names), projects.c.recording_days.is_not(None))
            .order_by(projects.c.id)
            .with_for_update(read=True)
        )
        days = {row.id: row.recording_days for row in await self.connection.execute(query)}
        wanted = [each for each in kept if each.project_id in days]
        if wanted:
            rows = await asyncio.to_thread(self._rows, wanted, days)
            await self.connection.execute(recordings.insert(), rows)

    async def find(self, id: str, now: datetime) -> Recording | None:
        query = select(recordings).where(recordings.c.id == id, recordings.c.expires_at > now)
        row = (await self.connection.execute(query)).mappings().first()
        if row is None:
            return None
        try:
            return await asyncio.to_thread(self._opened, _sealed(row))
        except WrongKey as failure:
            raise NotFound(
                "What was said cannot be read: it was encrypted with a key that is not in "
                "`store.secret_keys` any more.",
                code="not_found",
            ) from failure

    async def several(
        self, project_id: str, ids: Sequence[str], now: datetime
    ) -> Sequence[Recording]:
        query = select(recordings).where(
            recordings.c.id.in_(ids),
            recordings.c.project_id == project_id,
            recordings.c.expires_at > now,
        )
        rows = (await self.connection.execute(query)).mappings().all()
        return await asyncio.to_thread(self._readable, rows)

    async def users(self, project_id: str, ids: Sequence[str], now: datetime) -> Mapping[str, str]:
        query = select(recordings.c.id, recordings.c.user_id).where(
            recordings.c.id.in_(ids),
            recordings.c.project_id == project_id,
            recordings.c.expires_at > now,
        )
        return {row.id: row.user_id for row in await self.connection.execute(query)}

    async def forget(self, project_id: str) -> None:
        await self.connection.execute(
            recordings.delete().where(recordings.c.project_id == project_id)
        )

    async def shorten(self, project_id: str, kept: timedelta) -> None:
        end = type_coerce(recordings.c.at, BigInteger) + kept // _MICROSECOND
        await self.connection.execute(
            recordings.update()
            .where(
                recordings.c.project_id == project_id,
                type_coerce(recordings.c.expires_at, BigInteger) > end,
            )
            .values(expires_at=end)
        )

    async def expire(self, now: datetime, most: int) -> int:
        over = select(recordings.c.id).where(recordings.c.expires_at <= now).limit(most)
        done = await self.connection.execute(recordings.delete().where(recordings.c.id.in_(over)))
        return done.rowcount

    def _rows(self, kept: Sequence[Recording], days: Mapping[str, int]) -> list[dict[str, Any]]:
        return [
            {
                **row_of(recordings, each),
                "expires_at": each.at + timedelta(days=days[each.project_id]),
                "request": self._cipher.seal(each.request, f"request:{each.id}"),
                "reply": self._cipher.seal(each.reply, f"reply:{each.id}"),
            }
            for each in kept
        ]

    def _readable(self, rows: Sequence[RowMapping]) -> list[Recording]:
        found = []
        for row in rows:
            with suppress(WrongKey):
                found.append(self._opened(_sealed(row)))
        return found

    def _opened(self, sealed: Recording) -> Recording:
        return replace(
            sealed,
            request=self._cipher.open(sealed.request, f"request:{sealed.id}"),
            reply=self._cipher.open(sealed.reply, f"reply:{sealed.id}"),
        )


def _sealed(row: RowMapping) -> Recording:
    return Recording(**{name: value for name, value in row.items() if name != "expires_at"})
