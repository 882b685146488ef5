"""Users and projects: how they come to be, who belongs, and what cannot be undone by mistake."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from decimal import Decimal

import pytest
from accountkit import PASSWORD, World

from causerie.errors import Forbidden, InvalidRequest, NotFound, StoreUnavailable
from causerie.hosted.accounts.bounds import Budget, BudgetPeriod, Limit, LimitsAndBudgets, Unit
from causerie.hosted.accounts.keys import KeyState
from causerie.hosted.accounts.people import SYSTEM, Role, User, actor_of
from causerie.hosted.accounts.records import AuditFilter
from causerie.hosted.accounts.tokens import SessionClient
from causerie.hosted.store.accounts import SqlStore
from causerie.hosted.store.database import Database


async def first(world: World) -> User:
    link = await world.users.first_link()
    assert link is not None
    return await world.users.accept(
        link.token, email="Ada@Example.org", name=" Ada  Lovelace ", password=PASSWORD
    )


async def test_the_first_link_makes_the_operator_and_works_once(world: World) -> None:
    link = await world.users.first_link()
    assert link is not None
    made = await world.users.accept(
        link.token, email="Ada@Example.org", name=" Ada  Lovelace ", password=PASSWORD
    )
    assert (made.email, made.name, made.operator) == ("ada@example.org", "Ada Lovelace", True)
    [(project, membership)] = await world.projects.of(made)
    assert (project.name, membership.role) == ("Ada Lovelace's project", Role.OWNER)
    with pytest.raises(NotFound, match="does not work any more"):
        await world.users.accept(link.token, email="b@example.org", name="B", password=PASSWORD)
    assert await world.users.first_link() is None


async def test_a_link_that_two_use_at_once_makes_one_account(world: World) -> None:
    link = await world.users.first_link()
    assert link is not None
    done = await asyncio.gather(
        *(
            world.users.accept(link.token, email=f"{n}@example.org", name="N", password=PASSWORD)
            for n in range(4)
        ),
        return_exceptions=True,
    )
    assert sorted(type(each).__name__ for each in done) == [*["NotFound"] * 3, "User"]


async def test_older_links_for_the_first_operator_end_with_the_first(world: World) -> None:
    links = [await world.users.first_link() for _ in range(3)]
    done = await asyncio.gather(
        *(
            world.users.accept(
                link.token, email=f"{link.link.id}@example.org", name="N", password=PASSWORD
            )
            for link in links
            if link is not None
        ),
        return_exceptions=True,
    )
    assert sorted(type(each).__name__ for each in done) == ["NotFound", "NotFound", "User"]


async def test_an_invitation_can_make_an_operator_of_who_is_here(world: World) -> None:
    operator, guest = await world.person(operator=True), await world.person()
    link = await world.users.invite(actor_of(operator), operator=True)
    await world.users.join(link.token, guest)
    found = {each.id: each.operator for each in await world.users.every(SYSTEM)}
    assert found[guest.id]
    assert (await world.actions())[-1] == "user.operator"


async def test_links_end(world: World) -> None:
    link = await world.users.first_link()
    assert link is not None
    world.later(days=2)
    with pytest.raises(NotFound):
        await world.users.link(link.token)


async def test_no_secret_is_kept_or_shown(world: World) -> None:
    link = await world.users.first_link()
    assert link is not None
    user = await first(world)
    project = await world.project(owner=user)
    key = await world.key(project, user)
    for shown in (link, key, user):
        for secret in (link.token, key.credential, user.password or "$argon2"):
            assert secret not in repr(shown)


async def test_an_address_has_one_account(world: World) -> None:
    await world.person("ada")
    with pytest.raises(InvalidRequest, match="has an account already") as caught:
        await world.users.create(SYSTEM, email="ADA@example.org", name="Ada", password=None)
    assert caught.value.status == 409


async def test_invited_people_join_with_their_role(world: World) -> None:
    owner = await world.person()
    project = await world.project(owner=owner)
    link = await world.projects.invite(
        actor_of(owner), project.id, Role.VIEWER, email="new@example.org"
    )
    assert [each.id for each in await world.projects.invitations(actor_of(owner), project.id)] == [
        link.link.id
    ]
    with pytest.raises(InvalidRequest, match="another address"):
        await world.users.accept(link.token, email="other@example.org", name="O", password=PASSWORD)
    user = await world.users.accept(
        link.token, email="new@example.org", name="New", password=PASSWORD
    )
    members = await world.projects.members(actor_of(owner), project.id)
    assert {(each.user.id, each.role) for each in members} == {
        (owner.id, Role.OWNER),
        (user.id, Role.VIEWER),
    }
    assert await world.projects.invitations(actor_of(owner), project.id) == []
    assert [(each.id, part.role) for each, part in await world.projects.of(user)] == [
        (project.id, Role.VIEWER)
    ]


async def test_who_has_an_account_joins_with_it(world: World) -> None:
    owner, guest = await world.person(), await world.person()
    project = await world.project(owner=owner)
    link = await world.projects.invite(actor_of(owner), project.id, Role.MEMBER)
    await world.users.join(link.token, guest)
    with pytest.raises(NotFound):
        await world.users.join(link.token, guest)
    again = await world.projects.invite(actor_of(owner), project.id, Role.OWNER)
    with pytest.raises(InvalidRequest, match="already"):
        await world.users.join(again.token, guest)


async def test_of_two_invitations_used_at_once_one_counts(world: World) -> None:
    """Either may be the one; the other changes no role, and is not used up."""
    owner, guest = await world.person(), await world.person()
    project = await world.project(owner=owner)
    roles = (Role.OWNER, Role.VIEWER)
    links = [await world.projects.invite(actor_of(owner), project.id, role) for role in roles]
    done = await asyncio.gather(
        *(world.users.join(each.token, guest) for each in links), return_exceptions=True
    )
    [(_, part)] = await world.projects.of(guest)
    assert part.role is roles[done.index(None)]
    [refused] = [each for each in done if each is not None]
    assert isinstance(refused, InvalidRequest)
    [left] = await world.projects.invitations(actor_of(owner), project.id)
    assert left.role is not part.role


async def test_an_invitation_can_be_withdrawn(world: World) -> None:
    owner = await world.person()
    project, other = await world.project(owner=owner), await world.project(owner=owner)
    link = await world.projects.invite(actor_of(owner), project.id, Role.MEMBER)
    with pytest.raises(NotFound):
        await world.projects.withdraw(actor_of(owner), other.id, link.link.id)
    await world.projects.withdraw(actor_of(owner), project.id, link.link.id)
    with pytest.raises(NotFound):
        await world.users.link(link.token)


async def test_only_owners_withdraw_what_makes_an_owner(world: World) -> None:
    owner, admin = await world.person(), await world.person()
    project = await world.project(owner=owner, admin=admin)
    link = (await world.projects.invite(actor_of(owner), project.id, Role.OWNER)).link
    with pytest.raises(Forbidden):
        await world.projects.withdraw(actor_of(admin), project.id, link.id)
    await world.projects.withdraw(actor_of(owner), project.id, link.id)


async def test_the_last_owner_and_the_last_operator_stay(world: World) -> None:
    owner = await world.person(operator=True)
    project = await world.project(owner=owner)
    actor = actor_of(owner)
    for attempt in (
        world.projects.remove(actor, project.id, owner.id),
        world.projects.change_role(actor, project.id, owner.id, Role.VIEWER),
        world.users.disable(actor, owner.id),
        world.users.make_operator(actor, owner.id, operator=False),
    ):
        with pytest.raises(InvalidRequest) as caught:
            await attempt
        assert caught.value.status == 409


async def test_two_owners_cannot_both_leave_at_once(world: World) -> None:
    one, two = await world.person(), await world.person()
    project = await world.project(owner=one)
    await world.join(project, two, Role.OWNER)
    done = await asyncio.gather(
        world.projects.remove(actor_of(one), project.id, one.id),
        world.projects.remove(actor_of(two), project.id, two.id),
        return_exceptions=True,
    )
    assert sorted(type(each).__name__ for each in done) == ["InvalidRequest", "Narrowed"]


async def test_nobody_writes_back_what_somebody_else_has_changed(world: World) -> None:
    """A change to something that is being changed waits, and finds the new state."""
    person, project = await world.person(), await world.project()
    key = (await world.key(project)).key
    async with world.store.writing() as repositories:
        found = (
            await repositories.people.find(person.id),
            await repositories.projects.find(project.id),
            await repositories.keys.find(key.id),
        )
        others: list[asyncio.Task[object]] = [
            asyncio.create_task(world.users.disable(SYSTEM, person.id)),
            asyncio.create_task(world.projects.archive(SYSTEM, project.id)),
            asyncio.create_task(world.keys.disable(SYSTEM, key.id)),
        ]
        done, _ = await asyncio.wait(others, timeout=0.3)
        assert not done
        assert all(found)
        await repositories.people.change(replace(found[0] or person, name="New"))
        await repositories.projects.change(replace(found[1] or project, name="New"))
        await repositories.keys.change(replace(found[2] or key, name="New"))
    await asyncio.gather(*others)
    user = await world.users.see(SYSTEM, person.id)
    archived = (await world.projects.see(SYSTEM, project.id)).project
    stopped = await world.keys.see(SYSTEM, key.id)
    assert (user.name, user.disabled_at) == ("New", world.now)
    assert (archived.name, archived.archived_at) == ("New", world.now)
    assert (stopped.name, stopped.disabled_at) == ("New", world.now)


@pytest.mark.parametrize("what", ["rename", "password", "join"])
async def test_what_people_change_of_themselves_undoes_nothing(world: World, what: str) -> None:
    """They came in as an operator; while they did this, somebody has shut them out."""
    await world.person(operator=True)
    user = await world.person(operator=True, password=PASSWORD)
    offered = await world.users.invite(SYSTEM, operator=True)
    if what == "join":
        user = await world.users.make_operator(SYSTEM, user.id, operator=False)
    await world.users.disable(SYSTEM, user.id)
    await world.users.make_operator(SYSTEM, user.id, operator=False)
    match what:
        case "rename":
            await world.profile.rename(user, "New")
        case "password":
            new = "eight red kettles whistle"
            await world.profile.change_password(user, PASSWORD, new, SessionClient())
        case _:
            await world.users.join(offered.token, user)
    changed = await world.users.see(SYSTEM, user.id)
    assert changed.disabled_at is not None
    assert changed.operator is (what == "join")


async def test_the_keys_of_who_is_removed_stop(world: World) -> None:
    owner, member = await world.person(), await world.person()
    project = await world.project(owner=owner, member=member)
    theirs, other = await world.key(project, member), await world.key(project, owner)
    await world.projects.remove(actor_of(owner), project.id, member.id)
    keys = {each.id: each for each in await world.keys.of(actor_of(owner), project.id)}
    assert keys[theirs.key.id].state(world.now) is KeyState.WITHDRAWN
    assert keys[other.key.id].state(world.now) is KeyState.ACTIVE


async def test_bounds_come_back_as_they_were_set(world: World) -> None:
    project = await world.project()
    bounds = LimitsAndBudgets(
        (Limit(requests_per_minute=60), Limit("small", tokens_per_minute=1000, concurrent=2)),
        (
            Budget(Decimal("12.345678901"), BudgetPeriod.DAY),
            Budget(Decimal(1_000_000), BudgetPeriod.NEVER, Unit.TOKENS, "small"),
        ),
    )
    await world.projects.set_bounds(SYSTEM, project.id, bounds)
    assert (await world.projects.see(SYSTEM, project.id)).bounds == bounds


async def test_every_change_is_in_the_audit_log(world: World) -> None:
    owner = await world.person("ada")
    project = await world.project(owner=owner)
    actor = actor_of(owner)
    await world.projects.rename(actor, project.id, "Other")
    link = await world.projects.invite(actor, project.id, Role.MEMBER)
    await world.projects.withdraw(actor, project.id, link.link.id)
    key = await world.key(project, owner)
    await world.keys.rotate(actor, key.key.id)
    await world.keys.disable(actor, key.key.id)
    await world.keys.enable(actor, key.key.id)
    await world.keys.delete(actor, key.key.id)
    assert await world.actions() == [
        "user.create",
        "project.create",
        "project.rename",
        "member.invite",
        "member.withdraw",
        "key.create",
        "key.rotate",
        "key.disable",
        "key.enable",
        "key.delete",
    ]
    latest = (await world.projects.audit(actor, project.id, AuditFilter(limit=2)))[1]
    assert (latest.actor_name, latest.subject) == ("ada", key.key.id)
    older = await world.projects.audit(actor, project.id, AuditFilter(before=latest.id))
    assert older[0].action == "key.disable"


@pytest.mark.parametrize(
    "name", ["शक्\u200dति", "ශ්\u200dරී", "می\u200cخواهم", "Ada 👩\u200d💻", "O\u2019Brien", "李"]
)
async def test_names_of_every_script(world: World, name: str) -> None:
    assert (await world.projects.create(SYSTEM, f"  {name} ")).name == name


@pytest.mark.parametrize(
    "name", ["", "  ", "x" * 101, "a\0b", "a\x1bb", "\u200d\u200c", "a\u202eb", "a\u200bb"]
)
async def test_names_that_are_none(world: World, name: str) -> None:
    with pytest.raises(InvalidRequest):
        await world.projects.create(SYSTEM, name)


@pytest.mark.parametrize("email", ["", "ada", "ada@", "@example.org", "a da@example.org", "a@b"])
async def test_addresses_that_are_none(world: World, email: str) -> None:
    with pytest.raises(InvalidRequest):
        await world.users.create(SYSTEM, email=email, name="Ada", password=None)


async def test_what_people_write_is_data(world: World) -> None:
    """Quotes and statements in a text are that text."""
    nasty = "Robert'); DROP TABLE users; --"
    project = await world.projects.create(SYSTEM, nasty)
    assert (await world.projects.see(SYSTEM, project.id)).project.name == nasty
    with pytest.raises(NotFound):
        await world.projects.see(SYSTEM, "' OR '1'='1")


async def test_a_database_that_is_away_is_503() -> None:
    database = Database("postgresql://causerie@/causerie?host=/nowhere")
    with pytest.raises(StoreUnavailable):
        async with SqlStore(database).reading() as repositories:
            await repositories.people.every()
    await database.close()
