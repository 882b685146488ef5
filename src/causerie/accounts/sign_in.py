"""Signing in: password or another provider, then two-factor authentication where there is one.

Every way ends in a new session; whatever session the browser had before ends.
Wrong address, wrong password, no password and a disabled account are one
answer, at one cost.
"""

from __future__ import annotations

from datetime import datetime

from causerie.accounts import throttle, totp
from causerie.accounts.attempts import Attempts, succeeded
from causerie.accounts.authorization import Clock, no_such
from causerie.accounts.names import digest
from causerie.accounts.passwords import Passwords
from causerie.accounts.people import User
from causerie.accounts.ports import AccountStore, Repositories
from causerie.accounts.sessions import (
    SEEN_EVERY,
    NewSession,
    Session,
    SessionClient,
    Stage,
    new_session,
)
from causerie.errors import Unauthenticated


class SignIn:
    """Begins and ends sessions, and says whose they are."""

    def __init__(self, store: AccountStore, passwords: Passwords, clock: Clock) -> None:
        self._store = store
        self._passwords = passwords
        self._clock = clock
        self._attempts = Attempts(store, clock)

    async def with_password(
        self, email: str, password: str, client: SessionClient, *, old_token: str | None = None
    ) -> NewSession:
        """A session, at :attr:`Stage.SECOND_FACTOR` where a code is still needed.

        Raises :class:`Unauthenticated`, and :class:`RateLimited` after too many failures.
        """
        account = email.strip().lower()
        tried = throttle.scopes(account, client.address)
        async with self._attempts.guess(tried):
            async with self._store.reading() as repositories:
                user = await repositories.people.by_email(account)
            known = user is not None and user.disabled_at is None
            kept = user.password if known and user is not None else None
            if not await self._passwords.matches(kept, password) or user is None:
                raise _wrong()
        async with self._store.writing() as repositories:
            now = await repositories.people.find(user.id)  # checking took a while
            if now is None or (now.password, now.disabled_at) != (kept, None):
                raise _wrong()
            await succeeded(repositories, tried)
            return await self._begin(repositories, now, client, old_token)

    async def with_identity(
        self, issuer: str, subject: str, client: SessionClient, *, old_token: str | None = None
    ) -> NewSession:
        """A session of whoever another provider vouched for; raises :class:`Unauthenticated`.

        Two-factor authentication is that provider's business.
        """
        async with self._store.writing() as repositories:
            user = await repositories.people.by_identity(issuer, subject)
            if user is None or user.disabled_at is not None:
                raise Unauthenticated(
                    "No account here belongs to this identity.", code="no_account"
                )
            return await self._open(repositories, user, client, old_token)

    async def with_code(self, token: str, code: str, client: SessionClient) -> NewSession:
        """The session that a code, or a recovery code, completes.

        Raises :class:`Unauthenticated`, and :class:`RateLimited` after too many failures.
        """
        now = self._clock()
        async with self._store.reading() as repositories:
            session = await repositories.sessions.by_digest(digest(token))
        if session is None or session.stage is not Stage.SECOND_FACTOR or not session.good(now):
            raise Unauthenticated("Sign in again.", code="session_ended")
        tried = throttle.scopes(throttle.codes_of(session.user_id), client.address)
        await self._attempts.begin(tried)
        async with self._store.writing() as repositories:
            user = await repositories.people.find(session.user_id)
            if user is None or user.disabled_at is not None:
                raise _wrong()
            if not await good_code(repositories, user.id, code, now):
                raise Unauthenticated("The code is wrong or was used before.", code="wrong_code")
            await succeeded(repositories, tried)
            return await self._open(repositories, user, client, token)

    async def whose(self, token: str | None) -> tuple[User, Session]:
        """Return user and open session of a token; raise :class:`Unauthenticated`."""
        now = self._clock()
        if token:
            async with self._store.reading() as repositories:
                session = await repositories.sessions.by_digest(digest(token))
                user = await repositories.people.find(session.user_id) if session else None
            live = session is not None and session.stage is Stage.OPEN and session.good(now)
            if session is not None and user is not None and live and user.disabled_at is None:
                await self._see(session, now)
                return user, session
        raise Unauthenticated("Sign in first.", code="session_ended")

    async def sessions(self, user: User) -> list[Session]:
        """The open sessions of a user, the latest first."""
        now = self._clock()
        async with self._store.reading() as repositories:
            found = await repositories.sessions.of(user.id, now)
        return [each for each in found if each.stage is Stage.OPEN and each.good(now)]

    async def end(self, user: User, session_id: str) -> None:
        """End one of the user's own sessions; raises :class:`NotFound`."""
        async with self._store.writing() as repositories:
            if not await repositories.sessions.end(user.id, session_id):
                raise no_such("session")

    async def end_others(self, user: User, session_id: str) -> None:
        """End all of the user's sessions but this one."""
        async with self._store.writing() as repositories:
            await repositories.sessions.end_all(user.id, but=session_id)

    async def begin(
        self,
        repositories: Repositories,
        user: User,
        client: SessionClient,
        old_token: str | None = None,
    ) -> NewSession:
        """A session for somebody who has just proved who they are by a link."""
        return await self._begin(repositories, user, client, old_token)

    async def _begin(
        self, repositories: Repositories, user: User, client: SessionClient, old_token: str | None
    ) -> NewSession:
        factor = await repositories.factors.find(user.id)
        if factor is None or factor.confirmed_at is None:
            return await self._open(repositories, user, client, old_token)
        await _end(repositories, old_token)
        made = new_session(user.id, Stage.SECOND_FACTOR, self._clock(), client)
        await repositories.sessions.add(made.session)
        return made

    async def _open(
        self, repositories: Repositories, user: User, client: SessionClient, old_token: str | None
    ) -> NewSession:
        now = self._clock()
        await _end(repositories, old_token)
        await repositories.sessions.forget(now)
        await repositories.attempts.forget(now - throttle.FORGET_AFTER)
        made = new_session(user.id, Stage.OPEN, now, client)
        await repositories.sessions.add(made.session)
        return made

    async def _see(self, session: Session, now: datetime) -> None:
        if now - session.seen_at >= SEEN_EVERY:
            async with self._store.writing() as repositories:
                await repositories.sessions.seen(session.id, now)


async def good_code(repositories: Repositories, user_id: str, code: str, now: datetime) -> bool:
    """Return true if the code, or recovery code, is right and new; this uses it up."""
    factor = await repositories.factors.find(user_id)
    if factor is None or factor.confirmed_at is None:
        return False
    step = totp.step_of(factor.secret, code, now)
    if step is not None:
        return await repositories.factors.step(user_id, step)
    return await repositories.factors.use_recovery(user_id, digest(code.strip().lower()))


async def _end(repositories: Repositories, token: str | None) -> None:
    """End the session of this token, if it is of one."""
    old = await repositories.sessions.by_digest(digest(token)) if token else None
    if old is not None:
        await repositories.sessions.end(old.user_id, old.id)


def _wrong() -> Unauthenticated:
    return Unauthenticated("Address or password is wrong.", code="wrong_credentials")
