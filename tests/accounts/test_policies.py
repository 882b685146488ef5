"""What new people and projects begin with, and who may turn on request logging."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from accountkit import World

from causerie.access.allowed import ALL, Access
from causerie.composition.account_frontend import policies
from causerie.errors import Forbidden
from causerie.hosted.accounts.authorization import Policies
from causerie.hosted.accounts.bounds import UNBOUNDED, Budget, BudgetPeriod, Limit, LimitsAndBudgets
from causerie.hosted.accounts.keys import Purpose
from causerie.hosted.accounts.people import SYSTEM, Role, actor_of
from causerie.settings.load import load
from causerie.settings.problems import SettingsError

ADA = ("https://idp.example", "ada")
PEOPLE = """
[[policies]]
name = "people"
budget = "25"
limits = { requests_per_minute = 60 }
models = ["chat", "openai/*"]
"""
PROJECTS = """
[[policies]]
name = "projects"
budget = "500"
period = "week"
soft = true
providers = ["north"]
completion_price = "10"
"""
OF_PERSON = LimitsAndBudgets((Limit(requests_per_minute=60),), (Budget(Decimal(25)),))
OF_PROJECT = LimitsAndBudgets(budgets=(Budget(Decimal(500), BudgetPeriod.WEEK, soft=True),))
MODELS = Access(models=frozenset({"chat", "openai/*"}))
NORTH = Access(providers=frozenset({"north"}), completion_price=Decimal(10))


def read(folder: Path, text: str) -> Policies:
    file = folder / "causerie.toml"
    file.write_text(f'[server]\nkeys = "accounts"\n{text}', encoding="utf-8")
    return policies(load(file=file, environ={}).settings)


async def begun(world: World, user: str, project: str) -> tuple[Any, ...]:
    """Bounds and rules of a user and a project."""
    async with world.store.reading() as tx:
        owners = f"user:{user}", f"project:{project}"
        bounds, rules = await tx.keys.bounds_of(owners), await tx.keys.access(owners)
    return tuple((bounds[owner], rules.get(owner, ALL)) for owner in owners)


async def test_new_people_and_projects_begin_with_their_policy(
    world: World, tmp_path: Path
) -> None:
    before = await world.person()
    world.accounts.govern(read(tmp_path, PEOPLE + PROJECTS))
    user, project = await world.person(), await world.project()
    assert await begun(world, user.id, project.id) == ((OF_PERSON, MODELS), (OF_PROJECT, NORTH))
    operator = await world.person(operator=True)
    for other in (before, operator):
        assert (await begun(world, other.id, project.id))[0] == (UNBOUNDED, ALL)
    link = await world.users.invite(SYSTEM)
    invited = await world.users.accept(
        link.token, email="guest@example.org", name="Guest", password=None
    )
    assert (await begun(world, invited.id, project.id))[0] == (OF_PERSON, MODELS)
    assert await world.projects.of(invited) == []


@pytest.mark.parametrize(
    ("policy", "budget", "expected"),
    [
        ("", "", LimitsAndBudgets(budgets=(Budget(Decimal(0)),))),
        (PROJECTS, "", OF_PROJECT),
        (PROJECTS, "5", LimitsAndBudgets(budgets=(Budget(Decimal(5)), *OF_PROJECT.budgets))),
        (PROJECTS, "unlimited", OF_PROJECT),
        ("", "unlimited", UNBOUNDED),
    ],
)
async def test_a_personal_project_begins_with_what_is_set_for_it(
    lite: World, tmp_path: Path, policy: str, budget: str, expected: LimitsAndBudgets
) -> None:
    console = f'[console]\nnew_project_budget = "{budget}"\n' if budget else ""
    lite.accounts.govern(read(tmp_path, console + policy))
    user = await lite.users.sign_up(email="ada@example.org", name="Ada", identity=ADA)
    [(project, _)] = await lite.projects.of(user)
    assert (await lite.projects.see(SYSTEM, project.id)).bounds == expected


async def test_a_personal_project_has_a_name_and_a_role_or_is_none(
    lite: World, tmp_path: Path
) -> None:
    own = '[[policies]]\nname = "people"\nrole = "member"\n'
    named = f'{own}personal_project_name = "Project of {{name}} ({{email}})"\n'
    lite.accounts.govern(read(tmp_path, named))
    ada = await lite.users.sign_up(email="ada@example.org", name="Ada", identity=ADA)
    [(project, membership)] = await lite.projects.of(ada)
    assert project.name == "Project of Ada (ada@example.org)"
    assert membership.role is Role.MEMBER
    with pytest.raises(Forbidden):
        await lite.recordings.keep(actor_of(ada), project.id, 7)
    never = '[[policies]]\nname = "people"\npersonal_projects = "never"\n'
    lite.accounts.govern(read(tmp_path, never))
    identity = ("https://idp.example", "ben")
    ben = await lite.users.sign_up(email="ben@example.org", name="Ben", identity=identity)
    assert await lite.projects.of(ben) == []


async def test_the_first_operator_is_not_limited(lite: World, tmp_path: Path) -> None:
    never = PEOPLE + 'personal_projects = "never"\nrole = "viewer"\n' + PROJECTS
    lite.accounts.govern(read(tmp_path, never))
    link = await lite.users.first_link()
    assert link is not None
    olga = await lite.users.accept(link.token, email="olga@example.org", name="Olga", password=None)
    [(project, membership)] = await lite.projects.of(olga)
    assert (project.name, membership.role) == ("Olga's project", Role.OWNER)
    assert await begun(lite, olga.id, project.id) == ((UNBOUNDED, ALL), (UNBOUNDED, ALL))


@pytest.mark.parametrize(
    ("policy", "may"),
    [
        ("admins", {"owner", "admin", "key", "owner's key", "system"}),
        ("owners", {"owner", "owner's key", "system"}),
        ("nobody", set[str]()),
    ],
)
async def test_who_may_turn_on_request_logging(
    lite: World, tmp_path: Path, policy: str, may: set[str]
) -> None:
    owner, admin = await lite.person(), await lite.person()
    project = await lite.project(owner=owner, admin=admin)
    by_owner = await lite.key(project, owner, purpose=Purpose.MANAGEMENT)
    by_machine = await lite.key(project, purpose=Purpose.MANAGEMENT)
    text = f'[[policies]]\nname = "projects"\nrequest_logging = "{policy}"\n'
    lite.accounts.govern(read(tmp_path, text))
    actors = {"owner": actor_of(owner), "admin": actor_of(admin), "system": SYSTEM}
    for name, made in (("owner's key", by_owner), ("key", by_machine)):
        key = made.key
        actors[name] = type(SYSTEM)("key", key.id, key.name, project=project.id, holder=key.person)
    for name, actor in actors.items():
        if name in may:
            await lite.recordings.keep(actor, project.id, 7)
        else:
            with pytest.raises(Forbidden, match="policy of this service"):
                await lite.recordings.keep(actor, project.id, 7)
        await lite.recordings.keep(actor, project.id, None)  # which anybody may who might


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (PEOPLE + PEOPLE, "is there already"),
        ('[[policies]]\nname = "projects"\nrole = "member"\n', "policy of people"),
        ('[[policies]]\nname = "people"\nrequest_logging = "nobody"\n', "policy of projects"),
        ('[[policies]]\nname = "people"\nbudget = "much"\n', "an amount as text"),
        ('[[policies]]\nname = "teams"\n', "name"),
    ],
)
def test_wrong_policies_are_named(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(SettingsError) as caught:
        read(tmp_path, text)
    assert words in str(caught.value)
