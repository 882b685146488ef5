"""Providers and aliases that operators make by the API: in force at once, checked as a whole."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from faultkit import Reply, Upstream, upstream
from hostedkit import config, office
from service import Service, serving
from typer.testing import CliRunner
from waiting import eventually

from causerie.cli.keys import digest_line, new_key
from causerie.cli.root import app

OPERATOR = new_key()
SECRET = "sk-a-key-that-nobody-shows-again"
ENTRIES = "/api/configuration/entries"
ALL = ("provider:north", "alias:talk")
FILED = """
[[models]]
id = "far"
ref = "hf:org/far"
engine = "vllm"
vllm = { address = "http://127.0.0.1:9", key = { env = "HOME" } }
[[providers]]
name = "filed"
base_url = "http://127.0.0.1:9/v1"
"""


def configured(more: str = "") -> str:
    console = f'\n[console]\noperator_keys = ["{digest_line(OPERATOR)}"]\n'
    return f"{config(journal='off')}{console}{FILED}{more}"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with serving(tmp_path_factory.mktemp("configured"), configured()) as running:
        yield running


class Api:
    """The API, as an operator's program asks it."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def ask(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        async with self._session.request(method, path, json=body) as answer:
            text = await answer.text()
            assert SECRET not in text
            return answer.status, (await answer.json()) if text else None

    async def create(self, kind: str, key: str = "", /, **settings: object) -> dict[str, Any]:
        body = {"kind": kind, "settings": settings} | ({"key": key} if key else {})
        status, made = await self.ask("POST", ENTRIES, body)
        assert status == 201, made
        assert made["in_force"], made
        return dict(made)

    async def problems(self, method: str, path: str, body: object = None) -> list[str]:
        status, answer = await self.ask(method, path, body)
        assert status == 400, answer
        return list(answer["error"]["metadata"]["problems"])

    async def names(self) -> dict[str, str]:
        status, listed = await self.ask("GET", ENTRIES)
        assert status == 200
        return {f"{each['kind']} {each['name']}": each["origin"] for each in listed["data"]}


@asynccontextmanager
async def operating(service: Service) -> AsyncIterator[Api]:
    headers = {"authorization": f"Bearer {OPERATOR}"}
    async with aiohttp.ClientSession(service.root, headers=headers) as session:
        yield Api(session)


@asynccontextmanager
async def others() -> AsyncIterator[Upstream]:
    async with upstream(lambda _: Reply("Good day.")) as up:
        yield up


async def chat(service: Service, model: str) -> tuple[int, Any]:
    """Ask as the bearer of a key."""
    body = {"model": model, "messages": [{"role": "user", "content": "Hi"}]}
    async with (
        aiohttp.ClientSession(service.root, headers=await bearer(service)) as session,
        session.post("/hosted/v1/chat/completions", json=body) as answer,
    ):
        return answer.status, await answer.json()


async def bearer(service: Service) -> dict[str, str]:
    async with office(service.log.parent / "data") as behind:
        key = (await behind.key()).credential
    return {"authorization": f"Bearer {key}"}


async def price(service: Service, model: str) -> str:
    """The price of one request, as the bearer of a key is told."""
    async with (
        aiohttp.ClientSession(service.root, headers=await bearer(service)) as session,
        session.get("/hosted/v1/models") as answer,
    ):
        listed = (await answer.json())["data"]
    [found] = [one["pricing"]["request"] for one in listed if one["id"] == model]
    return str(found)


async def test_a_provider_and_its_alias_from_the_first_to_the_last_request(
    service: Service,
) -> None:
    async with others() as up, operating(service) as api:
        assert (await chat(service, "talk"))[0] == 404
        north = await api.create("provider", SECRET, name="north", base_url=up.base_url)
        assert north["has_key"]
        target = {"provider": "north", "model": "m"}
        talk = await api.create("alias", id="talk", targets=[target])
        status, answer = await chat(service, "talk")
        assert (status, answer["choices"][0]["message"]["content"]) == (200, "Good day.")
        assert up.requests[-1].headers["authorization"] == f"Bearer {SECRET}"
        place = f"{ENTRIES}/{talk['id']}"
        assert (await api.ask("POST", f"{place}/disable", {}))[1]["in_force"] is False
        assert (await chat(service, "talk"))[0] == 404
        assert (await api.ask("POST", f"{place}/enable", {}))[1]["in_force"] is True
        [problem] = await api.problems("DELETE", f"{ENTRIES}/{north['id']}")
        assert 'the entry of alias "talk"' in problem
        assert 'no provider is named "north"' in problem
        assert (await chat(service, "talk"))[0] == 200
        for entry in (talk, north):
            assert (await api.ask("DELETE", f"{ENTRIES}/{entry['id']}"))[0] == 204
        assert (await chat(service, "talk"))[0] == 404
        _, listed = await api.ask("GET", "/api/audit?limit=100")
        noted = [each for each in listed["data"] if each["subject"] in ALL]
        done = [each["action"].removeprefix("configuration.") for each in noted]
        assert done == ["delete", "delete", "enable", "disable", "create", "create"]
        assert noted[5]["details"] == {"what": "base_url, key"}


async def test_what_does_not_hold_is_refused_with_all_problems(service: Service) -> None:
    async with operating(service) as api:
        before = await api.names()
        assert before["provider filed"] == "file"
        wrong = {"name": "wrong", "base_url": "nowhere", "dialect": "latin"}
        found = await api.problems("POST", ENTRIES, {"kind": "provider", "settings": wrong})
        assert ["base_url" in found[0], "dialect" in found[1]] == [True, True], found
        taken = {"name": "filed", "base_url": "http://127.0.0.1:8/v1"}
        [problem] = await api.problems("POST", ENTRIES, {"kind": "provider", "settings": taken})
        assert "causerie.toml:" in problem
        place = {"name": "x", "known": "openai", "proxy": {"command": ["id"]}}
        [problem] = await api.problems("POST", ENTRIES, {"kind": "provider", "settings": place})
        assert "only the file" in problem
        for settings in ({"name": "x", "known": "openai", "key": "sk"}, {"base_url": "http://x"}):
            body = {"kind": "provider", "settings": settings}
            assert (await api.ask("POST", ENTRIES, body))[0] == 400
        assert await api.names() == before


async def test_a_kept_key_is_never_sent_to_another_address(service: Service) -> None:
    async with operating(service) as api:
        made = await api.create("provider", SECRET, name="here", base_url="http://127.0.0.1:7/v1")
        place = f"{ENTRIES}/{made['id']}"
        moved = {"name": "here", "base_url": "http://127.0.0.1:6/v1"}
        status, answer = await api.ask("PUT", place, {"settings": moved})
        assert (status, answer["error"]["param"]) == (400, "key")
        stays = {"name": "here", "base_url": "http://127.0.0.1:7/v1", "max_concurrent": 3}
        status, changed = await api.ask("PUT", place, {"settings": stays, "version": 1})
        assert (status, changed["version"], changed["has_key"]) == (200, 2, True)
        assert (await api.ask("PUT", place, {"settings": stays, "version": 1}))[0] == 409
        status, changed = await api.ask("PUT", place, {"settings": moved, "key": ""})
        assert (status, changed["has_key"]) == (200, False)
        assert (await api.ask("DELETE", place))[0] == 204


async def test_a_running_service_takes_over_what_is_imported(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = service.log.parent
    monkeypatch.setenv("EAST_API_KEY", SECRET)
    async with others() as up, operating(service) as api:
        place = f'base_url = "{up.base_url}"\nkey = {{ env = "EAST_API_KEY" }}'
        alias = '[[aliases]]\nid = "read"\ntargets = [{ provider = "east", model = "m" }]'
        entries = folder / "entries.toml"
        entries.write_text(f'[[providers]]\nname = "east"\n{place}\n{alias}\n')
        words = ["import", str(entries), "--yes", "--config", str(folder / "causerie.toml")]
        monkeypatch.chdir(folder)
        result = await asyncio.to_thread(CliRunner().invoke, app, words)
        assert result.exit_code == 0, result.output

        async def answered() -> bool:
            return (await chat(service, "read"))[0] == 200

        await eventually(answered)
        assert up.requests[-1].headers["authorization"] == f"Bearer {SECRET}"
        _, listed = await api.ask("GET", ENTRIES)
        made = [each for each in listed["data"] if each["name"] in ("east", "read")]
        for each in reversed(made):
            assert (await api.ask("DELETE", f"{ENTRIES}/{each['id']}"))[0] == 204


async def test_prices_limits_models_catalog_and_doors_are_entries(service: Service) -> None:
    async with operating(service) as api:
        assert await price(service, "other") == "0"
        priced = await api.create("model", id="other", price={"request": "0.5"})
        assert await price(service, "other") == "0.5"
        _, listed = await api.ask("GET", ENTRIES)
        settings = {each["name"]: each["settings"] for each in listed["data"]}
        assert settings["far"]["vllm"] == {"address": "http://127.0.0.1:9", "key": {}}
        mine = [each["settings"] for each in listed["data"] if each["name"] == "other"]
        assert mine == [{"id": "other", "engine": "fake"}, priced["settings"]]
        [problem] = await api.problems("POST", ENTRIES, {
            "kind": "model", "settings": {"id": "small", "price": {"prompt": "1"}},
        })  # fmt: skip
        assert "price: is set by" in problem
        assert "causerie.toml:" in problem
        capped = await api.create("door", name="hosted", limits={"requests_per_minute": 1})
        assert [(await chat(service, "other"))[0] for _ in range(2)] == [200, 429]
        assert (await api.ask("POST", f"{ENTRIES}/{capped['id']}/disable", {}))[0] == 200
        assert (await chat(service, "other"))[0] == 200
        third = await api.create("model", id="third", engine="fake")
        assert (await chat(service, "third"))[0] == 200
        listing = await api.create("catalog_model", id="us/third", endpoints=[{"model": "third"}])
        router = await api.create("door", name="market", kind="router")
        assert [one["id"] for one in (await api.ask("GET", "/market/v1/models"))[1]["data"]] == [
            "us/third"
        ]
        [problem] = await api.problems("DELETE", f"{ENTRIES}/{third['id']}")
        assert 'the entry of catalog model "us/third"' in problem
        for entry in (router, listing, third, capped, priced):
            assert (await api.ask("DELETE", f"{ENTRIES}/{entry['id']}"))[0] == 204
        assert (await chat(service, "third"))[0] == 404
        assert await price(service, "other") == "0"
        _, listed = await api.ask("GET", "/api/audit?limit=100")
        subjects = [each["subject"] for each in listed["data"]]
        for subject in ("model:other", "door:hosted", "model:third", "catalog_model:us/third"):
            assert subjects.count(subject) >= 2


async def test_a_provider_is_tried_before_it_is_kept(service: Service) -> None:
    async with others() as up, operating(service) as api:
        tried = {"settings": {"base_url": up.base_url}, "key": SECRET, "model": "m"}
        status, trial = await api.ask("POST", "/api/providers/test", tried)
        assert status == 200
        assert (trial["completion"]["ok"], trial["stream"]["ok"]) == (True, True), trial
        assert trial["stream"]["first_token_seconds"] > 0
        tried["settings"] = {"base_url": "http://127.0.0.1:9/v1"}
        _, trial = await api.ask("POST", "/api/providers/test", tried)
        assert not trial["listing"]["ok"]
        assert trial["stream"]["problem"] == "The provider cannot be connected to."
        assert "provider trial" not in str(await api.names())


async def test_another_process_hears_of_a_change_and_a_start_has_it(tmp_path: Path) -> None:
    """Two services over one database: one with worker processes."""
    data = tmp_path / "data"
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    text = configured().replace('folder = "data"', f'folder = "{data}"')
    both = text.replace("[store]", f'[store]\nurl = "sqlite:///{data}/causerie.db"')
    secret = 'secret_keys = [{ command = ["echo", "%s"] }]' % ("k" * 40)
    texts = [both.replace(f'folder = "{data}"', f'folder = "{data}/{n}"\n{secret}') for n in "ab"]
    with serving(tmp_path / "one", texts[0]) as one:
        with serving(tmp_path / "two", texts[1]) as two:
            async with operating(one) as here, operating(two) as there:
                await here.create("provider", SECRET, name="shared", known="ollama")

                async def heard() -> bool:
                    _, listed = await there.ask("GET", ENTRIES)
                    shared = [each for each in listed["data"] if each["name"] == "shared"]
                    _, providers = await there.ask("GET", "/api/providers")
                    named = [each["name"] for each in providers["data"]]
                    return bool(shared) and shared[0]["in_force"] and "shared" in named

                await eventually(heard)
        with serving(tmp_path / "two", texts[1]) as again:
            async with operating(again) as there:
                _, providers = await there.ask("GET", "/api/providers")
                assert "shared" in [each["name"] for each in providers["data"]]
