"""The base class of the services of accounts: a store, a clock, and entries of the audit log."""

from __future__ import annotations

from causerie.hosted.accounts.audit import entry
from causerie.hosted.accounts.authorization import Clock
from causerie.hosted.accounts.people import Actor
from causerie.hosted.accounts.ports import AccountStore, Transaction


class AccountService:
    """A service over one store; ``clock`` returns the present time."""

    def __init__(self, store: AccountStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def _record(
        self,
        tx: Transaction,
        actor: Actor,
        action: str,
        subject: str,
        project_id: str | None = None,
        **details: str,
    ) -> None:
        await tx.audit.add(entry(self._clock(), actor, action, subject, project_id, **details))
