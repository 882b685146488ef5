"""Limited operators and operator keys on the pages of operators."""

from __future__ import annotations

import pytest
from accountkit import World
from consolekit import Place

from causerie.hosted.accounts.people import SYSTEM, User

SEEN = {
    "/operator": {"read", "configuration"},
    "/operator/users": {"read", "people", "usage"},
    "/operator/projects": {"read", "people", "usage"},
    "/operator/keys": {"read", "people", "usage"},
    "/operator/usage": {"read", "people", "usage"},
    "/operator/activity": {"read", "people", "usage"},
    "/operator/audit": {"read", "configuration"},
    "/operator/invite": {"people"},
    "/operator/projects/new": {"people"},
    "/operator/keys/new": set[str](),
}


BUDGET = {
    "budget_amount": "5",
    "budget_unit": "money",
    "budget_period": "month",
    "budget_model": "",
}


async def limited(world: World, *rights: str) -> User:
    user = await world.person()
    return await world.users.make_operator(SYSTEM, user.id, rights=frozenset(rights))


@pytest.mark.parametrize("right", ["read", "people", "configuration", "usage"])
async def test_a_limited_operator_sees_the_pages_of_their_right(place: Place, right: str) -> None:
    visitor = await place.visitor_of(await limited(place.world, right))
    start = (await visitor.get("/")).target
    assert (await visitor.get(start)).status == 200
    page = await visitor.get("/profile")
    for path, rights in SEEN.items():
        allowed = right in rights
        assert (await visitor.get(path)).status == (200 if allowed else 403), (right, path)
        linked = f'href="/console{path}"' in page.text
        assert not linked or allowed, (right, path)


async def test_a_reader_changes_nothing(place: Place) -> None:
    world = place.world
    reader, other = await limited(world, "read"), await world.person()
    project = await world.project(owner=other)
    visitor = await place.visitor_of(reader)
    users = await visitor.get("/operator/users")
    assert other.name in users.text
    assert "Actions for" not in users.text
    for path, form in (
        (f"/operator/users/{other.id}/disable", {}),
        (f"/operator/users/{reader.id}/operator", {"operator": "all"}),
        (
            f"/operator/users/{other.id}/bounds",
            BUDGET,
        ),
        ("/operator/projects/new", {"name": "Mine"}),
        ("/operator/keys/new", {"name": "mine", "operator": "all"}),
        (f"/projects/{project.id}/archive", {}),
        (f"/projects/{project.id}/bounds", {}),
    ):
        assert (await visitor.post(path, form)).status == 403, path
    found = await world.users.see(SYSTEM, reader.id)
    assert (found.operator, found.rights) == (False, frozenset({"read"}))


async def test_an_operator_limits_another(place: Place) -> None:
    world = place.world
    visitor = await place.visitor_of(await world.person(operator=True))
    person = await world.person()
    here = f"/operator/users/{person.id}/operator"
    assert "Rights over the service" in (await visitor.get(here)).text
    empty = await visitor.post(here, {"operator": "some"})
    assert empty.status == 400
    assert "Choose at least one right" in empty.text
    sent = [("operator", "some"), ("rights", "usage"), ("rights", "read")]
    assert (await visitor.post(here, sent)).target == "/operator/users?done=operator-saved"
    assert (await world.users.see(SYSTEM, person.id)).rights == {"usage", "read"}
    assert "read, usage</span>" in (await visitor.get("/operator/users")).text
    await visitor.post(here, {"operator": "none"})
    assert not (await world.users.see(SYSTEM, person.id)).operates


async def test_an_operator_key_is_made_and_deleted(place: Place) -> None:
    world = place.world
    visitor = await place.visitor_of(await world.person(operator=True))
    assert "No operator keys yet" in (await visitor.get("/operator/keys")).text
    fields = {"name": "Provisioning", "operator": "some", "rights": "people", "end": "30"}
    credential = (await visitor.post("/operator/keys/new", fields)).code("credential")
    listed = await visitor.get("/operator/keys")
    assert "Provisioning" in listed.text
    assert credential not in listed.text
    (key,) = await world.accounts.operator_keys.every(SYSTEM)
    assert key.rights == {"people"}
    assert key.expires_at is not None
    await visitor.post(f"/operator/keys/{key.id}/delete")
    assert "Provisioning" not in (await visitor.get("/operator/keys")).text
    audit = (await visitor.get("/operator/audit?kind=operator_key")).text
    assert "created the operator key" in audit
    assert "deleted the operator key" in audit
