"""Spent amounts of budgets for display, from the same sums as the usage pages.

Admission is decided by ``budgets``, which count running requests in addition.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from causerie.accounts.bounds import Budget, BudgetPeriod, Unit
from causerie.accounts.people import Actor
from causerie.accounts.usage import By, Step, UsageQuery, UsageReports, UsageSum

_NEARLY = Decimal("0.8")


@dataclass(frozen=True, slots=True)
class Spending:
    """State of a budget; ``resets_at`` is the start of its next period."""

    budget: Budget
    spent: Decimal
    resets_at: datetime | None

    @property
    def is_nothing(self) -> bool:
        """Return true for a budget of no money: what costs nothing is let in."""
        return self.budget.unit is Unit.MONEY and self.budget.amount == 0

    @property
    def share(self) -> Decimal:
        """Return the spent share, from 0; 1 is all."""
        if self.budget.amount == 0:
            return Decimal(1)
        return self.spent / self.budget.amount

    @property
    def percent(self) -> int:
        """For a bar, from 0 to 100."""
        return min(int(self.share * 100), 100)

    @property
    def level(self) -> str:
        """Return the level for display: ``good``, ``warn`` or ``bad``."""
        return "bad" if self.share >= 1 else "warn" if self.share >= _NEARLY else "good"


class SpendingReader:
    """Asks the usage of one project (``None``: of all), once for each period."""

    def __init__(
        self, usage: UsageReports, actor: Actor, project_id: str | None, now: datetime
    ) -> None:
        self._usage = usage
        self._actor = actor
        self._project_id = project_id
        self._now = now

    async def of_keys(
        self, budgets: Mapping[str, Iterable[Budget]]
    ) -> Mapping[str, list[Spending]]:
        return await self._each(By.KEY, budgets)

    async def of_projects(
        self, budgets: Mapping[str, Iterable[Budget]]
    ) -> Mapping[str, list[Spending]]:
        return await self._each(By.PROJECT, budgets)

    async def of_people(
        self, budgets: Mapping[str, Iterable[Budget]]
    ) -> Mapping[str, list[Spending]]:
        return await self._each(By.USER, budgets)

    async def of_project(self, budgets: Iterable[Budget]) -> list[Spending]:
        asked = tuple(budgets)
        sums = await self._sums(asked, By.MODEL)
        return [self._spending(each, sums[each.period]) for each in asked]

    async def _each(
        self, by: By, budgets: Mapping[str, Iterable[Budget]]
    ) -> Mapping[str, list[Spending]]:
        asked = {owner: tuple(each) for owner, each in budgets.items()}
        sums = await self._sums([each for every in asked.values() for each in every], by, By.MODEL)
        by_owner: dict[tuple[BudgetPeriod, str], list[UsageSum]] = {}
        for period, found in sums.items():
            for each in found:
                by_owner.setdefault((period, each.group[by]), []).append(each)
        return {
            owner: [self._spending(each, by_owner.get((each.period, owner), ())) for each in every]
            for owner, every in asked.items()
        }

    async def _sums(
        self, budgets: Iterable[Budget], *by: By
    ) -> dict[BudgetPeriod, Sequence[UsageSum]]:
        midnight = self._now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        found: dict[BudgetPeriod, Sequence[UsageSum]] = {}
        for period in {each.period for each in budgets}:
            question = UsageQuery(
                since=period.start(self._now),
                until=midnight + timedelta(days=1),
                step=Step.ALL,
                by=by,
            )
            found[period] = (
                await self._usage.of_all(self._actor, question)
                if self._project_id is None
                else await self._usage.of_project(self._actor, self._project_id, question)
            )
        return found

    def _spending(self, budget: Budget, sums: Iterable[UsageSum]) -> Spending:
        spent = Decimal(0)
        for each in sums:
            if budget.model in ("", each.group[By.MODEL]):
                spent += each.cost if budget.unit is Unit.MONEY else each.charged
        return Spending(budget, spent, budget.period.end(self._now))
