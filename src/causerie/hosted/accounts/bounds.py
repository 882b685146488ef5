"""Limits and budgets of keys, people and projects, and credits of projects, which bound them too.

Each applies to all models or to one. Unset values are unbounded. If several apply, all have to be
kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Annotated

from msgspec import Meta, Struct
from msgspec.structs import replace

from causerie.access.limits import Rates
from causerie.errors import InvalidRequest
from causerie.protocol.money import billionths, exact

SCOPES = ("tag", "provider")
"""Kinds of owners of budgets for the whole service, as in ``tag:NAME``."""
LIMITS = Rates.__struct_fields__
_MOST = Decimal(9_000_000_000)
_DECIMALS = 9  # which is what is kept; written out, many more would fill the memory


CoveredModel = Annotated[str, Meta(max_length=200)]


class BudgetPeriod(StrEnum):
    """Period of a budget in UTC; weeks begin on Monday."""

    DAY = "day"
    WEEK = "week"
    MONTH = "month"
    NEVER = "never"

    def start(self, at: datetime) -> datetime:
        midnight = at.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        match self:
            case BudgetPeriod.DAY:
                return midnight
            case BudgetPeriod.WEEK:
                return midnight - timedelta(days=midnight.weekday())
            case BudgetPeriod.MONTH:
                return midnight.replace(day=1)
            case BudgetPeriod.NEVER:
                return datetime(1970, 1, 1, tzinfo=UTC)

    def end(self, at: datetime) -> datetime | None:
        """Return the start of the next period; ``None`` for a period that never ends."""
        if self is BudgetPeriod.NEVER:
            return None
        start = self.start(at)
        if self is BudgetPeriod.MONTH:
            return (start + timedelta(days=32)).replace(day=1)
        return start + timedelta(days=1 if self is BudgetPeriod.DAY else 7)


class Unit(StrEnum):
    MONEY = "money"
    TOKENS = "tokens"


def covers(bound: str, model: str) -> bool:
    """Return whether a limit or budget on ``bound`` applies to a model; an empty one does to all.

    With a ``*`` at its end it holds for all models whose names begin so, together.
    """
    return bound in ("", model) or (bound.endswith("*") and model.startswith(bound[:-1]))


class Budget(Struct, frozen=True, forbid_unknown_fields=True):
    """An amount within a period, of one model or (empty) of all."""

    amount: Decimal
    period: BudgetPeriod = BudgetPeriod.MONTH
    unit: Unit = Unit.MONEY
    model: CoveredModel = ""
    soft: bool = False
    """It refuses nothing; its use is notified."""

    @property
    def whole(self) -> int:
        """Return the amount in billionths of money, or in tokens."""
        return int(self.amount) if self.unit is Unit.TOKENS else billionths(self.amount)

    def counted(self, cost: int, tokens: int) -> int:
        """Return the use in the budget's unit: the cost in billionths, or the tokens."""
        return tokens if self.unit is Unit.TOKENS else cost

    def words(self) -> str:
        """Return amount and period: ``$0.00001 a month``."""
        money = self.unit is Unit.MONEY
        amount = exact(self.amount) if money else f"{int(self.amount):,} tokens"
        period = "for good" if self.period is BudgetPeriod.NEVER else f"a {self.period}"
        return f"{amount} {period}{' (soft)' if self.soft else ''}"


class CreditBudget(Budget, frozen=True):
    """The credits of a project, as the budget that bounds it."""

    def words(self) -> str:
        """Return the amount: ``$5.00``."""
        return exact(self.amount)


class Limit(Rates, frozen=True, forbid_unknown_fields=True):
    """Rate limits of one model or (with an empty ``model``) of all."""

    model: CoveredModel = ""


class LimitsAndBudgets(Struct, frozen=True, forbid_unknown_fields=True):
    """All limits and budgets of one key, person or project; storing them removes all others."""

    limits: Annotated[tuple[Limit, ...], Meta(max_length=200)] = ()
    budgets: Annotated[tuple[Budget, ...], Meta(max_length=200)] = ()

    @property
    def spends_nothing(self) -> bool:
        """Return whether a budget of no money admits only requests that cost nothing."""
        none = Decimal(0), Unit.MONEY, "", False
        return any((one.amount, one.unit, one.model, one.soft) == none for one in self.budgets)

    def words(self) -> str:
        """Return the limits and budgets as one line of text for the audit log."""
        budgets = [f"{each.words()}{_format_model_clause(each.model)}" for each in self.budgets]
        limits = [
            f"{getattr(each, name):,} {name}{_format_model_clause(each.model)}"
            for each in self.limits
            for name in LIMITS
            if getattr(each, name) is not None
        ]
        return "; ".join([*limits, *budgets]) or "none"

    def added_to(self, before: LimitsAndBudgets) -> LimitsAndBudgets:
        """Return these bounds and those of ``before`` that none of these replaces."""
        limits, budgets = {each.model for each in self.limits}, set(map(_identify, self.budgets))
        return LimitsAndBudgets(
            (*self.limits, *(each for each in before.limits if each.model not in limits)),
            (*self.budgets, *(each for each in before.budgets if _identify(each) not in budgets)),
        )

    def tightened(self, own: LimitsAndBudgets) -> LimitsAndBudgets:
        """Return these bounds, lowered wherever ``own`` has a lower value."""
        if own == UNBOUNDED:
            return self
        limits = {each.model: each for each in self.limits}
        for each in own.limits:
            limits[each.model] = _build_stricter_limit(limits.get(each.model, each), each)
        budgets = {(*_identify(each), each.soft): each for each in self.budgets}
        for one in own.budgets:
            place = (*_identify(one), one.soft)
            budgets[place] = min(budgets.get(place, one), one, key=lambda each: each.amount)
        return LimitsAndBudgets((*limits.values(),), (*budgets.values(),))

    def check(self, within: str = "") -> None:
        """Raise :class:`InvalidRequest` for wrong bounds; ``within`` precedes the field's name."""
        for index, budget in enumerate(self.budgets):
            if problem := _describe_amount_problem_or_empty(budget):
                raise InvalidRequest(problem, param=f"{within}budgets[{index}].amount")
        for index, limit in enumerate(self.limits):
            if limit == Limit(limit.model):
                raise InvalidRequest(
                    "A limit needs a number in one of its fields; without one, remove it.",
                    param=f"{within}limits[{index}].requests_per_minute",
                )
            for name in LIMITS:
                value = getattr(limit, name)
                if value is not None and not 1 <= value < 2**53:
                    raise InvalidRequest(
                        "A limit is a whole number from 1; unset it, or disable the key.",
                        param=f"{within}limits[{index}].{name}",
                    )
        _check_unique([(each.model,) for each in self.limits], f"{within}limits", "model")
        budgets = [_identify(each) for each in self.budgets]
        _check_unique(budgets, f"{within}budgets", "model, unit and period")


UNBOUNDED = LimitsAndBudgets()
NOTHING_FOR_NEWCOMERS = Budget(Decimal(0))
"""A budget of nothing a month, which ends with the first credit."""


def _describe_amount_problem_or_empty(budget: Budget) -> str:
    amount = budget.amount
    if not amount.is_finite() or amount.is_signed() or amount > _MOST:
        return f"A budget is from 0 to {_MOST:,}."
    if not -_DECIMALS <= int(amount.as_tuple().exponent) <= _DECIMALS:
        return f"An amount has at most {_DECIMALS} decimals, and no exponent."
    if budget.unit is Unit.TOKENS and amount != int(amount):
        return "Tokens are whole; write a number without a fraction."
    return ""


def _identify(budget: Budget) -> tuple[str, Unit, BudgetPeriod]:
    return budget.model, budget.unit, budget.period


def _build_stricter_limit(limit: Limit, other_limit: Limit) -> Limit:
    values = {
        name: min(filter(None, (getattr(limit, name), getattr(other_limit, name))), default=None)
        for name in LIMITS
    }
    return Limit(limit.model, **values)


def own_bounds(project_id: str, user_id: str = "") -> str:
    """Return the owner's name for bounds that a project's owners set, on it or on a member."""
    return f"member:{project_id}/{user_id}" if user_id else f"own:{project_id}"


def _format_model_clause(model: str) -> str:
    return f" for {model}" if model else ""


def _check_unique(identities: Sequence[tuple[str, ...]], param: str, fields: str) -> None:
    if len(set(identities)) != len(identities):
        raise InvalidRequest(f"There is one entry for each {fields}; join them.", param=param)


@dataclass(frozen=True, slots=True)
class Credit:
    """An amount paid in for a project; negative: withdrawn."""

    id: str
    project_id: str
    amount: Decimal
    at: datetime
    by: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Balance:
    """Sum of the credits and total spending of a project."""

    put_in: Decimal
    spent: Decimal

    @property
    def left(self) -> Decimal:
        """Return the credits that are left; negative if requests cost more than estimated."""
        return self.put_in - self.spent


def bounded(bounds: LimitsAndBudgets, put_in: Decimal | None) -> LimitsAndBudgets:
    """Return a project's bounds, with its sum of credits as a budget; ``None``: without one."""
    if put_in is None:
        return bounds
    least: Budget = CreditBudget(max(put_in, Decimal(0)), BudgetPeriod.NEVER, Unit.MONEY)
    others: list[Budget] = []
    for each in bounds.budgets:
        place = each.model, each.unit, each.period, each.soft
        if place == ("", Unit.MONEY, BudgetPeriod.NEVER, False):
            least = min(least, each, key=lambda one: one.amount)
        else:
            others.append(each)
    return replace(bounds, budgets=(*others, least))
