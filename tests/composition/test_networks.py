"""Networks from which doors, projects and keys may be used, behind a trusted proxy and without."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hostedkit import config, office
from servicekit import ServiceView, service_view
from waiting import eventually

from causerie.access.networks import NetworkList, client_address, tidy_networks
from causerie.errors import Forbidden, InvalidRequest
from causerie.hosted.accounts.issuing import KeyDraft, KeyEdit
from causerie.hosted.accounts.keys import Purpose
from causerie.hosted.accounts.people import SYSTEM
from causerie.hosted.accounts.records import AuditFilter
from causerie.hosted.accounts.tokens import SessionClient, form_token

PROXY = '[console]\nproxies = ["127.0.0.0/8"]\n'


async def ask(service: ServiceView, key: str, came_from: str, base: str = "/v1") -> int:
    """Return the status of a request of this client, as a proxy on this machine passes it on."""
    body = {"model": "small", "messages": [{"role": "user", "content": "Hi"}]}
    headers = {"authorization": f"Bearer {key}"}
    if came_from:
        headers["x-forwarded-for"] = came_from
    url = f"{service.root}{base}/chat/completions"
    async with service.session.post(url, json=body, headers=headers) as response:
        answer: Any = await response.json()
        if response.status == 403:
            assert answer["error"]["code"] == "network_not_allowed"
            assert came_from.rpartition(" ")[2] in answer["error"]["message"]
        return response.status


async def test_a_door_answers_its_networks_alone(tmp_path: Path) -> None:
    limited = 'name = "hosted"\nkind = "hosted"\nnetworks = ["10.0.0.0/8", "2001:db8::/32"]'
    text = config(folder=str(tmp_path)).replace('name = "hosted"\nkind = "hosted"', limited)
    async with office(tmp_path) as hosted:
        key = (await hosted.key()).credential
        async with service_view(tmp_path, text + PROXY) as service:
            assert await ask(service, key, "10.1.2.3") == 200
            assert await ask(service, key, "2001:db8::7") == 200
            assert await ask(service, key, "192.0.2.7") == 403
            assert await ask(service, key, "10.1.2.3, 192.0.2.7") == 403, (
                "the client wrote the first"
            )
            assert await ask(service, key, "192.0.2.7, 10.1.2.3, 127.0.0.9") == 200
            assert await ask(service, key, "") == 403, "the proxy itself"
            assert await ask(service, "ck_unknown", "192.0.2.7") == 403, "before the key"
            headers = {"x-forwarded-for": "192.0.2.7"}
            status, _ = await service.get("/hosted/v1/models", key, **headers)
            assert status == 403
            assert (await service.get("/health/live"))[0] == 200
            assert await ask(service, key, "192.0.2.7", "/endpoints/small/v1") == 200, "another"
            await service.reload(config(folder=str(tmp_path)) + PROXY)
            assert await ask(service, key, "192.0.2.7") == 200


async def test_the_own_door_of_a_model_answers_its_networks_alone(tmp_path: Path) -> None:
    listed = 'id = "small"\nnetworks = ["10.0.0.0/8"]'
    text = config(folder=str(tmp_path)).replace('id = "small"', listed, 1) + PROXY
    async with office(tmp_path) as hosted, service_view(tmp_path, text) as service:
        key = (await hosted.key()).credential
        own = "/endpoints/small/v1"
        assert await ask(service, "", "10.1.2.3", own) == 200
        assert await ask(service, "", "192.0.2.7", own) == 403
        assert await ask(service, key, "192.0.2.7") == 200, "another door"


async def test_keys_work_from_their_networks_of_those_of_their_project(tmp_path: Path) -> None:
    text = config(folder=str(tmp_path)) + PROXY
    async with office(tmp_path) as hosted, service_view(tmp_path, text) as service:
        accounts, keys = hosted.accounts, hosted.accounts.keys
        free = await hosted.key()
        bound = await hosted.key(networks=("10.1.0.0/16", "192.0.2.7"))
        assert await ask(service, free.credential, "192.0.2.9") == 200
        assert await ask(service, bound.credential, "192.0.2.7") == 200
        assert await ask(service, bound.credential, "192.0.2.9") == 403
        headers = {"x-forwarded-for": "192.0.2.9"}
        assert (await service.get("/v1/models", bound.credential, **headers))[0] == 403

        await accounts.projects.set_networks(SYSTEM, hosted.project, ["10.0.0.0/8"])

        async def narrowed() -> bool:
            return await ask(service, free.credential, "192.0.2.9") == 403

        await eventually(narrowed)
        assert await ask(service, bound.credential, "192.0.2.7") == 403, "both lists count"
        assert await ask(service, bound.credential, "10.1.2.3") == 200
        assert await ask(service, bound.credential, "10.2.2.3") == 403
        await keys.edit(SYSTEM, bound.key.id, KeyEdit(networks=None))

        async def widened() -> bool:
            return await ask(service, bound.credential, "10.2.2.3") == 200

        await eventually(widened)
        draft = KeyDraft("manager", Purpose.MANAGEMENT, networks=("10.0.0.0/24",))
        manager = (await keys.create(SYSTEM, hosted.project, draft)).credential
        for place, status in (("10.0.0.7", 200), ("10.0.1.7", 403)):
            sent = {"x-forwarded-for": place}
            assert (await service.get("/api/me", manager, **sent))[0] == status
        found = await accounts.projects.audit(SYSTEM, None, AuditFilter(limit=500))
        changes = {each.action: each.details for each in found}
        assert changes["project.networks"] == {"networks": "all -> 10.0.0.0/8"}
        assert changes["key.edit"] == {"networks": "10.1.0.0/16, 192.0.2.7/32 -> inherited"}


async def test_networks_are_set_by_api(tmp_path: Path) -> None:
    text = config(folder=str(tmp_path)) + PROXY
    async with office(tmp_path) as hosted, service_view(tmp_path, text) as service:
        owner = await hosted.accounts.users.create(
            SYSTEM, email="ada@example.org", name="Ada", password=None
        )
        project = await hosted.accounts.projects.create(SYSTEM, "Ours", owner=owner.id)
        draft = KeyDraft("manager", Purpose.MANAGEMENT)
        manager = (await hosted.accounts.keys.create(SYSTEM, project.id, draft)).credential
        headers = {"authorization": f"Bearer {manager}"}
        url = f"{service.root}/api/projects/{project.id}/keys"
        wanted = {"name": "mine", "networks": ["10.0.0.0/8"]}
        async with service.session.post(url, json=wanted, headers=headers) as response:
            made = await response.json()
            assert (response.status, made["networks"]) == (201, ["10.0.0.0/8"])
        url = f"{service.root}/api/keys/{made['id']}"
        async with service.session.patch(
            url, json={"networks": ["10.0.0.0/33"]}, headers=headers
        ) as response:
            failure = await response.json()
            assert (response.status, failure["error"]["param"]) == (400, "networks")
        async with service.session.patch(url, json={"networks": None}, headers=headers) as response:
            assert (await response.json())["networks"] is None
        url = f"{service.root}/api/projects/{project.id}/networks"
        async with service.session.put(
            url, json={"networks": ["10.0.0.0/8"]}, headers=headers
        ) as response:
            assert response.status == 403, "a key does not widen where it may be used from"


async def test_the_playground_of_a_project_holds_to_its_networks(tmp_path: Path) -> None:
    text = config(folder=str(tmp_path)) + PROXY
    async with office(tmp_path) as hosted, service_view(tmp_path, text) as service:
        accounts = hosted.accounts
        ada = await accounts.users.create(
            SYSTEM, email="ada@example.org", name="Ada", password=None
        )
        project = await accounts.projects.create(SYSTEM, "Ours", owner=ada.id)
        await accounts.projects.set_networks(SYSTEM, project.id, ["10.0.0.0/8"])
        await accounts.users.link_identity(ada, "https://id.example.org", "ada")
        begun = await accounts.sign_in.with_identity(
            "https://id.example.org", "ada", SessionClient()
        )
        body = {"model": "small", "messages": [{"role": "user", "content": "Hi"}]}
        for place, status in (("10.0.0.7", 200), ("192.0.2.7", 403)):
            async with service.session.post(
                f"{service.root}/console/projects/{project.id}/playground",
                json=body,
                headers={
                    "cookie": f"causerie={begun.token}",
                    "origin": service.root,
                    "x-form-token": form_token(begun.token),
                    "x-forwarded-for": place,
                },
            ) as response:
                assert response.status == status, await response.text()


def test_addresses_are_compared_as_what_they_are() -> None:
    both = NetworkList.of(("10.0.0.0/8", "2001:db8::/32"), None, ("10.1.0.0/16", "::/0"))
    assert both is not None
    for allowed in ("10.1.2.3", "::ffff:10.1.2.3", "2001:db8::1"):
        both.check(allowed, "It")
    for refused in (
        "10.2.0.1",
        "192.0.2.1",
        "::ffff:192.0.2.1",
        "2001:db9::1",
        "",
        "unix:",
        "a" * 99,
    ):
        with pytest.raises(Forbidden, match=r"^It may not be used from the address "):
            both.check(refused, "It")
    assert NetworkList.of(None, None) is None
    assert NetworkList.of(()) is not None, "an empty list is nobody"
    assert tidy_networks([" 10.0.0.0/8 ", "2001:DB8::1"]) == ("10.0.0.0/8", "2001:db8::1/128")
    assert tidy_networks([]) is None
    for wrong in (["10.0.0.1/8"], ["example.org"], ["10.0.0.0/8"] * 201):
        with pytest.raises(InvalidRequest):
            tidy_networks(wrong)


def test_without_proxies_a_header_says_nothing() -> None:
    assert client_address("192.0.2.1", ["10.0.0.1"], ()) == "192.0.2.1"
