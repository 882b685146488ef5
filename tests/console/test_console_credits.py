"""Credits in the console, what operators add and take, own projects and bounds, and the margin."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pytest
from accountkit import World
from consolekit import Place, console_of
from ledgerkit import record
from stripekit import StandIn, sales, stripe

from causerie.catalog.model import Tariff
from causerie.hosted.accounts.authorization import Beginning, Policies
from causerie.hosted.accounts.bounds import Budget, Limit, LimitsAndBudgets
from causerie.hosted.accounts.people import SYSTEM, actor_of
from causerie.hosted.accounts.tokens import digest
from causerie.hosted.payments.stripe import Sales
from causerie.hosted.store.usage import SqlUsage


@pytest.fixture
async def shop() -> AsyncIterator[StandIn]:
    async with stripe() as there:
        yield there


@pytest.fixture
async def place(lite: World, shop: StandIn) -> AsyncIterator[Place]:
    async with console_of(lite, sales=sales(lite, shop.url)) as there:
        yield there


async def test_operators_add_and_take_and_the_balance_is_everywhere(place: Place) -> None:
    world = place.world
    owner, boss = await world.person(), await world.person(operator=True)
    project = await world.project(owner=owner)
    mine, operator = await place.visitor_of(owner), await place.visitor_of(boss)
    path = f"/projects/{project.id}/credits"
    assert 'name="put"' not in (await mine.get(path)).text
    assert (await mine.post(f"{path}/put", {"put": "5"})).status == 403
    assert 'name="put"' in (await operator.get(path)).text
    assert (await operator.post(f"{path}/put", {"put": "5", "note": "A trial"})).status == 303
    assert (await operator.post(f"{path}/put", {"put": "-4.25"})).status == 303
    shown = (await mine.get(path)).text
    assert "A trial" in shown
    assert re.search(r'<dd title="\$0\.75">\$0\.75</dd>', shown)
    assert "The balance is low" in shown
    for page in (f"/projects/{project.id}/overview", f"/projects/{project.id}/keys"):
        text = (await mine.get(page)).text
        assert re.search(r'nav-balance number nav-low" title="\$0\.75">', text), page
    assert "nearly spent" in (await mine.get(f"/projects/{project.id}/overview")).text
    wrong = await operator.post(f"{path}/put", {"put": "much"})
    assert (wrong.status, 'aria-invalid="true"' in wrong.text) == (400, True)
    assert "credits.put" in await world.actions()


async def test_the_palette_leads_to_credits_whoever_can_add_some(place: Place, lite: World) -> None:
    async def offered(at: Place, *, owner: bool) -> bool:
        person = await at.world.person(operator=not owner)
        project = await at.world.project(owner=person)
        visitor = await at.visitor_of(person)
        page = (await visitor.get(f"/go?project={project.id}&find=add+credits")).text
        return (
            f'href="/console/projects/{project.id}/credits"' in page.partition("palette-found")[2]
        )

    assert await offered(place, owner=True)
    assert await offered(place, owner=False)
    async with console_of(lite) as nothing_sold:
        assert not await offered(nothing_sold, owner=True)
        assert await offered(nothing_sold, owner=False)


async def test_credits_are_bought_within_bounds_by_owners(place: Place, shop: StandIn) -> None:
    world = place.world
    owner, member = await world.person(), await world.person()
    project = await world.project(owner=owner, member=member)
    visitor, other = await place.visitor_of(owner), await place.visitor_of(member)
    path = f"/projects/{project.id}/credits"
    await visitor.get(path)
    paying = await visitor.post(f"{path}/buy", {"amount": "$12.50"})
    assert f'href="{shop.url}/pay/1"' in paying.text
    assert shop.forms[0]["metadata[cents]"] == "1250"
    for amount in ("4.99", "100.01", "10.001", "ten", "-10", ""):
        refused = await visitor.post(f"{path}/buy", {"amount": amount})
        assert (refused.status, len(shop.forms)) == (400, 1), amount
    assert 'name="amount"' not in (await other.get(path)).text
    assert (await other.post(f"{path}/buy", {"amount": "10"})).status == 403
    shop.broken = True
    assert (await visitor.post(f"{path}/buy", {"amount": "10"})).status == 502


async def test_without_sales_or_credits_nothing_is_said_of_them(lite: World) -> None:
    async with console_of(lite) as place:
        owner = await lite.person()
        project = await lite.project(owner=owner)
        visitor = await place.visitor_of(owner)
        assert "/credits" not in (await visitor.get(f"/projects/{project.id}/overview")).text
    shop = Sales(page="https://shop.example/?id={project}", low=Decimal(1))
    async with console_of(lite, sales=shop) as place:
        visitor = await place.visitor_of(owner)
        page = (await visitor.get(f"/projects/{project.id}/credits")).text
        assert f'href="https://shop.example/?id={project.id}"' in page


async def test_people_create_few_projects_which_spend_nothing(place: Place) -> None:
    world = place.world
    first = LimitsAndBudgets(budgets=(Budget(Decimal(5)),), limits=(Limit(concurrent=2),))
    policies = Policies(personal_project=Beginning(first), own_projects=2)
    world.accounts.govern(policies)
    identity = ("https://idp.example", "eve")
    person = await world.users.sign_up(email="eve@example.org", name="Eve", identity=identity)
    [(mine, _)] = await world.projects.of(person)
    assert mine.name == "Eve's project"
    visitor = await place.visitor_of(person)
    assert "/new-project" in (await visitor.get(f"/projects/{mine.id}/keys")).text
    made = await visitor.post("/new-project", {"name": "Second"})
    assert made.status == 303
    second = next(each for each, _ in await world.projects.of(person) if each.name == "Second")
    bounds = (await world.projects.see(SYSTEM, second.id)).bounds
    assert bounds.spends_nothing
    assert bounds.limits == first.limits
    full = await visitor.post("/new-project", {"name": "Third"})
    assert (full.status, "Archive one first" in full.text) == (409, True)
    assert "/new-project" not in (await visitor.get(f"/projects/{mine.id}/keys")).text
    await world.projects.archive(actor_of(person), second.id)
    again = await visitor.post("/new-project", {"name": "Third"})
    assert (again.status, "2 projects a day" in again.text) == (409, True)
    world.later(days=1)
    assert (await visitor.post("/new-project", {"name": "Third"})).status == 303
    world.accounts.govern(replace(policies, personal_project=None))
    assert (await visitor.get("/new-project")).status == 403


async def test_owners_lower_what_operators_have_set(place: Place) -> None:
    world = place.world
    owner, member = await world.person(), await world.person()
    project = await world.project(owner=owner, member=member)
    granted = LimitsAndBudgets((Limit(concurrent=4),), (Budget(Decimal(10)),))
    await world.projects.set_bounds(SYSTEM, project.id, granted)
    key = await world.key(project, member)
    visitor, other = await place.visitor_of(owner), await place.visitor_of(member)
    path = f"/projects/{project.id}"
    sent = {"budget_amount": "3", "budget_unit": "money", "budget_period": "month"}
    sent |= {"budget_model": "", "budget_soft": "", "budget_was": ""}
    assert (await other.post(f"{path}/lower", sent)).status == 403
    assert (await visitor.get(f"{path}/lower")).status == 200
    assert (await visitor.post(f"{path}/lower", sent)).status == 303
    assert (await visitor.post(f"{path}/members/{member.id}/bounds", sent)).status == 303
    async with world.store.reading() as tx:
        grant = await tx.keys.grant(digest(key.credential))
    assert grant is not None
    assert grant.project_bounds.budgets == (Budget(Decimal(3)),)
    assert grant.project_bounds.limits == granted.limits
    assert grant.member_bounds.budgets == (Budget(Decimal(3)),)
    assert "of $3.00" in (await visitor.get(f"{path}/limits")).text
    await world.projects.lower(actor_of(owner), project.id, LimitsAndBudgets())
    assert (await world.projects.see(SYSTEM, project.id)).bounds == granted
    more = LimitsAndBudgets(budgets=(Budget(Decimal(20)),))
    await world.projects.lower(actor_of(owner), project.id, more)
    assert (await world.projects.see(SYSTEM, project.id)).bounds.budgets == granted.budgets


async def test_the_margin_of_operators(place: Place) -> None:
    world, view = place.world, place.service_view
    boss, owner = await world.person(operator=True), await world.person()
    project = await world.project(owner=owner)
    cost = Tariff(prompt=Decimal("0.000001"), completion=Decimal("0.000002"))
    view.costs = {("m", "north/m"): cost}
    charged = {"project": project.id, "at": int(world.now.timestamp() * 1_000_000)}
    usage = SqlUsage(world.database)
    await usage.append(
        [
            record(
                model="m",
                served_by="north/m",
                prompt=1000,
                completion=500,
                cost=3_000_000,
                **charged,
            ),
            record(
                model="m",
                served_by="south/m",
                prompt=1000,
                completion=500,
                cost=1_000_000,
                **charged,
            ),
        ]
    )
    visitor = await place.visitor_of(boss)
    page = (await visitor.get("/operator/business")).text
    for words in ("$0.004", "$0.002", "$0.001", "33.3 %", "of revenue has no known cost"):
        assert words in page, words
    assert (await (await place.visitor_of(owner)).get("/operator/business")).status == 403


async def test_operators_read_credits_and_last_requests_in_their_lists(lite: World) -> None:
    rich, poor = [await lite.projects.create(SYSTEM, name) for name in ("Rich", "Poor")]
    person = await lite.person("asking")
    await lite.credits.put(SYSTEM, rich.id, Decimal(25), "paid")
    day = lite.now - timedelta(days=3)
    spent = {"at": int(day.timestamp()) * 1_000_000, "amount": Decimal("1.5")}
    await SqlUsage(lite.database).append([record(project=rich.id, user=person.id, **spent)])
    async with console_of(lite) as place:
        operator = await place.visitor_of(await lite.person("boss", operator=True))
        projects = (await operator.get("/operator/projects?sort=credits")).text
        users = (await operator.get("/operator/users?sort=-asked")).text
    row = projects[projects.index(f"/projects/{rich.id}/credits") :]
    assert 'title="$23.50"' in row[: row.index("</a>")]
    assert f"/projects/{poor.id}/credits" not in projects
    assert projects.index(">Rich<") < projects.index(">Poor<")
    row = users[users.index("asking@example.org") :]
    cell = row[row.index('data-label="Last request"') : row.index('data-label="Last active"')]
    assert day.strftime("%Y-%m-%d") in cell
    assert users.index("asking@") < users.rindex("boss@")
    assert f"/operator/audit?subject={person.id}" in row[: row.index("</tr>")]
