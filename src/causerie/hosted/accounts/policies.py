"""Policies: what new people and projects begin with, and who may turn on request logging."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from decimal import Decimal

from causerie.access.allowed import ALL, Access
from causerie.hosted.accounts.bounds import NOTHING_FOR_NEWCOMERS, UNBOUNDED, LimitsAndBudgets, Unit
from causerie.hosted.accounts.people import Role, RoleColumn, User
from causerie.hosted.store.accounts import Transaction

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
        """What a project begins with that somebody creates themselves: it spends nothing."""
        first = self.personal_project
        if first is None:
            return None
        kept = tuple(one for one in first.bounds.budgets if one.unit is not Unit.MONEY)
        bounds = replace(first.bounds, budgets=(*kept, NOTHING_FOR_NEWCOMERS))
        return replace(first, bounds=bounds)

    def name_of(self, user: User) -> str:
        """Return the name of the project of somebody who signed up."""
        name = self.personal_project_name.replace("{name}", user.name)
        return name.replace("{email}", user.email)[:_LONGEST_NAME]
