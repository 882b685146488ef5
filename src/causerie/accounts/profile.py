"""What people do to their own account: name, password, second factor.

Whoever has a session that is not theirs may guess here as at sign-in, so
passwords and codes are counted together with those.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from causerie.accounts import throttle, totp
from causerie.accounts.attempts import Attempts, succeeded
from causerie.accounts.audit import entry
from causerie.accounts.derivation import usable_link
from causerie.accounts.guard import Clock
from causerie.accounts.links import Link, LinkKind, no_such_link
from causerie.accounts.names import digest, tidy_name
from causerie.accounts.passwords import Passwords
from causerie.accounts.people import User, actor_of
from causerie.accounts.ports import Books, Store
from causerie.accounts.sessions import Client
from causerie.accounts.sign_in import good_code
from causerie.errors import InvalidRequest, Unauthenticated


@dataclass(frozen=True, slots=True)
class Enrolment:
    """A second factor that waits for its first code. Shown once."""

    secret: str = field(repr=False)
    address: str = field(repr=False)


class Profile:
    """One's own account."""

    def __init__(self, store: Store, passwords: Passwords, clock: Clock) -> None:
        self._store = store
        self._passwords = passwords
        self._clock = clock
        self._attempts = Attempts(store, clock)

    async def rename(self, user: User, name: str) -> User:
        """Change the name that others see."""
        name = tidy_name(name)
        async with self._store.writing() as books:
            changed = replace(await _current(books, user), name=name)
            await books.people.change(changed)
        return changed

    async def change_password(
        self, user: User, old: str, new: str, client: Client, *, session_id: str | None = None
    ) -> User:
        """A new password; every session but this one ends.

        Raises :class:`Unauthenticated`, and :class:`RateLimited` after too many failures.
        """
        await self._prove(user, old, client)
        hashed = await self._passwords.hash_new(new, (user.email, user.name))
        async with self._store.writing() as books:
            if (await _current(books, user)).password != user.password:
                raise _wrong()  # somebody has replaced it meanwhile
            return await self._set(books, user, hashed, but=session_id)

    async def reset_password(self, token: str, new: str) -> User:
        """A new password by a link; every session ends. The second factor stays as it is."""
        now = self._clock()
        async with self._store.reading() as books:
            link, user = await _resetting(books, token, now)
        hashed = await self._passwords.hash_new(new, (user.email, user.name))
        async with self._store.writing() as books:
            await _resetting(books, token, now)  # hashing took a while
            if not await books.links.use(link.id, now):
                raise no_such_link()
            return await self._set(books, user, hashed, but=None)

    async def enrol(self, user: User, issuer: str) -> Enrolment:
        """Begin with a second factor; it is in force once :meth:`confirm` has seen a code."""
        async with self._store.writing() as books:
            factor = await books.factors.find(user.id)
            if factor is not None and factor.confirmed_at is not None:
                raise InvalidRequest(
                    "There is a second factor already; remove it first.", code="taken", status=409
                )
            secret = totp.new_secret()
            await books.factors.put(totp.Authenticator(user.id, secret))
        return Enrolment(secret, totp.address(secret, user.email, issuer))

    async def confirm(self, user: User, code: str, client: Client) -> Sequence[str]:
        """Put the second factor in force; gives the recovery codes, which are shown once.

        Raises :class:`InvalidRequest`, and :class:`RateLimited` after too many failures.
        """
        now, tried = self._clock(), throttle.scopes(throttle.codes_of(user.id), client.address)
        await self._attempts.begin(tried)
        async with self._store.writing() as books:
            factor = await books.factors.find(user.id)
            step = totp.step_of(factor.secret, code, now) if factor is not None else None
            if factor is None or factor.confirmed_at is not None or step is None:
                raise InvalidRequest(
                    "The code does not fit; is the clock of the device right?", param="code"
                )
            await books.factors.put(replace(factor, confirmed_at=now, last_step=step))
            await succeeded(books, tried)
            codes = totp.new_recovery_codes()
            await books.factors.put_recovery(user.id, [digest(each) for each in codes])
            await books.audit.add(entry(now, actor_of(user), "user.second_factor_on", user.id))
        return codes

    async def remove_factor(self, user: User, password: str, code: str, client: Client) -> None:
        """Do without the second factor; needs it once more, and the password where there is one.

        Raises :class:`Unauthenticated`, and :class:`RateLimited` after too many failures.
        """
        if user.password is not None:
            await self._prove(user, password, client)
        now, tried = self._clock(), throttle.scopes(throttle.codes_of(user.id), client.address)
        await self._attempts.begin(tried)
        async with self._store.writing() as books:
            if not await good_code(books, user.id, code, now):
                raise Unauthenticated("The code is wrong or was used before.", code="wrong_code")
            await succeeded(books, tried)
            await books.factors.remove(user.id)
            await books.audit.add(entry(now, actor_of(user), "user.second_factor_off", user.id))

    async def has_factor(self, user: User) -> bool:
        """Whether signing in needs a code."""
        async with self._store.reading() as books:
            factor = await books.factors.find(user.id)
        return factor is not None and factor.confirmed_at is not None

    async def _prove(self, user: User, password: str, client: Client) -> None:
        tried = throttle.scopes(user.email, client.address)
        async with self._attempts.guess(tried):
            if not await self._passwords.matches(user.password, password):
                raise _wrong()
        async with self._store.writing() as books:
            await succeeded(books, tried)

    async def _set(self, books: Books, user: User, hashed: str, *, but: str | None) -> User:
        changed = replace(await _current(books, user), password=hashed)
        await books.people.change(changed)
        await books.sessions.end_all(user.id, but=but)
        await books.audit.add(entry(self._clock(), actor_of(user), "user.password", user.id))
        return changed


def _wrong() -> Unauthenticated:
    return Unauthenticated("The password is wrong.", code="wrong_credentials")


async def _resetting(books: Books, token: str, now: datetime) -> tuple[Link, User]:
    """The link, and whose password it chooses; raises :class:`NotFound`."""
    link = await usable_link(books, token, now)
    user = await books.people.find(link.user_id or "")
    if link.kind is not LinkKind.RESET or user is None or user.disabled_at is not None:
        raise no_such_link()
    return link, user


async def _current(books: Books, user: User) -> User:
    """As they are now: whoever sees to users may have changed something since they came in."""
    return await books.people.find(user.id) or user
