"""Contents of requests, kept by a whole service for the projects that want it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import aiohttp
import pytest
from hostedkit import Office, config, office
from openai import AsyncOpenAI
from service import Service, serving

from causerie.errors import NotFound
from causerie.hosted.accounts.people import SYSTEM
from causerie.hosted.accounts.records import Recording


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest) -> str | None:
    """Return the URL of the database; ``None`` is a file in the service's own folder."""
    if request.param == "sqlite":
        return None
    found: str = request.getfixturevalue("hosted_database")
    return found


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, url: str | None) -> Iterator[Service]:
    with serving(tmp_path_factory.mktemp("recording"), config(url=url)) as running:
        yield running


@pytest.fixture
async def services(service: Service, url: str | None) -> AsyncIterator[Office]:
    async with office(service.log.parent / "data", url=url) as opened:
        yield opened


def client(service: Service, key: str) -> AsyncOpenAI:
    return AsyncOpenAI(api_key=key, base_url=f"{service.root}/hosted/v1", max_retries=0, timeout=60)


async def said(services: Office, key: str, words: str) -> Recording:
    """Return the recording of the request with these words, once it is there; others write it."""
    async with asyncio.timeout(60):
        while True:
            for one in await services.records():
                found = await _seen(services, one.id) if one.key == key else []
                if found and words in found[0].request:
                    return found[0]
            await asyncio.sleep(0.05)


async def _seen(services: Office, id: str) -> list[Recording]:
    try:
        return [await services.accounts.recordings.see(SYSTEM, services.project, id)]
    except NotFound:
        return []


def content(kept: Recording) -> str:
    found: Any = json.loads(kept.reply)["choices"][0]["message"]["content"]
    return str(found)


async def test_what_is_said_is_kept_from_when_it_is_switched_on_until_it_is_off(
    service: Service, services: Office
) -> None:
    made = await services.key()
    tools: Any = [{"type": "function", "function": {"name": "look", "parameters": {}}}]
    async with client(service, made.credential) as asking:

        async def say(words: str, **more: Any) -> None:
            await asking.chat.completions.create(
                model="small", messages=[{"role": "user", "content": words}], **more
            )

        await say("Before.")
        await services.accounts.recordings.keep(SYSTEM, services.project, 7)
        async with asyncio.timeout(60):  # the service hears of it within a second
            while not [
                one for each in await services.records() for one in await _seen(services, each.id)
            ]:
                await say("Now?")
                await asyncio.sleep(0.1)
        await say("Plain <b>words</b>.", tools=tools)
        stream = await asking.chat.completions.create(
            model="small", messages=[{"role": "user", "content": "Streamed words."}], stream=True
        )
        async for _ in stream:
            pass
        plain = await said(services, made.key.id, "Plain")
        streamed = await said(services, made.key.id, "Streamed")
        asked = json.loads(plain.request)
        assert asked["messages"] == [{"role": "user", "content": "Plain <b>words</b>."}]
        assert asked["tools"] == tools
        assert [content(one) for one in (plain, streamed)] == [
            "Plain <b>words</b>.",
            "Streamed words.",
        ]
        assert json.loads(streamed.reply)["object"] == "chat.completion"
        assert {plain.user_id, streamed.user_id} == {made.key.created_by}
        first = (await services.records())[-1]
        assert await _seen(services, first.id) == []  # it was said before

        await services.accounts.recordings.keep(SYSTEM, services.project, None)
        await say("After.")
        records = [one for one in await services.records() if one.key == made.key.id]
        assert records
        for one in records:
            assert await _seen(services, one.id) == []
    assert "words" not in service.log.read_text()


async def test_a_client_that_leaves_leaves_what_was_said(
    service: Service, services: Office
) -> None:
    await services.accounts.recordings.keep(SYSTEM, services.project, 7)
    made = await services.key()
    words = "A long answer that nobody waits for. " * 60
    body = {
        "model": "small",
        "stream": True,
        "messages": [{"role": "user", "content": words}],
        "max_tokens": 3000,
    }
    headers = {"authorization": f"Bearer {made.credential}"}
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.post(f"{service.root}/hosted/v1/chat/completions", json=body) as reply,
    ):
        assert reply.status == 200
        await reply.content.readany()
    kept = await said(services, made.key.id, "nobody waits")
    told = json.loads(kept.reply)["choices"][0]
    assert words.startswith(told["message"]["content"].rstrip())
    assert told["message"]["content"]


async def test_what_is_refused_before_a_model_is_asked_is_not_kept(
    service: Service, services: Office
) -> None:
    await services.accounts.recordings.keep(SYSTEM, services.project, 7)
    made = await services.key(models=frozenset({"other"}))
    headers = {"authorization": f"Bearer {made.credential}"}
    async with aiohttp.ClientSession(headers=headers) as session:
        for model, status in (("small", 403), ("other", 200)):
            body = {"model": model, "messages": [{"role": "user", "content": "Hi."}]}
            address = f"{service.root}/hosted/v1/chat/completions"
            async with session.post(address, json=body) as reply:
                assert reply.status == status
    await said(services, made.key.id, "Hi.")
    by_status = {one.status: one.id for one in await services.records() if one.key == made.key.id}
    assert await _seen(services, by_status[403]) == []
    assert len(await _seen(services, by_status[200])) == 1
