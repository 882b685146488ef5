"""Attempts that may be guesses: counted before they are made, and forgiven where they were right.

Counted first, so that many at once are no way round. Failed guesses cause waits
(:mod:`causerie.accounts.throttle` defines how long), wherever the guess is made: at sign-in, in the
profile, or with a link.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from causerie.accounts import throttle
from causerie.accounts.authorization import Clock
from causerie.accounts.ports import AccountStore, Repositories
from causerie.accounts.sessions import SessionClient
from causerie.errors import NotFound, Overloaded, Unauthenticated


class Attempts:
    """Counts of recent failed attempts, by account and by address."""

    def __init__(self, store: AccountStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def begin(self, allowed: Mapping[str, int]) -> None:
        """Count one in these scopes as failed; raises :class:`RateLimited` where one must wait."""
        now = self._clock()
        async with self._store.writing() as repositories:
            throttle.check(await repositories.attempts.lock(sorted(allowed), now), allowed, now)
            for scope in sorted(allowed):
                await repositories.attempts.failed(scope, now, now - throttle.FORGET_AFTER)

    @asynccontextmanager
    async def guess(self, allowed: Mapping[str, int]) -> AsyncIterator[None]:
        """:meth:`begin`; taken back where the block raises :class:`Overloaded`: nobody looked."""
        await self.begin(allowed)
        try:
            yield
        except Overloaded:
            async with self._store.writing() as repositories:
                for scope in sorted(allowed):
                    await repositories.attempts.forgive(scope)
            raise

    @asynccontextmanager
    async def from_address(self, kind: throttle.Kind, client: SessionClient) -> AsyncIterator[None]:
        """One of this kind from the client's address.

        It stays counted where the block raises :class:`Unauthenticated` or
        :class:`NotFound`; whatever else went wrong was no guess.
        """
        allowed = throttle.of_address(kind, client.address)
        await self.begin(allowed)
        wrong = False
        try:
            yield
        except (Unauthenticated, NotFound):
            wrong = True
            raise
        finally:
            if not wrong:
                async with self._store.writing() as repositories:
                    await succeeded(repositories, allowed)


async def succeeded(repositories: Repositories, allowed: Mapping[str, int]) -> None:
    """It was no guess: the account's count is gone, that of an address is one less."""
    for scope in sorted(allowed):
        if throttle.is_of_account(scope):
            await repositories.attempts.clear(scope)
        else:
            await repositories.attempts.forgive(scope)  # many people may share one
