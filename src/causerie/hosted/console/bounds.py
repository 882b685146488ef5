"""Limits and budgets as rows of a form, and back, and their pages; and the pages of allowed models
and doors of a project, a member or a user.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any

from msgspec import Struct

from causerie.access.allowed import Access
from causerie.errors import InvalidRequest
from causerie.hosted.accounts.bounds import (
    SCOPES,
    Budget,
    BudgetPeriod,
    Limit,
    LimitsAndBudgets,
    Unit,
)
from causerie.hosted.accounts.people import Action
from causerie.hosted.console.fields import FormFields, page_of, typed_money, typed_whole
from causerie.hosted.console.request_context import RequestContext
from causerie.hosted.console.words import CHOICES

Row = Mapping[str, str]

_BUDGET = ("amount", "unit", "period", "model", "soft")
_LIMIT = tuple(name for name, _ in CHOICES["limits"])
_AS_OFFERED: Mapping[str, str] = {"unit": Unit.MONEY, "period": BudgetPeriod.MONTH}
EMPTIED = "emptied"
_HELD, _ASKED = "held", "asked"  # a row of what there is; one whose end was asked about
_MOST = 10**16 - 1


class BoundsRows(Struct, frozen=True):
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
                    "soft": "soft" if each.soft else "",
                }
                for each in bounds.budgets
            ],
        )

    @staticmethod
    def typed(form: FormFields) -> BoundsRows:
        """Return the typed rows without untouched ones and those to be removed."""
        return BoundsRows(
            _filled_rows(form.rows("limit", ("was", "model", *_LIMIT)), _LIMIT),
            _filled_rows(form.rows("budget", ("was", *_BUDGET)), ("amount",)),
        )

    def bounds(self) -> LimitsAndBudgets:
        return LimitsAndBudgets(
            tuple(_limit_of_row(row, index) for index, row in enumerate(self.limits)),
            tuple(_budget_of_row(row, index) for index, row in enumerate(self.budgets)),
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


def _filled_rows(rows: Iterable[Row], numbers: Iterable[str]) -> list[Row]:
    return [
        row
        for row in rows
        if any(value and value != _AS_OFFERED.get(name) for name, value in row.items())
        and (row["was"] != _ASKED or any(row[name] for name in numbers))
    ]


def _limit_of_row(row: Row, index: int) -> Limit:
    numbers = {
        name: typed_whole(row[name], f"limits[{index}].{name}", title, _MOST) if row[name] else None
        for name, title in CHOICES["limits"]
    }
    if set(numbers.values()) == {None}:
        _ask_whether_it_ends(row, f"limits[{index}].{_LIMIT[0]}")
    return Limit(row["model"], **numbers)


def _budget_of_row(row: Row, index: int) -> Budget:
    place = f"budgets[{index}].amount"
    if not row["amount"]:
        _ask_whether_it_ends(row, place)
        words = "A budget needs an amount, like 25 or 0.50; without one, remove it."
        raise InvalidRequest(words, param=place)
    amount = typed_money(row["amount"], place)
    try:
        period, unit = BudgetPeriod(row["period"]), Unit(row["unit"])
    except ValueError as failure:
        raise InvalidRequest("A budget has a unit and a period.", param=place) from failure
    return Budget(amount, period, unit, row["model"], bool(row["soft"]))


def _ask_whether_it_ends(row: Row, place: str) -> None:
    if row["was"]:
        message = "No number is left here. Save again, and it is removed; or write one."
        raise InvalidRequest(message, param=place, code=EMPTIED)


async def show_person_bounds(context: RequestContext) -> None:
    await context.check_right(Action.BOUNDS_SET)
    user = await context.accounts.users.see(context.actor, context.params["user"])
    bounds = await context.accounts.person_bounds.see(context.actor, user.id)
    await context.show("operator/person_bounds.html", person=user, **offered(context, bounds))


async def show_budgets(context: RequestContext) -> None:
    """Show the budgets of tags and providers."""
    found = await context.accounts.scope_budgets.every(context.actor)
    await context.show("operator/budgets.html", scopes=found)


async def ask_scope(context: RequestContext) -> None:
    await context.check_right(Action.BOUNDS_SET)
    scopes = await context.accounts.scope_budgets.every(context.actor)
    fields = context.form or context.query
    kind, name = fields.one_of("kind", SCOPES), fields.get("name")
    held = [each for each in scopes if (each.kind, each.name) == (kind, name)]
    budgets = tuple(one.budget for each in held for one in each.spending)
    verdicts = await asyncio.to_thread(context.service_view.verdicts, ())
    providers = sorted({name for each in verdicts for name in each.providers})
    await context.show(
        "operator/scope.html",
        kind=kind,
        name=name,
        held=bool(held),
        providers=providers,
        **offered(context, LimitsAndBudgets(budgets=budgets)),
    )


async def set_scope(context: RequestContext) -> None:
    form, rows = context.form, BoundsRows.typed(context.form)
    budgets = rows.bounds().budgets
    scopes = context.accounts.scope_budgets
    await scopes.set(context.actor, form.one_of("kind", SCOPES), form.get("name"), budgets)
    context.go("/operator/budgets", done="bounds-saved")


_EVERYONE, _EVERY_PROJECT = "people", "projects"


async def ask_many(context: RequestContext) -> None:
    await context.check_right(Action.BOUNDS_SET)
    projects = await context.accounts.projects.every(context.actor)
    form = context.form
    await context.show(
        "operator/many_bounds.html",
        whom=form.get("whom"),
        find=form.get("find"),
        keep=form.get("keep", "yes"),
        choice=[
            (_EVERYONE, "All people"),
            (_EVERY_PROJECT, "All projects"),
            *((each.id, f"Members of {each.name}") for each in projects),
        ],
        **offered(context, LimitsAndBudgets()),
    )


async def set_many(context: RequestContext) -> None:
    form, accounts, actor = context.form, context.accounts, context.actor
    bounds, whom = BoundsRows.typed(form).bounds(), form.get("whom")
    find, named = form.get("find").casefold(), list[tuple[str, str]]()
    if whom == _EVERY_PROJECT:
        found = await accounts.projects.every(actor)
        named = [(each.id, each.name) for each in found if each.archived_at is None]
    elif whom == _EVERYONE:
        people = await accounts.users.every(actor)
        named = [(each.id, f"{each.name} {each.email}") for each in people]
    elif whom:
        members = [each.user for each in await accounts.projects.members(actor, whom)]
        named = [(each.id, f"{each.name} {each.email}") for each in members]
    ids = [id for id, words in named if find in words.casefold()]
    if not ids:
        raise InvalidRequest("Nobody is chosen; choose others, or a shorter text.", param="find")
    kind = "projects" if whom == _EVERY_PROJECT else "users"
    keep = form.get("keep") == "yes"
    await accounts.bulk_bounds.set(actor, bounds, keep=keep, **{kind: ids})
    context.go(f"/operator/{kind}", done="bounds-saved")


async def set_person_bounds(context: RequestContext) -> None:
    bounds = BoundsRows.typed(context.form).bounds()
    await context.accounts.person_bounds.set(context.actor, context.params["user"], bounds)
    context.go("/operator/users", done="bounds-saved")


_PRICES = ("prompt_price", "completion_price")


async def show_access(context: RequestContext) -> None:
    """Show the rules for one's own keys in a project, and why a model is not left."""
    rules = await context.rules()
    verdicts = await asyncio.to_thread(context.service_view.verdicts, rules)  # of thousands
    verdicts = sorted(verdicts, key=lambda each: (bool(each.refusal), each.id))
    await context.show(
        "project/access.html",
        rules=rules,
        page=page_of(verdicts, context.query, lambda each: (each.id, *each.providers)),
        left=sum(not each.refusal for each in verdicts),
    )


async def ask_access(context: RequestContext) -> None:
    """Show the form of a project, a member or (without a project) a user."""
    form, (project, user) = context.form, _project_and_user(context)
    await context.check_right(Action.MEMBERS_CHANGE if project and user else Action.BOUNDS_SET)
    kept = await context.accounts.access.see(context.actor, project, user)
    verdicts = await asyncio.to_thread(context.service_view.verdicts, ())
    providers = {name for each in verdicts for name in each.providers}
    doors, held = {each.name for each in context.service_view.doors()}, kept
    if form:
        held = Access(doors=form.chosen("doors"), providers=form.chosen("providers"))
    names = form.get("models") if form else "\n".join(sorted(kept.models or ()))
    await context.show(
        "project/access_form.html",
        project_id=project,
        user_id=user,
        path=context.exchange.path,
        back=_return_path(project, user),
        names=names,
        prices={
            name: form.get(name) if form else _price_text(getattr(kept, name)) for name in _PRICES
        },
        held=held,
        doors=sorted(doors | (kept.doors or frozenset())),
        providers=sorted(providers | (kept.providers or frozenset())),
    )


async def change_access(context: RequestContext) -> None:
    project, user = _project_and_user(context)
    await context.accounts.access.set(context.actor, _typed_access(context.form), project, user)
    context.go(_return_path(project, user), done="access-saved")


def _project_and_user(context: RequestContext) -> tuple[str, str]:
    return context.params.get("project", ""), context.params.get("user", "")


def _return_path(project: str, user: str) -> str:
    if not project:
        return "/operator/users"
    return f"/projects/{project}" if user else f"/projects/{project}/access"


def _typed_access(form: FormFields) -> Access:
    names = frozenset(form.get("models").replace(",", " ").split())
    prices: dict[str, Any] = {
        name: typed_money(form.get(name), name, "price") for name in _PRICES if form.get(name)
    }
    return Access(names or None, form.chosen("doors"), form.chosen("providers"), **prices)


def _price_text(price: Decimal | None) -> str:
    return "" if price is None else f"{price.normalize():f}"
