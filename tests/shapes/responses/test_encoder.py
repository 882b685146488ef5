"""The encoder of Responses: whole replies, streams, and that both say the same."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from responseskit import CONTEXT, check_event, check_response, events_of, put_together, streamed

from causerie.errors import ErrorDetails, InternalError
from causerie.protocol.events import (
    Event,
    Finished,
    PassedBytes,
    ReasoningDelta,
    TextDelta,
    TokenLogprob,
    ToolCallDelta,
    ToolCallStarted,
    Usage,
)
from causerie.protocol.reasoning import seal_of
from causerie.shapes.responses.encoder import ResponseEncoder, ResponseReply
from causerie.shapes.responses.tools import ToolForm
from causerie.shapes.sealed_reasoning import unseal
from causerie.shapes.shape import PassingReply

FORMS = {
    "patch": ToolForm("custom", "patch"),
    "agents__spawn": ToolForm("function", "spawn", "agents"),
    "agents__note": ToolForm("custom", "note", "agents"),
    "tool_search": ToolForm("tool_search", "tool_search"),
}
PLAIN = ResponseReply(lambda: {"text": {"format": {"type": "text"}}})
RICH = msgspec.structs.replace(PLAIN, forms=FORMS, encrypted=True, summarized=True)
USAGE = Usage(prompt=7, completion=5, cached=3, reasoning=2)


def whole(reply: ResponseReply, events: Sequence[Event]) -> Any:
    body = msgspec.json.decode(msgspec.json.encode(reply.completion(CONTEXT, events)))
    check_response(body)
    return body


def cut(events: Sequence[Event], sizes: Sequence[int]) -> list[Event]:
    """The events with their texts in pieces of these sizes, in turns."""
    out: list[Event] = []
    turn = 0
    for event in events:
        name = "arguments" if isinstance(event, ToolCallDelta) else "text"
        text = getattr(event, name, "")
        if not text or getattr(event, "logprobs", ()) or getattr(event, "blocks", ()):
            out.append(event)
            continue
        while text:
            size = sizes[turn % len(sizes)]
            turn += 1
            out.append(msgspec.structs.replace(event, **{name: text[:size]}))
            text = text[size:]
    return out


@st.composite
def replies(draw: st.DrawFn) -> list[Event]:
    """Events as targets make them: parts in any order, calls with arguments of any form."""
    events: list[Event] = []
    texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
    calls = 0
    for part in draw(st.lists(st.sampled_from(["think", "say", "call"]), max_size=5)):
        if part == "think":
            events.append(ReasoningDelta(draw(texts)))
        elif part == "say":
            events.append(TextDelta(draw(texts)))
        else:
            name = draw(st.sampled_from([*FORMS, "weather"]))
            events.append(ToolCallStarted(calls, f"call_{calls}", name))
            key = draw(st.sampled_from(["input", "other"]))
            arguments = json.dumps({key: draw(texts)}, ensure_ascii=draw(st.booleans()))
            events.append(ToolCallDelta(calls, arguments))
            calls += 1
    reason = draw(st.sampled_from(["stop", "tool_calls", "length", "content_filter"]))
    return [*events, Finished(reason), USAGE]


@given(replies(), st.lists(st.integers(1, 5), min_size=1, max_size=4), st.booleans())
def test_any_cut_of_a_stream_says_what_the_whole_reply_says(
    events: list[Event], sizes: list[int], rich: bool
) -> None:
    reply = RICH if rich else msgspec.structs.replace(PLAIN, forms=FORMS)
    expected = whole(reply, events)
    told = streamed(reply, [[event] for event in cut(events, sizes)])
    for event in told:
        check_event(event)
    response = told[-1]["response"]
    assert told[-1]["type"] == f"response.{response['status']}"
    for body in (expected, response):
        body["completed_at"] = None
    assert response == expected
    assert put_together(told) == expected["output"]


def test_events_of_a_text_in_their_order() -> None:
    told = streamed(PLAIN, [[TextDelta("Hel"), TextDelta("lo")], [Finished("stop"), USAGE]])
    assert [event["type"].removeprefix("response.") for event in told] == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]
    assert told[-1]["response"]["usage"] == {
        "input_tokens": 7,
        "input_tokens_details": {"cached_tokens": 3, "cache_write_tokens": 0},
        "output_tokens": 5,
        "output_tokens_details": {"reasoning_tokens": 2},
        "total_tokens": 12,
    }


def test_completed_is_sent_by_end_alone() -> None:
    encoder = PLAIN.encoder(CONTEXT)
    fed = encoder.feed([TextDelta("Hi"), Finished("stop"), USAGE])
    assert b"response.output_item.done" in fed
    assert b"response.completed" not in fed
    assert b"response.completed" in encoder.end()


@pytest.mark.parametrize(("reason", "told"), [("length", "max_output_tokens")])
def test_a_reply_that_was_cut_is_incomplete(reason: Any, told: str) -> None:
    events = [ReasoningDelta("Hm"), TextDelta("Hel"), Finished(reason), USAGE]
    body = whole(PLAIN, events)
    assert body["status"] == "incomplete"
    assert body["incomplete_details"] == {"reason": told}
    assert [item["status"] for item in body["output"]] == ["completed", "incomplete"]
    assert body["completed_at"] is None


def test_a_custom_call_streams_plain_input() -> None:
    written = {"input": 'say "hi"\n\U0001f600 \\ end'}
    arguments = json.dumps(written)
    events: list[Event] = [ToolCallStarted(0, "call_1", "patch")]
    events += [ToolCallDelta(0, character) for character in arguments]
    told = streamed(RICH, [events, [Finished("tool_calls"), USAGE]])
    deltas = [e["delta"] for e in told if e["type"] == "response.custom_tool_call_input.delta"]
    assert "".join(deltas) == written["input"]
    assert len(deltas) > 10
    [item] = told[-1]["response"]["output"]
    assert item["type"] == "custom_tool_call"
    assert (item["call_id"], item["name"]) == ("call_1", "patch")
    assert item["input"] == written["input"]
    assert "namespace" not in item


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ('{"patch": "x"}', "x"),
        ('{"other": 1, "input": "x"}', "x"),
        ('{"a": "x", "b": "y"}', '{"a": "x", "b": "y"}'),
        ("{}", "{}"),
        ('{"input": "cut \\ud83d', "cut "),
        ('{"input": "lone \\ud83d."}', "lone \ufffd."),
    ],
)
def test_other_arguments_of_a_custom_call(arguments: str, text: str) -> None:
    events = [ToolCallStarted(0, "c", "patch"), ToolCallDelta(0, arguments)]
    [item] = whole(RICH, [*events, Finished("tool_calls"), USAGE])["output"]
    assert item["input"] == text


def test_a_function_of_a_namespace_comes_back_with_it() -> None:
    events = [ToolCallStarted(0, "c", "agents__spawn"), ToolCallDelta(0, '{"a": 1}')]
    [item] = whole(RICH, [*events, Finished("tool_calls"), USAGE])["output"]
    assert (item["name"], item["namespace"]) == ("spawn", "agents")
    assert item["arguments"] == '{"a": 1}'


def test_a_search_for_tools_comes_back_as_one() -> None:
    events = [ToolCallStarted(0, "c", "tool_search"), ToolCallDelta(0, '{"query": "mail"}')]
    [item] = whole(RICH, [*events, Finished("tool_calls"), USAGE])["output"]
    assert item["type"] == "tool_search_call"
    assert item["execution"] == "client"
    assert item["arguments"] == {"query": "mail"}


def test_calls_beyond_the_limit_are_left_out() -> None:
    events: list[Event] = []
    for index in range(3):
        events += [ToolCallStarted(index, f"c{index}", "weather"), ToolCallDelta(index, "{}")]
    reply = msgspec.structs.replace(PLAIN, most_calls=2)
    body = whole(reply, [*events, Finished("tool_calls"), USAGE])
    assert [item["call_id"] for item in body["output"]] == ["c0", "c1"]


def test_calls_whose_arguments_arrive_mixed() -> None:
    events = [
        ToolCallStarted(0, "c0", "weather"),
        ToolCallDelta(0, '{"a"'),
        ToolCallStarted(1, "c1", "weather"),
        ToolCallDelta(1, '{"b": 2}'),
        ToolCallDelta(0, ": 1}"),
        Finished("tool_calls"),
        USAGE,
    ]
    told = streamed(PLAIN, [events])
    items = put_together(told)
    assert [item["arguments"] for item in items] == ['{"a": 1}', '{"b": 2}']
    assert told[-1]["response"]["output"] == items


def test_reasoning_is_content_unless_a_summary_was_asked_for() -> None:
    events = [ReasoningDelta("Let me "), ReasoningDelta("see."), TextDelta("4"), Finished("stop")]
    [thought, _] = whole(PLAIN, [*events, USAGE])["output"]
    assert thought["content"] == [{"type": "reasoning_text", "text": "Let me see."}]
    assert thought["summary"] == []
    assert "encrypted_content" not in thought
    told = streamed(PLAIN, [events, [USAGE]])
    assert not [event for event in told if "reasoning" in event["type"]]
    [thought, _] = whole(RICH, [*events, USAGE])["output"]
    assert thought["summary"] == [{"type": "summary_text", "text": "Let me see."}]
    assert "content" not in thought
    sealed = unseal(thought["encrypted_content"])
    assert sealed is not None
    assert sealed.text == "Let me see."


def test_data_of_a_provider_is_in_encrypted_content() -> None:
    block = seal_of("c", {"google": {"thought_signature": "xyz"}})
    events = [ReasoningDelta("", 0, (block,)), ToolCallStarted(0, "c", "weather")]
    ended = [ToolCallDelta(0, "{}"), Finished("tool_calls"), USAGE]
    [thought, call] = whole(RICH, [*events, *ended])["output"]
    sealed = unseal(thought["encrypted_content"])
    assert sealed is not None
    assert list(sealed.blocks) == [block]
    [call] = whole(PLAIN, [*events, *ended])["output"]
    assert call["type"] == "function_call"


def test_hidden_reasoning_is_nowhere() -> None:
    context = msgspec.structs.replace(CONTEXT, reasoning_visible=False)
    events = [ReasoningDelta("Secret"), TextDelta("4"), Finished("stop"), USAGE]
    body = msgspec.json.encode(RICH.completion(context, events))
    assert b"reasoning" not in body.replace(b"reasoning_tokens", b"").replace(b'"reasoning":', b"")


def test_log_probabilities() -> None:
    token = TokenLogprob("4", -0.1, b"4", (TokenLogprob("5", -2.0, b"5"),))
    events = [TextDelta("4", (token,)), Finished("stop"), USAGE]
    [message] = whole(PLAIN, events)["output"]
    [told] = message["content"][0]["logprobs"]
    assert told["token"] == "4"
    assert told["top_logprobs"] == [{"token": "5", "logprob": -2.0, "bytes": [53]}]
    assert put_together(streamed(PLAIN, [events])) == [message]


ERROR = ErrorDetails(message="Broke.", type="upstream_error", param=None, code=502)


@pytest.mark.parametrize("begun", [True, False])
def test_a_broken_stream_fails(begun: bool) -> None:
    encoder = PLAIN.encoder(CONTEXT)
    fed = encoder.feed([TextDelta("Hel")]) if begun else b""
    told = events_of(fed + encoder.broken(ERROR) + encoder.end())
    for event in told:
        check_event(event)
    assert [event["type"] for event in told[-2:]] == ["error", "response.failed"]
    response = told[-1]["response"]
    assert response["status"] == "failed"
    assert response["error"] == {"code": "server_error", "message": "Broke."}
    assert [item["status"] for item in response["output"]] == ["incomplete"] * begun
    put_together(told)


def test_a_stream_that_passed_and_breaks_fails_as_what_it_was() -> None:
    """Its end has the id of the provider's response and goes on with its numbers."""
    encoder = PassingReply(PLAIN, ResponseEncoder.resume).encoder(CONTEXT)
    theirs = [
        {"type": "response.created", "sequence_number": 0,
         "response": {"metadata": {"id": "other"}, "id": "resp_theirs"}},
        {"type": "response.output_text.delta", "sequence_number": 1,
         "delta": '"sequence_number": 9'},
    ]  # fmt: skip
    fed = encoder.feed([
        PassedBytes(f"event: {one['type']}\ndata: {json.dumps(one)}\n\n".encode()) for one in theirs
    ])  # fmt: skip
    told = events_of(fed + encoder.broken(ERROR) + encoder.end())
    assert told[:2] == theirs
    for event in told[2:]:
        check_event(event)
    assert [event["type"] for event in told[2:]] == ["error", "response.failed"]
    assert told[-1]["response"]["id"] == "resp_theirs"


def test_a_reply_without_usage_is_an_error() -> None:
    with pytest.raises(InternalError):
        PLAIN.completion(CONTEXT, [TextDelta("Hi"), Finished("stop")])
