"""Forms and pages of limits and budgets, and of the models, doors and providers allowed to keys."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

from causerie.access.allowed import Access, AccessRule
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
from causerie.hosted.console.fields import (
    FormFields,
    chosen_fields,
    page_of,
    typed_money,
    typed_whole,
)
from causerie.hosted.console.request_context import RequestContext
from causerie.hosted.console.words import CHOICES

Row = Mapping[str, str]

_BUDGET = ("amount", "unit", "period", "model", "soft")
_LIMIT = tuple(name for name, _ in CHOICES["limits"])
_AS_OFFERED: Mapping[str, str] = {"unit": Unit.MONEY, "period": BudgetPeriod.MONTH}
EMPTIED = "emptied"
_HELD, _ASKED = "held", "asked"  # a row of what there is; one whose end was asked about
_MOST = 10**16 - 1


def bounds_fields(bounds: LimitsAndBudgets) -> Iterator[tuple[str, str]]:
    """Yield the fields of a form that shows these limits and budgets."""
    limits = [("limit", each, ("model", *_LIMIT)) for each in bounds.limits]
    budgets = [("budget", each, _BUDGET) for each in bounds.budgets]
    for prefix, bound, columns in (*limits, *budgets):
        yield f"{prefix}_was", _HELD
        for name in columns:
            yield f"{prefix}_{name}", _format_field(getattr(bound, name))


def _format_field(setting: Decimal | int | str | None) -> str:
    if setting is None or setting is False:
        return ""
    if isinstance(setting, Decimal):
        return f"{setting.normalize():f}"
    return "soft" if setting is True else str(setting)


def typed_bounds(form: FormFields) -> LimitsAndBudgets:
    limits, budgets = _read_limit_and_budget_rows(form)
    return LimitsAndBudgets(
        tuple(_parse_limit_row(row, index) for index, row in enumerate(limits)),
        tuple(_parse_budget_row(row, index) for index, row in enumerate(budgets)),
    )


def offered(
    context: RequestContext, kept: FormFields, rules: Sequence[AccessRule] = ()
) -> dict[str, Any]:
    """Return the rows (typed, else stored) and models that a form of limits and budgets shows."""
    form = context.form or kept
    limits, budgets = _read_limit_and_budget_rows(form)
    names = [str(entry["id"]) for entry in context.service_view.models(rules=rules)]
    chosen = {*(form.chosen("models") or ()), *(row["model"] for row in (*limits, *budgets))}
    return {
        "rows": {"limits": limits, "budgets": budgets},
        "models": [*names, *sorted(chosen.difference(names, ("",)))],
        "unpriced": context.service_view.unpriced(),
    }


def _read_limit_and_budget_rows(form: FormFields) -> tuple[Sequence[Row], Sequence[Row]]:
    # Without untouched rows and those to be removed.
    return (
        _drop_blank_and_removed_rows(form.rows("limit", ("was", "model", *_LIMIT)), _LIMIT),
        _drop_blank_and_removed_rows(form.rows("budget", ("was", *_BUDGET)), ("amount",)),
    )


def _drop_blank_and_removed_rows(rows: Iterable[Row], number_columns: Iterable[str]) -> list[Row]:
    return [
        row
        for row in rows
        if any(value and value != _AS_OFFERED.get(name) for name, value in row.items())
        and (row["was"] != _ASKED or any(row[name] for name in number_columns))
    ]


def _parse_limit_row(row: Row, index: int) -> Limit:
    numbers = {
        name: typed_whole(row[name], f"limits[{index}].{name}", title, _MOST) if row[name] else None
        for name, title in CHOICES["limits"]
    }
    if set(numbers.values()) == {None}:
        _refuse_emptied_stored_row(row, f"limits[{index}].{_LIMIT[0]}")
    return Limit(row["model"], **numbers)


def _parse_budget_row(row: Row, index: int) -> Budget:
    place = f"budgets[{index}].amount"
    if not row["amount"]:
        _refuse_emptied_stored_row(row, place)
        words = "A budget needs an amount, like 25 or 0.50; without one, remove it."
        raise InvalidRequest(words, param=place)
    amount = typed_money(row["amount"], place)
    try:
        period, unit = BudgetPeriod(row["period"]), Unit(row["unit"])
    except ValueError as failure:
        raise InvalidRequest("A budget has a unit and a period.", param=place) from failure
    return Budget(amount, period, unit, row["model"], bool(row["soft"]))


def _refuse_emptied_stored_row(row: Row, param: str) -> None:
    if row["was"]:
        message = "No number is left here. Save again, and it is removed; or write one."
        raise InvalidRequest(message, param=param, code=EMPTIED)


async def show_person_bounds(context: RequestContext) -> None:
    await context.check_right(Action.BOUNDS_SET)
    user = await context.accounts.users.see(context.actor, context.params["user"])
    bounds = await context.accounts.person_bounds.see(context.actor, user.id)
    shown = offered(context, FormFields(bounds_fields(bounds)))
    await context.send_page("operator/person_bounds.html", person=user, **shown)


async def show_budgets(context: RequestContext) -> None:
    """Show the budgets of tags and providers."""
    found = await context.accounts.scope_budgets.every(context.actor)
    await context.send_page("operator/budgets.html", scopes=found)


async def ask_scope(context: RequestContext) -> None:
    await context.check_right(Action.BOUNDS_SET)
    scopes = await context.accounts.scope_budgets.every(context.actor)
    fields = context.form or context.query
    kind, name = fields.one_of("kind", SCOPES), fields.get("name")
    held = [each for each in scopes if (each.kind, each.name) == (kind, name)]
    budgets = tuple(one.budget for each in held for one in each.spending)
    verdicts = await asyncio.to_thread(context.service_view.verdicts, ())
    providers = sorted({name for each in verdicts for name in each.providers})
    kept = FormFields(bounds_fields(LimitsAndBudgets(budgets=budgets)))
    shown = {"kind": kind, "name": name, "held": bool(held), "providers": providers}
    await context.send_page("operator/scope.html", **shown, **offered(context, kept))


async def set_scope(context: RequestContext) -> None:
    form, scopes = context.form, context.accounts.scope_budgets
    budgets = typed_bounds(form).budgets
    await scopes.set(context.actor, form.one_of("kind", SCOPES), form.get("name"), budgets)
    context.go("/operator/budgets", done="bounds-saved")


_EVERYONE, _EVERY_PROJECT = "people", "projects"


async def ask_many(context: RequestContext) -> None:
    await context.check_right(Action.BOUNDS_SET)
    projects = await context.accounts.projects.every(context.actor)
    of_projects = [(each.id, f"Members of {each.name}") for each in projects]
    choice = [(_EVERYONE, "All people"), (_EVERY_PROJECT, "All projects"), *of_projects]
    shown = offered(context, FormFields())
    await context.send_page("operator/many_bounds.html", choice=choice, **shown)


async def set_many(context: RequestContext) -> None:
    form, accounts, actor = context.form, context.accounts, context.actor
    bounds, whom = typed_bounds(form), form.get("whom")
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
    bounds, user = typed_bounds(context.form), context.params["user"]
    await context.accounts.person_bounds.set(context.actor, user, bounds)
    context.go("/operator/users", done="bounds-saved")


_PRICES = ("prompt_price", "completion_price")


async def show_access(context: RequestContext) -> None:
    """Show the rules for one's own keys in a project, and why each model is allowed or refused."""
    rules = await context.rules()
    verdicts = await asyncio.to_thread(context.service_view.verdicts, rules)  # of thousands
    verdicts = sorted(verdicts, key=lambda each: (bool(each.refusal), each.id))
    page = page_of(verdicts, context.query, lambda each: (each.id, *each.providers))
    left = sum(not each.refusal for each in verdicts)
    await context.send_page("project/access.html", rules=rules, page=page, left=left)


async def ask_access(context: RequestContext) -> None:
    """Show the access form of a project, a member or (without a project) a user."""
    project, user = _read_project_and_user_ids(context)
    await context.check_right(Action.MEMBERS_CHANGE if project and user else Action.BOUNDS_SET)
    kept = await context.accounts.access.see(context.actor, project, user)
    verdicts = await asyncio.to_thread(context.service_view.verdicts, ())
    providers = {name for each in verdicts for name in each.providers}
    doors = {each.name for each in context.service_view.doors()}
    await context.send_page(
        "project/access_form.html",
        form=context.form or FormFields(_build_access_fields(kept)),
        project_id=project,
        user_id=user,
        back=_choose_return_path(project, user),
        doors=sorted(doors | (kept.doors or frozenset())),
        providers=sorted(providers | (kept.providers or frozenset())),
    )


async def change_access(context: RequestContext) -> None:
    project, user = _read_project_and_user_ids(context)
    await context.accounts.access.set(context.actor, _parse_access(context.form), project, user)
    context.go(_choose_return_path(project, user), done="access-saved")


def _read_project_and_user_ids(context: RequestContext) -> tuple[str, str]:
    return context.params.get("project", ""), context.params.get("user", "")


def _choose_return_path(project_id: str, user_id: str) -> str:
    if not project_id:
        return "/operator/users"
    return f"/projects/{project_id}" if user_id else f"/projects/{project_id}/access"


def _build_access_fields(access: Access) -> Iterator[tuple[str, str]]:
    yield "models", "\n".join(sorted(access.models or ()))
    yield from chosen_fields("doors", access.doors)
    yield from chosen_fields("providers", access.providers)
    for name in _PRICES:
        yield name, _format_field(getattr(access, name))


def _parse_access(form: FormFields) -> Access:
    names = frozenset(form.get("models").replace(",", " ").split())
    prices: dict[str, Any] = {
        name: typed_money(form.get(name), name, "price") for name in _PRICES if form.get(name)
    }
    return Access(names or None, form.chosen("doors"), form.chosen("providers"), **prices)
