"""Replies of the Messages API: a stream, however it is cut, is the plain reply put together."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from causerie.errors import InternalError, InvalidRequest, Overloaded, UpstreamFailed
from causerie.protocol.events import (
    Event,
    Finished,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    ToolCallStarted,
    Usage,
)
from causerie.protocol.reasoning import seal_of
from causerie.protocol.response import CompletionIdentity, ResponseContext
from causerie.shapes.messages.encoder import MessagesReply, error_body
from causerie.shapes.messages.reader import MESSAGES
from causerie.shapes.sealed_reasoning import reasoning_of

CONTEXT = ResponseContext(CompletionIdentity("msg_1", 1, "req_1"), "m", "f")
USAGE = Usage(prompt=10, completion=7, cached=3, reasoning=2, written=4)
END: list[Event] = [Finished("stop"), USAGE]
PLAIN = MessagesReply()
SIGNED = {"type": "reasoning.text", "format": "anthropic-claude-v1", "index": 0}


def whole(events: Sequence[Event], reply: MessagesReply = PLAIN) -> dict[str, Any]:
    return json.loads(msgspec.json.encode(reply.completion(CONTEXT, events)))  # type: ignore[no-any-return]


def streamed(batches: Iterable[Sequence[Event]], reply: MessagesReply = PLAIN) -> dict[str, Any]:
    """Put a stream together as clients do, and check the order of its events."""
    encoder = reply.encoder(CONTEXT)
    data = b"".join([*map(encoder.feed, batches)])
    assert b"message_delta" not in data
    return put_together(data + encoder.end())


def put_together(data: bytes) -> dict[str, Any]:
    message: dict[str, Any] = {}
    inputs: dict[int, str] = {}
    stopped: set[int] = set()
    last = ""
    for event in data.decode().split("\n\n")[:-1]:
        name, line = event.split("\n")
        value = json.loads(line.removeprefix("data: "))
        last = value["type"]
        assert name == f"event: {last}"
        match value:
            case {"type": "message_start"}:
                assert not message
                message = value["message"]
            case {"type": "content_block_start"}:
                assert value["index"] == len(message["content"])
                message["content"].append(value["content_block"])
            case {"type": "content_block_delta", "index": index, "delta": delta}:
                assert index not in stopped
                if delta["type"] == "input_json_delta":
                    inputs[index] = inputs.get(index, "") + delta["partial_json"]
                else:
                    [field] = delta.keys() - {"type"}
                    message["content"][index][field] += delta[field]
            case {"type": "content_block_stop", "index": index}:
                assert index not in stopped
                stopped.add(index)
            case {"type": "message_delta"}:
                assert len(stopped) == len(message["content"])
                message |= value["delta"]
                message["usage"] |= value["usage"]
    assert last == "message_stop"
    for index, text in inputs.items():
        message["content"][index]["input"] = json.loads(text)
    return message


def test_blocks_in_the_order_in_which_they_came() -> None:
    events: list[Event] = [
        ReasoningDelta("Hm"), ReasoningDelta("."), TextDelta("Hel"), TextDelta("lo"),
        ToolCallStarted(0, "call_1", "add"), ToolCallDelta(0, '{"a": '),
        ToolCallStarted(1, "call_2", "sub"), ToolCallDelta(1, "{}"), ToolCallDelta(0, "1}"),
        Finished("tool_calls"), USAGE,
    ]  # fmt: skip
    message = whole(events)
    signature = message["content"][0].pop("signature")
    assert reasoning_of({"thinking": "Hm.", "signature": signature}, 0) == [{"text": "Hm."}]
    assert reasoning_of({"thinking": "Hm!", "signature": signature}, 0) == []
    assert message == {
        "id": "msg_1", "type": "message", "role": "assistant", "model": "m",
        "content": [
            {"type": "thinking", "thinking": "Hm."},
            {"type": "text", "text": "Hello"},
            {"type": "tool_use", "id": "call_1", "name": "add", "input": {"a": 1}},
            {"type": "tool_use", "id": "call_2", "name": "sub", "input": {}},
        ],
        "stop_reason": "tool_use", "stop_sequence": None,
        "usage": {
            "input_tokens": 3, "cache_creation_input_tokens": 4, "cache_read_input_tokens": 3,
            "output_tokens": 7, "output_tokens_details": {"thinking_tokens": 2},
        },
    }  # fmt: skip


TEXT = st.text(st.characters(codec="utf-8"), max_size=6)
BLOCKS = st.builds(
    lambda text, extra: ({**SIGNED, "text": text} | extra,),
    TEXT,
    st.sampled_from([{}, {"signature": "theirs"}, {"index": 1}]),
) | st.sampled_from([
    ({"type": "reasoning.encrypted", "data": "x", "format": "anthropic-claude-v1"},),
    ({"type": "reasoning.encrypted", "data": "x", "format": "other"},),
])  # fmt: skip
PIECES = st.one_of(
    st.builds(TextDelta, TEXT),
    st.builds(ReasoningDelta, TEXT),
    st.builds(lambda blocks: ReasoningDelta(str(blocks[0].get("text", "")), 0, blocks), BLOCKS),
)
ARGUMENTS = st.dictionaries(TEXT, st.integers() | TEXT, max_size=3).map(json.dumps)


@st.composite
def replies(draw: st.DrawFn) -> list[Event]:
    events: list[Event] = draw(st.lists(PIECES, max_size=8))
    for index, text in enumerate(draw(st.lists(ARGUMENTS, max_size=3))):
        extra = draw(st.sampled_from([None, {"google": {"thought_signature": "s"}}]))
        events.append(ToolCallStarted(index, f"call_{index}", "add", extra=extra))
        cut = draw(st.integers(0, len(text)))
        events += [ToolCallDelta(index, text[:cut]), ToolCallDelta(index, text[cut:])]
    return [*events, *END]


@given(replies(), st.data(), st.booleans())
def test_any_cut_of_a_stream_is_the_plain_reply(
    events: list[Event], data: st.DataObject, omits: bool
) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(events)), max_size=4)))
    edges = [0, *cuts, len(events)]
    batches = [events[a:b] for a, b in itertools.pairwise(edges)]
    finer: list[list[Event]] = [[piece] for event in events for piece in pieces(event)]
    reply = MessagesReply(omits_thinking=omits)
    assert streamed(batches, reply) == streamed(finer, reply) == whole(events, reply)


def pieces(event: Event) -> list[Event]:
    if isinstance(event, TextDelta | ReasoningDelta) and not getattr(event, "blocks", ()):
        return [structs.replace(event, text=letter) for letter in event.text]
    return [event]


def test_reasoning_that_is_not_shown_comes_back_all_the_same() -> None:
    reply = MessagesReply(omits_thinking=True)
    [block, _] = whole([ReasoningDelta("Hm."), TextDelta("Hello"), *END], reply)["content"]
    assert block["thinking"] == ""
    assert reasoning_of(block, 0) == [{"text": "Hm."}]
    hidden = structs.replace(CONTEXT, reasoning_visible=False)
    message = PLAIN.completion(hidden, [ReasoningDelta("Hm."), TextDelta("Hello"), *END])
    assert [type(each).__name__ for each in message.content] == ["TextBlock"]


def test_what_a_provider_needs_back_survives() -> None:
    signed = ({**SIGNED, "text": "Hm.", "signature": "theirs"},)
    sealed = ({"type": "reasoning.encrypted", "data": "x", "format": "openai", "id": "rs_1"},)
    extra = {"google": {"thought_signature": "s"}}
    events: list[Event] = [
        ReasoningDelta("Hm.", 0, signed), ReasoningDelta("", 0, sealed),
        ReasoningDelta("", 0, (seal_of("call_1", extra),)),  # as readers of providers say it
        ToolCallStarted(0, "call_1", "add", extra=extra), ToolCallDelta(0, "{}"), *END,
    ]  # fmt: skip
    first, second, third, _ = whole(events)["content"]
    assert first == {"type": "thinking", "thinking": "Hm.", "signature": "theirs"}
    assert reasoning_of(second, 1) == [{**sealed[0], "index": 1}]
    [block] = reasoning_of(third, 2)
    assert (block["id"], block["data"]) == ("call_1", 'extra_content={"google":'
                                           '{"thought_signature":"s"}}')  # fmt: skip
    hidden = PLAIN.completion(structs.replace(CONTEXT, reasoning_visible=False), events)
    assert [type(each).__name__ for each in hidden.content] == [
        "RedactedThinkingBlock", "ToolUseBlock",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("end", "reason", "sequence"),
    [
        (Finished("stop"), "end_turn", None),
        (Finished("stop", stop_sequence="END"), "stop_sequence", "END"),
        (Finished("stop", stop_sequence="other"), "end_turn", None),
        (Finished("length"), "max_tokens", None),
        (Finished("content_filter"), "refusal", None),
        (Finished("tool_calls"), "tool_use", None),
    ],
)
def test_reasons(end: Finished, reason: str, sequence: str | None) -> None:
    message = whole([TextDelta("x"), end, USAGE], MessagesReply(stop_sequences=("END",)))
    assert (message["stop_reason"], message["stop_sequence"]) == (reason, sequence)


def test_arguments_that_were_cut_are_an_object() -> None:
    events: list[Event] = [
        ToolCallStarted(0, "call_1", "add"), ToolCallDelta(0, '{"a": "x'), Finished("length"), USAGE
    ]  # fmt: skip
    assert whole(events)["content"][0]["input"] == {"malformed": '{"a": "x'}


def test_a_broken_stream_ends_in_an_error() -> None:
    encoder = PLAIN.encoder(CONTEXT)
    encoder.feed([TextDelta("x")])
    data = encoder.broken(UpstreamFailed("The provider left.").error())
    assert data.startswith(b"event: error\ndata: ")
    error = json.loads(data.split(b"data: ")[1])
    assert error["error"]["type"] == "api_error"
    assert (error["request_id"], encoder.end()) == ("req_1", b"")
    with pytest.raises(InternalError):
        PLAIN.completion(CONTEXT, [TextDelta("x"), Finished("stop")])


def test_tokens_of_the_prompt_that_are_known_at_the_start() -> None:
    for known, told in ((USAGE, 3), (structs.replace(USAGE, estimated=True), 0)):
        context = structs.replace(CONTEXT, used=lambda known=known: known)
        start = PLAIN.encoder(context).feed([TextDelta("x")]).split(b"\n")[1]
        usage = json.loads(start.removeprefix(b"data: "))["message"]["usage"]
        assert (usage["input_tokens"], usage["output_tokens"]) == (told, 0)


def test_errors_in_the_words_of_this_api() -> None:
    wrong = InvalidRequest("`x` is wrong.", param="x")
    assert msgspec.json.decode(msgspec.json.encode(MESSAGES.error(wrong, "req_1"))) == {
        "type": "error",
        "error": {
            "type": "invalid_request_error", "message": "`x` is wrong.",
            "details": {"error_code": "invalid_value", "param": "x"},
        },
        "request_id": "req_1",
    }  # fmt: skip
    assert MESSAGES.error_status(wrong) == 400
    busy = Overloaded("Full.")
    assert (MESSAGES.error_status(busy), error_body(busy.error(), "r").error.type) == (
        529, "overloaded_error",
    )  # fmt: skip
    late = UpstreamFailed("Late.", code="upstream_timeout", status=504)
    assert (MESSAGES.error_status(late), error_body(late.error(), "r").error.type) == (
        504, "timeout_error",
    )  # fmt: skip
