"""Reasoning that a provider needs back: kept in the reply, sent back in its own form."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from casekit import each_of
from gatewaykit import gateway
from provider import ScriptedProvider, piece, running
from providerkit import F, joined, read, reader, request, sent
from providerkit import chunk as streamed

from causerie.protocol.events import Event, Finished, ReasoningDelta, TextDelta, Usage
from causerie.protocol.reasoning import Block, are_plain, block_of, seal_of, unsealed
from causerie.protocol.reasoning import joined as together
from causerie.protocol.response import CompletionIdentity, ResponseContext
from causerie.protocol.sse import EventDecoder
from causerie.providers.dialects import DIALECTS
from causerie.shapes.chat_completions.encoder import ChunkEncoder, completion

SIGNED = {
    "type": "reasoning.text",
    "text": "so",
    "signature": "c2ln",
    "format": "anthropic-claude-v1",
    "index": 0,
}
HIDDEN = {
    "type": "reasoning.encrypted",
    "data": "b3BhcXVl",
    "format": "openai-responses-v1",
    "id": "rs_1",
    "index": 1,
}
SUMMARY = {"type": "reasoning.summary", "summary": "so", "index": 0}
KEPT = ("generic", "causerie", "openrouter", "anthropic")
TAKES_NONE = ("bedrock", "openai", "azure", "azure-deployments")
CALL = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
RESULT = {"role": "tool", "tool_call_id": "call_1", "content": "2"}
USER = {"role": "user", "content": "q"}


def framed(*, router_names: bool, visible: bool = True) -> ResponseContext:
    return ResponseContext(
        CompletionIdentity("chatcmpl-1", 1, "r"), "m", "f", visible, router_names
    )


def plain(frame: ResponseContext, events: list[Event]) -> dict[str, Any]:
    [choice] = msgspec.json.decode(msgspec.json.encode(completion(frame, events)))["choices"]
    message: dict[str, Any] = choice["message"]
    return message


def deltas(frame: ResponseContext, events: list[Event]) -> list[dict[str, Any]]:
    chunks = map(msgspec.json.decode, EventDecoder().feed(ChunkEncoder(frame).feed(events)))
    return [choice["delta"] for one in chunks for choice in one["choices"]]


REPLY: list[Event] = [
    ReasoningDelta("so", blocks=({**SIGNED, "signature": None},)),
    ReasoningDelta("", blocks=({"type": "reasoning.text", "signature": "c2ln", "index": 0},)),
    ReasoningDelta("", blocks=(HIDDEN,)),
    TextDelta("Hi"),
    Finished("stop"),
    Usage(1, 2),
]


def test_a_plain_answer_has_them_whole() -> None:
    message = plain(framed(router_names=True), REPLY)
    assert message["reasoning"] == message["reasoning_content"] == "so"
    assert message["reasoning_details"] == [SIGNED, HIDDEN]


def test_a_stream_has_them_as_they_came() -> None:
    first, *pieces = deltas(framed(router_names=True), REPLY)
    assert first == {"role": "assistant", "content": ""}
    assert [one.get("reasoning") for one in pieces] == ["so", None, None, None, None]
    assert [one.get("reasoning_content") for one in pieces] == ["so", None, None, None, None]
    blocks = [block for one in pieces for block in one.get("reasoning_details", ())]
    assert together(blocks) == [SIGNED, HIDDEN]


def test_text_alone_is_a_block_for_clients_that_read_only_blocks() -> None:
    events: list[Event] = [ReasoningDelta("a"), ReasoningDelta("b"), Finished("stop"), Usage(1, 2)]
    [one] = plain(framed(router_names=True), events)["reasoning_details"]
    assert one == block_of("ab")
    assert [one["reasoning_details"] for one in deltas(framed(router_names=True), events)[1:3]] == [
        [block_of("a")],
        [block_of("b")],
    ]


@pytest.mark.parametrize("visible", [True, False])
def test_other_doors_say_reasoning_once(visible: bool) -> None:
    frame = framed(router_names=False, visible=visible)
    assert plain(frame, REPLY).get("reasoning_content") == ("so" if visible else None)
    told = {name for one in (plain(frame, REPLY), *deltas(frame, REPLY)) for name in one}
    assert told <= {"role", "content", "reasoning_content"}
    assert len(deltas(frame, REPLY)) == (4 if visible else 3)


def test_what_is_hidden_is_hidden_by_every_name() -> None:
    frame = framed(router_names=True, visible=False)
    assert plain(frame, REPLY) == {"role": "assistant", "content": "Hi"}
    assert deltas(frame, REPLY) == [{"role": "assistant", "content": ""}, {"content": "Hi"}, {}]


def test_read_from_an_provider() -> None:
    pieces = [streamed(reasoning="so", reasoning_details=[SIGNED]), streamed("stop", content="Hi")]
    events = joined(read(reader(DIALECTS["openrouter"]), *pieces))
    assert events[:2] == [ReasoningDelta("so", blocks=(SIGNED,)), TextDelta("Hi")]
    late = [streamed(content="Hi"), streamed("stop", reasoning_details=[HIDDEN, "nonsense", {}])]
    events = read(reader(DIALECTS["openrouter"]), *late)
    assert events[:2] == [TextDelta("Hi"), ReasoningDelta("", blocks=(HIDDEN,))]


@pytest.mark.parametrize("block", [block_of("so"), {"type": "reasoning.text", "text": "so"}])
def test_text_alone_is_not_kept_as_a_block(block: Block) -> None:
    assert are_plain([block])
    events = read(reader(), streamed(reasoning_details=[block]), streamed("stop", content="Hi"))
    assert events[0] == ReasoningDelta("so")


@each_of("dialect", DIALECTS)
@each_of("blocks", [[SIGNED], [SUMMARY, HIDDEN], [HIDDEN]])
def test_sent_back(dialect: str, blocks: list[dict[str, Any]]) -> None:
    told: dict[str, Any] = {"role": "assistant", "content": None, "tool_calls": [CALL]}
    without, _ = sent(dialect, messages=[USER, told, RESULT], tools=[F], reasoning_effort="none")
    told["reasoning_details"] = blocks
    body, changes = sent(dialect, messages=[USER, told, RESULT], tools=[F])
    message = body["messages"][1]
    if dialect in KEPT:
        assert message == told
        assert changes == []
        return
    assert "reasoning_details" not in message
    assert "messages.reasoning_details dropped" in changes
    if dialect == "deepseek":  # which refuses calls without their reasoning
        assert message["reasoning_content"] == (" " if blocks == [HIDDEN] else "so")
    elif blocks == [HIDDEN]:
        assert message == without["messages"][1]
    elif dialect == "mistral":
        assert message["content"][0]["thinking"] == [{"type": "text", "text": "so"}]
    elif dialect not in TAKES_NONE:
        assert "so" in (message.get("reasoning_content"), message.get("reasoning"))


@each_of("dialect", DIALECTS)
def test_blocks_that_are_only_text_go_back_as_text(dialect: str) -> None:
    text = {"role": "assistant", "content": "a", "reasoning_content": "so", "reasoning": "so"}
    blocks = {**text, "reasoning_details": [block_of("so")]}
    assert sent(dialect, messages=[USER, text]) == sent(dialect, messages=[USER, blocks])


def test_a_model_of_ours_reads_what_can_be_read() -> None:
    told: dict[str, Any] = {"role": "assistant", "content": "a", "reasoning_details": [SIGNED]}
    assert request(messages=[USER, told]).messages[1].reasoning_content == "so"
    told["reasoning"] = "first"
    assert request(messages=[USER, told]).messages[1].reasoning_content == "first"
    assert request(messages=[USER, told | {"reasoning_content": "x"}]).messages[
        1
    ].reasoning_content == ("x")


@pytest.mark.parametrize(("details", "word"), [("so", "dropped"), (["so"], "repaired")])
def test_what_is_no_block_is_left_out(details: object, word: str) -> None:
    told = {"role": "assistant", "content": "a", "reasoning": "r", "reasoning_details": details}
    changes = request(messages=[USER, told, USER]).changes
    assert list(changes) == [f"messages[1].reasoning_details {word}"]


@pytest.mark.parametrize("stream", [True, False])
async def test_through_a_gateway(stream: bool) -> None:
    script = [
        piece(role="assistant", content="", reasoning="so", reasoning_details=[SIGNED]),
        piece(reasoning_details=[HIDDEN]),
        piece(content="Hi"),
        piece("stop"),
    ]
    async with (
        running(ScriptedProvider([script])) as provider,
        gateway(provider.base_url, dialect="llama-server", reasoning_object=True) as front,
    ):
        answer = await (front.stream() if stream else front.plain())
    assert answer.reasoning == answer.alias == "so"
    assert together(answer.blocks) == [SIGNED, HIDDEN]
    assert answer.text == "Hi"


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("pieces", [["<think>", "so", "</think>Hi"], ["<think>so</think>Hi"]])
async def test_reasoning_inside_tags_has_every_name_of_a_router(
    stream: bool, pieces: list[str]
) -> None:
    script = [piece(role="assistant", content=""), *(piece(content=text) for text in pieces)]
    async with (
        running(ScriptedProvider([[*script, piece("stop")]])) as provider,
        gateway(provider.base_url, dialect="llama-server", reasoning_object=True) as front,
    ):
        answer = await (front.stream() if stream else front.plain())
    assert (answer.reasoning, answer.alias, answer.text) == ("so", "so", "Hi")
    assert together(answer.blocks) == [block_of("so")]


SIGNATURE = {"google": {"thought_signature": "EjQKMg=="}}


@pytest.mark.parametrize("whole", [True, False])
def test_what_stands_beside_a_call_is_kept(whole: bool) -> None:
    said = {"id": "call_9", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    said["extra_content"] = SIGNATURE
    source = reader(tools=[F])
    if whole:
        message = {"role": "assistant", "content": None, "tool_calls": [said]}
        body = {"choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]}
        events = source.whole(msgspec.json.encode(body))
    else:
        events = read(source, streamed(tool_calls=[said]), streamed("tool_calls"))
    for router_names in (True, False):
        frame = framed(router_names=router_names)
        [call] = plain(frame, events)["tool_calls"]
        assert (call["id"], call["extra_content"]) == ("call_9", SIGNATURE)
        pieces = [one for delta in deltas(frame, events) for one in delta.get("tool_calls", ())]
        assert [one.get("extra_content") for one in pieces] == [SIGNATURE, None]
        assert ("reasoning_details" in plain(frame, events)) == router_names


@each_of("dialect", DIALECTS)
@each_of("way", ["beside", "block", "both"])
def test_what_stands_beside_a_call_goes_back(dialect: str, way: str) -> None:
    """Clients keep it alongside the call, or in the block that says the same."""
    call = CALL if way == "block" else CALL | {"extra_content": SIGNATURE}
    told: dict[str, Any] = {"role": "assistant", "content": "", "tool_calls": [call]}
    if way != "beside":
        told["reasoning_details"] = [seal_of("call_1", SIGNATURE)]
    body, changes = sent(dialect, messages=[USER, told, RESULT], tools=[F])
    [back] = body["messages"][1]["tool_calls"]
    assert "reasoning_details" not in body["messages"][1]
    if dialect in ("generic", "causerie"):
        assert back == CALL | {"extra_content": SIGNATURE}
        assert changes == []
    else:
        assert "extra_content" not in back
        assert "messages.tool_calls.extra_content dropped" in changes


def test_a_seal_that_takes_long_to_read_is_lost() -> None:
    """Whoever sends it may have made it, of numbers that take microseconds each."""
    assert unsealed([seal_of("call_1", SIGNATURE)]) == ([], {"call_1": SIGNATURE})
    assert unsealed([seal_of("call_1", {"a": [1e289]})]) == ([], {})
    assert unsealed([seal_of("call_1", {"a": list(range(9_000))})]) == ([], {})


def test_other_blocks_stay_beside_a_seal() -> None:
    told: dict[str, Any] = {"role": "assistant", "content": "", "tool_calls": [CALL]}
    told["reasoning_details"] = [SIGNED, seal_of("call_1", SIGNATURE), HIDDEN]
    body, _ = sent("openrouter", messages=[USER, told, RESULT], tools=[F])
    assert body["messages"][1]["reasoning_details"] == [SIGNED, HIDDEN]
    for broken in ("{broken", "[" * 9999):
        told["reasoning_details"] = [{**HIDDEN, "data": f"extra_content={broken}"}]
        body, _ = sent("generic", messages=[USER, told, RESULT], tools=[F])
        assert body["messages"][1]["tool_calls"] == [CALL]
