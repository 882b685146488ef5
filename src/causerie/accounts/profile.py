"""Changes that people make to their own account: name, password, two-factor authentication.

Somebody with a session that is not theirs may guess here as at sign-in, so passwords and codes are
counted together with those.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from causerie.accounts import throttle, totp
from causerie.accounts.attempts import Attempts, succeeded
from causerie.accounts.audit import entry
from causerie.accounts.authorization import Clock
from causerie.accounts.derivation import usable_link
from causerie.accounts.links import LinkKind, OneTimeLink, no_such_link
from causerie.accounts.names import digest, tidy_name
from causerie.accounts.passwords import Passwords
from causerie.accounts.people import User, actor_of
from causerie.accounts.ports import AccountStore, Repositories
from causerie.accounts.sessions import SessionClient
from causerie.accounts.sign_in import good_code
from causerie.errors import InvalidRequest, Unauthenticated


@dataclass(frozen=True, slots=True)
class Enrolment:
    """Two-factor authentication that waits for its first code. Shown once."""

    secret: str = field(repr=False)
    address: str = field(repr=False)


class OwnAccount:
    """One's own account."""

    def __init__(self, store: AccountStore, passwords: Passwords, clock: Clock) -> None:
        self._store = store
        self._passwords = passwords
        self._clock = clock
        self._attempts = Attempts(store, clock)

    async def rename(self, user: User, name: str) -> User:
        name = tidy_name(name)
        async with self._store.writing() as repositories:
            changed = replace(await _current(repositories, user), name=name)
            await repositories.people.change(changed)
        return changed

    async def change_password(
        self,
        user: User,
        old: str,
        new: str,
        client: SessionClient,
        *,
        session_id: str | None = None,
    ) -> User:
        """A new password; every session but this one ends.

        Raises :class:`Unauthenticated`, and :class:`RateLimited` after too many failures.
        """
        await self._prove(user, old, client)
        hashed = await self._passwords.hash_new(new, (user.email, user.name))
        async with self._store.writing() as repositories:
            if (await _current(repositories, user)).password != user.password:
                raise _wrong()  # somebody has replaced it meanwhile
            return await self._set(repositories, user, hashed, but=session_id)

    async def reset_password(self, token: str, new: str) -> User:
        """A new password by a link; every session ends. Two-factor authentication stays as it
        is."""
        now = self._clock()
        async with self._store.reading() as repositories:
            link, user = await _resetting(repositories, token, now)
        hashed = await self._passwords.hash_new(new, (user.email, user.name))
        async with self._store.writing() as repositories:
            await _resetting(repositories, token, now)  # hashing took a while
            if not await repositories.links.use(link.id, now):
                raise no_such_link()
            return await self._set(repositories, user, hashed, but=None)

    async def enrol(self, user: User, issuer: str) -> Enrolment:
        """Begin with two-factor authentication; it is in force once :meth:`confirm` has seen a
        code."""
        async with self._store.writing() as repositories:
            factor = await repositories.factors.find(user.id)
            if factor is not None and factor.confirmed_at is not None:
                raise InvalidRequest(
                    "Two-factor authentication is on already; remove it first.",
                    code="taken",
                    status=409,
                )
            secret = totp.new_secret()
            await repositories.factors.put(totp.Authenticator(user.id, secret))
        return Enrolment(secret, totp.address(secret, user.email, issuer))

    async def confirm(self, user: User, code: str, client: SessionClient) -> Sequence[str]:
        """Put two-factor authentication in force; gives the recovery codes, which are shown once.

        Raises :class:`InvalidRequest`, and :class:`RateLimited` after too many failures.
        """
        now, tried = self._clock(), throttle.scopes(throttle.codes_of(user.id), client.address)
        await self._attempts.begin(tried)
        async with self._store.writing() as repositories:
            factor = await repositories.factors.find(user.id)
            step = totp.step_of(factor.secret, code, now) if factor is not None else None
            if factor is None or factor.confirmed_at is not None or step is None:
                raise InvalidRequest(
                    "The code does not fit; is the clock of the device right?", param="code"
                )
            await repositories.factors.put(replace(factor, confirmed_at=now, last_step=step))
            await succeeded(repositories, tried)
            codes = totp.new_recovery_codes()
            await repositories.factors.put_recovery(user.id, [digest(each) for each in codes])
            await repositories.audit.add(
                entry(now, actor_of(user), "user.second_factor_on", user.id)
            )
        return codes

    async def remove_factor(
        self, user: User, password: str, code: str, client: SessionClient
    ) -> None:
        """Do without two-factor authentication; needs it once more, and the password where there is
        one.

        Raises :class:`Unauthenticated`, and :class:`RateLimited` after too many failures.
        """
        if user.password is not None:
            await self._prove(user, password, client)
        now, tried = self._clock(), throttle.scopes(throttle.codes_of(user.id), client.address)
        await self._attempts.begin(tried)
        async with self._store.writing() as repositories:
            if not await good_code(repositories, user.id, code, now):
                raise Unauthenticated("The code is wrong or was used before.", code="wrong_code")
            await succeeded(repositories, tried)
            await repositories.factors.remove(user.id)
            await repositories.audit.add(
                entry(now, actor_of(user), "user.second_factor_off", user.id)
            )

    async def has_factor(self, user: User) -> bool:
        """Return true if signing in needs a code."""
        async with self._store.reading() as repositories:
            factor = await repositories.factors.find(user.id)
        return factor is not None and factor.confirmed_at is not None

    async def _prove(self, user: User, password: str, client: SessionClient) -> None:
        tried = throttle.scopes(user.email, client.address)
        async with self._attempts.guess(tried):
            if not await self._passwords.matches(user.password, password):
                raise _wrong()
        async with self._store.writing() as repositories:
            await succeeded(repositories, tried)

    async def _set(
        self, repositories: Repositories, user: User, hashed: str, *, but: str | None
    ) -> User:
        changed = replace(await _current(repositories, user), password=hashed)
        await repositories.people.change(changed)
        await repositories.sessions.end_all(user.id, but=but)
        await repositories.audit.add(entry(self._clock(), actor_of(user), "user.password", user.id))
        return changed


def _wrong() -> Unauthenticated:
    return Unauthenticated("The password is wrong.", code="wrong_credentials")


async def _resetting(
    repositories: Repositories, token: str, now: datetime
) -> tuple[OneTimeLink, User]:
    """The link, and whose password it chooses; raises :class:`NotFound`."""
    link = await usable_link(repositories, token, now)
    user = await repositories.people.find(link.user_id or "")
    if link.kind is not LinkKind.RESET or user is None or user.disabled_at is not None:
        raise no_such_link()
    return link, user


async def _current(repositories: Repositories, user: User) -> User:
    """As they are now: whoever sees to users may have changed something since they came in."""
    return await repositories.people.find(user.id) or user
