"""All projects and people at once: what they spent, their keys and budgets, their last activity."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from accountkit import World
from ledgerkit import record

from causerie.errors import Forbidden
from causerie.hosted.accounts.bounds import Budget, BudgetPeriod, LimitsAndBudgets
from causerie.hosted.accounts.people import Project, User, actor_of
from causerie.hosted.accounts.spending import DAYS
from causerie.hosted.accounts.tokens import SessionClient
from causerie.hosted.accounts.usage import By
from causerie.hosted.store.usage import SqlUsage


async def _spend(world: World, project: Project, user: User, cost: str, *, days: int = 0) -> None:
    at = int((world.now - timedelta(days=days)).timestamp()) * 1_000_000
    made = record(project=project.id, user=user.id, amount=Decimal(cost), at=at)
    await SqlUsage(world.database).append([made])


def _midnight(world: World, days: int) -> datetime:
    day = (world.now - timedelta(days=days)).astimezone(UTC)
    return day.replace(hour=0, minute=0, second=0, microsecond=0)


async def test_projects_and_people_with_what_they_spent_and_hold(world: World) -> None:
    boss = await world.person(operator=True)
    ada, bo = await world.person(), await world.person()
    atlas, quiet = await world.project(owner=ada, member=bo), await world.project(owner=bo)
    for maker in (ada, ada, bo):
        await world.key(atlas, maker)
    gone = await world.key(atlas, ada)
    await world.keys.delete(actor_of(ada), gone.key.id)
    await _spend(world, atlas, ada, "1.5", days=3)
    await _spend(world, atlas, ada, "0.5", days=2)
    await _spend(world, atlas, bo, "0.25", days=DAYS - 1)
    await _spend(world, atlas, bo, "8", days=DAYS)  # too long ago
    actor = actor_of(boss)

    projects = {each.project.id: each for each in await world.summaries.projects(actor)}
    assert (projects[atlas.id].cost, projects[atlas.id].keys) == (Decimal("2.25"), 3)
    assert projects[atlas.id].active_at == _midnight(world, 2)
    assert (projects[quiet.id].cost, projects[quiet.id].keys) == (Decimal(0), 0)
    assert projects[quiet.id].active_at is None

    people = {each.user.id: each for each in await world.summaries.people(actor)}
    assert (people[ada.id].cost, people[ada.id].keys) == (Decimal("2.0"), 2)
    assert (people[bo.id].cost, people[bo.id].keys) == (Decimal("0.25"), 1)
    assert people[boss.id].active_at is None


async def test_somebody_is_active_who_signs_in_or_whose_key_is_used(world: World) -> None:
    boss, ada = await world.person(operator=True), await world.person()
    project = await world.project(owner=ada)
    await _spend(world, project, ada, "1", days=2)

    async def active() -> datetime | None:
        found = await world.summaries.people(actor_of(boss))
        return next(each.active_at for each in found if each.user.id == ada.id)

    assert await active() == _midnight(world, 2)
    async with world.store.writing() as repositories:
        await world.sign_in.begin(repositories, ada, SessionClient())
    assert await active() == world.now


async def test_budgets_of_several_projects_are_asked_for_at_once(world: World) -> None:
    boss, ada = await world.person(operator=True), await world.person()
    first, second, third = [await world.project(owner=ada) for _ in range(3)]
    for project, amount in ((first, "10"), (second, "4")):
        bounds = LimitsAndBudgets((), (Budget(Decimal(amount), BudgetPeriod.MONTH),))
        await world.projects.set_bounds(actor_of(boss), project.id, bounds)
    await _spend(world, first, ada, "2.5")
    found = await world.summaries.spending(
        actor_of(boss), By.PROJECT, [first.id, second.id, third.id]
    )
    assert [(each.spent, each.percent) for each in found[first.id]] == [(Decimal("2.5"), 25)]
    assert [(each.spent, each.percent) for each in found[second.id]] == [(Decimal(0), 0)]
    assert list(found[third.id]) == []


async def test_only_operators_see_them(world: World) -> None:
    actor = actor_of(await world.person())
    for ask in (world.summaries.projects, world.summaries.people):
        with pytest.raises(Forbidden):
            await ask(actor)
    with pytest.raises(Forbidden):
        await world.summaries.spending(actor, By.PROJECT, [])
