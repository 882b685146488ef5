"""Budgets of tags and providers, soft budgets, and bounds of many at once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from accountkit import World
from faultkit import Reply, upstream
from hostedkit import Office, office
from ledgerkit import record
from servicekit import ServiceView, service_view
from waiting import eventually

from causerie.errors import Forbidden, InvalidRequest
from causerie.hosted.accounts.bounds import (
    UNBOUNDED,
    Budget,
    BudgetPeriod,
    Limit,
    LimitsAndBudgets,
    Unit,
    bounded,
)
from causerie.hosted.accounts.people import SYSTEM, Role, actor_of
from causerie.hosted.accounts.spending import LiveScopeBudgets
from causerie.hosted.store.usage import SqlUsage

BASE = "/gateway/v1"
CENT = Decimal("0.01")


def config(base_url: str) -> str:
    providers = "".join(
        f'[[providers]]\nname = "{name}"\nbase_url = "{base_url}"\ndialect = "vllm"\n'
        '[providers.health]\npath = ""\n'
        for name in ("north", "south")
    )
    return f"""
[store]
folder = "data"
[[doors]]
name = "gateway"
kind = "gateway"
keys = "accounts"
{providers}
[[aliases]]
id = "alone"
targets = [{{ provider = "north", model = "a" }}]
price = {{ prompt = "1000", completion = "2000" }}
[[aliases]]
id = "both"
targets = [
  {{ provider = "north", model = "b" }}, {{ provider = "south", model = "b", priority = 1 }},
]
price = {{ prompt = "1000", completion = "2000" }}
"""


@dataclass
class Company:
    """A gateway with two providers, its database, and a key of a project."""

    gateway: ServiceView
    office: Office
    key: str

    async def ask(self, model: str, tag: str = "") -> tuple[int, Mapping[str, str], Any]:
        url = f"{self.gateway.root}{BASE}/chat/completions"
        body = {"model": model, "messages": [{"role": "user", "content": "Hi"}]}
        headers = {"authorization": f"Bearer {self.key}", "x-tag": tag}
        async with self.gateway.session.post(url, json=body, headers=headers) as response:
            return response.status, response.headers, await response.json()

    async def set(self, kind: str, name: str, *budgets: Budget) -> None:
        await self.office.accounts.scope_budgets.set(SYSTEM, kind, name, budgets)


@pytest.fixture
async def company(tmp_path: Path) -> AsyncIterator[Company]:
    async with (
        upstream(lambda received: Reply("Yes.")) as up,
        service_view(tmp_path, config(up.base_url)) as running,
        office(tmp_path / "data") as opened,
    ):
        yield Company(running, opened, (await opened.key()).credential)


async def test_the_budget_of_a_tag_is_held_before_the_request(company: Company) -> None:
    await company.set("tag", "nightly", Budget(Decimal(0)))

    async def refused() -> bool:
        return (await company.ask("alone", "nightly"))[0] == 402

    await eventually(refused)
    _, _, answer = await company.ask("alone", "nightly")
    assert answer["error"]["code"] == "insufficient_budget"
    assert answer["error"]["metadata"]["budget"]["owner"] == "tag"
    assert (await company.ask("alone"))[0] == 200
    assert (await company.ask("alone", "other"))[0] == 200
    await company.set("tag", "nightly")

    async def admitted() -> bool:
        return (await company.ask("alone", "nightly"))[0] == 200

    await eventually(admitted)


async def test_a_provider_whose_budget_is_spent_gets_no_more_requests(company: Company) -> None:
    served = (await company.ask("both"))[1]["x-served-by"]
    assert served == "north/b"
    await company.set("provider", "north", Budget(CENT))

    async def moved() -> bool:
        return (await company.ask("both"))[1]["x-served-by"] == "south/b"

    await eventually(moved)
    status, _, answer = await company.ask("alone")
    assert (status, answer["error"]["code"]) == (402, "insufficient_budget")
    assert (
        "The budget of this service for the provider north is spent."
        in (answer["error"]["message"])
    )

    async def shown() -> bool:
        (north,) = await company.office.accounts.scope_budgets.every()
        assert (north.kind, north.name) == ("provider", "north")
        return north.spending[0].spent >= CENT

    await eventually(shown)
    soft = Budget(CENT, soft=True)
    await company.set("provider", "north", soft)

    async def back() -> bool:
        return (await company.ask("alone"))[0] == 200

    await eventually(back)


async def test_what_a_provider_spends_counts_at_once_and_its_period_ends(world: World) -> None:
    """Settled in memory at the end of a request; nothing waits for the database."""
    rules = world.accounts.scope_budgets
    live = LiveScopeBudgets(rules, world.clock)
    await rules.set(SYSTEM, "provider", "north", [Budget(Decimal(1), BudgetPeriod.DAY)])
    await rules.set(SYSTEM, "provider", "south", [Budget(Decimal(200), unit=Unit.TOKENS)])
    await SqlUsage(world.database).append([record(served_by="north/m", amount=Decimal("0.5"))])
    await live.refresh()
    assert live.spent == {}
    live.count(record(served_by="north/m", amount=Decimal("0.5")))
    assert live.spent == {"north": BudgetPeriod.DAY.end(world.now)}
    for _ in range(2):
        live.count(record(served_by="south/m"))  # of 120 tokens each
    live.count(record(served_by="south/m", status=502))
    assert set(live.spent) == {"north", "south"}
    await live.refresh()  # the database knows of less, which is never more than the truth
    assert set(live.spent) == {"north", "south"}
    world.later(days=1)
    await live.refresh()
    assert set(live.spent) == {"south"}
    await rules.set(SYSTEM, "provider", "south", [])
    await live.refresh()
    assert live.spent == {}


async def test_a_soft_budget_refuses_nothing(company: Company) -> None:
    office = company.office
    soft = LimitsAndBudgets(budgets=(Budget(Decimal(0), soft=True),))
    key = await office.key(bounds=soft)
    await office.accounts.projects.set_bounds(SYSTEM, office.project, soft)
    company.key = key.credential
    assert (await company.ask("alone"))[0] == 200
    hard = LimitsAndBudgets(budgets=(Budget(Decimal(0)),))
    await office.accounts.projects.set_bounds(SYSTEM, office.project, hard)

    async def refused() -> bool:
        return (await company.ask("alone"))[0] == 402

    await eventually(refused)


def test_credits_are_no_soft_budget() -> None:
    soft = Budget(Decimal(1), BudgetPeriod.NEVER, soft=True)
    found = bounded(LimitsAndBudgets(budgets=(soft,)), Decimal(5)).budgets
    assert [(each.amount, each.soft) for each in found] == [(Decimal(1), True), (Decimal(5), False)]


async def test_bounds_of_many_are_set_at_once(world: World) -> None:
    people = [await world.person() for _ in range(3)]
    project = await world.project(owner=people[0])
    mine = LimitsAndBudgets((Limit("small", concurrent=1),), (Budget(Decimal(9)),))
    await world.person_bounds.set(SYSTEM, people[0].id, mine)
    ids = [each.id for each in people]
    wanted = LimitsAndBudgets((Limit(requests_per_minute=5),), (Budget(Decimal(25)),))
    bulk = world.accounts.bulk_bounds
    assert await bulk.set(SYSTEM, wanted, users=ids, projects=[project.id], keep=True) == 4
    assert await world.person_bounds.see(SYSTEM, ids[1]) == wanted
    kept = await world.person_bounds.see(SYSTEM, ids[0])
    assert kept.budgets == (Budget(Decimal(25)),)
    assert set(kept.limits) == {Limit("small", concurrent=1), Limit(requests_per_minute=5)}
    assert await bulk.set(SYSTEM, wanted, users=ids) == 1
    assert await bulk.set(SYSTEM, wanted, users=ids) == 0
    async with world.store.reading() as repositories:
        number, changes = await repositories.keys.changes(0)
    assert changes is not None
    assert len(changes) == number
    assert {f"user:{id}" for id in ids} | {f"project:{project.id}"} <= set(changes)
    with pytest.raises(InvalidRequest, match="no user or project usr_none"):
        await bulk.set(SYSTEM, UNBOUNDED, users=[*ids, "usr_none"])
    assert await world.person_bounds.see(SYSTEM, ids[1]) == wanted
    owner = actor_of(people[0])
    with pytest.raises(Forbidden):
        await bulk.set(owner, UNBOUNDED, projects=[project.id])
    assert (await world.actions()).count("user.bounds") == 5


async def test_wrong_budgets_of_tags_and_providers(world: World) -> None:
    scopes, budget = world.accounts.scope_budgets, Budget(Decimal(1))
    for kind, name, budgets in (
        ("key", "a", [budget]),
        ("tag", "", [budget]),
        ("tag", "x" * 81, [budget]),
        ("tag", " a", [budget]),
        ("provider", "north", [Budget(Decimal(1), model="small")]),
        ("tag", "a", [budget, budget]),
    ):
        with pytest.raises(InvalidRequest):
            await scopes.set(SYSTEM, kind, name, budgets)
    member = await world.person()
    await world.project(owner=await world.person(), member=member)
    with pytest.raises(Forbidden):
        await scopes.set(actor_of(member), "tag", "a", [budget])
    with pytest.raises(Forbidden):
        await scopes.every(actor_of(member))
    await scopes.set(SYSTEM, "tag", "a", [budget])
    await world.join(await world.project(), member, Role.OWNER)
    assert [each.name for each in await scopes.every()] == ["a"]
