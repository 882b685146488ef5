"""The table of rights once more, for people who were admins: by what they still hold.

Their session, a management key that they created, the key that this key created, and their
invitation, each from before they lost something.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import pytest
from accountkit import PASSWORD, World
from casekit import part_of
from test_accounts_rights import ATTEMPTS, OWNED, Scene

from causerie.access.keys import Credential
from causerie.errors import Forbidden, InvalidRequest, NotFound, ServiceError, Unauthenticated
from causerie.hosted.accounts.issuing import KeyDraft, NewKey
from causerie.hosted.accounts.key_cache import KeyCache
from causerie.hosted.accounts.keys import NewLink, Purpose
from causerie.hosted.accounts.people import (
    RIGHTS,
    SYSTEM,
    Action,
    Actor,
    Extent,
    Role,
    RoleColumn,
    actor_of,
)
from causerie.hosted.accounts.tokens import SessionClient

SLOW = {"poll_seconds": 3600, "answer_seconds": 60}


class Former(StrEnum):
    """Present state of a former admin."""

    MEMBER = "was admin, is now member"
    VIEWER = "was admin, is now viewer"
    REMOVED = "was admin, is removed"
    DISABLED = "was admin, account disabled"


class Means(StrEnum):
    """By what they try."""

    SESSION = "session"
    MANAGEMENT_KEY = "management key"
    KEY_OF_KEY = "key that the key created"
    STALE_KEY = "management key in a process that has not heard yet"


@dataclass
class Remains:
    """Remaining credentials of a former admin."""

    scene: Scene
    session: str
    manager: NewKey
    made: NewKey
    stale: Actor
    offer: NewLink


async def remains(world: World, former: Former) -> Remains:
    """Make them an admin, have them create what they can, and take it from them."""
    member = await world.person()
    owner, admin = await world.person(), await world.person(password=PASSWORD)
    project = await world.project(owner=owner, admin=admin, member=member)
    begun = await world.sign_in.with_password(admin.email, PASSWORD, SessionClient())
    manager = await world.key(project, admin, purpose=Purpose.MANAGEMENT)
    async with KeyCache(world.store, **SLOW) as key_cache:
        stale = await key_cache.manager(Credential.of(manager.credential))
    made = await world.keys.create(stale, project.id, KeyDraft("robot"))
    assert made.key.created_by == manager.key.id
    offer = await world.projects.invite(actor_of(admin), project.id, Role.ADMIN)
    world.later(minutes=1)
    if former is Former.REMOVED:
        await world.projects.remove(actor_of(owner), project.id, admin.id)
    elif former is Former.DISABLED:
        await world.users.disable(SYSTEM, admin.id)
    else:
        role = Role.MEMBER if former is Former.MEMBER else Role.VIEWER
        await world.projects.change_role(actor_of(owner), project.id, admin.id, role)
    scene = Scene(world, project, actor_of(admin), member, own=False)
    return Remains(scene, begun.token, manager, made, stale, offer)


async def actor_by(left: Remains, means: Means) -> Actor:
    """Return the actor that the service sees; raise :class:`ServiceError`."""
    world = left.scene.world
    if means is Means.SESSION:
        user, _ = await world.sign_in.whose(left.session)
        return actor_of(user)
    if means is Means.STALE_KEY:
        return left.stale
    shown = left.manager if means is Means.MANAGEMENT_KEY else left.made
    async with KeyCache(world.store, **SLOW) as key_cache:
        return await key_cache.manager(Credential.of(shown.credential))


def allowed(action: Action, former: Former, means: Means) -> Extent:
    """Return the table's right; none for an account that is disabled or a key without one."""
    if former is Former.DISABLED or means is Means.KEY_OF_KEY:
        return Extent.NO
    part = {Former.MEMBER: RoleColumn.MEMBER, Former.VIEWER: RoleColumn.VIEWER}.get(
        former, RoleColumn.OUTSIDER
    )
    if means is Means.SESSION:
        return RIGHTS[action][part]
    return min(RIGHTS[action][part], RIGHTS[action][RoleColumn.MANAGEMENT_KEY])


# Rights are decided before the database: PostgreSQL sees each former admin and each means once.
ON_EACH = [
    *(("sqlite", former, means) for former in Former for means in Means),
    *(("postgresql", former, means) for former, means in zip(Former, Means, strict=True)),
]


@pytest.mark.parametrize(("made_url", "former", "means"), ON_EACH, indirect=["made_url"])
async def test_who_was_an_admin_may_what_the_table_says_now(
    world: World, former: Former, means: Means
) -> None:
    left = await remains(world, former)
    turn = [*Former].index(former) + [*Means].index(means)
    for action, attempt in part_of(ATTEMPTS.items(), turn):
        for own in (False, True) if action in OWNED else (False,):
            if own and action is Action.MEMBERS_REMOVE and former is Former.REMOVED:
                continue  # they are no members who could leave
            left.scene.own = own
            reach = allowed(action, former, means)
            if reach is Extent.ALL or (reach is Extent.OWN and own):
                left.scene.actor = await actor_by(left, means)
                await attempt(left.scene)
                left = await remains(world, former)  # it has changed them
                continue
            with pytest.raises((Forbidden, NotFound, Unauthenticated)):
                left.scene.actor = await actor_by(left, means)
                await attempt(left.scene)


@pytest.mark.parametrize("former", Former)
async def test_their_keys_infer_only_while_they_may_create_keys(
    world: World, former: Former
) -> None:
    left = await remains(world, former)
    async with KeyCache(world.store, **SLOW) as key_cache:
        asked = key_cache.authenticate("hosted", Credential.of(left.made.credential))
        if former is Former.MEMBER:
            assert (await asked).key == left.made.key.id
            return
        with pytest.raises(Unauthenticated):
            await asked


@pytest.mark.parametrize("former", Former)
async def test_their_invitation_lets_nobody_in(world: World, former: Former) -> None:
    left = await remains(world, former)
    friend, token = await world.person(), left.offer.token
    with pytest.raises(NotFound):
        await world.users.join(token, friend)
    with pytest.raises(NotFound):
        await world.users.accept(token, email="x@example.org", name="X", password=PASSWORD)
    assert await world.projects.invitations(SYSTEM, left.scene.project.id) == []


async def test_nothing_revives_by_coming_back(world: World) -> None:
    left = await remains(world, Former.REMOVED)
    project, actor = left.scene.project, left.scene.actor
    world.later(minutes=1)
    anew = await world.projects.invite(SYSTEM, project.id, Role.ADMIN)
    [user] = [each for each in await world.users.every(SYSTEM) if each.id == actor.id]
    await world.users.join(anew.token, user)
    for means in (Means.MANAGEMENT_KEY, Means.KEY_OF_KEY):
        with pytest.raises(Unauthenticated):
            await actor_by(left, means)
    with pytest.raises(NotFound):
        await world.users.link(left.offer.token)
    await world.keys.transfer(actor, left.made.key.id, actor.id)
    async with KeyCache(world.store, **SLOW) as key_cache:
        await key_cache.authenticate("hosted", Credential.of(left.made.credential))


async def test_keys_of_a_disabled_account_come_back_with_it(world: World) -> None:
    left = await remains(world, Former.DISABLED)
    await world.users.disable(SYSTEM, left.scene.actor.id, disabled=False)
    assert (await actor_by(left, Means.MANAGEMENT_KEY)).holder == left.scene.actor.id
    with pytest.raises(Unauthenticated):
        await actor_by(left, Means.SESSION)


async def test_a_removal_transfers_keys_to_a_member_who_may_have_them(world: World) -> None:
    owner, member, heir = await world.person(), await world.person(), await world.person()
    project = await world.project(owner=owner, member=member, viewer=heir)
    made = await world.key(project, member)
    boss = actor_of(owner)
    for wrong in (heir.id, member.id, "usr_none"):
        with pytest.raises(InvalidRequest):
            await world.projects.remove(boss, project.id, member.id, keys_to=wrong)
    with pytest.raises(Forbidden):  # whoever leaves decides over nobody else's keys
        await world.projects.remove(actor_of(member), project.id, member.id, keys_to=owner.id)
    done = await world.projects.remove(boss, project.id, member.id, keys_to=owner.id)
    assert [each.person for each in done.keys_transferred] == [owner.id]
    async with KeyCache(world.store, **SLOW) as key_cache:
        caller = await key_cache.authenticate("hosted", Credential.of(made.credential))
    assert caller.user == owner.id
    anew = await world.projects.invite(boss, project.id, Role.MEMBER)
    world.later(minutes=1)
    with pytest.raises(ServiceError):
        await world.users.join(anew.token, member)  # as old as the removal
    later = await world.projects.invite(boss, project.id, Role.MEMBER)
    await world.users.join(later.token, member)
    with pytest.raises(Forbidden):  # it was theirs
        await world.keys.rotate(actor_of(member), made.key.id)


async def test_a_management_key_goes_to_no_plain_member(world: World) -> None:
    owner, admin, member = await world.person(), await world.person(), await world.person()
    project = await world.project(owner=owner, admin=admin, member=member)
    made = await world.key(project, admin, purpose=Purpose.MANAGEMENT)
    with pytest.raises(InvalidRequest):
        await world.keys.transfer(actor_of(owner), made.key.id, member.id)
    await world.keys.transfer(actor_of(owner), made.key.id, owner.id)


async def test_links_for_who_is_disabled_are_spent(world: World) -> None:
    user = await world.person(password=PASSWORD)
    reset = await world.users.reset_link(SYSTEM, user.id)
    await world.users.disable(SYSTEM, user.id)
    await world.users.disable(SYSTEM, user.id, disabled=False)
    with pytest.raises(NotFound):
        await world.profile.reset_password(reset.token, "eight red kettles whistle")
