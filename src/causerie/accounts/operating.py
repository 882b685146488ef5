"""Operators' actions on the service itself: their authorization, and their audit entries."""

from __future__ import annotations

from causerie.accounts.audit import entry
from causerie.accounts.authorization import Clock, require
from causerie.accounts.people import Actor
from causerie.accounts.ports import AccountStore
from causerie.accounts.rights import Action


class Operating:
    """Rights over providers, which are in no account."""

    def __init__(self, store: AccountStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def look(self, actor: Actor) -> None:
        """Before providers are shown; raises :class:`Forbidden`."""
        async with self._store.reading() as repositories:
            await require(repositories, actor, Action.PROVIDERS_SEE)

    async def probe(self, actor: Actor) -> None:
        """Before a provider is probed, or what was found is used; raises :class:`Forbidden`."""
        async with self._store.reading() as repositories:
            await require(repositories, actor, Action.PROVIDERS_PROBE)

    async def note(self, actor: Actor, action: str, provider: str, **details: str) -> None:
        """Write down what was done with a provider; raises :class:`Forbidden`."""
        async with self._store.writing() as repositories:
            await require(repositories, actor, Action.PROVIDERS_PROBE)
            await repositories.audit.add(entry(self._clock(), actor, action, provider, **details))
