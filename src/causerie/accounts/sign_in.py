"""Signing in: password or another provider, then the second factor where there is one.

Every way ends in a new session; whatever session the browser had before ends.
Wrong address, wrong password, no password and a disabled account are one
answer, at one cost.
"""

from __future__ import annotations

from datetime import datetime

from causerie.accounts import throttle, totp
from causerie.accounts.attempts import Attempts, succeeded
from causerie.accounts.guard import Clock, no_such
from causerie.accounts.names import digest
from causerie.accounts.passwords import Passwords
from causerie.accounts.people import User
from causerie.accounts.ports import Books, Store
from causerie.accounts.sessions import (
    SEEN_EVERY,
    Client,
    NewSession,
    Session,
    Stage,
    new_session,
)
from causerie.errors import Unauthenticated


class SignIn:
    """Begins and ends sessions, and says whose they are."""

    def __init__(self, store: Store, passwords: Passwords, clock: Clock) -> None:
        self._store = store
        self._passwords = passwords
        self._clock = clock
        self._attempts = Attempts(store, clock)

    async def with_password(
        self, email: str, password: str, client: Client, *, old_token: str | None = None
    ) -> NewSession:
        """A session, at :attr:`Stage.SECOND_FACTOR` where a code is still needed.

        Raises :class:`Unauthenticated`, and :class:`RateLimited` after too many failures.
        """
        account = email.strip().lower()
        tried = throttle.scopes(account, client.address)
        async with self._attempts.guess(tried):
            async with self._store.reading() as books:
                user = await books.people.by_email(account)
            known = user is not None and user.disabled_at is None
            kept = user.password if known and user is not None else None
            if not await self._passwords.matches(kept, password) or user is None:
                raise _wrong()
        async with self._store.writing() as books:
            now = await books.people.find(user.id)  # checking took a while
            if now is None or (now.password, now.disabled_at) != (kept, None):
                raise _wrong()
            await succeeded(books, tried)
            return await self._begin(books, now, client, old_token)

    async def with_identity(
        self, issuer: str, subject: str, client: Client, *, old_token: str | None = None
    ) -> NewSession:
        """A session of whoever another provider vouched for; raises :class:`Unauthenticated`.

        The second factor is that provider's business.
        """
        async with self._store.writing() as books:
            user = await books.people.by_identity(issuer, subject)
            if user is None or user.disabled_at is not None:
                raise Unauthenticated(
                    "No account here belongs to this identity.", code="no_account"
                )
            return await self._open(books, user, client, old_token)

    async def with_code(self, token: str, code: str, client: Client) -> NewSession:
        """The session that a code, or a recovery code, completes.

        Raises :class:`Unauthenticated`, and :class:`RateLimited` after too many failures.
        """
        now = self._clock()
        async with self._store.reading() as books:
            session = await books.sessions.by_digest(digest(token))
        if session is None or session.stage is not Stage.SECOND_FACTOR or not session.good(now):
            raise Unauthenticated("Sign in again.", code="session_ended")
        tried = throttle.scopes(throttle.codes_of(session.user_id), client.address)
        await self._attempts.begin(tried)
        async with self._store.writing() as books:
            user = await books.people.find(session.user_id)
            if user is None or user.disabled_at is not None:
                raise _wrong()
            if not await good_code(books, user.id, code, now):
                raise Unauthenticated("The code is wrong or was used before.", code="wrong_code")
            await succeeded(books, tried)
            return await self._open(books, user, client, token)

    async def whose(self, token: str | None) -> tuple[User, Session]:
        """Whose open session a token is of; raises :class:`Unauthenticated`."""
        now = self._clock()
        if token:
            async with self._store.reading() as books:
                session = await books.sessions.by_digest(digest(token))
                user = await books.people.find(session.user_id) if session else None
            live = session is not None and session.stage is Stage.OPEN and session.good(now)
            if session is not None and user is not None and live and user.disabled_at is None:
                await self._see(session, now)
                return user, session
        raise Unauthenticated("Sign in first.", code="session_ended")

    async def sessions(self, user: User) -> list[Session]:
        """The open sessions of a user, the latest first."""
        now = self._clock()
        async with self._store.reading() as books:
            found = await books.sessions.of(user.id, now)
        return [each for each in found if each.stage is Stage.OPEN and each.good(now)]

    async def end(self, user: User, session_id: str) -> None:
        """End one of the user's own sessions; raises :class:`NotFound`."""
        async with self._store.writing() as books:
            if not await books.sessions.end(user.id, session_id):
                raise no_such("session")

    async def end_others(self, user: User, session_id: str) -> None:
        """End all of the user's sessions but this one."""
        async with self._store.writing() as books:
            await books.sessions.end_all(user.id, but=session_id)

    async def begin(
        self, books: Books, user: User, client: Client, old_token: str | None = None
    ) -> NewSession:
        """A session for somebody who has just proved who they are by a link."""
        return await self._begin(books, user, client, old_token)

    async def _begin(
        self, books: Books, user: User, client: Client, old_token: str | None
    ) -> NewSession:
        factor = await books.factors.find(user.id)
        if factor is None or factor.confirmed_at is None:
            return await self._open(books, user, client, old_token)
        await _end(books, old_token)
        made = new_session(user.id, Stage.SECOND_FACTOR, self._clock(), client)
        await books.sessions.add(made.session)
        return made

    async def _open(
        self, books: Books, user: User, client: Client, old_token: str | None
    ) -> NewSession:
        now = self._clock()
        await _end(books, old_token)
        await books.sessions.forget(now)
        await books.attempts.forget(now - throttle.FORGET_AFTER)
        made = new_session(user.id, Stage.OPEN, now, client)
        await books.sessions.add(made.session)
        return made

    async def _see(self, session: Session, now: datetime) -> None:
        if now - session.seen_at >= SEEN_EVERY:
            async with self._store.writing() as books:
                await books.sessions.seen(session.id, now)


async def good_code(books: Books, user_id: str, code: str, now: datetime) -> bool:
    """Whether the code, or recovery code, is right and new; it is used up by this."""
    factor = await books.factors.find(user_id)
    if factor is None or factor.confirmed_at is None:
        return False
    step = totp.step_of(factor.secret, code, now)
    if step is not None:
        return await books.factors.step(user_id, step)
    return await books.factors.use_recovery(user_id, digest(code.strip().lower()))


async def _end(books: Books, token: str | None) -> None:
    """End the session of this token, if it is of one."""
    old = await books.sessions.by_digest(digest(token)) if token else None
    if old is not None:
        await books.sessions.end(old.user_id, old.id)


def _wrong() -> Unauthenticated:
    return Unauthenticated("Address or password is wrong.", code="wrong_credentials")
