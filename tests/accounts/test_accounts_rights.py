"""The table of rights, walked: every action by every part, on what is one's own and what is not.

An action that the table allows has to work, and one that it does not has to be
refused, by the same code that pages and commands call.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from accountkit import World
from casekit import part_of
from rights_page import rights_page

from causerie.errors import Forbidden, NotFound
from causerie.hosted.accounts.bounds import UNBOUNDED
from causerie.hosted.accounts.issuing import KeyDraft, KeyEdit
from causerie.hosted.accounts.keys import ApiKey, KeySecret, Purpose, new_key_id
from causerie.hosted.accounts.people import (
    OPERATOR_RIGHTS,
    RIGHTS,
    SYSTEM,
    Action,
    Actor,
    Extent,
    Project,
    Role,
    RoleColumn,
    User,
    actor_of,
    extent,
)
from causerie.hosted.accounts.records import AuditFilter, Recording
from causerie.hosted.accounts.tokens import digest, new_token
from causerie.hosted.accounts.usage import RecordFilter, UsageQuery
from causerie.metering.ledger import record_id


@dataclass
class Scene:
    """A project with an owner and a member, and somebody who tries something."""

    world: World
    project: Project
    actor: Actor
    member: User
    own: bool

    @property
    def subject(self) -> str:
        """Return the owner of the thing."""
        return (self.actor.person or self.actor.id) if self.own else self.member.id

    async def key(self, purpose: Purpose = Purpose.INFERENCE) -> ApiKey:
        """A key that the subject made."""
        made = ApiKey(
            new_key_id(),
            self.project.id,
            self.subject,
            "key",
            purpose,
            None,
            None,
            self.world.now,
            person=self.actor.person if self.own else self.member.id,
        )
        async with self.world.store.writing() as repositories:
            await repositories.keys.add(made, KeySecret(digest(new_token()), made.id))
        return made

    def question(self) -> UsageQuery:
        return UsageQuery(self.world.now - timedelta(days=1), self.world.now)

    def filter(self) -> RecordFilter:
        return RecordFilter(self.world.now - timedelta(days=1), self.world.now)


Attempt = Callable[[Scene], Awaitable[object]]


async def edit_key(s: Scene) -> object:
    return await s.world.keys.edit(s.actor, (await s.key()).id, KeyEdit(name="other"))


async def stop_key(s: Scene) -> object:
    key = await s.key()
    await s.world.keys.disable(s.actor, key.id)
    return await s.world.keys.enable(s.actor, key.id)


async def rotate_key(s: Scene) -> object:
    return await s.world.keys.rotate(s.actor, (await s.key()).id)


async def delete_key(s: Scene) -> None:
    await s.world.keys.delete(s.actor, (await s.key()).id)


async def transfer_key(s: Scene) -> object:
    return await s.world.keys.transfer(s.actor, (await s.key()).id, s.member.id)


async def delete_management_key(s: Scene) -> None:
    await s.world.keys.delete(s.actor, (await s.key(Purpose.MANAGEMENT)).id)


async def read_contents(s: Scene) -> object:
    await s.world.recordings.keep(SYSTEM, s.project.id, 7)
    made = Recording(record_id(), s.project.id, s.subject, s.world.now, "{}", False, "{}", False)
    async with s.world.store.writing() as repositories:
        await repositories.recordings.put([made])
    return await s.world.recordings.see(s.actor, s.project.id, made.id)


async def archive(s: Scene) -> object:
    await s.world.projects.archive(s.actor, s.project.id)
    return await s.world.projects.archive(s.actor, s.project.id, archived=False)


async def add_member(s: Scene) -> object:
    user = await s.world.person()
    return await s.world.projects.add(s.actor, s.project.id, user.id, Role.MEMBER)


ATTEMPTS: dict[Action, Attempt] = {
    Action.PROJECT_SEE: lambda s: s.world.projects.see(s.actor, s.project.id),
    Action.PROJECT_RENAME: lambda s: s.world.projects.rename(s.actor, s.project.id, "New"),
    Action.PROJECT_NETWORKS: lambda s: s.world.projects.set_networks(s.actor, s.project.id, ()),
    Action.PROJECT_ARCHIVE: archive,
    Action.MEMBERS_SEE: lambda s: s.world.projects.members(s.actor, s.project.id),
    Action.MEMBERS_INVITE: lambda s: s.world.projects.invite(s.actor, s.project.id, Role.MEMBER),
    Action.MEMBERS_ADD: add_member,
    Action.MEMBERS_CHANGE: lambda s: s.world.projects.change_role(
        s.actor, s.project.id, s.member.id, Role.VIEWER
    ),
    Action.MEMBERS_REMOVE: lambda s: s.world.projects.remove(s.actor, s.project.id, s.subject),
    Action.OWNERS_CHANGE: lambda s: s.world.projects.invite(s.actor, s.project.id, Role.OWNER),
    Action.KEYS_SEE: lambda s: s.world.keys.of(s.actor, s.project.id),
    Action.KEYS_CREATE: lambda s: s.world.keys.create(s.actor, s.project.id, KeyDraft("new")),
    Action.KEYS_EDIT: edit_key,
    Action.KEYS_DISABLE: stop_key,
    Action.KEYS_ROTATE: rotate_key,
    Action.KEYS_DELETE: delete_key,
    Action.KEYS_TRANSFER: transfer_key,
    Action.MANAGEMENT_KEYS: delete_management_key,
    Action.BOUNDS_SET: lambda s: s.world.projects.set_bounds(s.actor, s.project.id, UNBOUNDED),
    Action.BOUNDS_LOWER: lambda s: s.world.projects.lower(s.actor, s.project.id, UNBOUNDED),
    Action.CREDITS_BUY: lambda s: s.world.credits.require(
        s.actor, Action.CREDITS_BUY, s.project.id
    ),
    Action.CREDITS_PUT: lambda s: s.world.credits.put(s.actor, s.project.id, Decimal(5)),
    Action.MODELS_ASK: lambda s: s.world.projects.ask(s.actor, s.project.id),
    Action.USAGE_SEE: lambda s: s.world.usage.sums(s.actor, s.project.id, s.question()),
    Action.ACTIVITY_SEE: lambda s: s.world.usage.requests(s.actor, s.project.id, s.filter()),
    Action.RECORDING_SET: lambda s: s.world.recordings.keep(s.actor, s.project.id, 7),
    Action.CONTENTS_SEE: read_contents,
    Action.CONTENTS_EXPORT: lambda s: anext(s.world.recordings.export(s.actor, s.project.id)),
    Action.AUDIT_SEE: lambda s: s.world.projects.audit(s.actor, s.project.id, AuditFilter()),
    Action.USERS_SEE: lambda s: s.world.users.every(s.actor),
    Action.USERS_INVITE: lambda s: s.world.users.invite(s.actor),
    Action.USERS_CHANGE: lambda s: s.world.users.disable(s.actor, s.member.id),
    Action.OPERATORS_CHANGE: lambda s: s.world.accounts.operator_keys.create(s.actor, "key"),
    Action.PROJECTS_CREATE: lambda s: s.world.projects.create(s.actor, "Another"),
    Action.USAGE_SEE_ALL: lambda s: s.world.usage.sums(s.actor, None, s.question()),
    Action.SERVICE_SEE: lambda s: s.world.projects.audit(s.actor, None, AuditFilter()),
    Action.PROVIDERS_SEE: lambda s: s.world.operating.require(s.actor, Action.PROVIDERS_SEE),
    Action.PROVIDERS_PROBE: lambda s: s.world.operating.record(
        s.actor, Action.PROVIDERS_PROBE, "provider.probe", "north"
    ),
    Action.CONFIGURATION_CHANGE: lambda s: s.world.accounts.entries.require(
        s.actor, Action.CONFIGURATION_CHANGE
    ),
    Action.ALERTS_TEST: lambda s: s.world.operating.require(s.actor, Action.ALERTS_TEST),
}
OWNED = {
    Action.MEMBERS_REMOVE,
    Action.KEYS_EDIT,
    Action.KEYS_DISABLE,
    Action.KEYS_ROTATE,
    Action.KEYS_DELETE,
    Action.CONTENTS_SEE,
}
ROLES = {RoleColumn.OWNER, RoleColumn.ADMIN, RoleColumn.MEMBER, RoleColumn.VIEWER}


def columns_of(part: RoleColumn) -> set[RoleColumn]:
    """The columns that apply to who is in this one."""
    return {part, RoleColumn.PEOPLE} if part is RoleColumn.OPERATOR_KEY else {part}


async def scene(world: World, part: RoleColumn, *, own: bool) -> Scene:
    member = await world.person()
    project = await world.project(owner=await world.person(), member=member)
    if part is RoleColumn.MANAGEMENT_KEY:
        made = await world.key(project, purpose=Purpose.MANAGEMENT)
        actor = Actor("key", made.key.id, made.key.name, project=project.id)
    elif part is RoleColumn.OPERATOR_KEY:
        actor = Actor("key", "ck_people", "people", rights=frozenset({RoleColumn.PEOPLE}))
    else:
        user = await world.person(operator=part is RoleColumn.OPERATOR)
        if part in OPERATOR_RIGHTS:
            rights = frozenset[str]({part})
            user = await world.users.make_operator(SYSTEM, user.id, rights=rights)
        if part in ROLES:
            await world.join(project, user, Role(part))
        actor = actor_of(user)
    return Scene(world, project, actor, member, own)


def test_every_action_is_walked() -> None:
    assert set(ATTEMPTS) == set(Action) == set(RIGHTS)


@pytest.mark.parametrize("part", RoleColumn)
async def test_the_table_holds(world: World, part: RoleColumn) -> None:
    for action, attempt in part_of(ATTEMPTS.items(), [*RoleColumn].index(part), every=2):
        for own in (False, True) if action in OWNED else (False,):
            if own and action is Action.MEMBERS_REMOVE and part not in ROLES:
                continue  # they are no members who could leave
            s = await scene(world, part, own=own)
            reach = extent(action, columns_of(part))
            if reach is Extent.ALL or (reach is Extent.OWN and own):
                await attempt(s)
                continue
            wanted = (
                Forbidden
                if extent(Action.PROJECT_SEE, columns_of(part)) is Extent.ALL
                else (Forbidden, NotFound)
            )
            with pytest.raises(wanted):
                await attempt(s)


async def test_a_project_that_one_may_not_see_is_not_there(world: World) -> None:
    s = await scene(world, RoleColumn.OUTSIDER, own=False)
    key = await s.key()
    for attempt in (
        world.projects.see(s.actor, s.project.id),
        world.projects.see(s.actor, "prj_none"),
        world.keys.see(s.actor, key.id),
        world.keys.see(s.actor, "ck_none"),
        world.keys.edit(s.actor, key.id, KeyEdit(name="mine")),
    ):
        with pytest.raises(NotFound, match="There is no such"):
            await attempt


async def test_a_management_key_stays_in_its_project(world: World) -> None:
    s = await scene(world, RoleColumn.MANAGEMENT_KEY, own=False)
    other = await world.project(owner=await world.person())
    with pytest.raises(NotFound):
        await world.keys.create(s.actor, other.id, KeyDraft("mine"))


async def test_admins_do_not_touch_owners(world: World) -> None:
    s = await scene(world, RoleColumn.ADMIN, own=False)
    second = await world.person()
    await world.join(s.project, second, Role.OWNER)
    for attempt in (
        world.projects.change_role(s.actor, s.project.id, second.id, Role.VIEWER),
        world.projects.remove(s.actor, s.project.id, second.id),
        world.projects.change_role(s.actor, s.project.id, s.member.id, Role.OWNER),
        world.projects.change_role(s.actor, s.project.id, s.actor.id, Role.OWNER),
    ):
        with pytest.raises(Forbidden):
            await attempt


async def test_nobody_undoes_what_somebody_with_more_rights_has_stopped(world: World) -> None:
    s = await scene(world, RoleColumn.MEMBER, own=True)
    admin, operator = await world.person(), await world.person(operator=True)
    await world.join(s.project, admin, Role.ADMIN)
    key = await s.key()
    await world.keys.disable(actor_of(admin), key.id)
    with pytest.raises(Forbidden):
        await world.keys.enable(s.actor, key.id)
    await world.keys.disable(actor_of(operator), key.id)
    with pytest.raises(Forbidden):
        await world.keys.enable(actor_of(admin), key.id)
    await world.keys.enable(actor_of(operator), key.id)


def test_the_page_is_what_the_code_says() -> None:
    file = Path(__file__).parents[2] / "docs" / "reference/rights.md"
    assert file.read_text(encoding="utf-8") == rights_page(), "run `make docs`"
