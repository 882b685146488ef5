"""The Messages API over HTTP, as its official client and its best-known agent speak it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from gatewaykit import Gateway, gateway
from laterkit import later
from messageskit import KEY, Said, call, messages_server, sealed, text, thinking
from provider import ScriptedProvider, piece, running
from servicekit import service_view

from causerie.providers.target import ProviderTarget

anthropic = later("anthropic")
HI: list[Any] = [{"role": "user", "content": "Hi"}]
ADD: list[Any] = [
    {
        "name": "add",
        "description": "Adds.",
        "input_schema": {"type": "object", "properties": {"a": {"type": "integer"}}},
    }
]
USAGE: dict[str, object] = {
    "choices": [],
    "usage": {
        "prompt_tokens": 10, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 3},
    },
}  # fmt: skip
CALLS = [
    piece(role="assistant", content=""), piece(reasoning_content="Let me"),
    piece(reasoning_content=" see."), piece(content="Hel"), piece(content="lo"),
    piece(tool_calls=[{"index": 0, "id": "call_1", "type": "function",
                       "function": {"name": "add", "arguments": ""}}]),
    piece(tool_calls=[{"index": 0, "function": {"arguments": '{"a": '}}]),
    piece(tool_calls=[{"index": 0, "function": {"arguments": "1}"}}]),
    piece(finish="tool_calls"), USAGE,
]  # fmt: skip
HELLO = [piece(role="assistant", content=""), piece(content="It is 2."), piece("stop"), USAGE]


_clients: list[Any] = []


@pytest.fixture(autouse=True)
async def closed_clients() -> AsyncIterator[None]:
    """Close the clients of a test at its end."""
    yield
    for each in _clients:
        await each.close()
    _clients.clear()


def client(there: Gateway | str) -> Any:
    root = there if isinstance(there, str) else there.root
    url = root.removesuffix("/v1")
    _clients.append(anthropic.AsyncAnthropic(base_url=url, api_key="x", max_retries=0))
    return _clients[-1]


@asynccontextmanager
async def chat(*scripts: Any, **how: Any) -> AsyncIterator[tuple[ScriptedProvider, Gateway]]:
    """A gateway in front of a provider that speaks chat completions."""
    async with (
        running(ScriptedProvider(list(scripts))) as provider,
        gateway(provider.base_url, **how) as front,
    ):
        yield provider, front


async def test_a_reply_and_its_stream_are_the_same() -> None:
    async with chat(CALLS, CALLS) as (_, front):
        asked: dict[str, Any] = {"model": "m", "max_tokens": 500, "messages": HI, "tools": ADD}
        plain = await client(front).messages.create(**asked)
        async with client(front).messages.stream(**asked) as stream:
            kinds = [event.type async for event in stream]
            streamed = await stream.get_final_message()
    assert kinds[0] == "message_start"
    assert kinds[-2:] == ["message_delta", "message_stop"]
    parts = [[block.to_dict() for block in message.content] for message in (streamed, plain)]
    assert parts[0] == parts[1]
    assert [block.type for block in plain.content] == ["thinking", "text", "tool_use"]
    for message in (plain, streamed):
        assert message.stop_reason == "tool_use"
        assert message.id.startswith("msg_")
        used = message.usage
        assert (used.input_tokens, used.cache_read_input_tokens, used.output_tokens) == (7, 3, 4)
    assert [record.used.prompt for record in front.records] == [10, 10]


async def test_thinking_goes_back_beside_its_call() -> None:
    async with chat(CALLS, HELLO) as (provider, front):
        asked: dict[str, Any] = {"model": "m", "max_tokens": 500, "tools": ADD}
        first = await client(front).messages.create(messages=HI, **asked)
        result = {"type": "tool_result", "tool_use_id": "call_1", "content": "2"}
        turns = [*HI, first.to_param(), {"role": "user", "content": [result]}]
        await client(front).messages.create(messages=turns, **asked)
    assert provider.requests[1]["messages"] == [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello", "reasoning_content": "Let me see.",
         "reasoning": "Let me see.",
         "tool_calls": [{"id": "call_1", "type": "function",
                         "function": {"name": "add", "arguments": '{"a":1}'}}]},
        {"role": "tool", "tool_call_id": "call_1", "content": "2"},
    ]  # fmt: skip


async def test_errors_have_the_clients_types_and_ids() -> None:
    async with chat((429, "{}")) as (_, front):
        asked: dict[str, Any] = {"max_tokens": 5, "messages": HI}
        with pytest.raises(anthropic.NotFoundError) as unknown:
            await client(front).messages.create(model="nobody", **asked)
        with pytest.raises(anthropic.BadRequestError) as wrong:
            await client(front).messages.create(model="m", max_tokens=5, messages=[])
        with pytest.raises(anthropic.RateLimitError) as full:
            await client(front).messages.create(model="m", **asked)
        assert full.value.type == "rate_limit_error"
    assert (unknown.value.type, unknown.value.error_code) == ("not_found_error", "model_not_found")
    assert unknown.value.request_id == unknown.value.response.headers["x-request-id"]
    assert wrong.value.type == "invalid_request_error"


async def test_a_lost_thread_is_sent_anew_as_a_whole() -> None:
    @anthropic.beta_async_tool
    async def add(a: int) -> str:
        """Adds one.

        Args:
            a: A number.
        """
        return str(a + 1)

    async with chat(CALLS, HELLO) as (provider, front):
        runner = client(front).beta.messages.tool_runner(
            model="m", max_tokens=500, tools=[add], messages=HI
        )
        last = await runner.until_done()
    assert [block.text for block in last.content if block.type == "text"] == ["It is 2."]
    messages: Any = provider.requests[1]["messages"]
    assert [each["role"] for each in messages] == ["user", "assistant", "tool"]
    assert messages[2]["content"] == "2"


async def test_a_provider_of_the_same_api_gets_what_the_client_sent() -> None:
    content = [thinking("Hm."), sealed("x"), text("Hello"), call("toolu_1", "add", a=1)]
    async with (
        messages_server(Said(content, "tool_use"), Said([text("2")])) as server,
        gateway(server.base_url, dialect="anthropic", credential=KEY) as front,
    ):
        asked: dict[str, Any] = {"model": "m", "max_tokens": 2000, "tools": ADD}
        asked["thinking"] = {"type": "adaptive"}
        first = await client(front).messages.create(messages=HI, **asked)
        result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "2"}
        turns = [*HI, first.to_param(), {"role": "user", "content": [result]}]
        async with client(front).messages.stream(messages=turns, **asked) as stream:
            last = await stream.get_final_message()
        counted = await client(front).messages.with_raw_response.count_tokens(
            model="m", messages=turns, tools=ADD
        )
    assert [block.type for block in first.content] == [
        "thinking", "redacted_thinking", "text", "tool_use",
    ]  # fmt: skip
    assert server.rejected == []
    assert server.bodies[1]["messages"][1]["content"] == content
    assert (first.usage.input_tokens, first.usage.cache_creation_input_tokens) == (20, 300)
    assert last.usage.cache_read_input_tokens == 100
    assert json.loads(await counted.read()) == {"input_tokens": 1003}
    assert counted.headers["x-token-count"] == "exact"


async def test_signatures_survive_a_failover_to_a_provider_of_the_same_api() -> None:
    # The first target speaks chat completions and is down; the second one gets what was sent.
    content = [thinking("Hm."), text("Hello")]
    called = [thinking("So."), call("toolu_1", "add", a=1)]
    result = {
        "type": "tool_result", "tool_use_id": "toolu_1", "content": "No.", "is_error": True,
        "cache_control": {"type": "ephemeral"},
    }  # fmt: skip
    turns: list[Any] = [
        *HI, {"role": "assistant", "content": called}, {"role": "user", "content": [result]},
    ]  # fmt: skip
    async with (
        messages_server(Said(content)) as server,
        running(ScriptedProvider([(503, "{}")])) as down,
    ):
        urls, dialects = (down.base_url, server.base_url), ("vllm", "anthropic")
        async with gateway(*urls, dialect=dialects, credential=KEY) as front:
            message = await client(front).messages.create(
                model="m", max_tokens=2000, messages=turns, tools=ADD,
                thinking={"type": "adaptive"},
            )  # fmt: skip
    sent = server.bodies[0]["messages"]
    assert sent[1]["content"] == called
    assert sent[2]["content"] == [result]
    assert [block.model_dump(exclude_none=True) for block in message.content] == content


OWN = """
[[models]]
id = "small"
engine = "fake"
options = { replies = ["Hello there, STOP whoever"] }
"""


async def test_own_models_count_what_they_report(tmp_path: Path) -> None:
    turns: list[Sequence[Any]] = [
        HI,
        [{"role": "user", "content": "Größe 🙂 <|im_end|> " * 200}],
        [*HI, {"role": "assistant", "content": [
            {"type": "text", "text": "Let me see."},
            {"type": "tool_use", "id": "t", "name": "add", "input": {"a": 1}}]},
         {"role": "user", "content": [
             {"type": "tool_result", "tool_use_id": "t", "content": "2", "is_error": True}]}],
        [*HI, {"role": "assistant", "content": "Hello th"}],
    ]  # fmt: skip
    more: list[dict[str, Any]] = [
        {},
        {"system": [{"type": "text", "text": "Be brief."}], "tools": ADD},
        {"thinking": {"type": "enabled", "budget_tokens": 1024}, "tools": ADD},
    ]
    async with service_view(tmp_path, OWN) as service:
        asked = client(service.root)
        for messages in turns:
            for fields in more:
                same: dict[str, Any] = {"model": "small", "messages": messages, **fields}
                counted = await asked.messages.with_raw_response.count_tokens(**same)
                assert counted.headers["x-token-count"] == "exact"
                reply = await asked.messages.create(max_tokens=20, **same)
                used = reply.usage
                tokens = used.input_tokens + (used.cache_read_input_tokens or 0)
                assert json.loads(await counted.read()) == {"input_tokens": tokens}
        stopped = await asked.messages.create(
            model="small", max_tokens=50, messages=HI, stop_sequences=["never", "STOP"]
        )
        assert (stopped.stop_reason, stopped.stop_sequence) == ("stop_sequence", "STOP")
        with pytest.raises(anthropic.BadRequestError):
            await asked.messages.count_tokens(model="small", messages=[])
        longer = [{"role": "user", "content": "word " * 300_000}]
        with pytest.raises(anthropic.BadRequestError, match="prompt is too long"):
            await asked.messages.create(model="small", max_tokens=5, messages=longer)
        told = await asked.messages.with_raw_response.count_tokens(model="small", messages=longer)
        assert told.headers["x-token-count"] == "estimated"


async def test_others_are_estimated() -> None:
    async with chat() as (_, front):
        counted = await client(front).messages.with_raw_response.count_tokens(
            model="m", messages=HI
        )
    assert counted.headers["x-token-count"] == "estimated"
    assert 0 < json.loads(await counted.read())["input_tokens"] < 20


async def test_counts_are_bounded_and_no_reply_waits_for_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gate = asyncio.Event()

    async def slow(*_: object) -> int:
        await gate.wait()
        return 7

    monkeypatch.setattr(ProviderTarget, "count_tokens", slow)
    async with chat(HELLO) as (_, front):
        asked = {"model": "m", "messages": HI}
        url = f"{front.root}/messages/count_tokens"

        async def counted() -> tuple[int, Any]:
            async with front.session.post(url, json=asked) as response:
                return response.status, await response.json()

        counts = [asyncio.create_task(counted()) for _ in range(70)]
        refused, _ = await asyncio.wait(counts, return_when=asyncio.FIRST_COMPLETED)
        status, body = refused.pop().result()
        assert (status, body["error"]["type"]) == (529, "overloaded_error")
        message = await client(front).messages.create(model="m", max_tokens=5, messages=HI)
        assert message.stop_reason == "end_turn"
        gate.set()
        answers = [answer async for answer in _results(counts)]
    assert sorted(answers) == [200] * 66 + [529] * 4


async def _results(tasks: Sequence[asyncio.Task[tuple[int, Any]]]) -> AsyncIterator[int]:
    for each in tasks:
        yield (await each)[0]


# What Claude Code 2.1 sends at its first turn and after its first call, less its texts.

AGENT_TOOLS = [
    {"name": name, "description": "d", "input_schema": {
        "$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object",
        "properties": {
            "command": {"type": "string"},
            "timeout": {"type": "integer", "maximum": 9007199254740991},
            "url": {"type": "string", "format": "uri"},
            "id": {"type": "string", "allOf": [{"pattern": "^(?!b)"}, {"pattern": "b$"}]},
            "env": {"type": "object", "propertyNames": {"type": "string"},
                    "additionalProperties": {"type": "string"}},
        },
        "required": ["command"], "additionalProperties": False,
    }}
    for name in ("Bash", "Edit", "Read")
]  # fmt: skip
CACHED = {"cache_control": {"type": "ephemeral"}}
AGENT: dict[str, Any] = {
    "model": "m", "max_tokens": 32000, "stream": True,
    "system": [
        {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1.332;"},
        {"type": "text", "text": "You are an agent.", **CACHED},
        {"type": "text", "text": "Help the user.", **CACHED},
    ],
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "List the files.", **CACHED}]},
        {"role": "system", "content": [{"type": "text", "text": "# Environment", **CACHED}]},
    ],
    "tools": [*AGENT_TOOLS, {"name": "DeferredToolPlaceholder", "description": "d",
                             "input_schema": {"type": "object"}, "defer_loading": True}],
    "metadata": {"user_id": '{"session_id": "s"}'},
    "thinking": {"type": "adaptive", "display": "updates"},
    "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
    "output_config": {"effort": "high"},
}  # fmt: skip
AGENT_HEADERS = {
    "anthropic-version": "2023-06-01", "x-app": "cli", "authorization": "Bearer x",
    "anthropic-beta": "claude-code-20250219,interleaved-thinking-2025-05-14,effort-2025-11-24",
    "anthropic-dangerous-direct-browser-access": "true", "x-claude-code-session-id": "s",
}  # fmt: skip


async def agent(front: Gateway | str, session: Any, turns: Sequence[Any] = ()) -> str:
    """The stream of a turn of the agent."""
    root = front if isinstance(front, str) else front.root.removesuffix("/v1")
    body = AGENT | {"messages": [*AGENT["messages"], *turns]}
    url = f"{root}/v1/messages?beta=true"
    async with session.post(url, json=body, headers=AGENT_HEADERS) as response:
        assert response.status == 200, await response.text()
        return await response.text()  # type: ignore[no-any-return]


def after_call(signature: str = "any") -> list[Any]:
    return [
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "Let me see.", "signature": signature},
            {"type": "tool_use", "id": "call_1", "name": "Bash", "input": {"command": "ls"}}]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "call_1", "content": "a.txt",
             "is_error": False, **CACHED}]},
        {"role": "system", "content": "Be quick."},
    ]  # fmt: skip


async def test_what_claude_code_sends_reaches_a_provider_of_chat_completions() -> None:
    script = [
        piece(tool_calls=[{"index": 0, "id": "call_1", "type": "function",
                           "function": {"name": "Bash", "arguments": '{"command": "ls"}'}}]),
        piece(finish="tool_calls"), USAGE,
    ]  # fmt: skip
    async with chat(script, HELLO) as (provider, front):
        first = await agent(front, front.session)
        assert '"partial_json":"{\\"command\\": \\"ls\\"}"' in first
        assert first.count("content_block_stop\n") == 1
        await agent(front, front.session, after_call())
    body: Any = provider.requests[1]
    assert [each["role"] for each in body["messages"]] == [
        "system", "user", "system", "assistant", "tool", "system",
    ]  # fmt: skip
    assert body["messages"][4]["content"] == "a.txt"
    assert [tool["function"]["name"] for tool in body["tools"]] == ["Bash", "Edit", "Read"]
    assert "cache_control" not in json.dumps(body)
    assert body["reasoning_effort"] == "high"


async def test_what_claude_code_sends_passes_to_a_provider_of_its_api() -> None:
    reply = Said([thinking("Hm."), text("Hello")])
    async with (
        messages_server(reply) as server,
        gateway(server.base_url, dialect="anthropic", credential=KEY) as front,
    ):
        body = AGENT | {"messages": AGENT["messages"][:1], "thinking": {"type": "adaptive"}}
        del body["context_management"]
        body["tools"] = ADD
        url = f"{front.root}/messages?beta=true"
        async with front.session.post(url, json=body, headers=AGENT_HEADERS) as response:
            assert response.status == 200, await response.text()
            assert '"signature":"' in (await response.text()).replace(": ", ":")
    assert server.bodies[0]["system"] == AGENT["system"]


async def test_what_claude_code_sends_reaches_an_own_model(tmp_path: Path) -> None:
    async with service_view(tmp_path, OWN) as service:
        # No engine knows a pattern that looks ahead.
        body = AGENT | {"model": "small", "messages": [*AGENT["messages"], *after_call()]}
        url = f"{service.root}/v1/messages?beta=true"
        async with service.session.post(url, json=body, headers=AGENT_HEADERS) as response:
            assert response.status == 200, await response.text()
            assert '"stop_reason":"end_turn"' in await response.text()
            changes = response.headers["x-request-changes"].split(", ")
            assert "tools[0].input_schema not enforced" in changes
            assert "messages[2].content[0] dropped" in changes  # another server's signature
