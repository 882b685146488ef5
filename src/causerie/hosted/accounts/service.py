"""The base class of the services of accounts: a store, a clock, policies of what new people and
projects begin with, and entries of the audit log.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from decimal import Decimal

from causerie.access.allowed import ALL, Access
from causerie.hosted.accounts.audit import AuditEntry, difference, entry
from causerie.hosted.accounts.authorization import Clock, require, visible_project
from causerie.hosted.accounts.bounds import (
    NOTHING_FOR_NEWCOMERS,
    UNBOUNDED,
    LimitsAndBudgets,
    Unit,
)
from causerie.hosted.accounts.people import Action, Actor, Role, RoleColumn, User
from causerie.hosted.store.accounts import SqlStore, Transaction

_LONGEST_NAME = 100
LOGGERS = frozenset({RoleColumn.OWNER, RoleColumn.ADMIN, RoleColumn.MANAGEMENT_KEY})


@dataclass(frozen=True, slots=True)
class Beginning:
    """The budget, limits and access of a new person or project."""

    bounds: LimitsAndBudgets = UNBOUNDED
    access: Access = ALL

    async def give(self, tx: Transaction, owner: str) -> None:
        """Set it for a new owner, like ``user:ID``."""
        if self.bounds != UNBOUNDED:
            await tx.keys.set_bounds(owner, self.bounds)
        if self.access != ALL:
            await tx.keys.set_access(owner, self.access)


@dataclass(frozen=True, slots=True)
class Policies:
    """Policies of one service."""

    person: Beginning = field(default_factory=Beginning)
    project: Beginning = field(default_factory=Beginning)
    personal_project: Beginning | None = field(default_factory=Beginning)
    """Of people who sign up; ``None``: they get none."""
    personal_project_name: str = "{name}'s project"
    personal_credits: Decimal = Decimal(0)
    """Put into the first project of people who sign up."""
    own_projects: int = 1
    """Projects that people may own without an operator, who gives them more than these."""
    personal_role: Role = Role.OWNER
    loggers: frozenset[RoleColumn] = LOGGERS
    """Who may turn on request logging; empty: nobody, and nothing is logged."""

    @property
    def later_project(self) -> Beginning | None:
        """Return the defaults of a project that people create themselves; it may spend nothing."""
        first = self.personal_project
        if first is None:
            return None
        kept = tuple(one for one in first.bounds.budgets if one.unit is not Unit.MONEY)
        bounds = LimitsAndBudgets(first.bounds.limits, (*kept, NOTHING_FOR_NEWCOMERS))
        return replace(first, bounds=bounds)

    def name_of(self, user: User) -> str:
        """Return the name of the project of somebody who signed up."""
        name = self.personal_project_name.replace("{name}", user.name)
        return name.replace("{email}", user.email)[:_LONGEST_NAME]


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
        self, tx: Transaction, actor: Actor, owner: str, bounds: LimitsAndBudgets
    ) -> None:
        before = await tx.keys.bounds(owner)
        await tx.keys.set_bounds(owner, bounds)
        await tx.keys.announce(owner, self._clock())
        await tx.audit.add(self._bounds_audit_entry(actor, owner, before, bounds))

    def _bounds_audit_entry(
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
