"""Budgets of tags and providers, soft budgets, and bounds of many at once, on the pages."""

from __future__ import annotations

from decimal import Decimal

from consolekit import Place

from causerie.hosted.accounts.bounds import Budget, LimitsAndBudgets
from causerie.hosted.accounts.people import SYSTEM

BUDGET = {
    "budget_was": "",
    "budget_amount": "25",
    "budget_unit": "money",
    "budget_period": "month",
    "budget_model": "",
    "budget_soft": "",
}


async def test_an_operator_sets_the_budget_of_a_tag_and_of_a_provider(place: Place) -> None:
    world = place.world
    visitor = await place.visitor_of(await world.person(operator=True))
    assert "No budgets of tags and providers yet" in (await visitor.get("/operator/budgets")).text
    edit = "/operator/budgets/edit"
    assert (await visitor.get(edit)).status == 200
    tag = BUDGET | {"kind": "tag", "name": "cost centre/7", "budget_soft": "soft"}
    assert (await visitor.post(edit, tag)).target == "/operator/budgets?done=bounds-saved"
    await visitor.post(edit, BUDGET | {"kind": "provider", "name": "north"})
    page = (await visitor.get("/operator/budgets")).text
    assert "cost centre/7" in page
    assert "north" in page
    address = f"{edit}?kind=tag&name=cost%20centre/7"
    assert "kind=tag&amp;name=cost%20centre/7" in page
    changing = await visitor.get(address)
    assert "Budget of cost centre/7" in changing.text
    assert 'value="soft" selected' in changing.text
    fields = dict(changing.fields) | {"budget_amount": "30"}
    assert (await visitor.post(edit, fields)).status == 303
    found = {each.name: each.spending for each in await world.accounts.scope_budgets.every()}
    assert [one.budget for one in found["cost centre/7"]] == [Budget(Decimal(30), soft=True)]
    wrong = await visitor.post(edit, BUDGET | {"kind": "tag", "name": "x" * 81})
    assert (wrong.status, "A name has 1 to 80" in wrong.text) == (400, True)
    audit = (await visitor.get("/operator/audit?kind=tag")).text
    assert "set budgets of the tag" in audit


async def test_bounds_of_many_are_set_at_once(place: Place) -> None:
    world = place.world
    visitor = await place.visitor_of(await world.person("olga", operator=True))
    ada, ben = await world.person("ada"), await world.person("ben")
    project = await world.project(owner=ada, member=ben)
    many = "/operator/budgets/many"
    assert "Members of Project" in (await visitor.get(many)).text
    form = BUDGET | {"whom": "people", "find": "ADA@example", "keep": "yes"}
    assert (await visitor.post(many, form)).target == "/operator/users?done=bounds-saved"
    wanted = LimitsAndBudgets(budgets=(Budget(Decimal(25)),))
    assert await world.person_bounds.see(SYSTEM, ada.id) == wanted
    assert await world.person_bounds.see(SYSTEM, ben.id) == LimitsAndBudgets()
    await visitor.post(many, BUDGET | {"whom": project.id, "find": "", "keep": "no"})
    assert await world.person_bounds.see(SYSTEM, ben.id) == wanted
    await visitor.post(many, BUDGET | {"whom": "projects", "find": "", "keep": "no"})
    assert (await world.projects.see(SYSTEM, project.id)).bounds == wanted
    nobody = await visitor.post(many, form | {"find": "nobody"})
    assert (nobody.status, "Nobody is chosen" in nobody.text) == (400, True)
    member = await place.visitor_of(ben)
    assert (await member.get(many)).status == 403
    assert (await member.post(many, form)).status == 403
