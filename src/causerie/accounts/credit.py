"""Money that was put in for a project, and what it makes of the project's budgets."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal

from causerie.accounts.bounds import Budget, BudgetPeriod, LimitsAndBudgets, Unit


@dataclass(frozen=True, slots=True)
class Credit:
    """One amount that was put in, or with a minus taken out again."""

    id: str
    project_id: str
    amount: Decimal
    at: datetime
    by: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Balance:
    """Of one project: all that was put in, and all that it has spent."""

    put_in: Decimal
    spent: Decimal

    @property
    def left(self) -> Decimal:
        """Below zero where requests cost more than was foreseen."""
        return self.put_in - self.spent


def bounded(bounds: LimitsAndBudgets, put_in: Decimal | None) -> LimitsAndBudgets:
    """The bounds of a project that has this much; ``None``: nothing was ever put in."""
    if put_in is None:
        return bounds
    amount = max(put_in, Decimal(0))
    others: list[Budget] = []
    for each in bounds.budgets:
        if (each.model, each.unit, each.period) == ("", Unit.MONEY, BudgetPeriod.NEVER):
            amount = min(amount, each.amount)
        else:
            others.append(each)
    return replace(bounds, budgets=(*others, Budget(amount, BudgetPeriod.NEVER, Unit.MONEY)))
