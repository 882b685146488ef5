"""Removed, demoted and disabled people: nothing that derives from them is a way in."""

from __future__ import annotations

import pytest
from accountkit import PASSWORD, World

from causerie.access.keys import Credential
from causerie.errors import Forbidden, NotFound, ServiceError, Unauthenticated
from causerie.hosted.accounts.issuing import KeyDraft
from causerie.hosted.accounts.key_cache import KeyCache
from causerie.hosted.accounts.keys import Purpose
from causerie.hosted.accounts.people import SYSTEM, Actor, Project, Role, User, actor_of

QUICK = {"poll_seconds": 0.01}


async def team(world: World) -> tuple[Project, User, User]:
    """A project, its owner and an admin, who is going to lose something."""
    owner, admin = await world.person(), await world.person()
    return await world.project(owner=owner, admin=admin), owner, admin


async def test_an_invitation_made_before_its_maker_was_removed_lets_nobody_in(
    world: World,
) -> None:
    project, owner, admin = await team(world)
    made = await world.projects.invite(actor_of(admin), project.id, Role.ADMIN)
    world.later(minutes=1)
    await world.projects.remove(actor_of(owner), project.id, admin.id)
    with pytest.raises(NotFound):
        await world.users.join(made.token, admin)
    with pytest.raises(NotFound):
        await world.users.accept(
            made.token, email="again@example.org", name="Again", password=PASSWORD
        )


async def test_an_invitation_that_somebody_else_made_before_lets_the_removed_in_no_more(
    world: World,
) -> None:
    project, owner, admin = await team(world)
    addressed = await world.projects.invite(
        actor_of(owner), project.id, Role.MEMBER, email=admin.email
    )
    bearer = await world.projects.invite(actor_of(owner), project.id, Role.MEMBER)
    world.later(minutes=1)
    await world.projects.remove(actor_of(owner), project.id, admin.id)
    for each in (addressed, bearer):
        with pytest.raises(ServiceError):
            await world.users.join(each.token, admin)
    world.later(minutes=1)
    anew = await world.projects.invite(actor_of(owner), project.id, Role.VIEWER)
    await world.users.join(anew.token, admin)


@pytest.mark.parametrize("how", ["removed", "disabled"])
async def test_an_invitation_for_nobody_in_particular_ends_for_everybody(
    world: World, how: str
) -> None:
    """A person who is shut out may have handed it on, or use it with another account."""
    project, owner, admin = await team(world)
    stranger, guest = await world.person(), await world.person()
    boss = actor_of(owner)
    bearer = await world.projects.invite(boss, project.id, Role.MEMBER)
    addressed = await world.projects.invite(boss, project.id, Role.MEMBER, email=guest.email)
    elsewhere = await world.project(owner=owner)
    other = await world.projects.invite(boss, elsewhere.id, Role.MEMBER)
    if how == "removed":
        done = await world.projects.remove(boss, project.id, admin.id)
        assert done.invitations_withdrawn == 1
    else:
        await world.users.disable(SYSTEM, admin.id)
    with pytest.raises(NotFound):
        await world.users.join(bearer.token, stranger)
    with pytest.raises(NotFound):
        await world.users.accept(
            bearer.token, email="again@example.org", name="Again", password=PASSWORD
        )
    await world.users.join(addressed.token, guest)
    await world.users.join(other.token, stranger)


async def test_who_leaves_of_their_own_will_ends_no_invitation_of_others(world: World) -> None:
    project, owner, admin = await team(world)
    bearer = await world.projects.invite(actor_of(owner), project.id, Role.MEMBER)
    await world.projects.remove(actor_of(admin), project.id, admin.id)
    await world.users.join(bearer.token, await world.person())


async def test_keys_made_by_a_management_key_of_the_removed_stop(world: World) -> None:
    project, owner, admin = await team(world)
    manager = await world.key(project, admin, purpose=Purpose.MANAGEMENT)
    async with KeyCache(world.store, **QUICK) as key_cache:
        actor = await key_cache.manager(Credential.of(manager.credential))
        made = await world.keys.create(actor, project.id, KeyDraft("robot"))
    await world.projects.remove(actor_of(owner), project.id, admin.id)
    async with KeyCache(world.store, **QUICK) as key_cache:
        for each in (manager, made):
            with pytest.raises(Unauthenticated):
                await key_cache.manager(Credential.of(each.credential))


async def test_a_management_key_may_no_more_than_its_person_now(world: World) -> None:
    project, owner, admin = await team(world)
    manager = await world.key(project, admin, purpose=Purpose.MANAGEMENT)
    await world.projects.change_role(actor_of(owner), project.id, admin.id, Role.VIEWER)
    async with KeyCache(world.store, **QUICK) as key_cache:
        actor: Actor = await key_cache.manager(Credential.of(manager.credential))
    await world.projects.see(actor, project.id)
    for attempt in (
        world.keys.create(actor, project.id, KeyDraft("robot")),
        world.recordings.keep(actor, project.id, 7),
    ):
        with pytest.raises(Forbidden):
            await attempt


async def test_an_operator_who_is_none_any_more_leaves_no_link(world: World) -> None:
    boss, other = await world.person(operator=True), await world.person(operator=True)
    heir = await world.users.invite(actor_of(boss), operator=True)
    reset = await world.users.reset_link(actor_of(boss), other.id)
    await world.users.make_operator(SYSTEM, boss.id, operator=False)
    for token in (heir.token, reset.token):
        with pytest.raises(NotFound):
            await world.users.link(token)
    with pytest.raises(NotFound):
        await world.profile.reset_password(reset.token, PASSWORD)
