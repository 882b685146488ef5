"""Operators' actions on the service itself: their authorization, and their audit entries."""

from __future__ import annotations

from causerie.accounts.audit import entry
from causerie.accounts.authorization import Clock, require
from causerie.accounts.people import Actor
from causerie.accounts.ports import AccountStore
from causerie.accounts.rights import Action


class Operating:
    """Rights over providers and alerts, which are in no account."""

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

    async def see_alerts(self, actor: Actor) -> None:
        """Before alerts are shown; raises :class:`Forbidden`."""
        async with self._store.reading() as repositories:
            await require(repositories, actor, Action.SERVICE_SEE)

    async def may_test_alerts(self, actor: Actor) -> None:
        """Before a test is sent by a channel; raises :class:`Forbidden`."""
        async with self._store.reading() as repositories:
            await require(repositories, actor, Action.ALERTS_TEST)

    async def note_alert_test(self, actor: Actor, channel: str, *, delivered: bool) -> None:
        """Write down that a test was sent by a channel; raises :class:`Forbidden`."""
        outcome = "delivered" if delivered else "failed"
        noted = entry(self._clock(), actor, "alerts.test", channel, outcome=outcome)
        async with self._store.writing() as repositories:
            await require(repositories, actor, Action.ALERTS_TEST)
            await repositories.audit.add(noted)
