"""Links, sessions, two-factor authentication, and failed attempts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime

from sqlalchemy import ColumnElement, case, func, or_, select

from causerie.errors import StoreUnavailable
from causerie.hosted.accounts.encryption import WrongKey
from causerie.hosted.accounts.keys import OneTimeLink
from causerie.hosted.accounts.passwords import Authenticator, Failures
from causerie.hosted.accounts.tokens import Session
from causerie.hosted.store.encrypted import totp_purpose
from causerie.hosted.store.repository import SqlRepository, SqlRows, upsert
from causerie.hosted.store.tables import attempts, one_time_links, recovery_codes, sessions, totp


class SqlLinks(SqlRows[OneTimeLink]):
    """One-time links; several are those that are neither used nor expired, oldest first."""

    table, kind = one_time_links, OneTimeLink

    async def by_digest(self, digest: bytes) -> OneTimeLink | None:
        return await self._row(select(one_time_links).where(one_time_links.c.digest == digest))

    async def use(self, id: str, at: datetime) -> bool:
        """Use a link up; return false if another use was first."""
        unused = one_time_links.c.id == id, one_time_links.c.used_at.is_(None)
        return await self._wrote_one(one_time_links.update().where(*unused).values(used_at=at))

    async def withdraw(self, *ids: str) -> None:
        await self._execute(one_time_links.delete().where(one_time_links.c.id.in_(ids)))

    async def open(self, project_id: str | None, now: datetime) -> Sequence[OneTimeLink]:
        return await self._open(one_time_links.c.project_id == project_id, now)

    async def derived(self, user_id: str, now: datetime) -> Sequence[OneTimeLink]:
        return await self._open(one_time_links.c.person == user_id, now)

    async def forget(self, created_by: str, email: str, before: datetime) -> None:
        """Delete unused links by this creator that are for this address or expired before."""
        old = or_(one_time_links.c.email == email, one_time_links.c.expires_at <= before)
        await self._execute(
            one_time_links.delete().where(
                one_time_links.c.created_by == created_by, one_time_links.c.used_at.is_(None), old
            )
        )

    async def resets(self, user_id: str, now: datetime) -> Sequence[OneTimeLink]:
        return await self._open(one_time_links.c.user_id == user_id, now)

    async def _open(self, where: ColumnElement[bool], now: datetime) -> Sequence[OneTimeLink]:
        query = (
            select(one_time_links)
            .where(where, one_time_links.c.used_at.is_(None), one_time_links.c.expires_at > now)
            .order_by(one_time_links.c.created_at)
        )
        return await self._rows(query)


class SqlSessions(SqlRows[Session]):
    table, kind = sessions, Session

    async def by_digest(self, digest: bytes) -> Session | None:
        return await self._row(select(sessions).where(sessions.c.digest == digest))

    async def seen(self, id: str, at: datetime) -> None:
        await self._execute(sessions.update().where(sessions.c.id == id).values(seen_at=at))

    async def of(self, user_id: str, now: datetime) -> Sequence[Session]:
        query = (
            select(sessions)
            .where(sessions.c.user_id == user_id, sessions.c.expires_at > now)
            .order_by(sessions.c.seen_at.desc(), sessions.c.id)
        )
        return await self._rows(query)

    async def last_seen(self) -> Mapping[str, datetime]:
        """Return when each user was seen last, by their ids."""
        of = sessions.c
        query = select(of.user_id, func.max(of.seen_at)).group_by(of.user_id)
        return {row[0]: row[1] for row in await self._execute(query)}

    async def end(self, user_id: str, id: str) -> bool:
        return await self._wrote_one(
            sessions.delete().where(sessions.c.user_id == user_id, sessions.c.id == id)
        )

    async def end_all(self, user_id: str, *, but: str | None = None) -> None:
        statement = sessions.delete().where(sessions.c.user_id == user_id)
        if but is not None:
            statement = statement.where(sessions.c.id != but)
        await self._execute(statement)

    async def forget(self, before: datetime) -> None:
        await self._execute(sessions.delete().where(sessions.c.expires_at < before))


class SqlFactors(SqlRepository):
    async def find(self, user_id: str) -> Authenticator | None:
        """Return a user's factor; raise :class:`StoreUnavailable` for one by an unknown key."""
        row = await self._first(select(totp).where(totp.c.user_id == user_id))
        if row is None:
            return None
        try:
            secret = self.cipher.open(row["secret"], totp_purpose(user_id))
        except WrongKey as failure:
            raise StoreUnavailable(
                "Two-factor authentication cannot be read: it was encrypted with a key that this "
                "service does not have. Whoever runs it has to name that key in "
                "`store.secret_keys`."
            ) from failure
        return Authenticator(**{**row, "secret": secret})

    async def put(self, authenticator: Authenticator) -> None:
        sealed = self.cipher.seal(authenticator.secret, totp_purpose(authenticator.user_id))
        await upsert(self.connection, totp, {**asdict(authenticator), "secret": sealed})

    async def step(self, user_id: str, step: int) -> bool:
        """Use a step up; return false if it or a later one was used."""
        earlier = totp.c.user_id == user_id, totp.c.last_step < step
        return await self._wrote_one(totp.update().where(*earlier).values(last_step=step))

    async def remove(self, user_id: str) -> None:
        """Remove a user's factor with its recovery codes."""
        await self.put_recovery(user_id, [])
        await self._execute(totp.delete().where(totp.c.user_id == user_id))

    async def users(self) -> frozenset[str]:
        """Return the ids of those with a confirmed factor."""
        found = await self._execute(select(totp.c.user_id).where(totp.c.confirmed_at.is_not(None)))
        return frozenset(found.scalars())

    async def put_recovery(self, user_id: str, digests: Sequence[bytes]) -> None:
        await self._execute(recovery_codes.delete().where(recovery_codes.c.user_id == user_id))
        if digests:
            rows = [{"user_id": user_id, "digest": digest} for digest in digests]
            await self._execute(recovery_codes.insert(), rows)

    async def use_recovery(self, user_id: str, digest: bytes) -> bool:
        """Use a code up; return false if there is none."""
        code = recovery_codes.c.user_id == user_id, recovery_codes.c.digest == digest
        return await self._wrote_one(recovery_codes.delete().where(*code))


class SqlAttempts(SqlRepository):
    async def lock(self, scopes: Sequence[str], at: datetime) -> Sequence[Failures]:
        """Return the failures of some scopes, which are locked until the block ends."""
        for scope in scopes:  # a row that is not there cannot be locked, so it is made first
            values = {"scope": scope, "failures": 0, "last_at": at}
            await upsert(self.connection, attempts, values, {"scope": scope})
        query = select(attempts).where(attempts.c.scope.in_(scopes)).with_for_update()
        return [Failures(**row) for row in (await self._execute(query)).mappings()]

    async def failed(self, scope: str, at: datetime, forget_before: datetime) -> None:
        """Count a failure; the count starts anew if the last one was before ``forget_before``."""
        count = case((attempts.c.last_at < forget_before, 1), else_=attempts.c.failures + 1)
        values = {"scope": scope, "failures": 1, "last_at": at}
        await upsert(self.connection, attempts, values, {"failures": count, "last_at": at})

    async def forgive(self, scope: str) -> None:
        """Subtract a failure."""
        failed = attempts.c.scope == scope, attempts.c.failures > 0
        values = {"failures": attempts.c.failures - 1}
        await self._execute(attempts.update().where(*failed).values(values))

    async def clear(self, scope: str) -> None:
        await self._execute(attempts.delete().where(attempts.c.scope == scope))

    async def forget(self, before: datetime) -> None:
        await self._execute(attempts.delete().where(attempts.c.last_at < before))
