"""People and groups of a directory, on each kind of database."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from accountkit import World

from causerie.errors import InvalidRequest, NotFound
from causerie.hosted.accounts.people import SYSTEM, GroupClaims, GroupGrant, Role, User
from causerie.hosted.accounts.provisioning import ProvisionedPerson, WantedGroup

ADA = ProvisionedPerson("Ada@corp.example", "ada@example.org", "Ada", "object-1")


async def test_people_and_groups_come_and_go(world: World) -> None:
    service, project = world.accounts.provisioning, await world.project()
    grants = (GroupGrant("staff", project.id), GroupGrant("object-9", operator=True))
    directory = GroupClaims("entra", grants=grants, provisioned=True)
    await world.person("boss", operator=True)
    ada = await service.create(directory, ADA)
    for where in (
        {"user_name": "ada@CORP.example"},
        {"external_id": "object-1"},
        {"email": "ADA@example.org", "id": ada.id},
    ):
        assert (await service.people(where))[1] == [ada]
    assert await service.people({"user_name": "ada@example.org"}) == (0, [])
    total, page = await service.people({}, 1, 1)
    assert (total, len(page)) == (2, 1)
    with pytest.raises(InvalidRequest, match="Another user"):
        await service.create(directory, replace(ADA, email="other@example.org"))

    unknown = WantedGroup("staff", "", frozenset({ada.id, "usr_nobody"}))
    with pytest.raises(InvalidRequest, match="no user here"):
        await service.create_group(directory, unknown)
    assert await service.groups(directory, {}) == (0, [])
    staff = await service.create_group(directory, replace(unknown, members=frozenset({ada.id})))
    with pytest.raises(InvalidRequest, match="displayName"):
        await service.create_group(directory, WantedGroup("STAFF", "", frozenset()))
    assert [one.role for one in await world.projects.members(SYSTEM, project.id)] == [Role.MEMBER]
    assert (await service.groups(directory, {"member": ada.id, "name": "Staff"}))[1] == [staff]
    await service.change_group(
        directory, staff.id, lambda _, held: WantedGroup("ops", "object-9", ids(held))
    )
    assert await world.projects.members(SYSTEM, project.id) == []
    assert (await world.users.see(SYSTEM, ada.id)).operator
    other = GroupClaims("okta", provisioned=True)
    with pytest.raises(NotFound):
        await service.group(other, staff.id)

    await service.remove(directory, ada.id)
    gone = await world.users.see(SYSTEM, ada.id)
    assert (gone.operator, gone.disabled_at, gone.user_name) == (False, world.now, "")
    assert (await service.members([staff.id]))[staff.id] == []
    with pytest.raises(NotFound):
        await service.change(directory, ada.id, lambda _: ADA)
    again = await service.create(directory, ADA)
    assert (again.id, again.disabled_at, again.operator) == (ada.id, None, False)
    await service.remove_group(directory, staff.id)
    assert await service.groups(directory, {}) == (0, [])


def ids(users: Sequence[User]) -> frozenset[str]:
    return frozenset(user.id for user in users)
