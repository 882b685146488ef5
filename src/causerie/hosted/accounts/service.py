"""The base class of the services of accounts: a store, a clock, and entries of the audit log."""

from __future__ import annotations

from causerie.hosted.accounts.audit import AuditEntry, difference, entry
from causerie.hosted.accounts.authorization import Clock, require
from causerie.hosted.accounts.bounds import LimitsAndBudgets
from causerie.hosted.accounts.people import Action, Actor
from causerie.hosted.accounts.ports import AccountStore, Transaction


class AccountService:
    """A service over one store; ``clock`` returns the present time."""

    def __init__(self, store: AccountStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def require(self, actor: Actor, action: Action) -> None:
        """Raise :class:`Forbidden` unless ``actor`` may do this outside of projects."""
        async with self._store.reading() as tx:
            await require(tx, actor, action)

    async def record(
        self, actor: Actor, needs: Action, action: str, subject: str, **details: str
    ) -> None:
        """Add an audit entry of an action that ``needs`` this right; raise :class:`Forbidden`."""
        async with self._store.writing() as tx:
            await require(tx, actor, needs)
            await self._record(tx, actor, action, subject, **details)

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

    async def _set_bounds(
        self, tx: Transaction, actor: Actor, action: str, id: str, bounds: LimitsAndBudgets
    ) -> None:
        owner = f"{action.partition('.')[0]}:{id}"
        before = await tx.keys.bounds(owner)
        await tx.keys.set_bounds(owner, bounds)
        await tx.keys.announce(owner, self._clock())
        await tx.audit.add(self._noted(actor, owner, before, bounds))

    def _noted(
        self, actor: Actor, owner: str, before: LimitsAndBudgets, after: LimitsAndBudgets
    ) -> AuditEntry:
        kind, _, id = owner.partition(":")
        project_id = id if kind == "project" else None
        words = difference(before.words(), after.words())
        return entry(self._clock(), actor, f"{kind}.bounds", id, project_id, bounds=words)
