"""Streams that begin before their first content: what clients, other targets and records see."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from gatewaykit import Gateway, gateway, settled
from openai import APIError, AsyncOpenAI
from provider import ScriptedProvider, piece, running
from service import Service, serving

from causerie.http.api import RequestLimits
from causerie.http.doors import DoorKind
from causerie.providers.provider import Deadlines

LIMITS = RequestLimits(first_byte_seconds=0.01, ping_seconds=0.01)
PATIENT = Deadlines(first_token=600, between_chunks=600, total=600)
YES = [piece(content="Yes"), piece(content="."), piece("stop")]
NO = (500, '{"error": {"message": "It is broken."}}')
HELLO: Any = [{"role": "user", "content": "Hello"}]


@asynccontextmanager
async def late(
    *scripts: Any, kind: DoorKind = "gateway"
) -> AsyncIterator[tuple[list[ScriptedProvider], Gateway]]:
    """A gateway whose providers answer once they may, each by its own script."""
    providers = [ScriptedProvider([script], gate=asyncio.Event()) for script in scripts]
    async with (
        contexts(providers),
        gateway(
            *(each.base_url for each in providers), deadlines=PATIENT, limits=LIMITS, kind=kind
        ) as there,
    ):
        yield providers, there


@asynccontextmanager
async def contexts(providers: list[ScriptedProvider]) -> AsyncIterator[None]:
    if not providers:
        yield
        return
    async with running(providers[0]), contexts(providers[1:]):
        yield


@asynccontextmanager
async def asked(root: str, **fields: Any) -> AsyncIterator[Any]:
    """A stream of the official client, which has got its status."""
    fields = {"model": "m", "messages": HELLO, "stream": True, **fields}
    async with (
        asyncio.timeout(60),
        AsyncOpenAI(base_url=root, api_key="x", max_retries=0) as client,
    ):
        yield await client.chat.completions.create(**fields)


def let_go(*providers: ScriptedProvider) -> None:
    for each in providers:
        assert each.gate is not None
        each.gate.set()


async def text_of(stream: Any) -> str:
    return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])


async def test_the_official_client_has_its_stream_while_the_prompt_is_read() -> None:
    async with late(YES) as (providers, there), asked(there.root) as stream:
        await providers[0].asked.wait()
        let_go(*providers)
        assert await text_of(stream) == "Yes."
    [record] = there.records
    assert (record.status, record.code, record.early_start) == (200, None, True)


async def test_several_choices() -> None:
    deltas: list[dict[str, Any]] = [{"delta": {"content": "Yes"}}]
    deltas.append({"delta": {}, "finish_reason": "stop"})
    script = [{"choices": [{**each, "index": n}]} for each in deltas for n in (0, 1)]
    async with late(script) as (providers, there), asked(there.root, n=2) as stream:
        let_go(*providers)
        finished = {
            choice.index: choice.finish_reason
            async for chunk in stream
            for choice in chunk.choices
            if choice.finish_reason
        }
    assert finished == {0: "stop", 1: "stop"}


async def test_another_target_answers_behind_an_early_start() -> None:
    async with late(NO, YES) as (providers, there), asked(there.root) as stream:
        let_go(*providers)
        assert await text_of(stream) == "Yes."
    [record] = there.records
    assert (record.status, record.attempts, record.served_by) == (200, 2, "e1")
    assert record.early_start


async def test_another_model_answers_behind_an_early_start() -> None:
    async with late(NO, NO, kind="router") as (providers, there):
        providers[1].scripts.append(list(YES))
        async with asked(there.root, extra_body={"models": ["last"]}) as stream:
            let_go(*providers)
            assert await text_of(stream) == "Yes."
    [record] = there.records
    assert (record.status, record.model, record.early_start) == (200, "last", True)


async def test_a_failure_behind_an_early_start_is_raised_by_the_official_client() -> None:
    async with late(NO) as (providers, there), asked(there.root) as stream:
        let_go(*providers)
        with pytest.raises(APIError) as failure:
            await text_of(stream)
    assert failure.value.code == "bad_gateway"
    [record] = there.records
    assert (record.status, record.code, record.early_start) == (502, "bad_gateway", True)


async def test_a_provider_is_left_by_a_client_that_leaves_behind_an_early_start() -> None:
    async with late(YES) as (_, there):
        async with asked(there.root):
            pass
        await settled(lambda: there.records)
    [record] = there.records
    assert (record.status, record.code, record.early_start) == (499, "client_gone", True)


async def test_a_gateway_goes_elsewhere_where_one_behind_it_fails_after_an_early_start() -> None:
    spare = ScriptedProvider([list(YES)])
    async with (
        late(NO) as (providers, behind),
        running(spare),
        gateway(behind.root, spare.base_url, deadlines=PATIENT, limits=LIMITS) as there,
        asked(there.root) as stream,
    ):
        await providers[0].asked.wait()
        let_go(*providers)
        assert await text_of(stream) == "Yes."
    assert [each.attempts for each in (*behind.records, *there.records)] == [1, 2]


SERVICE = """
[server]
first_byte_seconds = 0.01
{server}
[[doors]]
name = "gateway"
kind = "gateway"
{models}
[[providers]]
name = "there"
base_url = "{base_url}"
health = {{ path = "" }}
[[aliases]]
id = "m"
targets = [{{ provider = "there", model = "m-1" }}]
"""
OWN = """
[[models]]
id = "own"
ref = "{weights}"
llamacpp = {{ context = 4096, parallel = 1 }}
queue = {{ max_waiting = 1, max_wait_seconds = 600 }}
"""


def request_lines(service: Service) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in service.log.read_text().splitlines() if line[:1] == "{"]
    return [line for line in lines if line.get("event") == "request"]


@pytest.mark.parametrize("server", ["", "workers = 2"])
async def test_a_service_and_its_log(server: str, tmp_path: Path) -> None:
    provider = ScriptedProvider([list(YES), list(YES)], gate=asyncio.Event())
    async with running(provider):
        text = SERVICE.format(server=server, models="", base_url=provider.base_url)
        with serving(tmp_path, text) as service:
            async with asked(f"{service.root}/gateway/v1") as stream:
                await provider.asked.wait()
                let_go(provider)
                assert await text_of(stream) == "Yes."
            await settled(lambda: request_lines(service))
    [line] = request_lines(service)
    assert (line["status"], line["early_start"]) == (200, True)


@pytest.mark.full
async def test_long_prompts_of_an_own_model_and_its_queue(tmp_path: Path, gguf: Path) -> None:
    """Both who is read and who waits for a slot get their streams; a full queue is a status."""
    models = OWN.format(weights=gguf)
    text = SERVICE.format(server="", models=models, base_url="http://127.0.0.1:9/v1")
    prompts = [f"{number} {'The fox is red. ' * 100}" for number in range(3)]
    with serving(tmp_path, text) as service:
        url = f"{service.root}/endpoints/own/v1/chat/completions"
        async with aiohttp.ClientSession() as session, AsyncExitStack() as asking:
            answers = []
            for prompt in prompts:
                messages = [{"role": "user", "content": prompt}]
                body = {"model": "own", "messages": messages, "max_tokens": 4, "stream": True}
                answer = await asking.enter_async_context(session.post(url, json=body))
                answers.append(answer)
            *begun, refused = answers
            told = [(await each.read()).decode() for each in begun]
            assert refused.status == 503
            assert (await refused.json())["error"]["code"] == "queue_full"
        await settled(lambda: len(request_lines(service)) == 3)
    for each in told:
        assert each.startswith(": ping\n")
        assert each.count("data: [DONE]") == 1
        assert '"error"' not in each
    lines = [line for line in request_lines(service) if line["status"] == 200]
    assert all(line["early_start"] and line["prompt"] > 400 for line in lines)
    assert sum(line["queue_ms"] > 10 for line in lines) == 1
