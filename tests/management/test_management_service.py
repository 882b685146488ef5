"""The management API in a whole service, with keys that the command line made alongside it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from clikit import Terminal
from hostedkit import config, office
from service import Service, serving
from typer.testing import CliRunner
from waiting import eventually

from causerie.cli.keys import digest_line, new_key
from causerie.cli.root import app
from causerie.hosted.accounts.issuing import KeyDraft
from causerie.hosted.accounts.keys import Purpose
from causerie.hosted.accounts.people import SYSTEM, Role, actor_of

OPERATOR = new_key()
Answers = Callable[[], Awaitable[list[tuple[int, str | None]]]]


def with_operator(text: str) -> str:
    return f'{text}\n[console]\noperator_keys = ["{digest_line(OPERATOR)}"]\n'


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with serving(
        tmp_path_factory.mktemp("management"), with_operator(config(journal="off"))
    ) as running:
        yield running


@pytest.fixture
def terminal(service: Service) -> Terminal:
    return Terminal(service.log.parent / "data")


@asynccontextmanager
async def bearing(service: Service, key: str) -> AsyncIterator[aiohttp.ClientSession]:
    headers = {"authorization": f"Bearer {key}"}
    async with aiohttp.ClientSession(service.root, headers=headers) as session:
        yield session


async def got(session: aiohttp.ClientSession, path: str) -> tuple[int, Any]:
    async with session.get(path) as answer:
        return answer.status, await answer.json()


async def sent(session: aiohttp.ClientSession, path: str, body: object) -> tuple[int, Any]:
    async with session.post(path, json=body) as answer:
        return answer.status, await answer.json()


async def chat(service: Service, key: str) -> int:
    ask = {"model": "small", "messages": [{"role": "user", "content": "Hi there"}]}
    async with bearing(service, key) as session:
        return (await sent(session, "/hosted/v1/chat/completions", ask))[0]


async def test_from_a_project_to_its_bill(service: Service, terminal: Terminal) -> None:
    project = (await asyncio.to_thread(terminal.json, "projects", "create", "Rockets"))["id"]
    words = ("keys", "create", "Rockets", "--management")
    manager = (await asyncio.to_thread(terminal.done, *words)).strip()
    async with bearing(service, manager) as session:
        assert (await got(session, "/api/me"))[1]["project"] == project
        status, key = await sent(session, f"/api/projects/{project}/keys", {"name": "bot"})
        assert status == 201
        assert await chat(service, manager) == 403
        assert await chat(service, key["credential"]) == 200
        [record] = (await got(session, "/api/requests"))[1]["data"]
        assert (record["key"], record["model"], record["status"]) == (key["id"], "small", 200)
        [sum] = (await got(session, "/api/usage?step=all&by=key"))[1]["data"]
        assert sum["group"] == {"key": key["id"]}
        assert sum["cost"] == record["cost"] != "0"
        async with session.get("/api/usage.csv?by=model") as table:
            assert (await table.text()).splitlines()[1].split(",")[1:3] == ["small", "1"]
        assert (await sent(session, f"/api/keys/{key['id']}/disable", {}))[0] == 200
    async with asyncio.timeout(60):  # a second, on a machine that has time
        while await chat(service, key["credential"]) != 401:
            continue
    async with bearing(service, key["credential"]) as session:
        assert (await got(session, "/api/me"))[0] == 401


async def test_a_key_that_the_command_line_ends(service: Service, terminal: Terminal) -> None:
    await asyncio.to_thread(terminal.done, "projects", "create", "Boats")
    words = ("keys", "create", "Boats", "--management")
    made = await asyncio.to_thread(terminal.json, *words)
    async with bearing(service, made["credential"]) as session:
        assert (await got(session, "/api/me"))[0] == 200
        await asyncio.to_thread(terminal.done, "keys", "delete", made["id"])
        async with asyncio.timeout(60):
            while (await got(session, "/api/me"))[0] != 401:
                continue


async def test_a_management_key_narrows_and_ends_with_its_person(service: Service) -> None:
    async with office(service.log.parent / "data") as service_view:
        accounts, project = service_view.accounts, service_view.project
        user = await accounts.users.create(
            SYSTEM, email="ada@example.org", name="Ada", password=None
        )
        offer = await accounts.projects.invite(SYSTEM, project, Role.ADMIN)
        await accounts.users.join(offer.token, user)
        draft = KeyDraft("manager", Purpose.MANAGEMENT)
        manager = await accounts.keys.create(actor_of(user), project, draft)
        place = f"/api/projects/{project}"
        async with bearing(service, manager.credential) as session:

            async def answers() -> list[tuple[int, str | None]]:
                """Of creating a key, of switching request logging, and of looking."""
                made = await sent(session, f"{place}/keys", {"name": "robot"})
                async with session.put(f"{place}/recording", json={"days": 3}) as answer:
                    kept = answer.status, await answer.json()
                seen = await got(session, place)
                return [(status, _code(body)) for status, body in (made, kept, seen)]

            assert await answers() == [(201, None), (200, None), (200, None)]
            await accounts.projects.change_role(SYSTEM, project, user.id, Role.VIEWER)
            refused = 403, "scope_not_allowed"
            await eventually(lambda: _are(answers, [refused, refused, (200, None)]))
            await accounts.projects.remove(SYSTEM, project, user.id)
            await eventually(lambda: _are(answers, [(401, "invalid_api_key")] * 3))


def _code(body: Any) -> str | None:
    return body["error"]["code"] if "error" in body else None


async def _are(answers: Answers, wanted: list[tuple[int, str | None]]) -> bool:
    return await answers() == wanted


async def test_a_link_leads_to_the_console(service: Service) -> None:
    async with bearing(service, OPERATOR) as session:
        status, link = await sent(session, "/api/invitations", {})
        assert status == 201
        async with session.get(link["path"]) as page:
            assert page.status == 200


async def test_an_operator_key_ends_with_a_reload(service: Service) -> None:
    file = service.log.parent / "causerie.toml"
    async with bearing(service, OPERATOR) as session:
        assert (await got(session, "/api/users"))[0] == 200
        file.write_text(config(journal="off"))
        result = await asyncio.to_thread(_reload, file)
        assert result == 0
        assert (await got(session, "/api/users"))[0] == 401
    file.write_text(with_operator(config(journal="off")))
    assert await asyncio.to_thread(_reload, file) == 0


def _reload(file: Path) -> int:
    return CliRunner().invoke(app, ["reload", "--config", str(file)]).exit_code
