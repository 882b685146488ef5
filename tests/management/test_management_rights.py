"""The table of rights, walked through the management API: every action, as everybody.

On one kind of database, for ``test_accounts_rights.py`` walks the same code on both.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

import pytest
from accountkit import World
from casekit import part_of
from edgekit import Response
from managekit import OPERATOR, Office, office

from causerie.hosted.accounts.keys import Purpose
from causerie.hosted.accounts.people import (
    OPERATOR_RIGHTS,
    SYSTEM,
    Action,
    Extent,
    Project,
    Role,
    RoleColumn,
    User,
    extent,
)


@pytest.fixture
async def services(lite: World) -> AsyncIterator[Office]:
    async with office(lite) as made:
        yield made


@dataclass
class Scene:
    """Somebody asks about a project; ``own`` says whether about what they made themselves."""

    services: Office
    project: Project
    target: User
    key: str
    me: User | None
    own: bool

    async def ask(self, path: str, body: object = None, method: str | None = None) -> Response:
        return await self.services.ask(self.key, path, body, method=method)

    @property
    def place(self) -> str:
        return f"/projects/{self.project.id}"

    async def a_key(self, purpose: Purpose = Purpose.INFERENCE) -> str:
        """Return the path of a key created by the caller, or by somebody else."""
        maker = self.me if self.own else self.target
        made = await self.services.world.key(self.project, maker, purpose=purpose)
        return f"/keys/{made.key.id}"

    async def a_member(self) -> str:
        leaver = self.me if self.own and self.me is not None else self.target
        return f"{self.place}/members/{leaver.id}"


async def _member(scene: Scene) -> str:
    """A plain member, who may be removed and changed by admins."""
    user = await scene.services.world.person()
    await scene.services.world.join(scene.project, user, Role.MEMBER)
    return f"{scene.place}/members/{user.id}"


async def _leaving(scene: Scene) -> Response:
    place = await scene.a_member() if scene.own else await _member(scene)
    return await scene.ask(place, method="DELETE")


async def _edit(scene: Scene) -> Response:
    return await scene.ask(await scene.a_key(), {"name": "other"}, "PATCH")


async def _disable(scene: Scene) -> Response:
    return await scene.ask(f"{await scene.a_key()}/disable", {})


async def _rotate(scene: Scene) -> Response:
    return await scene.ask(f"{await scene.a_key()}/rotate", {})


async def _delete(scene: Scene) -> Response:
    return await scene.ask(await scene.a_key(), method="DELETE")


async def _transfer(scene: Scene) -> Response:
    return await scene.ask(f"{await scene.a_key()}/transfer", {"to": scene.target.id})


async def _management_key(scene: Scene) -> Response:
    return await scene.ask(f"{await scene.a_key(Purpose.MANAGEMENT)}/disable", {})


async def _change(scene: Scene) -> Response:
    return await scene.ask(await _member(scene), {"role": "viewer"}, "PATCH")


async def _add(scene: Scene) -> Response:
    user = await scene.services.world.person()
    return await scene.ask(f"{scene.place}/members/{user.id}", {"role": "member"}, "PUT")


def asking(path: str, body: object = None, method: str | None = None) -> Ask:
    """A request whose path may name the project, and the user that it is about."""

    async def ask(scene: Scene) -> Response:
        return await scene.ask(
            path.format(place=scene.place, project=scene.project.id, user=scene.target.id),
            body,
            method,
        )

    return ask


Ask = Callable[[Scene], Awaitable[Response]]
ASKS: dict[Action, Ask] = {
    Action.PROJECT_SEE: asking("{place}"),
    Action.PROJECT_RENAME: asking("{place}", {"name": "other"}, "PATCH"),
    Action.PROJECT_NETWORKS: asking("{place}/networks", {"networks": ["10.0.0.0/8"]}, "PUT"),
    Action.PROJECT_ARCHIVE: asking("{place}/archive", {}),
    Action.MEMBERS_SEE: asking("{place}/members"),
    Action.MEMBERS_INVITE: asking("{place}/invitations", {}),
    Action.MEMBERS_ADD: _add,
    Action.MEMBERS_CHANGE: _change,
    Action.MEMBERS_REMOVE: _leaving,
    Action.OWNERS_CHANGE: asking("{place}/invitations", {"role": "owner"}),
    Action.KEYS_SEE: asking("{place}/keys"),
    Action.KEYS_CREATE: asking("{place}/keys", {"name": "new"}),
    Action.KEYS_EDIT: _edit,
    Action.KEYS_DISABLE: _disable,
    Action.KEYS_ROTATE: _rotate,
    Action.KEYS_DELETE: _delete,
    Action.KEYS_TRANSFER: _transfer,
    Action.MANAGEMENT_KEYS: _management_key,
    Action.BOUNDS_SET: asking("{place}/bounds", {}, "PUT"),
    Action.BOUNDS_LOWER: asking("{place}/own-bounds", {}, "PUT"),
    Action.RECORDING_SET: asking("{place}/recording", {"days": 7}, "PUT"),
    Action.CREDITS_PUT: asking("{place}/credits", {"amount": "5"}),
    Action.USAGE_SEE: asking("/usage?project={project}"),
    Action.ACTIVITY_SEE: asking("/requests?project={project}"),
    Action.AUDIT_SEE: asking("/audit?project={project}"),
    Action.USERS_SEE: asking("/users"),
    Action.USERS_INVITE: asking("/invitations", {}),
    Action.USERS_CHANGE: asking("/users/{user}/disable", {}),
    Action.OPERATORS_CHANGE: asking("/operator-keys", {"name": "new"}),
    Action.PROJECTS_CREATE: asking("/projects", {"name": "new"}),
    Action.USAGE_SEE_ALL: asking("/usage"),
    Action.SERVICE_SEE: asking("/audit"),
    Action.PROVIDERS_SEE: asking("/providers"),
    Action.PROVIDERS_PROBE: asking("/providers/south/probe/use", {"model": "m"}),
    Action.CONFIGURATION_CHANGE: asking(
        "/configuration/entries", {"kind": "provider", "settings": {"known": "openai"}}
    ),
    Action.ALERTS_TEST: asking("/alerts/channels/ops/test", {}),
}
OF_THE_SERVICE = {
    Action.USERS_SEE,
    Action.USERS_INVITE,
    Action.USERS_CHANGE,
    Action.OPERATORS_CHANGE,
    Action.PROJECTS_CREATE,
    Action.USAGE_SEE_ALL,
    Action.SERVICE_SEE,
    Action.PROVIDERS_SEE,
    Action.PROVIDERS_PROBE,
    Action.CONFIGURATION_CHANGE,
    Action.ALERTS_TEST,
}


async def scene_of(services: Office, part: RoleColumn, *, own: bool) -> Scene:
    world = services.world
    owner = await world.person()
    project = await world.project(owner=owner)
    me, key = None, OPERATOR
    if part is RoleColumn.MANAGEMENT_KEY:
        key = await services.manager(project)
    elif part is RoleColumn.OUTSIDER:
        key = await services.manager(await world.project(owner=await world.person()))
    elif part in (*OPERATOR_RIGHTS, RoleColumn.OPERATOR_KEY):
        rights = frozenset[str]({"people" if part is RoleColumn.OPERATOR_KEY else part})
        made = await world.accounts.operator_keys.create(SYSTEM, "program", rights)
        key = made.credential
    elif part is not RoleColumn.OPERATOR:
        me = await world.person()
        await world.join(project, me, Role(part))
        key = services.people.let_in(me)
    return Scene(services, project, owner, key, me, own)


def expected(action: Action, part: RoleColumn, *, own: bool) -> set[int]:
    columns = {part}
    if part in (RoleColumn.PEOPLE, RoleColumn.OPERATOR_KEY):
        columns = {RoleColumn.PEOPLE, RoleColumn.OPERATOR_KEY}
    elif part is RoleColumn.OPERATOR:
        columns.add(RoleColumn.OPERATOR_KEY)
    found = extent(action, columns)
    if found is Extent.ALL or (found is Extent.OWN and own):
        return {200, 201, 204}
    unseen = part in (RoleColumn.OUTSIDER, RoleColumn.CONFIGURATION)
    if action not in OF_THE_SERVICE and unseen:
        return {404}
    return {403}


def test_every_action_is_walked() -> None:
    assert set(ASKS) == set(Action) - {
        Action.CREDITS_BUY,
        Action.MODELS_ASK,  # which are of the pages alone
        Action.CONTENTS_SEE,
        Action.CONTENTS_EXPORT,
    }


@pytest.mark.parametrize("part", RoleColumn)
async def test_everybody_may_what_the_table_says(services: Office, part: RoleColumn) -> None:
    for action, ask in part_of(ASKS.items(), [*RoleColumn].index(part)):
        if action in (Action.USAGE_SEE_ALL, Action.SERVICE_SEE) and part in (
            RoleColumn.MANAGEMENT_KEY,
            RoleColumn.OUTSIDER,
        ):
            continue  # without a project, such a key is told of its own
        scene = await scene_of(services, part, own=False)
        answer = await ask(scene)
        assert answer.status in expected(action, part, own=False), (action, answer.body)
        if answer.status == 403:
            assert answer.error["code"] == "scope_not_allowed"


@pytest.mark.parametrize("part", [RoleColumn.OWNER, RoleColumn.ADMIN, RoleColumn.MEMBER])
async def test_ones_own_keys(services: Office, part: RoleColumn) -> None:
    for action in (
        Action.KEYS_EDIT,
        Action.KEYS_DISABLE,
        Action.KEYS_ROTATE,
        Action.KEYS_DELETE,
    ):
        scene = await scene_of(services, part, own=True)
        answer = await ASKS[action](scene)
        assert answer.status in expected(action, part, own=True), (action, answer.body)


@pytest.mark.parametrize("part", [RoleColumn.ADMIN, RoleColumn.MEMBER, RoleColumn.VIEWER])
async def test_everybody_may_leave(services: Office, part: RoleColumn) -> None:
    scene = await scene_of(services, part, own=True)
    assert (await _leaving(scene)).status == 200


async def test_an_inference_key_may_nothing(services: Office) -> None:
    scene = await scene_of(services, RoleColumn.OWNER, own=False)
    scene.key = (await services.world.key(scene.project, scene.me)).credential
    before = await services.world.actions()
    for action, ask in ASKS.items():
        if action in (
            *(Action.KEYS_EDIT, Action.KEYS_DISABLE, Action.KEYS_ROTATE, Action.KEYS_DELETE),
            *(
                Action.KEYS_TRANSFER,
                Action.MANAGEMENT_KEYS,
                Action.MEMBERS_REMOVE,
                Action.MEMBERS_ADD,
                Action.MEMBERS_CHANGE,
            ),
        ):
            continue  # these make a key or a member first
        answer = await ask(scene)
        assert (answer.status, answer.error["code"]) == (403, "scope_not_allowed"), action
    assert await services.world.actions() == before


async def test_nobody_raises_themselves(services: Office) -> None:
    admin = await scene_of(services, RoleColumn.ADMIN, own=False)
    assert admin.me is not None
    mine = f"{admin.place}/members/{admin.me.id}"
    assert (await admin.ask(mine, {"role": "owner"}, "PATCH")).status == 403
    assert (await admin.ask("/invitations", {"operator": True})).status == 403
    manager = await scene_of(services, RoleColumn.MANAGEMENT_KEY, own=False)
    keys = f"{manager.place}/keys"
    refused = await manager.ask(keys, {"name": "heir", "purpose": "management"})
    assert refused.status == 403
    own = f"/keys/{manager.key.rsplit('_', 1)[0]}"
    for body, path, method in (
        ({"expires_at": None}, own, "PATCH"),
        ({}, f"{own}/rotate", "POST"),
        (None, own, "DELETE"),
    ):
        assert (await manager.ask(path, body, method)).status == 403
    for field in ("project_id", "created_by", "operator", "id", "disabled_by"):
        answer = await manager.ask(keys, {"name": "a", field: "x"})
        assert (answer.status, answer.error["param"]) == (400, field)
    # The project of the key it makes is that of the path, which it cannot see.
    other = await scene_of(services, RoleColumn.OWNER, own=False)
    assert (await manager.ask(f"{other.place}/keys", {"name": "a"})).status == 404
