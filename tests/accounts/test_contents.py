"""Contents of one request: as it was sent, the reply folded, both within bounds."""

from __future__ import annotations

from typing import Any

import msgspec

from causerie.metering.meter import MOST_BYTES, Contents
from causerie.protocol.events import (
    Event,
    Finished,
    ReasoningDelta,
    TextDelta,
    TokenLogprob,
    ToolCallDelta,
    ToolCallStarted,
    Usage,
)
from causerie.protocol.request import ChatRequest, Message
from causerie.protocol.response import CompletionIdentity, ResponseContext
from causerie.shapes.chat_completions.encoder import completion

USED = Usage(7, 3)


def contents(*events: Event, **document: object) -> Contents:
    """Of a request that was answered with these events, one at a time."""
    request = ChatRequest("small", (Message("user", "Hi."),), sent=document)
    made = Contents(
        request,
        ResponseContext(CompletionIdentity("chatcmpl-1", 1, "req-1"), "small", ""),
        completion,
    )
    for event in events:
        made.see([event])
    return made


def reply(made: Contents) -> dict[str, Any]:
    told = made.reply(USED)
    assert not told.cut
    found: dict[str, Any] = msgspec.json.decode(told.text)
    return found


def test_a_request_is_kept_as_it_was_sent_and_no_more_of_it() -> None:
    asked = {
        "messages": [{"role": "user", "content": "Hé <b>", "odd": [1, None]}],
        "tools": [{"type": "function", "function": {"name": "f"}}],
        "response_format": {"type": "json_object"},
    }
    kept = contents(**asked, user="somebody", metadata={"a": "b"}).request()
    assert msgspec.json.decode(kept.text) == asked
    assert not kept.cut


def test_a_stream_is_kept_as_one_completion() -> None:
    made = contents(
        ReasoningDelta("Hm"),
        ReasoningDelta("m."),
        TextDelta("Good "),
        TextDelta("day."),
        ToolCallStarted(0, "call_1", "f"),
        ToolCallDelta(0, '{"a":'),
        ToolCallDelta(0, "1}"),
        Finished("tool_calls"),
        Usage(5, 9),
    )
    kept = reply(made)
    [choice] = kept["choices"]
    assert choice["message"]["content"] == "Good day."
    assert choice["message"]["reasoning_content"] == "Hmm."
    assert choice["message"]["tool_calls"][0]["function"] == {"name": "f", "arguments": '{"a":1}'}
    assert (choice["finish_reason"], kept["usage"]["completion_tokens"]) == ("tool_calls", 9)


def test_a_reply_that_broke_off_says_so() -> None:
    kept = reply(contents(TextDelta("Whole."), Finished("stop"), TextDelta("Half", choice=1)))
    assert [one["finish_reason"] for one in kept["choices"]] == ["stop", "error"]
    assert kept["usage"]["total_tokens"] == USED.prompt + USED.completion


def test_a_reply_that_began_anew_is_kept_from_there() -> None:
    made = contents(TextDelta("x" * 2 * MOST_BYTES), Finished("stop"))
    made.forget()
    made.see([TextDelta("New."), Finished("length"), Usage(3, 4)])
    assert not made.reply(Usage(0, 0)).cut
    [choice] = reply(made)["choices"]
    assert (choice["message"]["content"], choice["finish_reason"]) == ("New.", "length")


def test_without_a_reply_none_is_kept() -> None:
    assert contents().reply(USED).text == ""


def test_a_long_request_is_cut_between_characters() -> None:
    kept = contents(messages=["é" * MOST_BYTES]).request()
    assert kept.cut
    assert MOST_BYTES - 2 < len(kept.text.encode()) <= MOST_BYTES
    assert kept.text.endswith("é")


def test_a_long_reply_is_cut_and_what_follows_is_not_held() -> None:
    made = contents(*[TextDelta("x" * 1024) for _ in range(2000)], Finished("length"), Usage(1, 2))
    kept = made.reply(USED)
    assert kept.cut
    assert len(kept.text) <= MOST_BYTES
    assert msgspec.json.decode(kept.text)["choices"][0]["finish_reason"] == "length"


def test_log_probabilities_count_too() -> None:
    token = TokenLogprob("x", -1.0, b"x", tuple(TokenLogprob("y", -2.0, b"y") for _ in range(20)))
    made = contents(*[TextDelta("x", (token,)) for _ in range(1000)], Finished("stop"), Usage(1, 2))
    kept = made.reply(USED)
    assert kept.cut
    assert len(kept.text) <= MOST_BYTES


def test_it_says_how_much_memory_it_holds() -> None:
    request = ChatRequest("small", (Message("user", "x" * 1000),))
    made = Contents(
        request,
        ResponseContext(CompletionIdentity("chatcmpl-1", 1, "req-1"), "small", ""),
        completion,
    )
    made.see([TextDelta("y" * 500)])
    assert made.weight == 1500
