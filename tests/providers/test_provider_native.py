"""A provider that speaks the client's API: bodies and events pass, and are counted on the way."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from providerkit import request

from causerie.errors import InvalidRequest, ServiceError
from causerie.http.client import HttpClient
from causerie.protocol.events import Event, Finished, PassedBytes, TextDelta, Usage
from causerie.protocol.request import ChatRequest, NativeRequest
from causerie.protocol.response import CompletionIdentity, ResponseContext
from causerie.protocol.sse import EventDecoder
from causerie.providers.dialects import DIALECTS
from causerie.providers.native import NATIVE_APIS, NativeIncoming, read_plain
from causerie.providers.other_replies import ReplyReader
from causerie.providers.provider import Provider
from causerie.providers.target import ProviderTarget
from causerie.shapes.chat_completions.reader import with_reply
from causerie.shapes.messages import reader as messages
from causerie.shapes.responses import reader as responses
from causerie.shapes.shape import PassingReply

USAGE = {"input_tokens": 20, "cache_read_input_tokens": 100, "output_tokens": 7}
BLOCKS = [
    {"type": "message_start", "message": {"id": "msg_1", "type": "message", "role": "assistant",
     "model": "theirs-20270101", "content": [], "usage": USAGE | {"output_tokens": 1}}},
    {"type": "content_block_start", "index": 0,
     "content_block": {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search"}},
    {"type": "content_block_stop", "index": 0},
    {"type": "content_block_start", "index": 1,
     "content_block": {"type": "web_search_tool_result", "content": [{"novelty": 1.50}]}},
    {"type": "content_block_stop", "index": 1},
    {"type": "ping"},
    {"type": "content_block_start", "index": 2, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 2, "delta": {"type": "text_delta", "text": "Hé"}},
    {"type": "content_block_delta", "index": 2,
     "delta": {"type": "citations_delta", "citation": {"cited_text": "x"}}},
    {"type": "content_block_stop", "index": 2},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": USAGE},
    {"type": "message_stop"},
]  # fmt: skip
RESPONSE = {
    "id": "resp_1", "object": "response", "model": "theirs-20270101", "status": "completed",
    "output": [
        {"type": "web_search_call", "id": "ws_1", "status": "completed"},
        {"type": "message", "id": "m", "content": [{"type": "output_text", "text": "Hello"}]},
        {"type": "function_call", "call_id": "c", "name": "anything", "arguments": "{}"},
    ],
    "usage": {"input_tokens": 20, "output_tokens": 7, "total_tokens": 27,
              "input_tokens_details": {"cached_tokens": 5},
              "output_tokens_details": {"reasoning_tokens": 3}},
}  # fmt: skip
ITEMS = [
    {"type": "response.created", "response": {**RESPONSE, "status": "in_progress", "output": [],
     "usage": None}, "sequence_number": 0},
    {"type": "response.output_item.added", "output_index": 0,
     "item": {"type": "web_search_call", "id": "ws_1"}},
    {"type": "response.web_search_call.searching", "output_index": 0},
    {"type": "response.output_text.delta", "output_index": 1, "delta": "Hello"},
    {"type": "response.output_item.added", "output_index": 2,
     "item": {"type": "function_call", "call_id": "c", "name": "anything", "arguments": ""}},
    {"type": "response.function_call_arguments.delta", "output_index": 2, "delta": "{}"},
    {"type": "response.completed", "response": RESPONSE, "sequence_number": 9},
]  # fmt: skip


def stream(events: Sequence[Any]) -> bytes:
    return b"".join(
        b"event: %b\ndata: %b\n\n" % (event["type"].encode(), msgspec.json.encode(event))
        for event in events
    )


@dataclass
class Asked:
    """What a provider was sent."""

    heads: list[str] = field(default_factory=list)
    bodies: list[Any] = field(default_factory=list)


@asynccontextmanager
async def provider(
    dialect: str, reply: bytes, *, content_type: str = "text/event-stream", cut: int = 0
) -> AsyncIterator[tuple[ProviderTarget, Asked]]:
    """A provider that sends ``reply``, in pieces of ``cut`` bytes if that is not 0."""
    asked = Asked()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        length = int(head.lower().partition("content-length: ")[2].partition("\r\n")[0])
        asked.heads.append(head)
        asked.bodies.append(json.loads(await reader.readexactly(length)))
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\n" % content_type.encode())
        writer.write(b"content-length: %d\r\n\r\n" % len(reply))
        for start in range(0, len(reply), cut or len(reply)):
            writer.write(reply[start : start + (cut or len(reply))])
            if cut:
                await writer.drain()
                await asyncio.sleep(0)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()[:2]
    there = Provider("them", HttpClient(f"http://{host}:{port}/v1"), DIALECTS[dialect])
    try:
        yield ProviderTarget(there, "theirs"), asked
    finally:
        await there.close()
        server.close()


def native(shape: str, *, streamed: bool, **fields: Any) -> ChatRequest:
    """A request as its reader leaves it, with the body that was sent."""
    body = {"model": "ours", "stream": streamed, **fields}
    there = NativeRequest(shape, body, {"anthropic-beta": "new-2027"})
    return msgspec.structs.replace(request(stream=streamed), native=there)


async def events_of(target: ProviderTarget, asked: ChatRequest) -> list[Event]:
    found: list[Event] = []
    async with target.generate(asked) as reply:
        assert reply.verbatim
        found += await anext(aiter(reply.events))
        async for batch in reply.events:
            found += batch
    return found


def together(events: Sequence[Event]) -> list[Event]:
    """The events, where texts that follow each other are one, as are their bytes."""
    found: list[Event] = []
    for event in events:
        match found[-3:], event:
            case [PassedBytes(one), TextDelta(said), PassedBytes(other)], TextDelta(more):
                found[-3:] = [PassedBytes(one + other), TextDelta(said + more)]
            case _:
                found.append(event)
    return found


def renamed(events: Sequence[Any]) -> bytes:
    """The events as the client gets them: its own name of the model, nothing else is changed."""
    return stream(events).replace(b"theirs-20270101", b"ours")


CASES: Sequence[tuple[str, str, list[Any]]] = [
    ("anthropic", "messages", BLOCKS),
    ("openai", "responses", ITEMS),
    ("causerie", "messages", BLOCKS),
    ("causerie", "responses", ITEMS),
]
each_case = pytest.mark.parametrize(
    ("dialect", "shape", "events"), CASES, ids=[f"{case[0]}-{case[1]}" for case in CASES]
)


@pytest.mark.parametrize("cut", [0, 1, 7])
@each_case
async def test_events_pass_unchanged_and_are_counted(
    dialect: str, shape: str, events: list[Any], cut: int
) -> None:
    async with provider(dialect, stream(events), cut=cut) as (target, asked):
        found = await events_of(target, native(shape, streamed=True))
    assert b"".join(one.data for one in found if isinstance(one, PassedBytes)) == renamed(events)
    usage = found[-1]
    assert isinstance(usage, Usage)
    assert (usage.completion, usage.estimated) == (7, False)
    assert (usage.prompt, usage.cached) == ((120, 100) if shape == "messages" else (20, 5))
    assert "".join(one.text for one in found if isinstance(one, TextDelta)) in ("Hé", "Hello")
    finished = [one.reason for one in found if isinstance(one, Finished)]
    assert finished == ["stop" if shape == "messages" else "tool_calls"]
    assert asked.heads[0].startswith(f"POST /v1/{shape} ")
    assert "anthropic-beta: new-2027\r\n" in asked.heads[0]


@each_case
async def test_the_end_waits_until_usage_is_safe(
    dialect: str, shape: str, events: list[Any]
) -> None:
    context = ResponseContext(CompletionIdentity("c", 0, "r"), "ours", "")
    encoder = PassingReply(with_reply(request()).reply).encoder(context)
    async with provider(dialect, stream(events)) as (target, _):
        found = await events_of(target, native(shape, streamed=True))
    before = b"".join(encoder.feed([event]) for event in found)
    last = 2 if shape == "messages" else 1
    assert (before, encoder.end()) == (renamed(events[:-last]), renamed(events[-last:]))


_PIECES = {
    "messages": [
        *({"type": "content_block_delta", "index": 0, "delta": delta} for delta in (
            {"type": "text_delta", "text": "é<think>"}, {"type": "text_delta", "text": ""},
            {"type": "thinking_delta", "thinking": "hm"}, {"type": "citations_delta"},
        )),
        {"type": "content_block_delta", "delta": {"type": "text_delta", "text": 1}},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": USAGE},
    ],
    "responses": [
        {"type": "response.output_text.delta", "delta": '"a\n', "sequence_number": 4},
        {"type": "response.output_text.delta", "delta": "", "logprobs": []},
        {"type": "response.output_text.delta", "delta": None},
        {"type": "response.reasoning_text.delta", "delta": "hm"},
        {"type": "response.output_text.delta", "delta": "b", "object": "response"},
    ],
}  # fmt: skip


@pytest.mark.parametrize(("dialect", "shape"), [case[:2] for case in CASES])
@given(data=st.data(), named=st.booleans())
def test_texts_that_are_read_the_quick_way_say_the_same(
    data: st.DataObject, named: bool, dialect: str, shape: str
) -> None:
    drawn = data.draw(st.lists(st.sampled_from(_PIECES[shape]), max_size=8))
    wire = [msgspec.json.encode(piece) for piece in drawn]
    if named:
        wire = EventDecoder(lines=data.draw(st.booleans())).feed(stream(drawn))
    quick, slow = (
        NativeIncoming(native(shape, streamed=True), DIALECTS[dialect]) for _ in range(2)
    )
    found: list[Event] = []
    expected: list[Event] = []
    with suppress(ServiceError):
        quick.feed(wire, found)
    with patch.object(ReplyReader, "text", lambda *_: ""), suppress(ServiceError):
        slow.feed(wire, expected)
    assert together(found) == together(expected)
    assert quick.usage == slow.usage


async def test_data_of_several_lines_stays_one_event() -> None:
    lines = b'event: ping\ndata: {"type": "ping",\ndata: "novelty": 1}\n\n'
    start, rest = stream(BLOCKS[:1]), stream(BLOCKS[1:])
    async with provider("anthropic", start + lines + rest) as (target, _):
        found = await events_of(target, native("messages", streamed=True))
    passed = b"".join(one.data for one in found if isinstance(one, PassedBytes))
    assert passed == renamed(BLOCKS[:1]) + lines + rest


async def test_events_without_empty_lines_between_pass_once() -> None:
    first, *others = BLOCKS
    joined = b"".join(b"data: %b\n" % msgspec.json.encode(one) for one in others[:3]) + b"\n"
    async with provider("anthropic", stream([first]) + joined + stream(others[3:])) as (target, _):
        found = await events_of(target, native("messages", streamed=True))
    passed = b"".join(one.data for one in found if isinstance(one, PassedBytes))
    assert passed == renamed(BLOCKS)


async def test_other_targets_are_encoded() -> None:
    context = ResponseContext(CompletionIdentity("c", 0, "r"), "ours", "")
    reply = with_reply(request()).reply
    encoder, usual = PassingReply(reply).encoder(context), reply.encoder(context)
    batch = [TextDelta("Hello"), Finished("stop"), Usage(1, 1)]
    assert encoder.feed(batch) == usual.feed(batch)
    assert encoder.end() == usual.end() != b""


async def test_whole_replies_pass_unchanged() -> None:
    sent = msgspec.json.encode(RESPONSE)
    async with provider("openai", sent, content_type="application/json") as (target, _):
        found = await events_of(target, native("responses", streamed=False))
    whole = sent.replace(b"theirs-20270101", b"ours")
    assert [one.data for one in found if isinstance(one, PassedBytes)] == [whole]
    assert found[-1] == Usage(20, 7, 5, 3)
    context = ResponseContext(CompletionIdentity("c", 0, "r"), "ours", "")
    passing = PassingReply(with_reply(request()).reply)
    assert msgspec.json.encode(passing.completion(context, found)) == whole


async def test_a_whole_reply_to_a_stream_is_encoded() -> None:
    """Its bytes are no events."""
    sent = msgspec.json.encode(RESPONSE)
    async with provider("openai", sent, content_type="application/json") as (target, _):
        found = await events_of(target, native("responses", streamed=True))
    context = ResponseContext(CompletionIdentity("c", 0, "r"), "ours", "")
    reply = with_reply(request()).reply
    encoder, usual = PassingReply(reply).encoder(context), reply.encoder(context)
    others = [event for event in found if not isinstance(event, PassedBytes)]
    assert encoder.feed(found) == usual.feed(others)
    assert encoder.end() == usual.end() != b""


async def test_long_whole_replies_pass_unchanged() -> None:
    long = "A long text. " * 20_000
    body = {**_WHOLE["messages"], "content": [{"type": "text", "text": long}]}
    usage = {"input_tokens": 20, "output_tokens": 60_000}
    sent = msgspec.json.encode({**body, "usage": usage})
    async with provider("anthropic", sent, content_type="application/json") as (target, _):
        found = await events_of(target, native("messages", streamed=False))
    assert len(found) > 4
    context = ResponseContext(CompletionIdentity("c", 0, "r"), "ours", "")
    passing = PassingReply(with_reply(request()).reply)
    whole = sent.replace(b"theirs-20270101", b"ours")
    assert msgspec.json.encode(passing.completion(context, found)) == whole


@each_case
async def test_what_a_provider_charges_is_between_it_and_us(
    dialect: str, shape: str, events: list[Any]
) -> None:
    """A service like this one says what it charges its customer, which is us."""
    told = {"cost": 0.5, "cost_details": {"upstream_inference_cost": 0.4}, "is_byok": False}
    *others, last = events if shape == "responses" else events[:-1]
    holder = last.get("response", last)
    with patch.dict(holder, usage=holder["usage"] | told):
        sent = stream([*others, last, *events[len(others) + 1 :]])
    async with provider(dialect, sent) as (target, _):
        found = await events_of(target, native(shape, streamed=True))
    assert b"".join(one.data for one in found if isinstance(one, PassedBytes)) == renamed(events)
    if shape == "responses":
        with patch.dict(RESPONSE, usage=holder["usage"] | told):
            sent = msgspec.json.encode(RESPONSE)
        async with provider(dialect, sent, content_type="application/json") as (target, _):
            found = await events_of(target, native(shape, streamed=False))
        whole = msgspec.json.encode(RESPONSE).replace(b"theirs-20270101", b"ours")
        assert [one.data for one in found if isinstance(one, PassedBytes)] == [whole]


async def test_tools_in_tools_and_in_items_name_no_host_and_no_model() -> None:
    server = {"type": "mcp", "server_url": "https://inside.example", "authorization": "secret"}
    search = {"type": "web_search", "search_context_size": "low"}
    image = {"type": "image_generation", "model": "dear", "size": "auto"}
    space = {"type": "namespace", "name": "n", "tools": [server, search]}
    found = {"type": "tool_search_output", "call_id": "c", "tools": [space, server]}
    asked = native(
        "responses", streamed=False, tools=[image, space, search], input=[found, {"role": "user"}]
    )
    sent = msgspec.json.encode(RESPONSE)
    async with (
        provider("openai", sent, content_type="application/json") as (target, seen),
        target.generate(asked) as reply,
    ):
        await anext(aiter(reply.events))
        changes = reply.changes
    kept = {**space, "tools": [search]}
    plain = {"type": "image_generation", "size": "auto"}
    assert seen.bodies[0]["tools"] == [plain, kept, search]
    assert seen.bodies[0]["input"] == [{**found, "tools": [kept]}, {"role": "user"}]
    assert list(changes) == [
        "tools[0].model dropped", "tools[1].tools[0] dropped",
        "input[0].tools[0].tools[0] dropped", "input[0].tools[1] dropped",
    ]  # fmt: skip


_WHOLE = {
    "messages": {
        "id": "msg_1", "type": "message", "model": "theirs-20270101", "stop_sequence": None,
        "content": [{"type": "text", "text": "Hé "}], "stop_reason": "end_turn",
        "usage": {"input_tokens": 20, "output_tokens": 7, "cache_read_input_tokens": 100},
    },
    "responses": {
        **RESPONSE, "error": None, "output": [RESPONSE["output"][1]],
        "usage": {"input_tokens": 20, "output_tokens": 7, "total_tokens": 27,
                  "input_tokens_details": {"cached_tokens": 5}},
    },
}  # fmt: skip
_CHANGES = {
    "messages": [
        {}, {"stop_reason": "max_tokens"}, {"stop_reason": "refusal"}, {"stop_reason": None},
        {"stop_reason": "stop_sequence", "stop_sequence": "é"}, {"error": {"type": "api_error"}},
        {"content": []}, {"content": [{"type": "text", "text": ""}]},
        {"content": [{"type": "tool_use", "id": "t", "name": "f", "input": {"a": 1}}]},
        {"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b", "x": "model"}]},
        {"usage": {"input_tokens": 0, "output_tokens": 0}}, {"usage": None},
        {"usage": {"input_tokens": 20, "output_tokens": 999_999}},
        {"usage": {"input_tokens": 9, "output_tokens": 7, "cache_creation_input_tokens": 3}},
        {"usage": {"input_tokens": 999_999_999, "output_tokens": 7}},
    ],
    "responses": [
        {}, {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}},
        {"status": "failed", "error": {"code": "server_error", "message": "Oh."}},
        {"output": RESPONSE["output"]}, {"output": []}, {"usage": None},
        {"output": [{"type": "message", "content": [{"type": "refusal", "refusal": "No."}]}]},
        {"usage": {"input_tokens": 20, "output_tokens": 0}},
        {"usage": {"input_tokens": 20, "output_tokens": 999_999}},
        {"usage": {"input_tokens": 20, "output_tokens": 7,
                   "input_tokens_details": {"cached_tokens": 21},
                   "output_tokens_details": {"reasoning_tokens": 8}}},
        {"usage": {"input_tokens": 20, "output_tokens": 7,
                   "input_tokens_details": {"cached_tokens": 5, "cache_write_tokens": 9},
                   "output_tokens_details": {"reasoning_tokens": 3}}},
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("shape", "changed"), [(shape, each) for shape in _CHANGES for each in _CHANGES[shape]]
)
@pytest.mark.parametrize("limit", [None, 5, 500])
def test_whole_replies_that_are_read_the_quick_way_say_the_same(
    shape: str, changed: dict[str, Any], limit: int | None
) -> None:
    asked = msgspec.structs.replace(native(shape, streamed=False), max_tokens=limit)
    assert asked.native is not None
    body = msgspec.json.encode({**_WHOLE[shape], **changed})
    quick = read_plain(body, asked.native, asked)
    if not changed:
        assert (quick is not None) == (limit != 5)
    if quick is not None:
        assert list(quick[0]) == NativeIncoming(asked, DIALECTS["causerie"]).whole(body)


@pytest.mark.parametrize(("dialect", "shape", "events"), CASES)
async def test_a_stream_that_nobody_asked_for_is_encoded(
    dialect: str, shape: str, events: list[Any]
) -> None:
    async with provider(dialect, stream(events)) as (target, _):
        found = await events_of(target, native(shape, streamed=False))
    reply = with_reply(request()).reply
    context = ResponseContext(CompletionIdentity("c", 0, "r"), "ours", "")
    said: Any = PassingReply(reply).completion(context, found)
    assert said.choices[0].message.content in ("Hé", "Hello")


def test_plain_requests_have_listed_fields_only() -> None:
    for api, plain in {"messages": messages, "responses": responses}.items():
        fields = {each.name for each in msgspec.structs.fields(plain._PlainBody)}
        assert fields - {"model", "store"} <= NATIVE_APIS[api].fields


async def test_listed_fields_pass_and_others_are_named() -> None:
    tools = [
        {"type": "web_search_20260209", "name": "web_search", "max_uses": 3},
        {"type": "mcp", "server_url": "https://inside.example", "authorization": "secret"},
        {"name": "f", "input_schema": {"type": "object"}, "novelty": {"a": 1}},
    ]
    turns = [{"role": "user", "content": [{"type": "novelty", "cache_control": {"ttl": "1h"}}]}]
    asked = native(
        "messages",
        streamed=False,
        messages=turns,
        tools=tools,
        max_tokens=5,
        thinking={"type": "adaptive", "display": "updates"},
        service_tier="priority",
        mcp_servers=[{"url": "https://inside.example"}],
        container="c",
    )
    message = msgspec.json.encode({
        "type": "message", "model": "m", "content": [{"type": "text", "text": "ok"}],
        "stop_reason": "end_turn", "usage": USAGE,
    })  # fmt: skip
    async with (
        provider("anthropic", message, content_type="application/json") as (target, seen),
        target.generate(asked) as reply,
    ):
        await anext(aiter(reply.events))
        changes = reply.changes
    assert seen.bodies == [
        {
            "model": "theirs", "stream": False, "messages": turns, "tools": [tools[0], tools[2]],
            "max_tokens": 5, "thinking": {"type": "adaptive", "display": "updates"},
        }
    ]  # fmt: skip
    assert list(changes) == [
        "service_tier dropped", "mcp_servers dropped", "container dropped", "tools[1] dropped",
    ]  # fmt: skip


async def test_nothing_is_stored_at_the_provider() -> None:
    sent = msgspec.json.encode(RESPONSE)
    async with provider("openai", sent, content_type="application/json") as (target, seen):
        asked = native("responses", streamed=False, store=True, input="Hi")
        async with target.generate(asked) as reply:
            await anext(aiter(reply.events))
            assert list(reply.changes) == ["store true->false"]
    assert seen.bodies[0]["store"] is False
    assert seen.bodies[0]["input"] == "Hi"


@pytest.mark.parametrize(
    ("dialect", "shape", "field", "limit", "told"),
    [
        ("anthropic", "messages", "max_tokens", 32_000, ["max_tokens -1 dropped"]),
        ("openai", "responses", "max_output_tokens", None, ["max_output_tokens -1 dropped"]),
    ],
)
async def test_a_limit_that_is_none_is_not_sent(
    dialect: str, shape: str, field: str, limit: int | None, told: list[str]
) -> None:
    asked = native(shape, streamed=True, **{field: -1})
    events = BLOCKS if shape == "messages" else ITEMS
    async with (
        provider(dialect, stream(events)) as (target, seen),
        target.generate(asked) as reply,
    ):
        await anext(aiter(reply.events))
        changes = list(reply.changes)
    assert (seen.bodies[0].get(field), changes) == (limit, told)


@each_case
async def test_a_stream_that_breaks_off_is_a_failure(
    dialect: str, shape: str, events: list[Any]
) -> None:
    async with provider(dialect, stream(events[:-2])) as (target, _):
        with pytest.raises(ServiceError, match="before it was complete"):
            await events_of(target, native(shape, streamed=True))


async def test_an_address_inside_the_network_is_refused() -> None:
    content = [{"type": "image_url", "image_url": {"url": "https://127.0.0.1/x.png"}}]
    asked = request(messages=[{"role": "user", "content": content}])
    asked = msgspec.structs.replace(asked, native=NativeRequest("messages", {"model": "ours"}))
    async with provider("anthropic", b"{}") as (target, seen):
        with pytest.raises(InvalidRequest):
            await events_of(target, asked)
    assert seen.bodies == []


async def test_a_provider_of_another_api_gets_the_translation() -> None:
    message = b'{"choices":[{"message":{"content":"ok"},"finish_reason":"stop"}]}'
    async with (
        provider("generic", message, content_type="application/json") as (target, seen),
        target.generate(native("messages", streamed=False)) as reply,
    ):
        assert not reply.verbatim
        await anext(aiter(reply.events))
    assert seen.heads[0].startswith("POST /v1/chat/completions ")
    assert seen.bodies[0]["messages"] == [{"role": "user", "content": "Hi"}]
