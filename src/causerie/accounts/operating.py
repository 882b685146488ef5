"""What operators do with the service itself: whether they may, and what of it is in the log."""

from __future__ import annotations

from causerie.accounts.audit import entry
from causerie.accounts.guard import Clock, require
from causerie.accounts.people import Actor
from causerie.accounts.ports import Store
from causerie.accounts.rights import Action


class Operating:
    """Rights over endpoints, which are in no account."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def look(self, actor: Actor) -> None:
        """Before endpoints are shown; raises :class:`Forbidden`."""
        async with self._store.reading() as books:
            await require(books, actor, Action.ENDPOINTS_SEE)

    async def probe(self, actor: Actor) -> None:
        """Before an endpoint is probed, or what was found is used; raises :class:`Forbidden`."""
        async with self._store.reading() as books:
            await require(books, actor, Action.ENDPOINTS_PROBE)

    async def note(self, actor: Actor, action: str, endpoint: str, **details: str) -> None:
        """Write down what was done with an endpoint; raises :class:`Forbidden`."""
        async with self._store.writing() as books:
            await require(books, actor, Action.ENDPOINTS_PROBE)
            await books.audit.add(entry(self._clock(), actor, action, endpoint, **details))
