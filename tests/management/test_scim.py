"""SCIM over real HTTP, as directories of Entra ID and Okta speak it, against a whole service."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hostedkit import Office, config, office
from servicekit import ServiceView, service_view
from waiting import eventually

from causerie.access.keys import KeyDigest
from causerie.hosted.accounts.issuing import KeyDraft
from causerie.hosted.accounts.keys import KeyState
from causerie.hosted.accounts.people import SYSTEM, Role, actor_of
from causerie.hosted.accounts.records import AuditFilter
from causerie.hosted.accounts.tokens import SessionClient

KEY, OTHER = "ck_scim_0123456789", "ck_scim_other"
PATCH_OP = "urn:ietf:params:scim:api:messages:2.0:PatchOp"
ENTERPRISE = "urn:ietf:params:scim:schemas:extension:enterprise:2.0:User"
PROVIDER = """
[[identity_providers]]
name = "{name}"
issuer = "https://{name}.example.org"
client_id = "causerie"
join_accounts = "unclaimed"
scim_keys = ["{key}"]
[[identity_providers.groups]]
group = "data-science"
project = "{project}"
[[identity_providers.groups]]
group = "object-id-of-admins"
project = "{project}"
role = "admin"
[[identity_providers.groups]]
group = "platform"
operator = true
"""


@dataclass
class Company:
    """A service with two directories, and its database from outside."""

    service: ServiceView
    office: Office
    key: str = KEY

    async def ask(
        self, method: str, path: str, body: Any = None, *, key: str | None = None, **sent: str
    ) -> tuple[int, Any]:
        """One request of a directory."""
        headers = {"authorization": f"Bearer {self.key if key is None else key}", **sent}
        data = None
        if body is not None:
            data = io.BytesIO(body if isinstance(body, bytes) else json.dumps(body).encode())
            headers.setdefault("content-type", "application/scim+json")
        url = f"{self.service.root}/scim/v2{path}"
        async with self.service.session.request(
            method, url, data=data, headers=headers
        ) as response:
            content = await response.read()
            if content:
                assert response.headers["content-type"] == "application/scim+json"
            return response.status, json.loads(content) if content else None

    async def made(self, name: str, **more: Any) -> dict[str, Any]:
        """A new user, as Entra ID creates one."""
        body = {
            "schemas": ["urn:ietf:params:scim:schemas:core:2.0:User", ENTERPRISE],
            "externalId": f"object-of-{name}",
            "userName": f"{name}@corp.example.org",
            "active": True,
            "displayName": name.title(),
            "emails": [{"primary": True, "type": "work", "value": f"{name}@example.org"}],
            "name": {"formatted": name.title(), "givenName": name, "familyName": "Hopper"},
            ENTERPRISE: {"department": "Research"},
            **more,
        }
        status, found = await self.ask("POST", "/Users", body)
        assert status == 201, found
        return dict(found)

    async def patch(self, path: str, *operations: dict[str, Any]) -> Any:
        body = {"schemas": [PATCH_OP], "Operations": [*operations]}
        status, found = await self.ask("PATCH", path, body)
        assert status in (200, 204), found
        return found

    async def found(self, kind: str, filter: str, **query: str) -> list[Any]:
        async with self.service.session.get(
            f"{self.service.root}/scim/v2/{kind}",
            params={"filter": filter, **query},
            headers={"authorization": f"Bearer {self.key}"},
        ) as response:
            listed = await response.json(content_type=None)
            assert response.status == 200, listed
            assert listed["totalResults"] == len(listed["Resources"])
            return [*listed["Resources"]]

    async def roles(self) -> dict[str, tuple[Role, str]]:
        members = await self.office.accounts.projects.members(SYSTEM, self.office.project)
        return {each.user.email: (each.role, each.from_group) for each in members}


@asynccontextmanager
async def company(folder: Path) -> AsyncIterator[Company]:
    (folder / "data").mkdir()
    async with office(folder / "data") as opened:
        text = config(folder=str(folder / "data"))
        for name, key in (("entra", KEY), ("okta", OTHER)):
            digest = KeyDigest.of(name, key).digest.hex()
            text += PROVIDER.format(name=name, key=f"ck_{name}:{digest}", project=opened.project)
        async with service_view(folder, text) as service:
            yield Company(service, opened)


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Company]:
    async with company(tmp_path) as found:
        yield found


async def test_a_deactivated_person_is_out_at_once(served: Company) -> None:
    """Sessions end with the request, and keys at the next look at what has changed."""
    accounts, service = served.office.accounts, served.service
    made = await served.made("grace")
    assert made["userName"] == "grace@corp.example.org"
    assert made["meta"]["location"] == f"{service.root}/scim/v2/Users/{made['id']}"
    assert ENTERPRISE not in made, "what is not kept is not shown"
    user = await accounts.users.see(SYSTEM, made["id"])
    assert (user.email, user.name, user.password) == ("grace@example.org", "Grace", None)
    await served.ask(
        "POST", "/Groups", {"displayName": "data-science", "members": [{"value": user.id}]}
    )
    assert await served.roles() == {"grace@example.org": (Role.MEMBER, "entra:data-science")}

    key = await accounts.keys.create(actor_of(user), served.office.project, KeyDraft("mine"))
    await accounts.users.link_identity(user, "https://entra.example.org", "grace")
    session = await accounts.sign_in.with_identity(
        "https://entra.example.org", "grace", SessionClient()
    )
    await accounts.sign_in.whose(session.token)
    assert (await service.ask("/v1", "small", key.credential))[0] == 200

    entra = {"op": "Replace", "path": "active", "value": "False"}
    assert (await served.patch(f"/Users/{user.id}", entra))["active"] is False
    with pytest.raises(Exception, match="Sign in first"):
        await accounts.sign_in.whose(session.token)

    async def refused() -> bool:
        return (await service.ask("/v1", "small", key.credential))[0] == 401

    async with asyncio.timeout(5):
        await eventually(refused)
    okta = {"op": "replace", "value": {"active": True}}
    assert (await served.patch(f"/Users/{user.id}", okta))["active"] is True
    async with asyncio.timeout(5):
        await eventually(lambda: _answers(service, key.credential))

    assert (await served.ask("DELETE", f"/Users/{user.id}"))[0] == 204
    assert (await served.ask("GET", f"/Users/{user.id}"))[0] == 404
    assert (await served.ask("DELETE", f"/Users/{user.id}"))[0] == 404
    assert await served.found("Users", 'userName eq "grace@corp.example.org"') == []
    assert await served.roles() == {}
    [kept] = await accounts.keys.of(SYSTEM, served.office.project)
    assert kept.withdrawn_at is not None, "coming back does not revive it"
    again = await served.made("grace")
    assert (again["id"], again["active"]) == (user.id, True), "usage stays with the same person"
    assert await served.roles() == {}
    found = await accounts.projects.audit(SYSTEM, None, AuditFilter(actor="system:entra"))
    assert {"user.create", "user.disable", "user.enable", "user.unprovision", "group.create"} <= {
        each.action for each in found
    }
    assert kept.state(kept.created_at) is KeyState.WITHDRAWN


async def _answers(service: ServiceView, key: str) -> bool:
    return (await service.ask("/v1", "small", key))[0] == 200


async def test_groups_are_moved_as_both_vendors_do(served: Company) -> None:
    ada, bob = await served.made("ada"), await served.made("bob")
    status, group = await served.ask(
        "POST", "/Groups", {"displayName": "Admins", "externalId": "object-id-of-admins"}
    )
    assert (status, group["members"]) == (201, [])
    path = f"/Groups/{group['id']}"
    member, admin = (Role.MEMBER, "entra:data-science"), (Role.ADMIN, "entra:object-id-of-admins")

    added = {"op": "Add", "path": "members", "value": [{"value": ada["id"]}]}  # Entra ID
    assert await served.patch(path, added) is None
    await served.patch(path, added)
    both = [{"value": bob["id"], "display": "Bob"}]
    await served.patch(path, {"op": "add", "path": "members", "value": both})  # Okta
    assert await served.roles() == {"ada@example.org": admin, "bob@example.org": admin}
    _, shown = await served.ask("GET", path)
    assert {each["value"] for each in shown["members"]} == {ada["id"], bob["id"]}
    [brief] = await served.found(
        "Groups", 'externalId eq "object-id-of-admins"', excludedAttributes="members"
    )
    assert "members" not in brief
    wanted = f'id eq "{group["id"]}" and members eq "{ada["id"]}"'
    assert [each["id"] for each in await served.found("Groups", wanted)] == [group["id"]]

    removed = {"op": "Remove", "path": "members", "value": [{"value": ada["id"]}]}
    await served.patch(path, removed)  # Entra ID, before its fix
    assert await served.roles() == {"bob@example.org": admin}
    assert await served.found("Groups", wanted) == []
    one = {"op": "remove", "path": f'members[value eq "{bob["id"]}"]'}
    await served.patch(path, one)  # Okta, and Entra ID after it
    assert await served.roles() == {}

    whole = {"op": "replace", "path": "members", "value": [{"value": ada["id"]}]}
    await served.patch(path, whole)
    assert await served.roles() == {"ada@example.org": admin}
    renamed = {"id": group["id"], "displayName": "data-science"}
    await served.patch(path, {"op": "replace", "value": renamed})
    assert (await served.roles())["ada@example.org"] == admin, "its id still grants more"
    body = {"displayName": "data-science", "members": [{"value": bob["id"]}]}
    assert (await served.ask("PUT", path, body))[0] == 200
    assert await served.roles() == {"bob@example.org": member}
    assert (await served.ask("DELETE", path))[0] == 204
    assert await served.roles() == {}
    assert (await served.ask("GET", path))[0] == 404

    _, group = await served.ask(
        "POST", "/Groups", {"displayName": "platform", "members": [{"value": bob["id"]}]}
    )
    operator = await served.office.accounts.users.see(SYSTEM, bob["id"])
    assert (operator.operator, operator.operator_group) == (True, "entra:platform")
    off = {"op": "replace", "path": "active", "value": False}
    last = {"schemas": [PATCH_OP], "Operations": [off]}
    status, failure = await served.ask("PATCH", f"/Users/{bob['id']}", last)
    assert (status, "last operator" in failure["detail"]) == (409, True)


async def test_changes_at_the_same_time_undo_nothing_of_each_other(served: Company) -> None:
    people = [await served.made(f"person{number}") for number in range(4)]
    _, group = await served.ask("POST", "/Groups", {"displayName": "data-science"})
    added = (
        served.patch(
            f"/Groups/{group['id']}",
            {"op": "add", "path": "members", "value": [{"value": one["id"]}]},
        )
        for one in people
    )
    off = {"op": "replace", "path": "active", "value": False}
    path = f"/Users/{people[0]['id']}"
    titles = (
        served.patch(path, {"op": "replace", "path": "displayName", "value": f"Name {number}"})
        for number in range(3)
    )
    await asyncio.gather(*added, served.patch(path, off), *titles)
    _, shown = await served.ask("GET", f"/Groups/{group['id']}")
    assert {each["value"] for each in shown["members"]} == {each["id"] for each in people}
    assert (await served.ask("GET", path))[1]["active"] is False


async def test_people_are_described_anew(served: Company) -> None:
    made = await served.made("ada")
    path = f"/Users/{made['id']}"
    await served.patch(
        path,
        {"op": "Replace", "path": "displayName", "value": "Ada King"},
        {"op": "Add", "path": 'emails[type eq "work"].value', "value": "ada.king@example.org"},
        {"op": "Add", "path": 'emails[type eq "home"].value', "value": "ada@home.example"},
        {"op": "Replace", "path": "name.familyName", "value": "King"},
        {"op": "Add", "path": f"{ENTERPRISE}:department", "value": "Sales"},
        {"op": "Replace", "value": {"externalId": "new", "name.givenName": "Augusta"}},
        {"op": "Remove", "path": "title"},
    )
    user = await served.office.accounts.users.see(SYSTEM, made["id"])
    assert (user.email, user.name) == ("ada.king@example.org", "Ada King")
    assert (user.user_name, user.external_id) == ("ada@corp.example.org", "new")
    okta = {
        "userName": "ada@example.org",
        "active": True,
        "name": {"givenName": "Ada", "familyName": "Lovelace"},
        "emails": [
            {"value": "home@example.org", "type": "home"},
            {"value": "ada@example.org", "primary": True, "type": "work"},
        ],
    }
    status, shown = await served.ask("PUT", path, okta)
    assert (status, shown["displayName"], shown["userName"]) == (
        200,
        "Ada Lovelace",
        "ada@example.org",
    )
    assert shown["emails"] == [{"value": "ada@example.org", "type": "work", "primary": True}]
    [found] = await served.found("Users", 'userName eq "ADA@example.org"')
    assert found["id"] == made["id"]
    [found] = await served.found("Users", 'emails[type eq "work"].value eq "ada@example.org"')
    assert found["id"] == made["id"]


async def test_people_who_were_there_before_are_found_and_taken_over(served: Company) -> None:
    users = served.office.accounts.users
    before = await users.create(SYSTEM, email="old@example.org", name="Old", password=None)
    [found] = await served.found("Users", 'userName eq "Old@example.org"')
    assert (found["id"], found["active"]) == (before.id, True)
    body = {"userName": "new@corp.example.org", "emails": [{"value": "old@example.org"}]}
    status, failure = await served.ask("POST", "/Users", body)
    assert (status, failure["scimType"]) == (409, "uniqueness")
    changed = {"op": "replace", "path": "userName", "value": "new@corp.example.org"}
    assert (await served.patch(f"/Users/{before.id}", changed))[
        "userName"
    ] == "new@corp.example.org"


async def test_a_directory_enables_nobody_whom_an_operator_has_disabled(served: Company) -> None:
    users = served.office.accounts.users
    before = await users.create(SYSTEM, email="gone@example.org", name="Gone", password=None)
    await users.disable(SYSTEM, before.id)
    body = {"userName": "gone@example.org", "active": True}
    status, failure = await served.ask("POST", "/Users", body)
    assert (status, failure["scimType"]) == (409, "uniqueness")
    assert (await users.see(SYSTEM, before.id)).disabled_at is not None
    await users.disable(SYSTEM, before.id, disabled=False)
    [found] = await served.found("Users", 'userName eq "gone@example.org"')
    assert found["id"] == before.id

    made = await served.made("ada")
    await served.ask("DELETE", f"/Users/{made['id']}")
    await users.disable(SYSTEM, made["id"], disabled=False)
    [found] = await served.found("Users", 'userName eq "ada@example.org"')
    assert "externalId" not in found
    await users.disable(SYSTEM, made["id"])
    assert (await served.ask("POST", "/Users", {"userName": "ada@example.org"}))[0] == 409


async def test_pages_and_descriptions(served: Company) -> None:
    for number in range(5):
        await served.made(f"person{number}")
    status, page = await served.ask("GET", "/Users?startIndex=2&count=2")
    assert (status, page["totalResults"], page["startIndex"], page["itemsPerPage"]) == (
        200,
        5,
        2,
        2,
    )
    assert [each["displayName"] for each in page["Resources"]] == ["Person1", "Person2"]
    status, behind = await served.ask("GET", f"/Users?startIndex={'9' * 30}")
    assert (status, behind["totalResults"], behind["Resources"]) == (200, 5, [])
    _, none = await served.ask("GET", "/Users?count=0")
    assert (none["totalResults"], none["Resources"]) == (5, [])
    _, capable = await served.ask("GET", "/ServiceProviderConfig")
    assert capable["patch"]["supported"]
    assert capable["filter"]["supported"]
    _, types = await served.ask("GET", "/ResourceTypes")
    assert {each["endpoint"] for each in types["Resources"]} == {"/Users", "/Groups"}
    _, described = await served.ask("GET", "/Schemas")
    for schema in described["Resources"]:
        assert (await served.ask("GET", f"/Schemas/{schema['id']}"))[1] == schema
    [name] = [
        each for each in described["Resources"][0]["attributes"] if each["name"] == "userName"
    ]
    assert (name["required"], name["uniqueness"]) == (True, "server")


async def test_what_is_wrong_is_said_in_the_form_of_scim(served: Company) -> None:
    made = await served.made("ada")
    _, group = await served.ask("POST", "/Groups", {"displayName": "one"})
    user, path = f"/Users/{made['id']}", f"/Groups/{group['id']}"
    twice = {"userName": "ADA@corp.example.org", "emails": [{"value": "b@example.org"}]}
    asked: list[tuple[str, str, Any, int, str | None]] = [
        ("POST", "/Users", twice, 409, "uniqueness"),
        ("POST", "/Users", {"displayName": "x"}, 400, "invalidValue"),
        ("POST", "/Users", {"userName": "no address"}, 400, "invalidValue"),
        ("POST", "/Users", b"{", 400, "invalidSyntax"),
        ("POST", "/Users", b"[]", 400, "invalidSyntax"),
        ("GET", "/Users?filter=userName%20co%20%22a%22", None, 400, "invalidFilter"),
        ("GET", "/Users?filter=password%20eq%20%22a%22", None, 400, "invalidFilter"),
        ("GET", "/Users?filter=userName%20eq%20%22a%22%20or%20id%20eq%20%22b%22", None, 400, None),
        ("PATCH", user, {"Operations": [{"op": "move", "path": "x"}]}, 400, "invalidSyntax"),
        (
            "PATCH",
            user,
            {"Operations": [{"op": "add", "path": "a b", "value": 1}]},
            400,
            "invalidPath",
        ),
        ("PATCH", user, {"Operations": [{"op": "replace", "value": 1}]}, 400, "invalidValue"),
        (
            "PATCH",
            user,
            {"Operations": [{"op": "remove", "path": "userName"}]},
            400,
            "invalidValue",
        ),
        (
            "PUT",
            path,
            {"displayName": "one", "members": [{"value": "nobody"}]},
            400,
            "invalidValue",
        ),
        ("POST", "/Groups", {"displayName": "one"}, 409, "uniqueness"),
        ("GET", "/Users/usr_nobody", None, 404, None),
        ("GET", "/Groups/grp_none", None, 404, None),
        ("GET", "/Nothing", None, 404, None),
        ("GET", "/Schemas/none", None, 404, None),
        ("POST", "/Bulk", {}, 404, None),
        ("DELETE", "/Users", None, 405, None),
        ("POST", "/ResourceTypes", {}, 405, None),
    ]
    for method, place, body, expected, kind in asked:
        status, failure = await served.ask(method, place, body)
        assert (status, failure["status"]) == (expected, str(expected)), (method, place, failure)
        assert failure["schemas"] == ["urn:ietf:params:scim:api:messages:2.0:Error"]
        assert kind is None or failure["scimType"] == kind, (place, failure)
        assert failure["detail"]
    assert (await served.ask("POST", "/Users", {}, **{"content-type": "text/plain"}))[0] == 415
    large = {"displayName": "x" * 2**21}
    assert (await served.ask("POST", "/Groups", large))[0] == 413
    assert (await served.ask("GET", path))[1]["members"] == []


async def test_each_directory_has_its_key_and_its_own_groups(served: Company) -> None:
    for key in ("", "ck_wrong_0123456789"):
        for path in ("/Users", "/ServiceProviderConfig"):
            status, failure = await served.ask("GET", path, key=key)
            assert (status, failure["status"]) == (401, "401")
    ada = await served.made("ada")
    body = {"displayName": "data-science", "members": [{"value": ada["id"]}]}
    _, group = await served.ask("POST", "/Groups", body)
    other = f"/Groups/{group['id']}"
    assert (await served.ask("GET", other, key=OTHER))[0] == 404
    assert (await served.ask("DELETE", other, key=OTHER))[0] == 404
    assert (await served.ask("POST", "/Groups", body, key=OTHER))[0] == 201
    async with served.service.session.get(
        f"{served.service.root}/api/users", headers={"authorization": f"Bearer {KEY}"}
    ) as response:
        assert response.status == 401, "it manages nothing else"
    assert await served.roles() == {"ada@example.org": (Role.MEMBER, "entra:data-science")}
