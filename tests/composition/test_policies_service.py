"""Policies in a running service: made by API, of the file, and changed by a reload."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from faultkit import Reply, upstream
from hostedkit import Office, office
from servicekit import ServiceView, service_view
from waiting import eventually

from causerie.cli.keys import digest_line, new_key
from causerie.hosted.accounts.people import SYSTEM

OPERATOR = new_key()
NOBODY = '[[policies]]\nname = "projects"\nrequest_logging = "nobody"\n'


def config(base_url: str, more: str = "") -> str:
    return f"""
[store]
folder = "data"
[console]
operator_keys = ["{digest_line(OPERATOR)}"]
[[doors]]
name = "gateway"
kind = "gateway"
keys = "accounts"
[[providers]]
name = "up"
base_url = "{base_url}"
dialect = "vllm"
[providers.health]
path = ""
[[aliases]]
id = "chat"
targets = [{{ provider = "up", model = "m" }}]
{more}"""


async def ask(service: ServiceView, path: str, body: Any, method: str = "POST") -> Any:
    headers = {"authorization": f"Bearer {OPERATOR}"}
    url = f"{service.root}/api{path}"
    async with service.session.request(method, url, json=body, headers=headers) as answer:
        assert answer.status in (200, 201), await answer.text()
        return await answer.json()


async def test_a_policy_of_the_database_is_in_force_at_once(tmp_path: Path) -> None:
    async with (
        upstream(lambda received: Reply("Yes.")) as up,
        service_view(tmp_path, config(up.base_url, NOBODY)) as service,
    ):
        people = {"name": "people", "budget": "25", "models": ["chat"]}
        entry = {"kind": "policy", "settings": people}
        made = await ask(service, "/configuration/entries", entry)
        assert (made["in_force"], made["name"]) == (True, "people")
        added = {"kind": "policy", "settings": {"name": "projects", "budget": "500"}}
        assert (await ask(service, "/configuration/entries", added))["in_force"]
        user = await ask(service, "/users", {"email": "ada@example.org", "name": "Ada"})
        bounds = await ask(service, f"/users/{user['id']}/bounds", None, "GET")
        assert bounds["budgets"][0]["amount"] == "25"
        access = await ask(service, f"/users/{user['id']}/access", None, "GET")
        assert access["models"] == ["chat"]
        project = await ask(service, "/projects", {"name": "Search"})
        found = await ask(service, f"/projects/{project['id']}", None, "GET")
        assert found["bounds"]["budgets"][0]["amount"] == "500"


async def test_nothing_is_logged_where_nobody_may_turn_it_on(tmp_path: Path) -> None:
    async with (
        upstream(lambda received: Reply("Yes.")) as up,
        service_view(tmp_path, config(up.base_url)) as service,
        office(tmp_path / "data") as opened,
    ):
        await opened.accounts.recordings.keep(SYSTEM, opened.project, 7)
        key = (await opened.key()).credential

        async def answered(count: int) -> list[str]:
            assert (await service.ask("/gateway/v1", "chat", key))[0] == 200

            async def written() -> bool:
                return len(await opened.records()) == count

            await eventually(written)
            return [each.id for each in await opened.records()]

        [first] = await answered(1)
        await eventually(lambda: _is_kept(opened, first))
        assert (await service.reload(config(up.base_url, NOBODY))).applied
        second, _ = await answered(2)
        assert (await service.reload(config(up.base_url))).applied
        third, *_ = await answered(3)
        await eventually(lambda: _is_kept(opened, third))
        assert not await _is_kept(opened, second)


async def _is_kept(opened: Office, id: str) -> bool:
    async with opened.store.reading() as tx:
        return await tx.recordings.find(id) is not None
