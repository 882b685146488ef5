"""Limits and budgets as rows of a form, and back, and the page of those of a person."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from causerie.errors import InvalidRequest
from causerie.hosted.accounts.bounds import Budget, BudgetPeriod, Limit, LimitsAndBudgets, Unit
from causerie.hosted.console.fields import FormFields
from causerie.hosted.console.request_context import RequestContext
from causerie.protocol.numbers import money, whole_number

Row = Mapping[str, str]

LIMITS = (
    ("requests_per_minute", "Requests / min"),
    ("tokens_per_minute", "Tokens / min"),
    ("input_tokens_per_minute", "Input tokens / min"),
    ("output_tokens_per_minute", "Output tokens / min"),
    ("concurrent", "At the same time"),
)
PERIODS = (
    (BudgetPeriod.DAY, "each day"),
    (BudgetPeriod.WEEK, "each week"),
    (BudgetPeriod.MONTH, "each month"),
    (BudgetPeriod.NEVER, "never"),
)
UNITS = ((Unit.MONEY, "$"), (Unit.TOKENS, "tokens"))
CHOICES = MappingProxyType({"limits": LIMITS, "periods": PERIODS, "units": UNITS})
_BUDGET = ("amount", "unit", "period", "model")
_LIMIT = tuple(name for name, _ in LIMITS)
_AS_OFFERED = MappingProxyType({"unit": UNITS[0][0], "period": BudgetPeriod.MONTH})
EMPTIED = "emptied"
_HELD, _ASKED = "held", "asked"  # a row of what there is; one whose end was asked about
_MOST = 10**16 - 1
_THOUSANDS = re.compile(r"\d{1,3}(,\d{3})+(\.\d*)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class BoundsRows:
    """Rows of the form: stored values, or typed ones."""

    limits: Sequence[Row]
    budgets: Sequence[Row]

    @staticmethod
    def of(bounds: LimitsAndBudgets) -> BoundsRows:
        return BoundsRows(
            [
                {
                    "was": _HELD,
                    "model": each.model,
                    **{
                        name: "" if (number := getattr(each, name)) is None else str(number)
                        for name in _LIMIT
                    },
                }
                for each in bounds.limits
            ],
            [
                {
                    "was": _HELD,
                    "model": each.model,
                    "amount": f"{each.amount.normalize():f}",
                    "unit": each.unit,
                    "period": each.period,
                }
                for each in bounds.budgets
            ],
        )

    @staticmethod
    def typed(form: FormFields) -> BoundsRows:
        """Return the typed rows without untouched ones and those to be removed."""
        return BoundsRows(
            _touched(form.rows("limit", ("was", "model", *_LIMIT)), _LIMIT),
            _touched(form.rows("budget", ("was", *_BUDGET)), ("amount",)),
        )

    def bounds(self) -> LimitsAndBudgets:
        return LimitsAndBudgets(
            tuple(_limit(row, index) for index, row in enumerate(self.limits)),
            tuple(_budget(row, index) for index, row in enumerate(self.budgets)),
        )


NO_ROWS = BoundsRows((), ())


def offered(context: RequestContext, bounds: LimitsAndBudgets) -> dict[str, Any]:
    """Return what the rows of a form need: those that were typed, else those of the bounds."""
    rows = BoundsRows.typed(context.form) if context.form else BoundsRows.of(bounds)
    names = [str(entry["id"]) for entry in context.service_view.models()]
    kept = {row["model"] for row in (*rows.limits, *rows.budgets) if row["model"]}
    return {
        **{"rows": rows, "models": [*names, *sorted(kept - set(names))], "choices": CHOICES},
        "unpriced": context.service_view.unpriced(),
    }


def _touched(rows: Iterable[Row], numbers: Iterable[str]) -> list[Row]:
    return [
        row
        for row in rows
        if any(value and value != _AS_OFFERED.get(name) for name, value in row.items())
        and (row["was"] != _ASKED or any(row[name] for name in numbers))
    ]


def _limit(row: Row, index: int) -> Limit:
    numbers = {name: _whole(row[name], name, index) for name in _LIMIT}
    if set(numbers.values()) == {None}:
        _ask_whether_it_ends(row, f"limits[{index}].{_LIMIT[0]}")
    return Limit(row["model"], **numbers)


def _budget(row: Row, index: int) -> Budget:
    if not row["amount"]:
        _ask_whether_it_ends(row, f"budgets[{index}].amount")
        raise InvalidRequest(
            "A budget needs an amount, like 25 or 0.50; without one, remove it.",
            param=f"budgets[{index}].amount",
        )
    try:
        amount = money(_joined(row["amount"].removeprefix("$")))
        return Budget(amount, BudgetPeriod(row["period"]), Unit(row["unit"]), row["model"])
    except ValueError as failure:
        raise InvalidRequest(
            f"`{row['amount'][:20]}` is no amount; one looks like 25 or 0.50.",
            param=f"budgets[{index}].amount",
        ) from failure


def _ask_whether_it_ends(row: Row, place: str) -> None:
    if row["was"]:
        message = "No number is left here. Save again, and it is removed; or write one."
        raise InvalidRequest(message, param=place, code=EMPTIED)


def _whole(text: str, name: str, index: int) -> int | None:
    plain = _joined(text.replace(" ", ""))
    if not plain:
        return None
    number = whole_number(plain, _MOST)
    if number is None:
        title = dict(LIMITS)[name]
        raise InvalidRequest(
            f"{title}: `{text[:20]}` is no whole number.", param=f"limits[{index}].{name}"
        )
    return number


def _joined(text: str) -> str:
    # A comma for decimals stays, so that it is refused.
    return text.replace(",", "") if _THOUSANDS.fullmatch(text) else text


async def show_person_bounds(context: RequestContext) -> None:
    user = await context.accounts.users.see(context.actor, context.params["user"])
    bounds = await context.accounts.person_bounds.see(context.actor, user.id)
    await context.show("operator/person_bounds.html", person=user, **offered(context, bounds))


async def set_person_bounds(context: RequestContext) -> None:
    bounds = BoundsRows.typed(context.form).bounds()
    await context.accounts.person_bounds.set(context.actor, context.params["user"], bounds)
    context.go("/operator/users", done="bounds-saved")
