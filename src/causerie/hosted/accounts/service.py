"""The base class of the services of accounts: a store, a clock, and entries of the audit log."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from causerie.hosted.accounts.audit import AuditEntry, difference, entry
from causerie.hosted.accounts.authorization import Clock, require, visible_project
from causerie.hosted.accounts.bounds import LimitsAndBudgets
from causerie.hosted.accounts.people import Action, Actor
from causerie.hosted.accounts.policies import Policies
from causerie.hosted.store.accounts import SqlStore, Transaction


class AccountService:
    """A service over one store; ``clock`` returns the present time."""

    policies = Policies()

    def __init__(self, store: SqlStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def require(self, actor: Actor, action: Action, project_id: str | None = None) -> None:
        """Raise :class:`Forbidden` unless ``actor`` may do this, in a project if one is named."""
        async with self._reading(actor, action, project_id):
            pass

    async def record(
        self, actor: Actor, needs: Action, action: str, subject: str, **details: str
    ) -> None:
        """Add an audit entry of an action that ``needs`` this right; raise :class:`Forbidden`."""
        async with self._writing(actor, needs) as tx:
            await self._record(tx, actor, action, subject, **details)

    @asynccontextmanager
    async def _reading(
        self, actor: Actor, action: Action, project_id: str | None = None
    ) -> AsyncIterator[Transaction]:
        async with self._store.reading() as tx:
            await _check(tx, actor, action, project_id)
            yield tx

    @asynccontextmanager
    async def _writing(
        self, actor: Actor, action: Action, project_id: str | None = None
    ) -> AsyncIterator[Transaction]:
        async with self._store.writing() as tx:
            await _check(tx, actor, action, project_id)
            yield tx

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


async def _check(tx: Transaction, actor: Actor, action: Action, project_id: str | None) -> None:
    if project_id is None:
        await require(tx, actor, action)
    else:
        await visible_project(tx, actor, project_id, action)
