"""The management API: what its operations do, and what they say where they cannot."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from accountkit import World
from managekit import OPERATOR, Office, office

from causerie.accounts.people import SYSTEM, Project, Role


@pytest.fixture
async def desk(world: World) -> AsyncIterator[Office]:
    async with office(world) as made:
        yield made


@pytest.fixture
async def project(world: World) -> Project:
    return await world.project(owner=await world.person("olga"))


async def test_a_key_says_who_it_is(desk: Office, project: Project) -> None:
    key = await desk.manager(project)
    answer = await desk.ask(key, "/me")
    assert answer.status == 200
    assert answer.json() == {
        "kind": "key",
        "id": key.rsplit("_", 1)[0],
        "name": "key",
        "operator": False,
        "project": project.id,
    }
    assert answer.headers["cache-control"] == "no-store"
    assert (await desk.ask(OPERATOR, "/me")).json() == {
        "kind": "key",
        "id": "ops",
        "name": "ops",
        "operator": True,
        "project": None,
    }


async def test_without_a_good_key_nobody_comes_in(desk: Office, project: Project) -> None:
    for key, code in [("ck_no_such", "invalid_api_key"), ("", "missing_api_key")]:
        answer = await desk.ask(key, "/me")
        assert (answer.status, answer.error["code"]) == (401, code)
    inference = await desk.world.key(project)
    answer = await desk.ask(inference.credential, "/me")
    assert (answer.status, answer.error["code"]) == (403, "scope_not_allowed")
    ended = await desk.manager(project)
    await desk.world.keys.disable(SYSTEM, ended.rsplit("_", 1)[0])
    assert (await desk.ask(ended, "/me")).status == 401


async def test_the_life_of_a_key(desk: Office, project: Project) -> None:
    manager = await desk.manager(project)
    bounds = {
        "limits": [{"requests_per_minute": 60}, {"model": "small", "concurrent": 2}],
        "budgets": [{"amount": "100.50", "period": "week"}],
    }
    made = await desk.ask(
        manager,
        f"/projects/{project.id}/keys",
        {
            "name": "  build   bot ",
            "models": ["small", "large"],
            "doors": [],
            "expires_at": "2027-01-01T00:00:00+02:00",
            "bounds": bounds,
        },
    )
    assert made.status == 201
    key = made.json()
    assert key["credential"].startswith(f"{key['id']}_")
    assert (key["name"], key["models"], key["doors"]) == ("build bot", ["large", "small"], [])
    assert key["expires_at"].startswith("2027-01-01T00:00:00+02:00")
    assert key["bounds"]["budgets"] == [
        {"amount": "100.5", "period": "week", "unit": "money", "model": ""}
    ]
    place = f"/keys/{key['id']}"
    seen = (await desk.ask(manager, place)).json()
    assert "credential" not in seen
    assert seen["state"] == "active"
    assert seen["expires_at"] == "2026-12-31T22:00:00Z"

    edited = await desk.ask(manager, place, {"name": "bot", "expires_at": None}, method="PATCH")
    assert edited.status == 200
    assert (edited.json()["name"], edited.json()["expires_at"]) == ("bot", None)
    assert edited.json()["models"] == ["large", "small"]
    edited = await desk.ask(manager, place, {"models": None, "bounds": {}}, method="PATCH")
    assert (edited.json()["models"], edited.json()["bounds"]) == (
        None,
        {"limits": [], "budgets": []},
    )

    rotated = await desk.ask(manager, f"{place}/rotate", {"grace_seconds": 60})
    assert rotated.status == 200
    assert rotated.json()["id"] == key["id"]
    assert rotated.json()["credential"] != key["credential"]
    for _ in range(2):  # what is done is done
        assert (await desk.ask(manager, f"{place}/disable", {})).json()["state"] == "disabled"
    for _ in range(2):
        assert (await desk.ask(manager, f"{place}/enable", method="POST")).status == 200
    deleted = await desk.ask(manager, place, method="DELETE")
    assert (deleted.status, deleted.body) == (204, b"")
    for method in ("DELETE", "GET"):
        gone = await desk.ask(manager, place, method=method)
        assert (gone.status, gone.error["code"]) == (404, "not_found")
    assert (await desk.ask(manager, f"/projects/{project.id}/keys")).json()["next"] is None


async def test_projects_and_people(desk: Office) -> None:
    made = await desk.ask(OPERATOR, "/users", {"email": "Ann@Example.org", "name": "Ann"})
    assert made.status == 201
    ann = made.json()
    assert (ann["email"], ann["operator"]) == ("ann@example.org", False)
    again = await desk.ask(OPERATOR, "/users", {"email": "ann@example.org", "name": "Ann"})
    assert (again.status, again.error["code"], again.error["param"]) == (409, "taken", "email")

    made = await desk.ask(OPERATOR, "/projects", {"name": "Rockets", "owner": ann["id"]})
    assert made.status == 201
    place = f"/projects/{made.json()['id']}"
    members = (await desk.ask(OPERATOR, f"{place}/members")).json()["data"]
    assert [(each["user"], each["role"]) for each in members] == [(ann["id"], "owner")]
    member = f"{place}/members/{ann['id']}"
    for method, body in (("PATCH", {"role": "viewer"}), ("DELETE", None)):
        refused = await desk.ask(OPERATOR, member, body, method=method)
        assert (refused.status, refused.error["code"]) == (409, "last_owner")

    invited = await desk.ask(OPERATOR, f"{place}/invitations", {"role": "admin"})
    assert invited.status == 201
    link = invited.json()
    assert link["path"] == f"/somewhere/invitation/{link['token']}"
    bea = await desk.world.users.accept(
        link["token"], email="bea@example.org", name="Bea", password=None
    )
    withdrawn = (await desk.ask(OPERATOR, f"{place}/invitations", {})).json()["id"]
    listed = (await desk.ask(OPERATOR, f"{place}/invitations")).json()["data"]
    assert [each["id"] for each in listed] == [withdrawn]
    assert "token" not in listed[0]
    for status in (204, 404):
        gone = await desk.ask(OPERATOR, f"{place}/invitations/{withdrawn}", method="DELETE")
        assert gone.status == status

    changed = await desk.ask(
        OPERATOR, f"{place}/members/{bea.id}", {"role": "owner"}, method="PATCH"
    )
    assert changed.status == 200
    assert (await desk.ask(OPERATOR, member, method="DELETE")).status == 200
    renamed = await desk.ask(OPERATOR, place, {"name": "Ships"}, method="PATCH")
    assert renamed.json()["name"] == "Ships"
    archived = await desk.ask(OPERATOR, f"{place}/archive", {})
    assert archived.json()["archived_at"] == "2026-11-21T12:00:00Z"
    restored = await desk.ask(OPERATOR, f"{place}/restore", {})
    assert restored.json()["archived_at"] is None
    set = await desk.ask(
        OPERATOR, f"{place}/bounds", {"budgets": [{"amount": 5, "unit": "tokens"}]}, method="PUT"
    )
    assert set.status == 200
    assert (await desk.ask(OPERATOR, place)).json()["bounds"] == set.json()


async def test_users_and_links(desk: Office) -> None:
    user = (await desk.ask(OPERATOR, "/users", {"email": "a@b.example", "name": "A"})).json()
    place = f"/users/{user['id']}"
    link = (await desk.ask(OPERATOR, f"{place}/password-link", {})).json()
    assert (link["kind"], link["user"]) == ("reset", user["id"])
    await desk.world.profile.reset_password(link["token"], "seven green kettles sing")
    assert (await desk.ask(OPERATOR, f"{place}/disable", {})).json()["disabled_at"] is not None
    assert (await desk.ask(OPERATOR, f"{place}/enable", {})).json()["disabled_at"] is None
    operator = await desk.ask(OPERATOR, f"{place}/operator", {"operator": True}, method="PUT")
    assert operator.json()["operator"] is True
    last = await desk.ask(OPERATOR, f"{place}/operator", {"operator": False}, method="PUT")
    assert (last.status, last.error["code"]) == (409, "last_operator")
    assert (await desk.ask(OPERATOR, place)).json()["operator"] is True
    await desk.world.factor(await desk.world.users.see(SYSTEM, user["id"]))
    factor = f"{place}/second-factor"
    assert (await desk.ask(OPERATOR, factor, method="DELETE")).status == 204
    assert (await desk.ask(OPERATOR, factor, method="DELETE")).status == 404
    invited = (await desk.ask(OPERATOR, "/invitations", {"email": "c@d.example"})).json()
    assert invited["email"] == "c@d.example"
    listed = (await desk.ask(OPERATOR, "/invitations")).json()["data"]
    assert [each["id"] for each in listed] == [invited["id"]]
    gone = await desk.ask(OPERATOR, f"/invitations/{invited['id']}", method="DELETE")
    assert gone.status == 204
    assert (await desk.ask(OPERATOR, "/invitations")).json()["data"] == []


async def test_lists_come_in_pages(desk: Office, project: Project) -> None:
    manager = await desk.manager(project)
    for number in range(5):
        desk.world.later(seconds=1)
        await desk.world.key(project, name=f"key {number}")
    names, cursor = [], ""
    for _ in range(3):
        answer = await desk.ask(manager, f"/projects/{project.id}/keys?limit=2&cursor={cursor}")
        found = answer.json()
        names += [each["name"] for each in found["data"]]
        cursor = found["next"]
        if cursor:  # what ends a page may go; the next begins after it all the same
            await desk.ask(manager, f"/keys/{found['data'][-1]['id']}", method="DELETE")
    assert names == ["key 4", "key 3", "key 2", "key 1", "key 0", "key"]
    assert cursor is None
    for number in range(3):
        await desk.world.person(f"p{number}")
    first = (await desk.ask(OPERATOR, "/users?limit=3")).json()
    rest = (await desk.ask(OPERATOR, f"/users?limit=3&cursor={first['next']}")).json()
    emails = [each["email"] for each in first["data"] + rest["data"]]
    assert emails == sorted(emails)
    assert (len(emails), rest["next"]) == (4, None)


async def test_a_management_key_sees_its_own_project_alone(desk: Office, project: Project) -> None:
    other = await desk.world.project(owner=await desk.world.person())
    manager = await desk.manager(project)
    listed = (await desk.ask(manager, "/projects")).json()
    assert [each["id"] for each in listed["data"]] == [project.id]
    foreign = await desk.world.key(other)
    answers = [
        await desk.ask(manager, f"/keys/{foreign.key.id}"),
        await desk.ask(manager, "/keys/ck_AAAAAAAAAAAA"),
    ]
    # A key of others and one that is not there are told apart by nothing.
    assert [(each.status, each.error["message"]) for each in answers] == [
        (404, "There is no such key.")
    ] * 2
    both = await desk.ask(OPERATOR, "/projects")
    assert {each["id"] for each in both.json()["data"]} == {project.id, other.id}


@pytest.mark.parametrize(
    ("body", "status", "code", "param"),
    [
        ({}, 400, "missing_parameter", "name"),
        ({"name": 5}, 400, "invalid_type", "name"),
        ({"name": ""}, 400, "invalid_value", "name"),
        ({"name": "a", "colour": 1}, 400, "unsupported_parameter", "colour"),
        ({"name": "a", "purpose": "both"}, 400, "invalid_value", "purpose"),
        ({"name": "a", "expires_at": "2026-12-01T00:00:00"}, 400, "invalid_value", "expires_at"),
        ({"name": "a", "expires_at": "2020-01-01T00:00:00Z"}, 400, "invalid_value", "expires_at"),
        ({"name": "a", "expires_at": "9999-12-31T00:00:00Z"}, 400, "invalid_value", "expires_at"),
        (
            {"name": "a", "bounds": {"limits": [{"concurrent": 0}]}},
            400,
            "invalid_value",
            "bounds.limits[0].concurrent",
        ),
        (
            {"name": "a", "bounds": {"limits": [{"model": "m"}]}},
            400,
            "invalid_value",
            "bounds.limits[0].requests_per_minute",
        ),
        (
            {"name": "a", "bounds": {"budgets": [{"amount": "1e-999999999999"}]}},
            400,
            "invalid_value",
            "bounds.budgets[0].amount",
        ),
        (
            {"name": "a", "bounds": {"budgets": [{"amount": "NaN"}]}},
            400,
            "invalid_value",
            "bounds.budgets[0].amount",
        ),
        ({"name": "a\u0000"}, 400, "invalid_value", None),
        ([], 400, "invalid_type", None),
        (b"{", 400, "invalid_json", None),
        (b'{"name": "\xff"}', 400, "invalid_json", None),
        (b"[" * 10_000, 400, "invalid_type", None),
        (b'{"name": "' + b"a" * 70_000 + b'"}', 413, "body_too_large", None),
    ],
)
async def test_a_wrong_body_says_where(
    desk: Office, project: Project, body: object, status: int, code: str, param: str | None
) -> None:
    manager = await desk.manager(project)
    answer = await desk.ask(manager, f"/projects/{project.id}/keys", body)
    assert answer.status == status
    assert (answer.error["code"], answer.error["param"]) == (code, param)


@pytest.mark.parametrize(
    ("path", "param"),
    [
        ("/users?limit=0", "limit"),
        ("/users?limit=a", "limit"),
        ("/users?colour=red", "colour"),
        ("/users?limit=1&limit=2", "limit"),
        ("/users?cursor=!!", "cursor"),
        ("/users?cursor=e30", "cursor"),
        ("/usage?since=yesterday", "since"),
        ("/usage?since=2026-11-31", "since"),
        ("/usage?since=2026-11-21T00:00:00", "since"),
        ("/usage?until=9999-12-31T23:59:59-23:59", "until"),
        ("/usage?since=2026-11-02&until=2026-11-01", "until"),
        ("/usage?step=year", "step"),
        ("/usage?by=colour", "by"),
        ("/usage?by=key,key", "by"),
        ("/usage?step=hour&since=2025-01-01", "since"),
        ("/usage?cursor=WyIiXQ", "cursor"),
        ("/requests?status=1000", "status"),
        ("/requests?cursor=WzEsImEiXQ", "cursor"),
        ("/requests?key=%00", "key"),
        ("/audit?cursor=Ii0xIg", "cursor"),
        ("/audit?cursor=LTE", "cursor"),
    ],
)
async def test_a_wrong_query_says_where(desk: Office, path: str, param: str) -> None:
    answer = await desk.ask(OPERATOR, path)
    assert answer.status == 400
    assert answer.error["param"] == param


async def test_what_is_not_there(desk: Office) -> None:
    assert (await desk.ask(OPERATOR, "/nothing")).error["code"] == "unknown_path"
    assert (await desk.ask(OPERATOR, "")).status == 404
    refused = await desk.ask(OPERATOR, "/users", {}, method="PATCH")
    assert (refused.status, refused.headers["allow"]) == (405, "GET, HEAD, POST")
    unsupported = await desk.ask(
        OPERATOR, "/users", b"name=a", headers={"content-type": "application/x-www-form-urlencoded"}
    )
    assert unsupported.status == 415
    assert (await desk.ask(OPERATOR, "/users", method="HEAD")).status == 200


async def test_what_was_done_is_in_the_audit_log(desk: Office, project: Project) -> None:
    manager = await desk.manager(project)
    await desk.ask(manager, f"/projects/{project.id}/keys", {"name": "one"})
    found = await desk.ask(OPERATOR, f"/audit?project={project.id}&action=key.create&limit=1")
    assert found.status == 200
    entry = found.json()["data"][0]
    assert entry["actor"] == f"key:{manager.rsplit('_', 1)[0]}"
    assert entry["details"]["name"] == "one"
    following = await desk.ask(
        OPERATOR, f"/audit?action=key.create&limit=1&cursor={found.json()['next']}"
    )
    assert following.json()["data"][0]["id"] < entry["id"]
    assert (await desk.ask(manager, "/audit")).status == 403


async def test_an_end_of_a_membership(desk: Office, project: Project) -> None:
    user = await desk.world.person()
    await desk.world.join(project, user, Role.MEMBER)
    heir = await desk.world.person()
    await desk.world.join(project, heir, Role.MEMBER)
    kept = await desk.world.key(project, user, name="production")
    place, key = f"/projects/{project.id}/members/{user.id}", f"/keys/{kept.key.id}"
    wrong = await desk.ask(OPERATOR, f"{place}?keys_to=usr_none", method="DELETE")
    assert (wrong.status, wrong.error["param"]) == (400, "keys_to")
    listed = await desk.ask(OPERATOR, f"/users/{user.id}/keys")
    assert [each["name"] for each in listed.json()["data"]] == ["production"]
    gone = await desk.ask(OPERATOR, f"{place}?keys_to={heir.id}", method="DELETE")
    [transferred] = gone.json()["keys_transferred"]
    assert (transferred["person"], gone.json()["keys_stopped"]) == (heir.id, [])
    assert (await desk.ask(OPERATOR, key)).json()["state"] == "active"

    place = f"/projects/{project.id}/members/{heir.id}"
    demoted = await desk.ask(OPERATOR, place, {"role": "viewer"}, method="PATCH")
    assert [each["name"] for each in demoted.json()["keys_stopped"]] == ["production"]
    assert (await desk.ask(OPERATOR, key)).json()["state"] == "withdrawn"
    gone = await desk.ask(OPERATOR, place, method="DELETE")
    assert gone.json()["keys_stopped"] == []  # it had stopped before
    refused = await desk.ask(OPERATOR, f"{key}/transfer", {"to": heir.id})
    assert (refused.status, refused.error["param"]) == (400, "to")
    await desk.world.join(project, user, Role.MEMBER)
    assert (await desk.ask(OPERATOR, key)).json()["state"] == "withdrawn"
    taken = await desk.ask(OPERATOR, f"{key}/transfer", {"to": user.id})
    assert (taken.json()["state"], taken.json()["person"]) == ("active", user.id)


async def test_credits(desk: Office) -> None:
    world = desk.world
    project = await world.project(owner=await world.person())
    manager = await desk.manager(project)
    place = f"/projects/{project.id}/credits"
    put = await desk.ask(OPERATOR, place, {"amount": "12.50", "note": "by transfer"})
    assert put.status == 201
    assert (put.json()["amount"], put.json()["note"]) == ("12.5", "by transfer")
    refused = await desk.ask(manager, place, {"amount": "12.50"})
    assert (refused.status, refused.error["code"]) == (403, "scope_not_allowed")
    assert (await desk.ask(OPERATOR, place, {"amount": "0"})).status == 400
    seen = (await desk.ask(manager, place)).json()
    assert (seen["put_in"], seen["spent"], seen["left"]) == ("12.5", "0", "12.5")
    assert [each["id"] for each in seen["data"]] == [put.json()["id"]]


async def test_a_key_may_ask_so_often_a_minute(world: World, project: Project) -> None:
    async with office(world, requests_per_minute=3) as desk:
        key, other = await desk.manager(project), await desk.manager(project)
        left = [(await desk.ask(key, "/me")).headers for _ in range(3)]
        assert [each["x-ratelimit-remaining-requests"] for each in left] == ["2", "1", "0"]
        refused = await desk.ask(key, "/me")
        assert (refused.status, refused.json()["error"]["code"]) == (429, "requests")
        assert 1 <= int(refused.headers["retry-after"]) <= 60
        assert (await desk.ask(other, "/me")).status == 200
        for _ in range(5):  # wrong keys are nobody's, and take from nobody
            assert (await desk.ask("ck_wrong_key", "/me")).status == 401
