"""Keys of providers that change while the service runs, from files and commands."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiohttp import web
from casekit import each_of
from openai import AsyncOpenAI
from provider import piece
from servicekit import ServiceView, service_view
from structlog.testing import capture_logs
from webhookreceiver import SECRET, webhook_receiver

from causerie.composition import providers as provider_keys
from causerie.composition.providers import ProviderKey, key_conditions
from causerie.providers.dialects import DIALECTS
from causerie.providers.provider import Provider
from causerie.settings.values import Secret

ALIAS = '[[aliases]]\nid = "m"\ntargets = [{ provider = "up", model = "m" }]\n'


@dataclass
class StandIn:
    """A provider that takes some keys at the time; ``held`` keeps its streams from ending.

    It refuses fields that are not ``known``, as Bedrock does.
    """

    valid: set[str]
    base_url: str = ""
    keys: list[str] = field(default_factory=list)
    checked: list[str] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    bodies: list[dict[str, Any]] = field(default_factory=list)
    held: asyncio.Event = field(default_factory=asyncio.Event)
    text: str = "Fine."
    known: frozenset[str] | None = None

    async def answer(self, request: web.Request) -> web.StreamResponse:
        key = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if request.method == "GET":  # 404 as where no models are listed
            self.checked.append(key)
            return web.json_response({}, status=404 if key in self.valid else 401)
        self.paths.append(request.path)
        self.keys.append(key)
        if key not in self.valid:
            return web.json_response({"error": {"message": f"{key} is expired"}}, status=401)
        body = await request.json()
        self.bodies.append(body)
        if self.known is not None and (unknown := body.keys() - self.known):
            message = f"unknown field {min(unknown)}, expected one of {', '.join(self.known)}"
            return web.json_response({"message": message}, status=400)
        if not body.get("stream"):
            message = {"role": "assistant", "content": self.text}
            usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            return web.json_response({"choices": [choice], "usage": usage})
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for chunk in (piece(content="Fi"), None, piece("stop", content="ne.")):
            if chunk is None:
                await self.held.wait()
            else:
                await response.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")
        await response.write(b"data: [DONE]\n\n")
        return response


@asynccontextmanager
async def stand_in(*valid: str, path: str = "/v1") -> AsyncIterator[StandIn]:
    up = StandIn(set(valid))
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", up.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        up.base_url = f"http://127.0.0.1:{runner.addresses[0][1]}{path}"
        yield up
    finally:
        await asyncio.shield(runner.cleanup())


def configured(up: StandIn, key: str) -> str:
    return (
        f'[[providers]]\nname = "up"\nbase_url = "{up.base_url}"\nkey = {key}\n'
        f'health = {{ path = "" }}\n{ALIAS}'
    )


def command(folder: Path, lines: str, options: str = "") -> str:
    """The setting for a script that counts its runs."""
    script = folder / "token.sh"
    script.write_text(f'cd "{folder}"\necho run >> runs\n{lines}\n')
    return f'{{ command = ["sh", "{script}"]{options} }}'


def runs(folder: Path) -> int:
    return (folder / "runs").read_text().count("run")


async def until_used(up: StandIn, service: ServiceView, key: str) -> None:
    async with asyncio.timeout(60):
        while up.keys[-1] != key:
            assert (await service.ask("/v1", "m"))[0] == 200
            await asyncio.sleep(0.05)


async def test_a_changed_file_is_used_and_running_replies_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provider_keys, "FILE_SECONDS", 0.05)
    file = tmp_path / "key"
    file.write_text("first")
    async with (
        stand_in("first", "second") as up,
        service_view(tmp_path, configured(up, f'{{ file = "{file}" }}')) as service,
    ):
        began = asyncio.Event()
        streamed = asyncio.create_task(service.stream("/v1", "m", began))
        await began.wait()
        file.write_text("")  # somebody is writing it
        await asyncio.sleep(0.2)
        file.write_text("second\n")
        await until_used(up, service, "second")
        assert set(up.keys) == {"first", "second"}
        up.held.set()
        assert await streamed == "Fine."
        assert (await service.reload()).applied
        assert (await service.ask("/v1", "m"))[0] == 200
        assert up.keys[-1] == "second"


async def test_a_command_runs_again_before_its_key_expires(tmp_path: Path) -> None:
    """When it fails, the old key is used as long as it is valid, and none after that."""
    key = command(tmp_path, 'test -f away && exit 3\necho "key-$(wc -l < runs)"', ", lifetime = 2")
    keys = (f"key-{n}" for n in range(1, 99))
    async with stand_in(*keys) as up, webhook_receiver() as hook:
        alerts = (
            "[alerts]\ncheck_seconds = 0.1\nresolve_seconds = 0.1\nquiet_seconds = 0.1\n"
            f'[[alerts.webhooks]]\nname = "ops"\nurl = "{hook.url}"\n'
            f'secret = {{ command = ["echo", "{SECRET}"] }}\n'
        )
        with capture_logs() as lines:
            async with service_view(tmp_path, configured(up, key) + alerts) as service:
                assert (await service.ask("/v1", "m"))[0] == 200
                assert up.keys == ["key-1"]
                await until_used(up, service, "key-2")
                (tmp_path / "away").touch()
                async with asyncio.timeout(60):
                    while (await service.ask("/v1", "m"))[0] == 200:  # noqa: ASYNC110 - from outside
                        await asyncio.sleep(0.05)
                asked = len(up.keys)
                status, _, answer = await service.ask("/v1", "m")
                assert (status, len(up.keys)) == (502, asked)
                assert "expired" in answer["error"]["message"]
                summary = ""
                while not summary.startswith(
                    "The key of provider up cannot be renewed, so it gets"
                ):
                    summary = (await hook.next()).body["data"]["summary"]
                assert summary.endswith("the command sh ended with code 3")
                (tmp_path / "away").unlink()
                async with asyncio.timeout(60):
                    while (await service.ask("/v1", "m"))[0] != 200:  # noqa: ASYNC110 - the same
                        await asyncio.sleep(0.05)
    told = [line for line in lines if line["event"] == "key of a provider not renewed"]
    assert {line["reason"] for line in told} == {"the command sh ended with code 3"}
    assert "key-" not in str(lines)


async def test_a_rejected_key_is_fetched_anew_once_for_all(tmp_path: Path) -> None:
    key = command(tmp_path, 'sleep 0.2\necho "key-$(wc -l < runs)"')
    async with stand_in("key-1") as up, service_view(tmp_path, configured(up, key)) as service:
        assert (await service.ask("/v1", "m"))[0] == 200
        up.valid = {"key-2"}
        asked = [service.ask("/v1", "m") for _ in range(8)]
        assert [status for status, *_ in await asyncio.gather(*asked)] == [200] * 8
        assert runs(tmp_path) == 2
        up.valid = {"key-9"}  # and now it does not help
        for _ in range(3):
            status, _, answer = await service.ask("/v1", "m")
            assert status == 502
            assert "key-" not in json.dumps(answer)
        assert runs(tmp_path) == 2


async def test_a_streamed_request_is_sent_again_too(tmp_path: Path) -> None:
    key = command(tmp_path, 'echo "key-$(wc -l < runs)"')
    async with stand_in("key-2") as up, service_view(tmp_path, configured(up, key)) as service:
        up.held.set()
        assert await service.stream("/v1", "m") == "Fine."
        assert up.keys == ["key-1", "key-2"]


async def test_a_rejected_check_renews_the_key_too(tmp_path: Path) -> None:
    key = command(tmp_path, 'echo "key-$(wc -l < runs)"')
    async with stand_in("key-2") as up:
        text = configured(up, key).replace('path = ""', "interval_seconds = 0.1")
        async with service_view(tmp_path, text) as service:
            async with asyncio.timeout(60):
                while up.checked[-2:] != ["key-2", "key-2"]:  # noqa: ASYNC110 - from outside
                    await asyncio.sleep(0.05)
            assert (await service.ask("/v1", "m"))[0] == 200
    assert (up.keys, runs(tmp_path)) == (["key-2"], 2)


async def test_a_key_in_a_variable_stays(tmp_path: Path) -> None:
    text = '{ env = "UP_KEY" }'
    async with (
        stand_in() as up,
        service_view(tmp_path, configured(up, text), UP_KEY="fixed") as service,
    ):
        assert (await service.ask("/v1", "m"))[0] == 502
        assert up.keys == ["fixed"]


BEDROCK_FIELDS = frozenset(
    {
        "messages", "model", "store", "reasoning_effort", "metadata", "frequency_penalty",
        "logit_bias", "logprobs", "top_logprobs", "max_tokens", "max_completion_tokens", "n",
        "modalities", "prediction", "audio", "presence_penalty", "response_format", "seed",
        "service_tier", "stop", "stream", "stream_options", "temperature", "top_p", "tools",
        "tool_choice", "parallel_tool_calls", "user", "function_call", "functions",
    }
)  # fmt: skip


@each_of(
    ("known", "path", "model", "text", "fields"),
    [
        ("vertex", "/v1/projects/mine/locations/global/endpoints/openapi",
         "google/gemini-2.5-flash", "Fine.", None),
        ("bedrock", "/openai/v1", "openai.gpt-oss-20b-1:0",
         "<reasoning>Hm.</reasoning>Fine.", BEDROCK_FIELDS),
    ],
)  # fmt: skip
async def test_clouds_whose_keys_expire(
    tmp_path: Path, known: str, path: str, model: str, text: str, fields: frozenset[str] | None
) -> None:
    """By the official client, through the address that the page of these providers shows."""
    (tmp_path / "runs").unlink(missing_ok=True)  # of the other case
    key = command(tmp_path, 'echo "key-$(wc -l < runs)"', ", lifetime = 3600")
    async with stand_in("key-2", path=path) as up:
        up.text, up.known = text, fields
        configuration = (
            f'[[providers]]\nknown = "{known}"\nbase_url = "{up.base_url}"\nkey = {key}\n'
            f'[[aliases]]\nid = "fast"\ntargets = [{{ provider = "{known}", model = "{model}" }}]\n'
        )
        async with (
            service_view(tmp_path, configuration) as service,
            AsyncOpenAI(base_url=f"{service.root}/v1", api_key="any", max_retries=0) as client,
        ):
            answer = await client.chat.completions.create(
                model="fast",
                messages=[{"role": "user", "content": "Hi"}],
                reasoning_effort="low",
                max_tokens=50,
                prompt_cache_key="k",
                safety_identifier="s",
                extra_body={"chat_template_kwargs": {"enable_thinking": True}},
            )
    message = answer.choices[0].message
    assert (message.content, up.keys) == ("Fine.", ["key-1", "key-2"])
    assert (message.model_extra or {}).get("reasoning_content") == ("Hm." if fields else None)
    assert {*up.paths} == {f"{path}/chat/completions"}
    assert (up.bodies[-1]["model"], up.bodies[-1]["reasoning_effort"]) == (model, "low")


@each_of(("lifetime", "level", "words"), [(3600.0, 1, "stays in use"), (0.0, 2, "no requests")])
async def test_operators_are_told(lifetime: float, level: int, words: str) -> None:
    client = cast(Any, SimpleNamespace(head=lambda *_: b""))
    key = ProviderKey(
        Provider("up", client, DIALECTS["generic"], credential="k"),
        Secret(command=("x",), lifetime=lifetime or 1e-9),
    )
    assert list(key_conditions([key])) == []
    key.problem = "the command x ended with code 1"
    [condition] = key_conditions([key])
    assert (condition.key, condition.level) == ("key:up", level)
    assert words in condition.summary
    assert condition.summary.endswith("the command x ended with code 1")
    key.use("another")
    assert list(key_conditions([key])) == []
