"""The management API: what its operations do, and what they say where they cannot."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from accountkit import World
from casekit import each_of
from managekit import OPERATOR, Office, office

from causerie.hosted.accounts.people import SYSTEM, Project, Role


@pytest.fixture
async def services(world: World) -> AsyncIterator[Office]:
    async with office(world) as made:
        yield made


@pytest.fixture
async def project(world: World) -> Project:
    return await world.project(owner=await world.person("olga"))


async def test_a_key_says_who_it_is(services: Office, project: Project) -> None:
    key = await services.manager(project)
    answer = await services.ask(key, "/me")
    assert answer.status == 200
    assert answer.json() == {
        "kind": "key",
        "id": key.rsplit("_", 1)[0],
        "name": "key",
        "operator": False,
        "rights": [],
        "project": project.id,
    }
    assert answer.headers["cache-control"] == "no-store"
    assert (await services.ask(OPERATOR, "/me")).json() == {
        "kind": "key",
        "id": "ops",
        "name": "ops",
        "operator": True,
        "rights": [],
        "project": None,
    }


async def test_without_a_good_key_nobody_comes_in(services: Office, project: Project) -> None:
    for key, code in [("ck_no_such", "invalid_api_key"), ("", "missing_api_key")]:
        answer = await services.ask(key, "/me")
        assert (answer.status, answer.error["code"]) == (401, code)
    inference = await services.world.key(project)
    answer = await services.ask(inference.credential, "/me")
    assert (answer.status, answer.error["code"]) == (403, "scope_not_allowed")
    ended = await services.manager(project)
    await services.world.keys.disable(SYSTEM, ended.rsplit("_", 1)[0])
    assert (await services.ask(ended, "/me")).status == 401


async def test_the_life_of_a_key(services: Office, project: Project) -> None:
    manager = await services.manager(project)
    bounds = {
        "limits": [{"requests_per_minute": 60}, {"model": "small", "concurrent": 2}],
        "budgets": [{"amount": "100.50", "period": "week"}],
    }
    made = await services.ask(
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
        {"amount": "100.5", "period": "week", "unit": "money", "model": "", "soft": False}
    ]
    place = f"/keys/{key['id']}"
    seen = (await services.ask(manager, place)).json()
    assert "credential" not in seen
    assert seen["state"] == "active"
    assert seen["expires_at"] == "2026-12-31T22:00:00Z"

    edited = await services.ask(manager, place, {"name": "bot", "expires_at": None}, method="PATCH")
    assert edited.status == 200
    assert (edited.json()["name"], edited.json()["expires_at"]) == ("bot", None)
    assert edited.json()["models"] == ["large", "small"]
    edited = await services.ask(manager, place, {"models": None, "bounds": {}}, method="PATCH")
    assert (edited.json()["models"], edited.json()["bounds"]) == (
        None,
        {"limits": [], "budgets": []},
    )

    rotated = await services.ask(manager, f"{place}/rotate", {"grace_seconds": 60})
    assert rotated.status == 200
    assert rotated.json()["id"] == key["id"]
    assert rotated.json()["credential"] != key["credential"]
    for _ in range(2):  # what is done is done
        assert (await services.ask(manager, f"{place}/disable", {})).json()["state"] == "disabled"
    for _ in range(2):
        assert (await services.ask(manager, f"{place}/enable", method="POST")).status == 200
    deleted = await services.ask(manager, place, method="DELETE")
    assert (deleted.status, deleted.body) == (204, b"")
    for method in ("DELETE", "GET"):
        gone = await services.ask(manager, place, method=method)
        assert (gone.status, gone.error["code"]) == (404, "not_found")
    assert (await services.ask(manager, f"/projects/{project.id}/keys")).json()["next"] is None


async def test_projects_and_people(services: Office) -> None:
    made = await services.ask(OPERATOR, "/users", {"email": "Ann@Example.org", "name": "Ann"})
    assert made.status == 201
    ann = made.json()
    assert (ann["email"], ann["operator"]) == ("ann@example.org", False)
    again = await services.ask(OPERATOR, "/users", {"email": "ann@example.org", "name": "Ann"})
    assert (again.status, again.error["code"], again.error["param"]) == (409, "taken", "email")

    made = await services.ask(OPERATOR, "/projects", {"name": "Rockets", "owner": ann["id"]})
    assert made.status == 201
    place = f"/projects/{made.json()['id']}"
    members = (await services.ask(OPERATOR, f"{place}/members")).json()["data"]
    assert [(each["user"], each["role"]) for each in members] == [(ann["id"], "owner")]
    member = f"{place}/members/{ann['id']}"
    for method, body in (("PATCH", {"role": "viewer"}), ("DELETE", None)):
        refused = await services.ask(OPERATOR, member, body, method=method)
        assert (refused.status, refused.error["code"]) == (409, "last_owner")

    invited = await services.ask(OPERATOR, f"{place}/invitations", {"role": "admin"})
    assert invited.status == 201
    link = invited.json()
    assert link["path"] == f"/somewhere/invitation/{link['token']}"
    bea = await services.world.users.accept(
        link["token"], email="bea@example.org", name="Bea", password=None
    )
    withdrawn = (await services.ask(OPERATOR, f"{place}/invitations", {})).json()["id"]
    listed = (await services.ask(OPERATOR, f"{place}/invitations")).json()["data"]
    assert [each["id"] for each in listed] == [withdrawn]
    assert "token" not in listed[0]
    for status in (204, 404):
        gone = await services.ask(OPERATOR, f"{place}/invitations/{withdrawn}", method="DELETE")
        assert gone.status == status

    changed = await services.ask(
        OPERATOR, f"{place}/members/{bea.id}", {"role": "owner"}, method="PATCH"
    )
    assert changed.status == 200
    assert (await services.ask(OPERATOR, member, method="DELETE")).status == 200
    renamed = await services.ask(OPERATOR, place, {"name": "Ships"}, method="PATCH")
    assert renamed.json()["name"] == "Ships"
    archived = await services.ask(OPERATOR, f"{place}/archive", {})
    assert archived.json()["archived_at"] == "2026-11-21T12:00:00Z"
    restored = await services.ask(OPERATOR, f"{place}/restore", {})
    assert restored.json()["archived_at"] is None
    set = await services.ask(
        OPERATOR, f"{place}/bounds", {"budgets": [{"amount": 5, "unit": "tokens"}]}, method="PUT"
    )
    assert set.status == 200
    assert (await services.ask(OPERATOR, place)).json()["bounds"] == set.json()


async def test_users_and_links(services: Office) -> None:
    user = (await services.ask(OPERATOR, "/users", {"email": "a@b.example", "name": "A"})).json()
    place = f"/users/{user['id']}"
    link = (await services.ask(OPERATOR, f"{place}/password-link", {})).json()
    assert (link["kind"], link["user"]) == ("reset", user["id"])
    await services.world.profile.reset_password(link["token"], "seven green kettles sing")
    assert (await services.ask(OPERATOR, f"{place}/disable", {})).json()["disabled_at"] is not None
    assert (await services.ask(OPERATOR, f"{place}/enable", {})).json()["disabled_at"] is None
    bounds = {"budgets": [{"amount": "5"}], "limits": [{"requests_per_minute": 3}]}
    set = await services.ask(OPERATOR, f"{place}/bounds", bounds, method="PUT")
    assert set.json()["budgets"] == [
        {"amount": "5", "period": "month", "unit": "money", "model": "", "soft": False}
    ]
    assert (await services.ask(OPERATOR, f"{place}/bounds")).json() == set.json()
    (spending,) = (await services.ask(OPERATOR, f"{place}/spending")).json()["budgets"]
    assert (spending["spent"], spending["amount"]) == ("0", "5")
    operator = await services.ask(OPERATOR, f"{place}/operator", {"operator": True}, method="PUT")
    assert operator.json()["operator"] is True
    last = await services.ask(OPERATOR, f"{place}/operator", {"operator": False}, method="PUT")
    assert (last.status, last.error["code"]) == (409, "last_operator")
    assert (await services.ask(OPERATOR, place)).json()["operator"] is True
    await services.world.factor(await services.world.users.see(SYSTEM, user["id"]))
    factor = f"{place}/two-factor"
    assert (await services.ask(OPERATOR, factor, method="DELETE")).status == 204
    assert (await services.ask(OPERATOR, factor, method="DELETE")).status == 404
    invited = (await services.ask(OPERATOR, "/invitations", {"email": "c@d.example"})).json()
    assert invited["email"] == "c@d.example"
    listed = (await services.ask(OPERATOR, "/invitations")).json()["data"]
    assert [each["id"] for each in listed] == [invited["id"]]
    gone = await services.ask(OPERATOR, f"/invitations/{invited['id']}", method="DELETE")
    assert gone.status == 204
    assert (await services.ask(OPERATOR, "/invitations")).json()["data"] == []


async def test_lists_come_in_pages(services: Office, project: Project) -> None:
    manager = await services.manager(project)
    for number in range(5):
        services.world.later(seconds=1)
        await services.world.key(project, name=f"key {number}")
    names, cursor = [], ""
    for _ in range(3):
        answer = await services.ask(manager, f"/projects/{project.id}/keys?limit=2&cursor={cursor}")
        found = answer.json()
        names += [each["name"] for each in found["data"]]
        cursor = found["next"]
        if cursor:  # what ends a page may go; the next begins after it all the same
            await services.ask(manager, f"/keys/{found['data'][-1]['id']}", method="DELETE")
    assert names == ["key 4", "key 3", "key 2", "key 1", "key 0", "key"]
    assert cursor is None
    for number in range(3):
        await services.world.person(f"p{number}")
    first = (await services.ask(OPERATOR, "/users?limit=3")).json()
    rest = (await services.ask(OPERATOR, f"/users?limit=3&cursor={first['next']}")).json()
    emails = [each["email"] for each in first["data"] + rest["data"]]
    assert emails == sorted(emails)
    assert (len(emails), rest["next"]) == (4, None)


async def test_a_management_key_sees_its_own_project_alone(
    services: Office, project: Project
) -> None:
    other = await services.world.project(owner=await services.world.person())
    manager = await services.manager(project)
    listed = (await services.ask(manager, "/projects")).json()
    assert [each["id"] for each in listed["data"]] == [project.id]
    foreign = await services.world.key(other)
    answers = [
        await services.ask(manager, f"/keys/{foreign.key.id}"),
        await services.ask(manager, "/keys/ck_AAAAAAAAAAAA"),
    ]
    # A key of others and one that is not there are told apart by nothing.
    assert [(each.status, each.error["message"]) for each in answers] == [
        (404, "There is no such key.")
    ] * 2
    both = await services.ask(OPERATOR, "/projects")
    assert {each["id"] for each in both.json()["data"]} == {project.id, other.id}


@each_of(
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
        (b"[" * 10_000, 400, "invalid_json", None),
        (b'{"name": "' + b"a" * 70_000 + b'"}', 413, "body_too_large", None),
    ],
)
async def test_a_wrong_body_says_where(
    services: Office, project: Project, body: object, status: int, code: str, param: str | None
) -> None:
    manager = await services.manager(project)
    answer = await services.ask(manager, f"/projects/{project.id}/keys", body)
    assert answer.status == status
    assert (answer.error["code"], answer.error["param"]) == (code, param)


@each_of(
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
async def test_a_wrong_query_says_where(services: Office, path: str, param: str) -> None:
    answer = await services.ask(OPERATOR, path)
    assert answer.status == 400
    assert answer.error["param"] == param


async def test_what_is_not_there(services: Office) -> None:
    assert (await services.ask(OPERATOR, "/nothing")).error["code"] == "unknown_path"
    assert (await services.ask(OPERATOR, "")).status == 404
    refused = await services.ask(OPERATOR, "/users", {}, method="PATCH")
    assert (refused.status, refused.headers["allow"]) == (405, "GET, HEAD, POST")
    unsupported = await services.ask(
        OPERATOR, "/users", b"name=a", headers={"content-type": "application/x-www-form-urlencoded"}
    )
    assert unsupported.status == 415
    assert (await services.ask(OPERATOR, "/users", method="HEAD")).status == 200


async def test_what_was_done_is_in_the_audit_log(services: Office, project: Project) -> None:
    manager = await services.manager(project)
    await services.ask(manager, f"/projects/{project.id}/keys", {"name": "one"})
    found = await services.ask(OPERATOR, f"/audit?project={project.id}&action=key.create&limit=1")
    assert found.status == 200
    entry = found.json()["data"][0]
    assert entry["actor"] == f"key:{manager.rsplit('_', 1)[0]}"
    assert entry["details"]["name"] == "one"
    following = await services.ask(
        OPERATOR, f"/audit?action=key.create&limit=1&cursor={found.json()['next']}"
    )
    assert following.json()["data"][0]["id"] < entry["id"]
    assert (await services.ask(manager, "/audit")).status == 403


async def test_the_audit_log_is_narrowed_down_by_kind(services: Office, project: Project) -> None:
    manager = await services.manager(project)
    await services.ask(manager, f"/projects/{project.id}/keys", {"name": "one"})
    of_project = f"/audit?project={project.id}"
    for kind in ("key", "project"):
        found = await services.ask(OPERATOR, f"{of_project}&kind={kind}")
        about = {each["action"].partition(".")[0] for each in found.json()["data"]}
        assert about == {kind}
    assert (await services.ask(OPERATOR, f"{of_project}&kind=door")).json()["data"] == []
    wrong = (await services.ask(OPERATOR, "/audit?kind=keys")).json()["error"]
    assert (wrong["code"], wrong["param"]) == ("invalid_value", "kind")


async def test_an_end_of_a_membership(services: Office, project: Project) -> None:
    user = await services.world.person()
    await services.world.join(project, user, Role.MEMBER)
    heir = await services.world.person()
    await services.world.join(project, heir, Role.MEMBER)
    kept = await services.world.key(project, user, name="production")
    place, key = f"/projects/{project.id}/members/{user.id}", f"/keys/{kept.key.id}"
    wrong = await services.ask(OPERATOR, f"{place}?keys_to=usr_none", method="DELETE")
    assert (wrong.status, wrong.error["param"]) == (400, "keys_to")
    listed = await services.ask(OPERATOR, f"/users/{user.id}/keys")
    assert [each["name"] for each in listed.json()["data"]] == ["production"]
    gone = await services.ask(OPERATOR, f"{place}?keys_to={heir.id}", method="DELETE")
    [transferred] = gone.json()["keys_transferred"]
    assert (transferred["person"], gone.json()["keys_stopped"]) == (heir.id, [])
    assert (await services.ask(OPERATOR, key)).json()["state"] == "active"

    place = f"/projects/{project.id}/members/{heir.id}"
    demoted = await services.ask(OPERATOR, place, {"role": "viewer"}, method="PATCH")
    assert [each["name"] for each in demoted.json()["keys_stopped"]] == ["production"]
    assert (await services.ask(OPERATOR, key)).json()["state"] == "withdrawn"
    gone = await services.ask(OPERATOR, place, method="DELETE")
    assert gone.json()["keys_stopped"] == []  # it had stopped before
    refused = await services.ask(OPERATOR, f"{key}/transfer", {"to": heir.id})
    assert (refused.status, refused.error["param"]) == (400, "to")
    await services.world.join(project, user, Role.MEMBER)
    assert (await services.ask(OPERATOR, key)).json()["state"] == "withdrawn"
    taken = await services.ask(OPERATOR, f"{key}/transfer", {"to": user.id})
    assert (taken.json()["state"], taken.json()["person"]) == ("active", user.id)


async def test_credits(services: Office) -> None:
    world = services.world
    project = await world.project(owner=await world.person())
    manager = await services.manager(project)
    place = f"/projects/{project.id}/credits"
    other = await world.project(owner=await world.person())
    await services.ask(OPERATOR, f"/projects/{other.id}/credits", {"amount": "7"})
    put = await services.ask(OPERATOR, place, {"amount": "12.50", "note": "by transfer"})
    assert put.status == 201
    assert (put.json()["amount"], put.json()["note"]) == ("12.5", "by transfer")
    refused = await services.ask(manager, place, {"amount": "12.50"})
    assert (refused.status, refused.error["code"]) == (403, "scope_not_allowed")
    assert (await services.ask(OPERATOR, place, {"amount": "0"})).status == 400
    seen = (await services.ask(manager, place)).json()
    assert (seen["put_in"], seen["spent"], seen["left"]) == ("12.5", "0", "12.5")
    assert [each["id"] for each in seen["data"]] == [put.json()["id"]]


async def test_a_key_may_ask_so_often_a_minute(world: World, project: Project) -> None:
    async with office(world, requests_per_minute=3) as services:
        key, other = await services.manager(project), await services.manager(project)
        left = [(await services.ask(key, "/me")).headers for _ in range(3)]
        assert [each["x-ratelimit-remaining-requests"] for each in left] == ["2", "1", "0"]
        refused = await services.ask(key, "/me")
        assert (refused.status, refused.json()["error"]["code"]) == (429, "requests")
        assert 1 <= int(refused.headers["retry-after"]) <= 60
        assert (await services.ask(other, "/me")).status == 200
        for _ in range(5):  # wrong keys are nobody's, and take from nobody
            assert (await services.ask("ck_wrong_key", "/me")).status == 401
