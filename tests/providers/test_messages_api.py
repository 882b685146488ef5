"""The Messages API: conversations through a gateway, with a server that rejects as the real one."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from casekit import each_of
from gatewaykit import Answer, Gateway, gateway
from messageskit import (
    KEY,
    MessagesServer,
    Said,
    call,
    messages_server,
    sealed,
    text,
    thinking,
)
from providerkit import request

from causerie.errors import ServiceError
from causerie.http.client import HttpClient
from causerie.providers.dialects import DIALECTS
from causerie.providers.outgoing import outgoing
from causerie.providers.provider import Provider

USER = {"role": "user", "content": "Hi"}
WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Of a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}
CALLS = [
    {"id": "toolu_1", "type": "function",
     "function": {"name": "weather", "arguments": '{"city": "Bonn"}'}},
    {"id": "functions.weather:1", "type": "function",
     "function": {"name": "weather", "arguments": "{}"}},
]  # fmt: skip
RESULTS = [
    {"role": "tool", "tool_call_id": "toolu_1", "content": "rain"},
    {"role": "tool", "tool_call_id": "functions.weather:1", "content": ""},
]
CACHED = {"type": "ephemeral"}
NOW = {"type": "function", "function": {"name": "now", "parameters": {"type": "object"}}}


@asynccontextmanager
async def served(*replies: Said) -> AsyncIterator[tuple[MessagesServer, Gateway]]:
    async with (
        messages_server(*replies) as server,
        gateway(
            server.base_url, dialect="anthropic", credential=KEY, reasoning_object=True
        ) as there,
    ):
        yield server, there


async def asked(there: Gateway, *, stream: bool, **fields: Any) -> Answer:
    return await (there.stream(**fields) if stream else there.plain(**fields))


async def body_of(**fields: Any) -> tuple[dict[str, Any], list[str]]:
    """Return the body that the server accepted, and the changes that were told."""
    async with served(Said([text("ok")])) as (server, there):
        answer = await there.plain(**fields)
        assert (answer.status, server.rejected) == (200, []), answer.error
        told = answer.headers.get("x-request-changes", "")
        return server.bodies[0], told.split(", ") if told else []


@pytest.mark.parametrize("stream", [True, False])
async def test_a_reply_of_every_kind_of_block(stream: bool) -> None:
    said = Said(
        [
            thinking("Hm, well."), text("Let me "), text("look."),
            call("toolu_1", "weather", city="B"), call("toolu_2", "now"),
        ],
        stop_reason="tool_use",
    )  # fmt: skip
    async with served(said) as (_, there):
        answer = await asked(there, stream=stream, tools=[WEATHER, NOW])
    assert (answer.status, answer.text, answer.reasoning) == (200, "Let me look.", "Hm, well.")
    assert answer.calls == {
        0: {"id": "toolu_1", "name": "weather", "arguments": '{"city": "B"}'},
        1: {"id": "toolu_2", "name": "now", "arguments": "{}"},
    }
    assert answer.finish == ["tool_calls"]
    assert answer.usage is not None
    counted = {"prompt_tokens": 420, "completion_tokens": 40, "total_tokens": 460}
    assert {name: answer.usage[name] for name in counted} == counted
    assert answer.usage["prompt_tokens_details"]["cached_tokens"] == 100
    assert answer.usage["completion_tokens_details"]["reasoning_tokens"] == 15


@pytest.mark.parametrize("always_stream", [True, False])
@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("pause_turn", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("refusal", "content_filter"),
        ("a_new_one", "stop"),
    ],
)
async def test_why_a_reply_ends(
    reason: str, finish: str, always_stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not always_stream:
        plain = replace(DIALECTS["anthropic"], streams=False)
        monkeypatch.setattr("gatewaykit.DIALECTS", {"anthropic": plain})
    async with served(Said([text("Hi")], stop_reason=reason)) as (server, there):
        answer = await there.plain()
        assert (answer.text, answer.finish) == ("Hi", [finish])
        assert server.bodies[0].get("stream", False) is always_stream


async def test_thinking_goes_back_where_it_was() -> None:
    """Signed blocks, with text and calls between them, as the next request must have them."""
    first = Said(
        [
            thinking("One."), text("I look."), thinking("Two."), sealed("x"),
            call("toolu_1", "weather"),
        ],
        stop_reason="tool_use",
    )  # fmt: skip
    asks = {"tools": [WEATHER], "reasoning": {"max_tokens": 2000}, "max_tokens": 4000}
    for stream in (True, False):
        async with served(first, Said([text("Rain.")])) as (server, there):
            answer = await asked(there, stream=stream, **asks)
            told = {
                "role": "assistant", "content": answer.text, "reasoning_details": answer.blocks,
                "tool_calls": [
                    {"id": one["id"], "type": "function",
                     "function": {"name": one["name"], "arguments": one["arguments"]}}
                    for one in answer.calls.values()
                ],
            }  # fmt: skip
            if stream:  # as a client puts the pieces of a block together
                told["reasoning_details"] = together(answer.blocks)
            result = {"role": "tool", "tool_call_id": "toolu_1", "content": "rain"}
            answer = await there.plain(messages=[USER, told, result], **asks)
            assert (answer.text, server.rejected) == ("Rain.", [])
            assert server.bodies[1]["messages"][1]["content"] == first.content
            assert "messages" not in answer.headers["x-request-changes"]


def together(blocks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    made: dict[int, dict[str, Any]] = {}
    for block in blocks:
        there = made.setdefault(block["index"], {**block, "text": ""})
        there |= {name: value for name, value in block.items() if name != "text"}
        there["text"] += block.get("text", "")
    for block in made.values():
        if block["type"] == "reasoning.encrypted":
            del block["text"]
    return list(made.values())


async def test_a_conversation_takes_the_form_of_the_api() -> None:
    told = {"role": "assistant", "content": "", "reasoning": "of another", "tool_calls": CALLS}
    body, changes = await body_of(
        messages=[
            {"role": "system", "content": "Be brief."},
            {"role": "developer", "content": "And polite."},
            {"role": "user", "content": "Hi", "name": "bob"},
            told,
            *RESULTS,
            {"role": "user", "content": "  "},
            {"role": "user", "content": "And now?"},
            {"role": "assistant", "content": "Sun. "},
        ],
        tools=[WEATHER],
        stop="END",
        user="u-1",
        top_k=5,
        parallel_tool_calls=False,
    )
    assert body["system"] == [text("Be brief."), text("And polite.")]
    renamed = body["messages"][1]["content"][1]["id"]
    assert body["messages"] == [
        {"role": "user", "content": [text("Hi")]},
        {"role": "assistant", "content": [call("toolu_1", "weather", city="Bonn"),
                                          call(renamed, "weather")]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "toolu_1", "content": [text("rain")]},
            {"type": "tool_result", "tool_use_id": renamed},
            text("And now?"),
        ]},
        {"role": "assistant", "content": [text("Sun.")]},
    ]  # fmt: skip
    schema = WEATHER["function"]["parameters"]  # type: ignore[index]  # a dict
    assert body["tools"] == [
        {"name": "weather", "description": "Of a city.", "input_schema": schema}
    ]
    assert body["tool_choice"] == {"type": "auto", "disable_parallel_tool_use": True}
    assert (body["stop_sequences"], body["metadata"], body["top_k"]) == (
        ["END"], {"user_id": "u-1"}, 5,
    )  # fmt: skip
    assert changes == [
        "messages.role.developer->system", "messages.name dropped", "messages.reasoning dropped",
        "messages[3].tool_calls[1].id rewritten", "messages.content stripped at its end",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("choice", "there"),
    [
        ("none", {"type": "none"}),
        ("auto", {"type": "auto"}),
        ("required", {"type": "any"}),
        (
            {"type": "function", "function": {"name": "weather"}},
            {"type": "tool", "name": "weather"},
        ),
    ],
)
async def test_which_tool_is_called(choice: Any, there: dict[str, Any]) -> None:
    body, changes = await body_of(tools=[WEATHER], tool_choice=choice)
    assert (body["tool_choice"], changes) == (there, [])


async def test_a_tool_without_parameters_takes_an_object() -> None:
    tools = [{"type": "function", "function": {"name": "now", "strict": True}}]
    body, _ = await body_of(tools=tools)
    assert body["tools"] == [{"name": "now", "input_schema": {"type": "object"}, "strict": True}]


async def test_what_is_to_be_cached_is_marked() -> None:
    marked = {"type": "text", "text": "long", "cache_control": CACHED}
    told = {"role": "assistant", "content": None, "tool_calls": CALLS[:1]}
    result = {**RESULTS[0], "content": [marked]}
    body, changes = await body_of(
        messages=[
            {"role": "system", "content": [marked]},
            {"role": "user", "content": [marked]},
            told,
            result,
        ],
        tools=[{**WEATHER, "cache_control": CACHED}],
    )
    assert body["system"] == body["messages"][0]["content"] == [marked]
    assert body["tools"][0]["cache_control"] == CACHED
    [block] = body["messages"][2]["content"]
    assert (block["cache_control"], block["content"]) == (CACHED, [text("long")])
    assert changes == []
    longer = {"type": "text", "text": "x", "cache_control": {"type": "ephemeral", "ttl": "1h"}}
    body, changes = await body_of(messages=[{"role": "user", "content": [longer]}])
    assert body["messages"][0]["content"][0]["cache_control"] == CACHED  # an hour costs more
    assert changes == ["messages[0].content.cache_control.ttl dropped"]


async def test_thinking_is_asked_for() -> None:
    body, _ = await body_of(reasoning={"effort": "high"})
    assert body["thinking"] == {"type": "adaptive", "display": "summarized"}
    assert body["output_config"] == {"effort": "high"}
    body, changes = await body_of(reasoning={"max_tokens": 500}, max_tokens=None)
    assert (body["thinking"]["budget_tokens"], body["max_tokens"]) == (1024, 33_024)
    assert changes[1:] == ["thinking.budget_tokens 500->1024", "max_tokens 33024 added"]
    body, changes = await body_of(reasoning={"max_tokens": 8000}, max_tokens=4000)
    assert (body["thinking"]["budget_tokens"], body["max_tokens"]) == (3999, 4000)
    assert "thinking.budget_tokens 8000->3999" in changes
    body, _ = await body_of(reasoning={"enabled": False})
    assert body["thinking"] == {"type": "disabled"}


async def test_an_answer_by_a_schema() -> None:
    schema = {"type": "object", "properties": {}, "additionalProperties": False}
    shape = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    body, changes = await body_of(response_format=shape, reasoning={"effort": "low"})
    form = {"type": "json_schema", "schema": schema}
    assert body["output_config"] == {"effort": "low", "format": form}
    assert changes[1:] == ["reasoning->output_config.effort"]


async def test_images_of_both_kinds() -> None:
    images = [
        {"type": "image_url", "image_url": {"url": url, "detail": "low"}}
        for url in ("data:image/png;base64,iVBORw0KGgo=", "https://images.example.org/a.png")
    ]
    body, _ = await body_of(messages=[{"role": "user", "content": images}])
    enclosed = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}
    by_address = {"type": "url", "url": "https://images.example.org/a.png"}
    assert body["messages"][0]["content"] == [
        {"type": "image", "source": enclosed},
        {"type": "image", "source": by_address},
    ]


async def test_blocks_of_other_providers_are_left_out() -> None:
    """A signature of another would be refused; the conversation goes on without it."""
    blocks = [
        {"type": "reasoning.text", "text": "a", "signature": "s", "format": "google-gemini-v1"},
        {"type": "reasoning.encrypted", "data": "x", "format": "openai-responses-v1"},
        {"type": "reasoning.summary", "summary": "b", "format": "anthropic-claude-v1"},
    ]
    told = {"role": "assistant", "content": "a", "reasoning_details": blocks}
    body, changes = await body_of(messages=[USER, told, USER])
    assert body["messages"][1]["content"] == [text("a")]
    assert changes == ["messages.reasoning_details dropped"]


@each_of(
    ("status", "error", "ours", "code"),
    [
        (400, ("invalid_request_error", "messages: too odd"), 400, None),
        (400, ("invalid_request_error", "prompt is too long: 208310 tokens > 200000 maximum"),
         400, "context_length_exceeded"),
        (400, ("invalid_request_error", "Your credit balance is too low to access the API."),
         502, "bad_gateway"),
        (401, ("authentication_error", "invalid x-api-key"), 502, "bad_gateway"),
        (403, ("permission_error", "no"), 502, "bad_gateway"),
        (404, ("not_found_error", "model: m"), 502, "bad_gateway"),
        (413, ("request_too_large", "too large"), 400, "context_length_exceeded"),
        (429, ("rate_limit_error", "slow down"), 429, "upstream_rate_limited"),
        (500, ("api_error", "Internal server error"), 502, "bad_gateway"),
        (529, ("overloaded_error", "Overloaded"), 503, "no_endpoint"),
    ],
)  # fmt: skip
async def test_errors(status: int, error: tuple[str, str], ours: int, code: str | None) -> None:
    async with served(*[Said(status=status, error=error)] * 3) as (_, there):
        answer = await there.plain()
    assert answer.error is not None
    assert answer.status == ours
    assert code is None or answer.error["code"] == code, answer.error
    if code == "context_length_exceeded" and status == 400:
        assert answer.error["metadata"]["context_length"] == 200000
    if status == 429:
        assert answer.headers["retry-after"] == "7"


async def test_a_stream_that_breaks_off() -> None:
    broken = Said([text("One, two")], error=("overloaded_error", "Overloaded"), late=True)
    async with served(broken) as (_, there):
        answer = await there.stream()
    assert (answer.status, answer.text, answer.done) == (200, "One, two", 1)
    assert answer.error is not None
    early = Said([], error=("overloaded_error", "Overloaded"), late=True)
    async with served(early, early, early) as (_, there):
        assert (await there.stream()).status == 503


async def test_models_are_listed_with_the_key_in_its_header() -> None:
    async with messages_server() as server:
        listed = ["claude-opus-4-6", "claude-haiku-4-5"]
        assert await models_of(server.base_url, KEY) == listed
        with pytest.raises(ServiceError, match="did not accept our credentials"):
            await models_of(server.base_url, "another")


async def models_of(base_url: str, key: str) -> list[str]:
    provider = Provider("a", HttpClient(base_url), DIALECTS["anthropic"], credential=key)
    try:
        return [each["id"] for each in await provider.listing()]
    finally:
        await provider.close()


def test_what_the_operator_allows_is_sent_or_named() -> None:
    paths = ("messages.content.citations", "messages.mark", "tools.function.defer_loading", "top_a")
    dialect = DIALECTS["anthropic"].passing(paths, ())
    part = {"type": "text", "text": "Hi", "citations": [1]}
    function = WEATHER["function"] | {"defer_loading": True}  # type: ignore[operator]  # a dict
    asked = request(
        messages=[{"role": "user", "content": [part], "mark": 1}],
        tools=[{"type": "function", "function": function}],
        top_a=0.5,
    )
    out = outgoing(asked, dialect, "theirs")
    body = json.loads(out.body)
    assert body["messages"][0]["content"] == [part]
    assert (body["tools"][0]["defer_loading"], body["top_a"]) == (True, 0.5)
    assert "messages.mark dropped" in out.changes
