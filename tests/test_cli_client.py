"""The client of chat endpoints: what it understands, and how it says what went wrong."""

from __future__ import annotations

import socket

import pytest
from endpoint import ScriptedEndpoint, piece, running

from causerie.protocol.events import (
    Event,
    Finished,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    ToolCallStarted,
    Usage,
)
from causerie.upstreams.client import ChatClient, Refused, Unreachable

CALL = {"index": 0, "id": "c1", "type": "function", "function": {"name": "f", "arguments": ""}}


async def events_of(endpoint: ScriptedEndpoint, key: str | None = None) -> list[Event]:
    async with (
        running(endpoint),
        ChatClient(endpoint.base_url, key) as client,
        client.stream({"model": "m", "messages": []}) as events,
    ):
        return [event async for event in events]


async def test_a_whole_answer() -> None:
    usage = {
        "prompt_tokens": 5,
        "completion_tokens": 7,
        "prompt_tokens_details": {"cached_tokens": 2},
        "completion_tokens_details": {"reasoning_tokens": 3},
    }
    script = [
        piece(role="assistant", content=""),
        piece(reasoning_content="hm"),
        piece(reasoning="m"),
        piece(content="Hello\u2028"),
        piece(tool_calls=[CALL]),
        piece(tool_calls=[{"index": 0, "function": {"arguments": "{}"}}]),
        piece("tool_calls"),
        {"choices": [], "usage": usage},
    ]
    endpoint = ScriptedEndpoint([script])
    assert await events_of(endpoint, "ck_a_b") == [
        ReasoningDelta("hm"),
        ReasoningDelta("m"),
        TextDelta("Hello\u2028"),
        ToolCallStarted(0, "c1", "f"),
        ToolCallDelta(0, "{}"),
        Finished("tool_calls"),
        Usage(prompt=5, completion=7, cached=2, reasoning=3),
    ]
    assert endpoint.authorizations == ["Bearer ck_a_b"]
    assert endpoint.requests[0]["stream_options"] == {"include_usage": True}


async def test_a_plain_body_is_read_too() -> None:
    calls = [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
    body = '{"choices":[{"message":{"content":"Hi","tool_calls":%s},"finish_reason":"stop"}]}'
    endpoint = ScriptedEndpoint([(200, body % str(calls).replace("'", '"'))])
    assert await events_of(endpoint) == [
        TextDelta("Hi"),
        ToolCallStarted(0, "c", "f"),
        ToolCallDelta(0, "{}"),
        Finished("stop"),
    ]


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ((401, '{"error": {"message": "No key."}}'), r"^No key\. \(status 401\)$"),
        ((500, "<html>"), r"^Internal Server Error from http://127.*\(status 500\)$"),
        ((200, "<html>"), "did not answer with a chat completion"),
        ([{"error": {"message": "the engine broke"}}], "^the engine broke$"),
        ([{"choices": 3}], "sent a stream that cannot be read"),
    ],
)
async def test_refusals(script: object, message: str) -> None:
    endpoint = ScriptedEndpoint([script])
    with pytest.raises(Refused, match=message):
        await events_of(endpoint)


async def test_nobody_listens() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        async with ChatClient(f"http://127.0.0.1:{taken.getsockname()[1]}/v1") as client:
            with pytest.raises(Unreachable, match="cannot be reached: Connect"):
                await client.models()


async def test_not_an_address() -> None:
    async with ChatClient("nonsense") as client:
        with pytest.raises(Unreachable, match="nonsense is not an address"):
            await client.models()


async def test_leaving_ends_the_request() -> None:
    endpoint = ScriptedEndpoint([[piece(content="a")]], hold=True)
    async with running(endpoint), ChatClient(endpoint.base_url) as client:
        async with client.stream({"messages": []}) as events:
            assert await anext(events) == TextDelta("a")
        await endpoint.gone.wait()
