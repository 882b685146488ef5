"""Sign-in, and changes of one's own account: name, password and two-factor authentication.

An attempt that may be a guess is counted as failed before it is checked, so that parallel attempts
do not evade the limit; a right one is subtracted again. Guesses in the profile count together with
those at sign-in.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

import structlog

from causerie.errors import Forbidden, InvalidRequest, NotFound, Overloaded, Unauthenticated
from causerie.hosted.accounts import passwords
from causerie.hosted.accounts.authorization import (
    AccountService,
    add_link,
    conflict,
    no_such,
    shut_out,
    usable_link,
)
from causerie.hosted.accounts.keys import ADDRESS, LinkKind, NewLink, OneTimeLink, no_such_link
from causerie.hosted.accounts.passwords import Passwords
from causerie.hosted.accounts.people import (
    REMINDERS,
    Actor,
    Membership,
    Project,
    Role,
    User,
    actor_of,
)
from causerie.hosted.accounts.records import Taken, difference
from causerie.hosted.accounts.tokens import (
    PASSWORD,
    SECOND_FACTOR_LIFE,
    SEEN_EVERY,
    NewSession,
    Session,
    SessionClient,
    SignInPolicy,
    Stage,
    digest,
    new_id,
    new_token,
    tidy_email,
    tidy_name,
)
from causerie.hosted.store.accounts import SqlStore, Transaction

_AGENT_LENGTH = 300
_log = structlog.get_logger(__name__)
_SIGN_IN_PAGE = Actor("system", "sign-in", "sign-in page")  # refuses who has no account


class SignInRefused(Exception):
    """Cause of a refused sign-in, with the reason for the log and the audit log."""


class AccountDisabled(SignInRefused):
    """The account is disabled."""

    def __init__(self) -> None:
        super().__init__("the account is disabled")


@dataclass(slots=True)
class SignInSubject:
    """The user, identity or else address of a sign-in, as far as it is known."""

    user: User | None = None
    identity: tuple[str, str] | None = None
    email: str = ""


class Attempts(AccountService):
    """Counts of failed attempts by account and by address."""

    async def begin(self, allowed: Mapping[str, int]) -> None:
        """Add a failure to these scopes; raise :class:`RateLimited` if one of them has to wait."""
        async with self._store.writing() as tx:
            passwords.check_wait(await tx.attempts.lock(sorted(allowed)), allowed, tx.now)
            for scope in sorted(allowed):
                await tx.attempts.failed(scope)

    async def begin_code(self, user_id: str, client: SessionClient) -> Mapping[str, int]:
        """Count an attempt with a two-factor code as :meth:`begin`; return its scopes."""
        scopes = passwords.sign_in_scopes(f"code:{user_id}", client.address)
        await self.begin(scopes)
        return scopes

    @asynccontextmanager
    async def guess(self, allowed: Mapping[str, int]) -> AsyncIterator[None]:
        """Count an attempt as :meth:`begin`, unless the block raises :class:`Overloaded`."""
        await self.begin(allowed)
        try:
            yield
        except Overloaded:
            async with self._store.writing() as tx:
                for scope in sorted(allowed):
                    await tx.attempts.forgive(scope)
            raise

    @asynccontextmanager
    async def from_address(
        self, kind: passwords.AttemptKind, client: SessionClient
    ) -> AsyncIterator[None]:
        """Count the block as a failure of the client's address, unless it proves to be no guess.

        It stays counted if the block raises :class:`Unauthenticated` or :class:`NotFound`; any
        other end of the block is no guess.
        """
        allowed = passwords.address_scopes(kind, client.address)
        await self.begin(allowed)
        wrong = False
        try:
            yield
        except (Unauthenticated, NotFound):
            wrong = True
            raise
        finally:
            if not wrong:
                async with self._store.writing() as tx:
                    await succeeded(tx, allowed)


async def succeeded(tx: Transaction, allowed: Mapping[str, int]) -> None:
    """Clear the failures of an account's scopes, and subtract one from those of an address."""
    for scope in sorted(allowed):
        if scope.startswith(("both:", "account:")):  # of one account
            await tx.attempts.remove(scope=scope)
        else:
            await tx.attempts.forgive(scope)  # many people may share one


class SignIn(AccountService):
    """Begins, checks and ends the sessions of browsers.

    Every way to sign in begins a new session and ends the former one of the browser. A wrong
    address, a wrong password, no password and a disabled account get the same answer after the same
    time.
    """

    def __init__(self, store: SqlStore, passwords: Passwords) -> None:
        super().__init__(store)
        self._passwords = passwords
        self._attempt_limiter = Attempts(store)
        self.policy = SignInPolicy()

    @asynccontextmanager
    async def audited(self, client: SessionClient, method: str) -> AsyncIterator[SignInSubject]:
        """Write the log line and audit entry of a sign-in that the block refuses.

        The reason is the cause of what is raised, like :class:`SignInRefused`, else its message.
        """
        who = SignInSubject()
        try:
            yield who
        except (Unauthenticated, Forbidden, NotFound, InvalidRequest) as failure:
            cause = failure.__cause__
            why = failure.message if cause is None or isinstance(cause, Taken) else str(cause)
            details = {"why": why, "method": method, "address": client.address}
            async with self._store.writing() as tx:
                user = who.user  # known or not, a password costs the same statements
                if who.identity is not None:
                    user = await tx.people.by_identity(*who.identity)
                actor = actor_of(user) if user is not None else _SIGN_IN_PAGE
                subject = user.id if user is not None else _tidy_email_or_empty(who.email)
                await tx.audit.record(actor, "sign_in.refuse", subject, **details)
            _log.warning("sign_in.refused", why=why, method=method, user=user.id if user else "")
            raise

    async def with_password(
        self, email: str, password: str, client: SessionClient, *, old_token: str | None = None
    ) -> NewSession:
        """Begin a session by password, at :attr:`Stage.SECOND_FACTOR` if a code is needed too.

        Raises :class:`Unauthenticated`, :class:`Forbidden` if the policy does not take a password,
        and :class:`RateLimited` after too many failures.
        """
        account = email.strip().lower()
        tried = passwords.sign_in_scopes(account, client.address)
        async with self.audited(client, PASSWORD) as who:
            who.email = account
            user = await self._authenticate_and_set_subject_user(who, account, password, tried)
            if not self.policy.takes_password(operator=user.operator):
                raise Forbidden(
                    "Passwords are not accepted here. Sign in with your identity provider.",
                    code="sso_required",
                )
        async with self._store.writing() as tx:
            now = await tx.people.find(user.id)  # checking took a while
            if now is None or (now.password, now.disabled_at) != (user.password, None):
                raise _build_wrong_credentials_error()
            await succeeded(tx, tried)
            return await self.begin(tx, now, client, old_token)

    async def _authenticate_and_set_subject_user(
        self, subject: SignInSubject, email: str, password: str, attempt_scopes: Mapping[str, int]
    ) -> User:
        async with self._attempt_limiter.guess(attempt_scopes):
            async with self._store.reading() as tx:
                subject.user = user = await tx.people.one(email=email)
            known = user is not None and user.disabled_at is None
            kept = user.password if known and user is not None else None
            right = await self._passwords.matches(kept, password)
            if user is None or not right:
                raise _build_wrong_credentials_error() from _build_failed_sign_in_cause(user)
        return user

    async def with_identity(
        self, issuer: str, subject: str, client: SessionClient, *, old_token: str | None = None
    ) -> NewSession:
        """Begin a session of the user with this identity; raise :class:`Unauthenticated`."""
        async with self._store.writing() as tx:
            user = await tx.people.by_identity(issuer, subject)
            if user is None or user.disabled_at is not None:
                unknown = SignInRefused("no account has this identity")
                raise no_account() from (unknown if user is None else AccountDisabled())
            # A second factor is the provider's to ask for.
            return await self._replace_old_by_new_session(tx, user, client, old_token, issuer)

    async def with_code(self, token: str, code: str, client: SessionClient) -> NewSession:
        """Complete a sign-in with a code or recovery code; raise as :meth:`with_password`."""
        now = self._clock()
        async with self._store.reading() as tx:
            session = await tx.sessions.one(digest=digest(token))
        fits = session is not None and session.stage is Stage.SECOND_FACTOR
        if session is None or not fits or not session.good(now, self.policy):
            raise Unauthenticated("Sign in again.", code="session_ended")
        tried = await self._attempt_limiter.begin_code(session.user_id, client)
        async with self.audited(client, PASSWORD) as who, self._store.writing() as tx:
            who.user = user = await tx.people.find(session.user_id)
            if user is None or user.disabled_at is not None:
                raise _build_wrong_credentials_error() from _build_failed_sign_in_cause(user)
            await _use_factor_code_or_raise(tx, user.id, code)
            await succeeded(tx, tried)
            return await self._replace_old_by_new_session(tx, user, client, token)

    async def whose(self, token: str | None) -> tuple[User, Session]:
        """Return the user and the open session of a token; raise :class:`Unauthenticated`.

        Its metadata has the ``issuer`` that has to confirm the identity of the session once more.
        """
        now, ended = self._clock(), Unauthenticated("Sign in first.", code="session_ended")
        if token:
            async with self._store.reading() as tx:
                session = await tx.sessions.one(digest=digest(token))
                user = await tx.people.find(session.user_id) if session else None
            if session is not None and user is not None and self._is_live(user, session, now):
                if now - session.seen_at >= SEEN_EVERY:
                    async with self._store.writing() as tx:
                        await tx.sessions.seen(session.id)
                return user, session
            if session is not None and user is not None and self._is_live(user, session, now, {}):
                ended.metadata = {"issuer": session.method}
        raise ended

    def _is_live(
        self,
        user: User,
        session: Session,
        now: datetime,
        lifetimes: Mapping[str, timedelta] | None = None,
    ) -> bool:
        policy = self.policy if lifetimes is None else replace(self.policy, lives=lifetimes)
        if session.method == PASSWORD and not policy.takes_password(operator=user.operator):
            return False
        live = session.stage is Stage.OPEN and session.good(now, policy)
        return live and user.disabled_at is None

    async def must_enrol(self, user: User, session: Session) -> bool:
        """Return whether the user has to set up two-factor authentication before anything else."""
        if not self.policy.two_factor or session.method != PASSWORD:
            return False
        async with self._store.reading() as tx:
            return not await _has_second_factor(tx, user.id)

    async def sessions(self, user: User) -> list[Session]:
        """Return the open sessions of a user, the latest first."""
        async with self._store.reading() as tx:
            found = await tx.sessions.of(user.id)
        return [each for each in found if self._is_live(user, each, tx.now)]

    async def end(self, user: User, session_id: str) -> None:
        """End one of the user's sessions; raise :class:`NotFound`."""
        async with self._store.writing() as tx:
            if not await tx.sessions.remove(user_id=user.id, id=session_id):
                raise no_such("session")

    async def end_others(self, user: User, session_id: str) -> None:
        """End all sessions of the user except ``session_id``."""
        async with self._store.writing() as tx:
            await tx.sessions.end_all(user.id, but=session_id)

    async def begin(
        self, tx: Transaction, user: User, client: SessionClient, old_token: str | None = None
    ) -> NewSession:
        """Begin a session of a proven user, at :attr:`Stage.SECOND_FACTOR` if they have one."""
        if not await _has_second_factor(tx, user.id):
            return await self._replace_old_by_new_session(tx, user, client, old_token)
        await _delete_session_by_token(tx, old_token)
        stage, life = Stage.SECOND_FACTOR, SECOND_FACTOR_LIFE
        return await _add_session_with_token(tx, user, stage, client, life, PASSWORD)

    async def _replace_old_by_new_session(
        self,
        tx: Transaction,
        user: User,
        client: SessionClient,
        old_token: str | None,
        method: str = PASSWORD,
    ) -> NewSession:
        await _delete_session_by_token(tx, old_token)
        await tx.sessions.forget()
        await tx.attempts.forget()
        made = await _add_session_with_token(tx, user, Stage.OPEN, client, self.policy.life, method)
        details = {"method": method, "address": client.address}
        await tx.audit.record(actor_of(user), "sign_in.succeed", user.id, **details)
        return made


async def _add_session_with_token(
    tx: Transaction, user: User, stage: Stage, client: SessionClient, life: timedelta, method: str
) -> NewSession:
    token = new_token()
    session = Session(
        id=new_id("ses"),
        digest=digest(token),
        user_id=user.id,
        stage=stage,
        created_at=tx.now,
        seen_at=tx.now,
        expires_at=tx.now + life,
        address=client.address,
        agent=client.agent[:_AGENT_LENGTH],
        method=method,
    )
    await tx.sessions.add(session)
    return NewSession(session, token)


async def _has_second_factor(tx: Transaction, user_id: str) -> bool:
    factor = await tx.factors.find(user_id)
    return factor is not None and factor.confirmed_at is not None


async def _use_factor_code_or_raise(tx: Transaction, user_id: str, code: str) -> None:
    # Or a recovery code; each is right once.
    factor, good = await tx.factors.find(user_id), False
    if factor is not None and factor.confirmed_at is not None:
        step = passwords.totp_step_of(factor.secret, code, tx.now)
        if step is not None:
            good = await tx.factors.step(user_id, step)
        else:
            good = await tx.factors.use_recovery(user_id, digest(code.strip().lower()))
    if not good:
        raise Unauthenticated("The code is wrong or was used before.", code="wrong_code")


async def _delete_session_by_token(tx: Transaction, token: str | None) -> None:
    if token:
        await tx.sessions.remove(digest=digest(token))


def _build_failed_sign_in_cause(user: User | None) -> SignInRefused:
    if user is None:
        return SignInRefused("no account has this address")
    if user.disabled_at is not None:
        return AccountDisabled()
    missing = user.password is None
    return SignInRefused("the account has no password" if missing else "the password is wrong")


def _tidy_email_or_empty(email: str) -> str:
    # What is no address may be a password in the wrong field.
    try:
        return tidy_email(email)
    except InvalidRequest:
        return ""


def no_account() -> Unauthenticated:
    return Unauthenticated("No account here belongs to this identity.", code="no_account")


def _build_wrong_credentials_error() -> Unauthenticated:
    return Unauthenticated("Address or password is wrong.", code="wrong_credentials")


@dataclass(frozen=True, slots=True)
class Enrolment:
    """Secret and ``otpauth:`` address of a second factor, shown once, to be confirmed."""

    secret: str = field(repr=False)
    address: str = field(repr=False)


class OwnAccount(AccountService):
    """Changes that users make to their own accounts.

    Methods that take a password or a code raise :class:`Unauthenticated` for a wrong one
    (:meth:`confirm`: :class:`InvalidRequest`), and :class:`RateLimited` after too many failures.
    """

    def __init__(self, store: SqlStore, passwords: Passwords) -> None:
        super().__init__(store)
        self._passwords = passwords
        self._attempt_limiter = Attempts(store)

    async def rename(self, user: User, name: str) -> User:
        return await self._replace_user_fields(user, name=tidy_name(name))

    async def choose_reminders(self, user: User, wanted: Collection[str]) -> User:
        """Set which of :data:`REMINDERS` a person gets."""
        return await self._replace_user_fields(user, muted=frozenset(REMINDERS) - {*wanted})

    async def _replace_user_fields(self, user: User, **changed: Any) -> User:
        async with self._store.writing() as tx:
            after = replace(await _reread_user_or_return_given(tx, user), **changed)
            await tx.people.change(after)
        return after

    async def change_password(
        self,
        user: User,
        old: str,
        new: str,
        client: SessionClient,
        *,
        session_id: str | None = None,
    ) -> User:
        """Change the password, and end every session but this one."""
        await self._check_password(user, old, client)
        hashed = await self._passwords.hash_new(new, (user.email, user.name))
        async with self._store.writing() as tx:
            if (await _reread_user_or_return_given(tx, user)).password != user.password:
                raise _build_wrong_password_error()  # somebody has replaced it meanwhile
            return await self._set_password_and_end_sessions(tx, user, hashed, but=session_id)

    async def reset_password(self, token: str, new: str) -> User:
        """Set a new password by a link, and end every session; raise :class:`NotFound`."""
        async with self._store.reading() as tx:
            link, user = await _find_link_and_user(tx, token)
        hashed = await self._passwords.hash_new(new, (user.email, user.name))
        async with self._store.writing() as tx:
            await _find_link_and_user(tx, token)  # hashing took a while
            if not await tx.links.use(link.id):
                raise no_such_link()
            return await self._set_password_and_end_sessions(tx, user, hashed, but=None)

    async def new_address(
        self, user: User, email: str, password: str, client: SessionClient
    ) -> NewLink | None:
        """Create a link for a new address of the account; ``None`` if another account has it."""
        email = tidy_email(email)
        if user.user_name:
            raise conflict("provisioned", "Your directory sets the address of this account.")
        await self._check_password(user, password, client)
        async with self._store.writing() as tx:
            if await tx.people.one(email=email) is not None:
                return None
            former = await tx.links.open(user_id=user.id, kind=LinkKind.ADDRESS)
            await tx.links.withdraw(former)
            granted = {"email": email, "user_id": user.id}
            return await add_link(tx, LinkKind.ADDRESS, ADDRESS, **granted)

    async def change_address(self, token: str) -> tuple[str, str]:
        """Set a new address by a link; return the old and the new one."""
        async with self._store.writing() as tx:
            link, user = await _find_link_and_user(tx, token, LinkKind.ADDRESS)
            taken = await tx.people.one(email=link.email) is not None
            if taken or not await tx.links.use(link.id):
                raise no_such_link()
            changed = replace(user, email=link.email or user.email)
            await tx.people.change(changed)
            await tx.links.withdraw(await tx.links.open(user_id=user.id))
            words = difference(user.email, changed.email)
            await tx.audit.record(actor_of(user), "user.address", user.id, email=words)
        return user.email, changed.email

    async def close(self, user: User, password: str, client: SessionClient) -> None:
        """Delete one's own account: its personal data, its ways in, its keys and its own projects.

        Projects without another member are archived, and what they have logged is deleted. Usage
        and the audit log keep the id. Raises :class:`InvalidRequest` for the last operator, and for
        the last owner of a project that others are in.
        """
        if user.password is not None:
            await self._check_password(user, password, client)
        async with self._store.writing() as tx:
            operators = await tx.people.operators()
            current = await _reread_user_or_return_given(tx, user)
            if current.operator and operators == 1:
                raise conflict("last_operator", "Make somebody else an operator first.")
            for project, membership in await tx.projects.of(user.id):
                await self._leave_or_archive_project(tx, current, project, membership)
            await tx.keys.withdraw(await tx.keys.derived(user.id))
            await tx.sessions.end_all(user.id)
            await tx.factors.remove(user.id)
            await tx.groups.leave_all(user.id)
            for identity in await tx.people.identities(user.id):
                await tx.people.unlink(identity)
            gone = User(
                *(user.id, f"{user.id.lower()}@deleted.invalid", "Deleted account", None, False),
                *(current.created_at, tx.now),
            )
            await shut_out(tx, current)
            await tx.people.change(gone)
            await tx.keys.announce(f"user:{user.id}")
            await tx.audit.record(actor_of(gone), "user.delete", user.id)

    async def _leave_or_archive_project(
        self, tx: Transaction, user: User, project: Project, membership: Membership
    ) -> None:
        if len(await tx.projects.members(project.id)) == 1:
            await tx.projects.change(replace(project, archived_at=tx.now))
            await tx.projects.set_recording(project.id, None)
            await tx.recordings.forget(project.id)
            await tx.keys.announce(f"project:{project.id}")
            await tx.audit.record(actor_of(user), "project.archive", project.id, project.id)
        elif membership.role is Role.OWNER and await tx.projects.owners(project.id) == 1:
            raise conflict("last_owner", f"Make another member of {project.name} its owner first.")
        await tx.projects.leave(project.id, user.id)

    async def enrol(self, user: User, issuer: str) -> Enrolment:
        """Create a secret for two-factor authentication, which :meth:`confirm` puts in force."""
        async with self._store.writing() as tx:
            if await _has_second_factor(tx, user.id):
                raise conflict("taken", "Two-factor authentication is on already; remove it first.")
            secret = passwords.new_totp_secret()
            await tx.factors.put(passwords.Authenticator(user.id, secret))
        return Enrolment(secret, passwords.totp_address(secret, user.email, issuer))

    async def confirm(self, user: User, code: str, client: SessionClient) -> Sequence[str]:
        """Put two-factor authentication in force; return the recovery codes, shown only once."""
        tried = await self._attempt_limiter.begin_code(user.id, client)
        async with self._store.writing() as tx:
            factor, now = await tx.factors.find(user.id), tx.now
            step = passwords.totp_step_of(factor.secret, code, now) if factor is not None else None
            if factor is None or factor.confirmed_at is not None or step is None:
                raise InvalidRequest(
                    "The code does not fit; is the clock of the device right?", param="code"
                )
            await tx.factors.put(replace(factor, confirmed_at=now, last_step=step))
            await succeeded(tx, tried)
            codes = passwords.new_recovery_codes()
            await tx.factors.put_recovery(user.id, [digest(each) for each in codes])
            await tx.audit.record(actor_of(user), "user.second_factor_on", user.id)
        return codes

    async def remove_factor(
        self, user: User, password: str, code: str, client: SessionClient
    ) -> None:
        """Remove two-factor authentication, with a code and the password if there is one."""
        if user.password is not None:
            await self._check_password(user, password, client)
        tried = await self._attempt_limiter.begin_code(user.id, client)
        async with self._store.writing() as tx:
            await _use_factor_code_or_raise(tx, user.id, code)
            await succeeded(tx, tried)
            await tx.factors.remove(user.id)
            await tx.audit.record(actor_of(user), "user.second_factor_off", user.id)

    async def has_factor(self, user: User) -> bool:
        async with self._store.reading() as tx:
            return await _has_second_factor(tx, user.id)

    async def _check_password(self, user: User, password: str, client: SessionClient) -> None:
        tried = passwords.sign_in_scopes(user.email, client.address)
        async with self._attempt_limiter.guess(tried):
            if not await self._passwords.matches(user.password, password):
                raise _build_wrong_password_error()
        async with self._store.writing() as tx:
            await succeeded(tx, tried)

    async def _set_password_and_end_sessions(
        self, tx: Transaction, user: User, password_hash: str, *, but: str | None
    ) -> User:
        changed = replace(await _reread_user_or_return_given(tx, user), password=password_hash)
        await tx.people.change(changed)
        await tx.sessions.end_all(user.id, but=but)
        await tx.audit.record(actor_of(user), "user.password", user.id)
        return changed


def _build_wrong_password_error() -> Unauthenticated:
    return Unauthenticated("The password is wrong.", code="wrong_credentials")


async def _find_link_and_user(
    tx: Transaction, token: str, link_kind: LinkKind = LinkKind.RESET
) -> tuple[OneTimeLink, User]:
    link = await usable_link(tx, token)
    user = await tx.people.find(link.user_id or "")
    if link.kind is not link_kind or user is None or user.disabled_at is not None:
        raise no_such_link()
    return link, user


async def _reread_user_or_return_given(tx: Transaction, user: User) -> User:
    # Another process may have changed the user since the session was read.
    return await tx.people.find(user.id) or user
