"""Operator keys with names, ends and narrower rights, and what a program provisions with them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from accountkit import World
from managekit import OPERATOR, Office, office

from causerie.hosted.accounts.people import SYSTEM


@pytest.fixture
async def services(lite: World) -> AsyncIterator[Office]:
    async with office(lite) as made:
        yield made


async def key_with(services: Office, *rights: str, **more: object) -> str:
    body = {"name": "program", "rights": list(rights), **more}
    made = await services.ask(OPERATOR, "/operator-keys", body)
    assert made.status == 201, made.body
    return str(made.json()["credential"])


async def test_a_program_provisions_a_person(services: Office) -> None:
    key = await key_with(services, "people")
    user = (await services.ask(key, "/users", {"email": "ada@example.org", "name": "Ada"})).json()
    project = (await services.ask(key, "/projects", {"name": "Team"})).json()
    place = f"/projects/{project['id']}"
    member = f"{place}/members/{user['id']}"
    joined = await services.ask(key, member, {"role": "member"}, method="PUT")
    assert (joined.status, joined.json()["role"]) == (200, "member")
    again = await services.ask(key, member, {"role": "member"}, method="PUT")
    assert again.status == 200
    other = await services.ask(key, member, {"role": "admin"}, method="PUT")
    assert (other.status, other.error["code"]) == (409, "taken")
    made = await services.ask(key, f"{place}/keys", {"name": "agent"})
    assert (made.status, made.json()["person"]) == (201, "")
    moved = await services.ask(key, f"/keys/{made.json()['id']}/transfer", {"to": user["id"]})
    assert moved.json()["person"] == user["id"]
    managing = {"name": "terraform", "purpose": "management"}
    assert (await services.ask(key, f"{place}/keys", managing)).status == 201
    me = (await services.ask(key, "/me")).json()
    assert (me["name"], me["operator"], me["rights"]) == ("program", False, ["people"])
    (entry, *_) = (await services.ask(OPERATOR, "/audit?action=member.add")).json()["data"]
    assert (entry["actor_name"], entry["subject"]) == ("program", user["id"])


async def test_a_key_stops_at_its_end_and_when_it_is_deleted(services: Office) -> None:
    world = services.world
    end = (world.now + timedelta(days=1)).isoformat()
    ending = await key_with(services, "usage", expires_at=end)
    deleted = await key_with(services, "usage")
    for key in (ending, deleted):
        assert (await services.ask(key, "/usage")).status == 200
    id = deleted.rpartition("_")[0]
    assert (await services.ask(OPERATOR, f"/operator-keys/{id}", method="DELETE")).status == 204
    assert (await services.ask(deleted, "/usage")).status == 401
    world.later(days=1)
    assert (await services.ask(ending, "/usage")).status == 401
    listed = (await services.ask(OPERATOR, "/operator-keys")).json()["data"]
    assert [each["id"] for each in listed] == [ending.rpartition("_")[0]]
    gone = await services.ask(OPERATOR, f"/operator-keys/{id}", method="DELETE")
    assert gone.status == 404


async def test_a_limited_key_does_not_raise_itself(services: Office) -> None:
    key, world = await key_with(services, "people"), services.world
    operator, person = await world.person(operator=True), await world.person()
    for path, body, method in (
        ("/operator-keys", {"name": "more"}, "POST"),
        (f"/users/{person.id}/operator", {"operator": True}, "PUT"),
        ("/users", {"email": "b@example.org", "name": "B", "operator": True}, "POST"),
        ("/invitations", {"operator": True}, "POST"),
        (f"/users/{operator.id}/password-link", {}, "POST"),
        (f"/users/{operator.id}/disable", {}, "POST"),
        (f"/users/{operator.id}/two-factor", None, "DELETE"),
    ):
        answer = await services.ask(key, path, body, method=method)
        assert (answer.status, answer.error["code"]) == (403, "scope_not_allowed"), path
    assert (await world.users.see(SYSTEM, operator.id)).disabled_at is None


async def test_wrong_rights_are_named(services: Office) -> None:
    answer = await services.ask(OPERATOR, "/operator-keys", {"name": "x", "rights": ["root"]})
    assert answer.status == 400
    assert "rights" in answer.error["message"] + answer.error["param"]
    past = {"name": "x", "expires_at": services.world.now.isoformat()}
    assert (await services.ask(OPERATOR, "/operator-keys", past)).error["param"] == "expires_at"


async def test_a_promotion_takes_password_links_back(services: Office) -> None:
    key, world = await key_with(services, "people"), services.world
    person = await world.person(password="seven green kettles sing")
    link = (await services.ask(key, f"/users/{person.id}/password-link", {})).json()["token"]
    assert (await world.users.link(link)).user_id == person.id
    await world.users.make_operator(SYSTEM, person.id)
    with pytest.raises(Exception, match="does not work any more"):
        await world.users.link(link)


async def test_models_and_doors_are_set_by_api(services: Office) -> None:
    key, world = await key_with(services, "people"), services.world
    member = await world.person()
    project = await world.project(owner=await world.person(), member=member)
    rule = {"models": ["openai/*"], "completion_price": "10.50"}
    whole = {"models": None, "doors": None, "providers": None}
    whole |= {"prompt_price": None, "completion_price": None}
    for path in (
        f"/projects/{project.id}/access",
        f"/projects/{project.id}/members/{member.id}/access",
        f"/users/{member.id}/access",
    ):
        assert (await services.ask(key, path)).json() == whole
        put = await services.ask(key, path, rule, method="PUT")
        assert put.json() == whole | {"models": ["openai/*"], "completion_price": "10.5"}
        assert (await services.ask(key, path)).json() == put.json()
        wrong = await services.ask(key, path, {"models": ["*x"]}, method="PUT")
        assert (wrong.status, wrong.error["param"]) == (400, "models")
        assert (await services.ask(key, path, {}, method="PUT")).json() == whole
    manager = await services.manager(project)
    assert (await services.ask(manager, f"/projects/{project.id}/access")).status == 200
    refused = await services.ask(manager, f"/projects/{project.id}/access", rule, method="PUT")
    assert refused.status == 403


async def test_budgets_of_tags_and_bounds_of_many_are_set_by_api(services: Office) -> None:
    key, world = await key_with(services, "people"), services.world
    people = [await world.person() for _ in range(2)]
    project = await world.project(owner=people[0])
    soft = {"amount": "5", "soft": True}
    put = await services.ask(
        key, "/budgets", {"kind": "tag", "name": "a b", "budgets": [soft]}, method="PUT"
    )
    assert (put.status, put.json()["data"][0]["name"]) == (200, "a b")
    (listed,) = (await services.ask(key, "/budgets")).json()["data"]
    assert (listed["budgets"][0]["soft"], listed["budgets"][0]["spent"]) == (True, "0")
    many = {"budgets": [{"amount": "25"}], "everyone": True, "projects": [project.id]}
    changed = await services.ask(key, "/bounds", many, method="PUT")
    assert changed.json() == {"changed": 3}
    bounds = (await services.ask(key, f"/users/{people[1].id}/bounds")).json()
    assert bounds["budgets"][0]["amount"] == "25"
    of_members = {"members_of": project.id, "keep": True, "limits": [{"concurrent": 2}]}
    assert (await services.ask(key, "/bounds", of_members, method="PUT")).json()["changed"] == 1
    unknown = await services.ask(key, "/bounds", {"users": ["usr_none"]}, method="PUT")
    assert (unknown.status, unknown.error["param"]) == (400, "ids")
    reader = await key_with(services, "read")
    assert (await services.ask(reader, "/budgets")).status == 200
    assert (await services.ask(reader, "/bounds", many, method="PUT")).status == 403
