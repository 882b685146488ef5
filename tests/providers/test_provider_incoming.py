"""Replies as servers really send them, into events in the contract's order."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import pytest
from casekit import each_of
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from providerkit import QUESTION, F, chunk, fed, in_order, joined, read, reader

from causerie.chat.parser import Separation
from causerie.errors import ErrorClass, InvalidRequest, Overloaded, ServiceError, UpstreamFailed
from causerie.protocol.events import (
    Event,
    Finished,
    FinishReason,
    Partial,
    ReasoningDelta,
    TextDelta,
    TokenLogprob,
    ToolCallDelta,
    ToolCallStarted,
    Usage,
)
from causerie.protocol.request import ChatRequest, Message
from causerie.protocol.sse import EventDecoder
from causerie.providers.dialect import Dialect
from causerie.providers.dialects import DIALECTS
from causerie.providers.incoming import Incoming
from causerie.providers.target import read_fast_path

USAGE = {"prompt_tokens": 5, "completion_tokens": 7}
TOLD = Usage(prompt=5, completion=7)
LAST = {"choices": [], "usage": USAGE}


def said(*chunks: Any, **fields: Any) -> list[Event]:
    """Everything but the usage."""
    events = read(reader(**fields), *chunks)
    in_order(events)
    return joined(events[:-1])


def call(index: int | None = 0, **fields: Any) -> dict[str, Any]:
    """A piece with one piece of a call."""
    function = {key: fields.pop(key) for key in ("name", "arguments") if key in fields}
    piece = {**({} if index is None else {"index": index}), "function": function, **fields}
    return chunk(tool_calls=[piece])


STOP = [TextDelta("Hi"), Finished("stop")]
ASKED = ChatRequest("m", (Message("user", "Hi"),))


def test_what_has_been_read_is_free_at_once() -> None:
    """A circle would keep every reply in memory until somebody looks for circles."""
    gc.collect()
    gc.disable()
    try:
        read(reader(), chunk(content="Hi"), call(id="a", name="f"), chunk("tool_calls"), LAST)
        assert gc.collect() == 0
    finally:
        gc.enable()


@each_of(
    "chunks",
    [
        [chunk(role="assistant", content=""), chunk(content="Hi"), chunk("stop"), LAST],
        [chunk(role="assistant", content=None), chunk(content="H"), chunk("stop", content="i")],
        [chunk(content="Hi"), {**chunk("stop"), "usage": USAGE}],  # usage with choices
        [chunk(content="Hi"), {**chunk("stop"), "usage": None}, LAST],
        [chunk(content="Hi"), chunk("stop"), chunk(), chunk("stop"), LAST],  # two ends
        [chunk(content="Hi"), LAST],  # none
        [chunk("stop"), chunk(content="Hi"), LAST],  # text behind the end
        [{"choices": []}, {"choices": None, "id": "x"}, chunk(content="Hi"), chunk("stop")],
        [chunk("eos", content="Hi")],
        [{"choices": [{"delta": {"content": "Hi"}}]}, chunk("stop")],  # no index
        [{"choices": [{"index": "0", "delta": {"content": "Hi"}}]}],  # a number as text
        [{"choices": [{"index": 0, "delta": {"content": "Hi"}, "finish_reason": ""}]}],
        [{"choices": [{"index": 0, "message": {"content": "Hi"}, "finish_reason": "stop"}]}],
        [{"choices": [{"index": None, "delta": {"content": "Hi"}, "finish_reason": "stop"}]}],
        [chunk(content="Hi"), {"choices": [{"index": 0, "delta": [], "finish_reason": "stop"}]}],
        [chunk(content="Hi", tool_calls={}), {**chunk("stop"), "usage": []}, {"choices": {}}],
        [chunk(content=[{"type": "text", "text": "H"}, "i"]), chunk("stop")],
        [chunk(refusal="Hi"), chunk("stop")],
        [chunk("tool_calls", content="Hi")],  # none came
        [{"object": "chat.completion.chunk", "choices": []}, chunk(content="Hi")],
        [{"type": "ping"}, chunk(content="H"), {"type": "ping"}, chunk("stop", content="i")],
    ],
)
def test_a_plain_answer(chunks: list[dict[str, Any]]) -> None:
    assert said(*chunks) == STOP


def test_a_reply_that_has_both_a_piece_and_a_message() -> None:
    """A stream's message repeats all that was said, a plain reply's piece is empty."""
    choice = {"index": 0, "finish_reason": "stop", "message": {"content": "Hi"}}
    empty = {**choice, "delta": {"role": "assistant", "content": ""}}
    body = json.dumps({"choices": [empty], "usage": USAGE}).encode()
    assert read_fast_path(body, None) is None
    assert reader().whole(body) == [*STOP, TOLD]
    first = {"index": 0, "delta": {"content": "H"}, "message": {"content": "H"}}
    last = {**choice, "delta": {"content": "i"}}
    assert said({"choices": [first]}, {"choices": [last]}, {"choices": [empty]}) == STOP


def test_usage_is_last_and_once() -> None:
    events = read(
        reader(), {**chunk(content="Hi"), "usage": {"prompt_tokens": 5}}, chunk("stop"), LAST
    )
    assert events[-1] == TOLD
    assert [event for event in events if isinstance(event, Usage)] == [TOLD]


@each_of(
    ("usage", "cached", "reasoning"),
    [
        ({**USAGE, "prompt_tokens_details": {"cached_tokens": 3}}, 3, 0),
        ({**USAGE, "prompt_tokens_details": None, "prompt_cache_hit_tokens": 2}, 2, 0),
        ({**USAGE, "cached_tokens": 2}, 2, 0),
        ({**USAGE, "prompt_tokens_details": {"cached_tokens": 3}, "cached_tokens": 2}, 3, 0),
        ({**USAGE, "completion_tokens_details": {"reasoning_tokens": 4}}, 0, 4),
        ({**USAGE, "reasoning_tokens": 4}, 0, 4),
        ({**USAGE, "prompt_tokens_details": [], "reasoning_tokens": 4}, 0, 4),
        ({**USAGE, "completion_tokens_details": {"reasoning_tokens": 99}}, 0, 7),
    ],
)
def test_details_of_usage(usage: dict[str, Any], cached: int, reasoning: int) -> None:
    told = Usage(prompt=5, completion=7, cached=cached, reasoning=reasoning)
    end = {"index": 0, "delta": {}, "finish_reason": "stop"}
    for last in ({"choices": [], "usage": usage}, {"choices": [{**end, "usage": usage}]}):
        assert read(reader(), chunk("stop", content="Hi"), last)[-1] == told
    choice = {"message": {"content": "Hi"}, "finish_reason": "stop"}
    body = json.dumps({"choices": [choice], "usage": usage}).encode()
    quick = read_fast_path(body, None)
    assert quick is None or quick[0][-1] == told
    assert reader().whole(body)[-1] == told


def test_tokens_written_into_a_cache_are_counted_plain_and_streamed() -> None:
    details = {"cached_tokens": 1, "cache_write_tokens": 3}
    usage = {**USAGE, "prompt_tokens_details": details}
    told = Usage(prompt=5, completion=7, cached=1, written=3)
    assert read(reader(), chunk("stop", content="Hi"), {"choices": [], "usage": usage})[-1] == told
    choice = {"message": {"content": "Hi"}, "finish_reason": "stop"}
    body = json.dumps({"choices": [choice], "usage": usage}).encode()
    assert read_fast_path(body, None) is None
    assert reader().whole(body)[-1] == told


@pytest.mark.parametrize("completion", [7, 0])
def test_reasoning_that_is_counted_beside_the_completion_is_part_of_it(completion: int) -> None:
    """As the total tells: some servers mean the answer alone by the completion."""
    told = {
        "prompt_tokens": 5,
        "completion_tokens": completion,
        "total_tokens": 105 + completion,
        "completion_tokens_details": {"reasoning_tokens": 100},
    }
    usage = Usage(prompt=5, completion=completion + 100, reasoning=100)
    assert read(reader(), chunk("stop", content="Hi"), {"choices": [], "usage": told})[-1] == usage
    choice = {"message": {"content": "Hi"}, "finish_reason": "stop"}
    body = json.dumps({"choices": [choice], "usage": told}).encode()
    assert read_fast_path(body, None) is None
    assert reader().whole(body)[-1] == usage
    inside = {**told, "completion_tokens": 107, "total_tokens": 112}
    assert read(reader(), chunk("stop", content="Hi"), {"choices": [], "usage": inside})[
        -1
    ] == Usage(prompt=5, completion=107, reasoning=100)


@each_of("count", [0, -1, -(2**40), 2**31, 2**62])
@each_of("name", ["prompt_tokens", "completion_tokens"])
def test_a_count_that_no_reply_has_is_not_believed(name: str, count: int) -> None:
    told = {**USAGE, name: count}
    streamed = read(reader(), chunk(content="Hi"), chunk("stop"), {"choices": [], "usage": told})
    choice = {"message": {"content": "Hi"}, "finish_reason": "stop"}
    body = json.dumps({"choices": [choice], "usage": told}).encode()
    assert read_fast_path(body, None) is None
    for usage in (streamed[-1], reader().whole(body)[-1]):
        assert isinstance(usage, Usage)
        assert usage.estimated
        assert {usage.prompt, usage.completion} <= {1, 5, 7, 23}


def test_arguments_that_are_an_empty_list_are_none() -> None:
    """As an empty object is written in some languages."""
    events = said(call(id="a", name="f", arguments=[]), chunk("tool_calls"), LAST)
    assert events[:2] == [ToolCallStarted(0, "a", "f"), ToolCallDelta(0, "{}")]


@pytest.mark.parametrize("told", ["5 and 7", 12, [5, 7], {"prompt_tokens": "many"}])
def test_usage_that_cannot_be_read_costs_no_reply(told: object) -> None:
    events = read(reader(), chunk(content="Hi"), chunk("stop"), {"choices": [], "usage": told})
    assert isinstance(events[-1], Usage)
    assert events[-1].estimated
    for odd in ({"cached_tokens": 2.5}, "none", [1]):
        usage = {**USAGE, "prompt_tokens_details": odd}
        assert (
            read(reader(), chunk("stop", content="Hi"), {"choices": [], "usage": usage})[-1] == TOLD
        )


def test_usage_of_each_of_several_choices_is_not_that_of_the_request() -> None:
    ends = [{**chunk("stop", index=index, content="Hi")["choices"][0], "usage": USAGE}
            for index in range(2)]  # fmt: skip
    usage = read(reader(n=2), {"choices": ends})[-1]
    assert isinstance(usage, Usage)
    assert usage.estimated


@pytest.mark.parametrize("count", [-3, 2**40])
def test_shares_that_no_reply_has_are_not_believed(count: int) -> None:
    told = {
        **USAGE,
        "prompt_tokens_details": {"cached_tokens": count},
        "completion_tokens_details": {"reasoning_tokens": count},
    }
    events = read(reader(), chunk("stop", content="Hi"), {"choices": [], "usage": told})
    assert events[-1] == TOLD


def test_usage_that_is_not_told_is_counted() -> None:
    one = reader(messages=[{"role": "user", "content": "x" * 40}], tools=[])
    assert one.usage == Usage(prompt=14, completion=0, estimated=True)
    for text in ("a", "b", "c"):
        fed(one, json.dumps(chunk(content=text)).encode())
    assert one.usage == Usage(prompt=14, completion=3, estimated=True)
    share = read(reader(), chunk(reasoning="x" * 30), chunk(content="y" * 10), chunk("stop"), LAST)
    assert share[-1] == Usage(prompt=5, completion=7, reasoning=5)


def test_long_pieces_are_more_than_a_token_each() -> None:
    one = reader(messages=[{"role": "user", "content": "x" * 40}], tools=[])
    for _ in range(3):
        fed(one, json.dumps(chunk(content="z" * 40)).encode())
    assert one.usage == Usage(prompt=14, completion=30, estimated=True)


def test_what_comes_after_usage_was_told_is_added_to_it() -> None:
    """Some servers tell the prompt first, and of what they write only at the end."""
    one = reader()
    first = {"prompt_tokens": 90, "completion_tokens": 1}
    fed(one, json.dumps({**chunk(content="a"), "usage": first}).encode())
    assert one.usage == Usage(prompt=90, completion=1)
    for text in ("b", "c"):
        fed(one, json.dumps(chunk(content=text)).encode())
    assert one.usage == Usage(prompt=90, completion=3, estimated=True)
    fed(one, json.dumps({**chunk("stop"), "usage": {**first, "completion_tokens": 3}}).encode())
    assert one.usage == Usage(prompt=90, completion=3)


@each_of(
    "thought",
    [
        {"reasoning_content": "hm"},
        {"reasoning": "hm"},
        {"reasoning": "hm", "reasoning_content": "hm"},
        {"reasoning_details": [{"type": "reasoning.text", "text": "hm"}]},
        {
            "reasoning": None,
            "reasoning_details": [{"summary": "h"}, {"summary": "m"}, {"data": "="}],
        },
        {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}]},
        {"content": [{"type": "thinking", "thinking": "hm"}]},
        {"content": "<think>hm</think>"},
        {"content": "<think>\nhm\n</think>\n\n"},
        {"content": "\n<think>hm</think>"},
    ],
)
def test_reasoning_by_any_name(thought: dict[str, Any]) -> None:
    assert said(chunk(**thought), chunk(content="Hi"), chunk("stop"), LAST) == [
        ReasoningDelta("hm"),
        *STOP,
    ]


def test_reasoning_comes_before_the_text_of_the_same_piece() -> None:
    piece = chunk("stop", content="Hi", reasoning_content="hm")
    assert said(piece) == [ReasoningDelta("hm"), *STOP]


def test_tags_are_looked_for_only_where_servers_leave_them() -> None:
    text = "<think>hm</think>Hi"
    assert said(chunk("stop", content=text), dialect=DIALECTS["openai"]) == [
        TextDelta(text),
        Finished("stop"),
    ]
    mention = "Hi <think>hm</think>"
    assert said(chunk("stop", content=mention)) == [TextDelta(mention), Finished("stop")]
    assert said(chunk(reasoning="hm"), chunk("stop", content="<think>x</think>")) == [
        ReasoningDelta("hm"),
        TextDelta("<think>x</think>"),
        Finished("stop"),
    ]


@each_of("text", ["<", "<th", "<think", " <", "<b>", "<think>never closed"])
def test_what_only_began_like_a_tag_is_not_lost(text: str) -> None:
    events = said(*(chunk(content=letter) for letter in text), chunk("stop"))
    got = "".join(event.text for event in events if isinstance(event, TextDelta | ReasoningDelta))
    assert got.replace("<think>", "") == text.replace("<think>", "")


STARTED = ToolCallStarted(0, "c1", "f")
CALLED = [STARTED, ToolCallDelta(0, '{"a":1}'), Finished("tool_calls")]


@each_of(
    "chunks",
    [
        [call(id="c1", name="f", arguments=""), call(arguments='{"a"'), call(arguments=":1}")],
        [call(id="c1", name="f", arguments='{"a":1}')],
        [call(id="c1", name="f", arguments={"a": 1})],
        [call(id="c1", name="f"), call(id=None, name=None, arguments='{"a":1}')],
        [call(id="c1", name="f", arguments='{"a"'), call(id="c1", name="f", arguments=":1}")],
        [call(None, id="c1", name="f"), call(None, arguments='{"a":1}')],
        [call(None, id="c1", name="f"), call(None, id="c1", arguments='{"a":1}')],
        [call(id="c1", arguments='{"a"'), call(name="f", arguments=":1}")],
        [call(7, id="c1", name="f", arguments='{"a":1}')],
    ],
)
@each_of("finish", ["tool_calls", "stop", "function_call"])
def test_one_call(chunks: list[dict[str, Any]], finish: str) -> None:
    assert said(*chunks, chunk(finish)) == CALLED


SECOND = [ToolCallStarted(1, "c2", "g"), ToolCallDelta(1, "{}")]


@pytest.mark.parametrize(
    "chunks",
    [
        [
            call(0, id="c1", name="f", arguments='{"a":1}'),
            call(1, id="c2", name="g", arguments="{}"),
        ],
        [
            call(0, id="c1", name="f", arguments='{"a":1}'),
            call(0, id="c2", name="g", arguments="{}"),
        ],
        [call(None, id="c1", name="f", arguments='{"a":1}'), call(None, id="c2", name="g")],
        [
            chunk(
                tool_calls=[
                    {"index": 0, "id": "c1", "function": {"name": "f", "arguments": '{"a":1}'}},
                    {"index": 1, "id": "c2", "function": {"name": "g", "arguments": "{}"}},
                ]
            )
        ],
    ],
)
def test_two_calls(chunks: list[dict[str, Any]]) -> None:
    events = said(*chunks, chunk("tool_calls"))
    assert sorted(events[:-1], key=lambda event: getattr(event, "index", 0)) == [
        *CALLED[:2],
        *SECOND,
    ]


@pytest.mark.parametrize("other", ["f", "g"])
def test_calls_with_one_index_and_no_ids_are_as_many_as_there_are(other: str) -> None:
    first, second = call(name="f", arguments='{"a":1}'), call(name=other, arguments='{"a":2}')
    both = [one for piece in (first, second) for one in piece["choices"][0]["delta"]["tool_calls"]]
    events = [
        ToolCallStarted(0, "call_1", "f"),
        ToolCallDelta(0, '{"a":1}'),
        ToolCallStarted(1, "call_2", other),
        ToolCallDelta(1, '{"a":2}'),
        Finished("tool_calls"),
    ]
    assert said(first, second, chunk("tool_calls")) == events
    assert said(chunk("tool_calls", tool_calls=both)) == events


@pytest.mark.parametrize(
    ("index", "ids"), [(0, "abc"), (0, ("a", "", "b")), (0, ("", "", "")), (None, ("", "", ""))]
)
def test_pieces_of_one_call_that_all_look_like_its_beginning(
    index: int | None, ids: Sequence[str]
) -> None:
    """As older servers write them for a named function."""
    parts = ['{"a"', ':{"b":1}', "}"]
    pieces = [
        call(index, id=one, name="f", arguments=part) for one, part in zip(ids, parts, strict=True)
    ]
    assert said(*pieces, chunk("stop")) == [
        ToolCallStarted(0, ids[0] or "call_1", "f"),
        ToolCallDelta(0, '{"a":{"b":1}}'),
        Finished("tool_calls"),
    ]
    after = call(index, id="d", name="f", arguments="{}")
    starts = [one for one in said(*pieces, after, chunk("stop")) if type(one) is ToolCallStarted]
    assert len(starts) == 2


def test_a_name_that_is_only_repeated_begins_no_call() -> None:
    pieces = ['{"a":{"b":1}', " }", "", "\n"]
    events = said(*(call(name="f", arguments=piece) for piece in pieces), chunk("tool_calls"))
    assert events == [
        ToolCallStarted(0, "call_1", "f"),
        ToolCallDelta(0, '{"a":{"b":1} }'),
        Finished("tool_calls"),
    ]


def test_ids_are_made_where_they_are_missing_or_taken() -> None:
    earlier = [
        {"role": "user", "content": "q"},
        {
            "role": "assistant",
            "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f"}}],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "2"},
    ]
    events = said(
        call(0, id="c1", name="f", arguments="{}"),
        call(1, name="f", arguments="{}"),
        call(2, id="", name="f", arguments="{}"),
        chunk("tool_calls"),
        messages=earlier,
        tools=[F],
    )
    ids = [event.id for event in events if isinstance(event, ToolCallStarted)]
    assert ids == ["call_1", "call_2", "call_3"]


def test_a_call_without_arguments_has_an_empty_object() -> None:
    assert said(call(id="c1", name="f", arguments=""), chunk("stop")) == [
        STARTED,
        ToolCallDelta(0, "{}"),
        Finished("tool_calls"),
    ]
    assert said(call(id="c1", name="f", arguments=""), chunk("length")) == [
        STARTED,
        Finished("length"),
    ]


def test_an_id_that_is_a_number_is_its_text() -> None:
    pieces = [call(id=12, name="f", arguments='{"a"'), call(id=12, arguments=":1}")]
    assert said(*pieces, chunk("tool_calls"))[0] == ToolCallStarted(0, "12", "f")


def test_text_before_calls() -> None:
    events = said(chunk(content="<"), chunk(content="b>"), call(id="c1", name="f"), chunk("stop"))
    assert events[0] == TextDelta("<b>")
    assert events[1] == STARTED


def test_a_call_of_no_function() -> None:
    with pytest.raises(UpstreamFailed, match="names no function"):
        said(call(id="c1", arguments="{}"), chunk("tool_calls"))


def test_several_choices() -> None:
    events = read(
        reader(n=2),
        chunk(content="a"),
        chunk(content="b", index=1),
        chunk("stop"),
        chunk("length", index=1),
        LAST,
    )
    in_order(events)
    assert events == [
        TextDelta("a"),
        TextDelta("b", choice=1),
        Finished("stop"),
        Finished("length", 1),
        TOLD,
    ]


def logprobs(*tokens: str) -> dict[str, Any]:
    found = [
        {
            "token": token,
            "logprob": -1.0,
            "bytes": None,
            "top_logprobs": [{"token": other, "logprob": -2.0, "bytes": [200]} for other in "xyz"],
        }
        for token in tokens
    ]
    return {"content": found}


def token(text: str, top: int) -> TokenLogprob:
    others = tuple(TokenLogprob(other, -2.0, b"\xc8") for other in "xyz"[:top])
    return TokenLogprob(text, -1.0, text.encode(), others)


def with_logprobs(piece: dict[str, Any], *tokens: str) -> dict[str, Any]:
    piece["choices"][0]["logprobs"] = logprobs(*tokens)
    return piece


@pytest.mark.parametrize("top", [0, 2])
def test_log_probabilities(top: int) -> None:
    events = said(
        with_logprobs(chunk(reasoning="hm"), "hm"),
        with_logprobs(chunk(content="a"), "a"),
        with_logprobs(chunk(content=""), "\u00e9"),
        with_logprobs(chunk("stop", content="b"), "b"),
        logprobs=True,
        **({"top_logprobs": top} if top else {}),
        dialect=DIALECTS["llama-server"],
    )
    tokens = (token("a", top), token("\u00e9", top), token("b", top))
    assert events == [ReasoningDelta("hm"), TextDelta("ab", tokens), Finished("stop")]
    assert said(with_logprobs(chunk("stop", content="a"), "a")) == [
        TextDelta("a"),
        Finished("stop"),
    ]


@each_of(
    ("told", "tokens"),
    [
        ({"tokens": ["a", "b"], "token_logprobs": [-1.0, -2.0], "token_ids": [1, 2]},
         (TokenLogprob("a", -1.0, b"a"), TokenLogprob("b", -2.0, b"b"))),
        ({"content": None, "tokens": ["ab"], "token_logprobs": [None], "text_offset": [0],
          "top_logprobs": [{"y": -3, "x": -1, "z": None}]},
         (TokenLogprob("ab", -9999.0, b"ab",
                       (TokenLogprob("x", -1.0, b"x"), TokenLogprob("y", -3.0, b"y"))),)),
        ({"tokens": ["ab"], "token_logprobs": [-1.0], "top_logprobs": [None]},
         (TokenLogprob("ab", -1.0, b"ab"),)),
        (-1.5, (TokenLogprob("ab", -1.5, b"ab"),)),
        ({"tokens": ["ab"]}, ()),
        ({"tokens": {"ab": -1.0}}, ()),
        ("none", ()),
    ],
)  # fmt: skip
def test_log_probabilities_of_other_forms(told: object, tokens: tuple[TokenLogprob, ...]) -> None:
    """As the older interface of completions has them, or one number a piece."""
    piece = chunk("stop", content="ab")
    piece["choices"][0]["logprobs"] = told
    asked = said(piece, logprobs=True, top_logprobs=2)
    assert asked == [TextDelta("ab", tokens), Finished("stop")]
    assert said(piece) == [TextDelta("ab"), Finished("stop")]


@pytest.mark.parametrize(
    ("message", "events"),
    [
        ({"content": {"type": "text", "text": "Hi"}}, [TextDelta("Hi")]),
        ({"content": {"city": "Köln", "text": "x"}}, [TextDelta('{"city": "Köln", "text": "x"}')]),
        ({"content": "Hi", "reasoning": {"text": "Hm"}}, [ReasoningDelta("Hm"), TextDelta("Hi")]),
        ({"content": "Hi", "reasoning": {"effort": "low"}}, [TextDelta("Hi")]),
    ],
)
def test_an_object_where_a_text_is_expected(message: dict[str, Any], events: list[Event]) -> None:
    """An answer as JSON that a server hands on as what it says, or a part that is alone."""
    body = json.dumps({"choices": [{"message": message, "finish_reason": "stop"}]}).encode()
    assert reader().whole(body)[:-1] == [*events, Finished("stop")]


def test_choices_with_the_same_index_are_told_apart_by_their_order() -> None:
    choices = [{"index": 0, "message": {"content": text}, "finish_reason": "stop"} for text in "ab"]
    body = json.dumps({"choices": choices}).encode()
    assert reader(n=2).whole(body)[:-1] == [
        TextDelta("a"),
        TextDelta("b", choice=1),
        Finished("stop"),
        Finished("stop", 1),
    ]
    # Text and calls of the only choice come as two from some.
    assert joined(reader().whole(body)[:-1]) == [TextDelta("ab"), Finished("stop")]


def test_a_probability_of_none_is_a_number_all_the_same() -> None:
    """Servers write null for minus infinity, which JSON cannot say."""
    piece = with_logprobs(chunk("stop", content="a"), "a")
    [told] = piece["choices"][0]["logprobs"]["content"]
    told["logprob"] = told["top_logprobs"][0]["logprob"] = None
    assert said(piece) == [TextDelta("a"), Finished("stop")]
    [text, _] = said(piece, logprobs=True, top_logprobs=2)
    assert isinstance(text, TextDelta)
    assert [text.logprobs[0].logprob, text.logprobs[0].top[0].logprob] == [-9999.0, -9999.0]
    told["top_logprobs"] = None
    assert said(piece, logprobs=True)[1] == Finished("stop")


@pytest.mark.parametrize("number", [float("-inf"), float("inf"), float("nan")])
def test_a_number_that_json_does_not_know_costs_no_reply(number: float) -> None:
    """Some servers write it as their language does: ``-Infinity``, ``NaN``."""
    text = '"NaN" \\'
    piece = with_logprobs(chunk("stop", content=text), "a") | {"timings": {"speed": number}}
    [told] = piece["choices"][0]["logprobs"]["content"]
    told["logprob"] = number
    [text_event, _] = said(piece, logprobs=True)
    assert isinstance(text_event, TextDelta)
    assert (text_event.text, text_event.logprobs[0].logprob) == (text, -9999.0)
    choice = {"message": {"content": text}, "finish_reason": "stop"}
    whole = reader().whole(json.dumps({"choices": [choice], "took": number}).encode())
    assert whole[:-1] == [TextDelta(text), Finished("stop")]


def test_log_probabilities_behind_the_last_text_are_not_lost() -> None:
    events = said(chunk(content="a"), with_logprobs(chunk("stop", content=""), "a"), logprobs=True)
    assert events == [TextDelta("a", (token("a", 0),)), Finished("stop")]


def test_text_goes_on_as_text() -> None:
    """A server that takes what follows the tags for reasoning is mistaken: those are behind us."""
    partial = Partial(reasoning="r", text="One, ")
    events = said(
        chunk(reasoning="two"),
        chunk("stop", content="<think>"),
        partial=partial,
        dialect=DIALECTS["vllm"],
    )
    assert events == [TextDelta("two<think>"), Finished("stop")]


_TEXTS = st.sampled_from(["a", "", "é", '"', "\\", "<think>", "</think>", " b", "\ud83d"])
_CALL = {"index": 0, "id": "x", "function": {"name": "f", "arguments": "{}"}}
_CHUNKS = st.one_of(
    st.builds(lambda text, at: chunk(content=text, index=at), _TEXTS, st.integers(0, 1)),
    st.builds(lambda text, at: chunk(reasoning=text, index=at), _TEXTS, st.integers(0, 1)),
    st.builds(lambda text: chunk("stop", content=text), _TEXTS),
    st.just(chunk(tool_calls=[_CALL])),
    st.just(chunk(content="c") | {"usage": {"prompt_tokens": 1, "completion_tokens": 9}}),
    st.just({"choices": [], "error": {"message": "broke"}}),
)


@given(st.lists(_CHUNKS, max_size=12), st.integers(1, 2))
def test_chunks_that_come_together_say_what_each_says_alone(
    chunks: list[dict[str, Any]], n: int
) -> None:
    """What has the form of the chunk before it is not decoded, and means the same."""
    data = [json.dumps(each).encode() for each in chunks]
    alone, together = reader(n=n), reader(n=n)
    expected: list[Event] = []
    events: list[Event] = []
    with suppress(ServiceError):
        for each in data:
            alone._chunk_template = None  # so that each is decoded
            alone.feed([each], expected)
    with suppress(ServiceError):
        together.feed(data, events)
    assert events == expected
    assert together.usage == alone.usage


@each_of("cut", range(1, 9))
@each_of(("reply", "new"), [("One, two", "two"), ("two", "two"), ("One", "One")])
def test_what_is_only_repeated_is_left_out(reply: str, new: str, cut: int) -> None:
    chunks = [chunk(content=reply[:cut]), chunk(content=reply[cut:]), chunk("stop")]
    partial = Partial(text="One, ")
    assert said(*chunks, partial=partial, dialect=DIALECTS["mistral"]) == [
        TextDelta(new),
        Finished("stop"),
    ]


@pytest.mark.parametrize("there", ["", "two, "])
def test_what_the_client_began_with_is_not_repeated(there: str) -> None:
    events = said(
        chunk(content="One, "),
        chunk("stop", content=f"{there}three"),
        dialect=DIALECTS["mistral"],
        partial=Partial(text=there) if there else None,
        messages=[*QUESTION, {"role": "assistant", "content": "One, "}],
        continue_final_message=True,
    )
    assert events == [TextDelta("three"), Finished("stop")]


@each_of(
    "data",
    [
        "<html>", "{", "3", '"x"', '{"choices": 3}', '{"choices": [3]}',
        '{"choices": [{"delta": {"content": 3}}]}',
        pytest.param('{"choices": 3, "x":' + "[" * 9999, id="deep"),
    ],
)  # fmt: skip
def test_what_is_no_reply(data: str | bytes) -> None:
    with pytest.raises(UpstreamFailed, match="cannot be read"):
        read(reader(), data)
    with pytest.raises(UpstreamFailed):
        reader().whole(data.encode() if isinstance(data, str) else data)


@each_of(
    ("error", "kind", "code"),
    [
        ({"error": {"message": "broke", "code": 500}}, UpstreamFailed, "bad_gateway"),
        ({"error": "broke"}, UpstreamFailed, "bad_gateway"),
        ({"error": {"message": "bad", "code": 400}}, InvalidRequest, "invalid_value"),
        ({"error": {"message": "bad", "code": "429"}}, Overloaded, "no_endpoint"),
        ({"error": {"type": "rate_limit_error", "code": None}}, Overloaded, "no_endpoint"),
        ({"error": {"type": "tokens", "code": "rate_limit_exceeded"}}, Overloaded, "no_endpoint"),
        ({"error": {"type": "overloaded_error", "message": "x"}}, Overloaded, "no_endpoint"),
        ({"error": {"type": {}, "code": [500]}}, UpstreamFailed, "bad_gateway"),
        ({"code": 500, "message": "overloaded"}, UpstreamFailed, "bad_gateway"),
        ({"error": {"message": "bad", "code": "4²9"}}, UpstreamFailed, "bad_gateway"),
        ({"error": {"message": "bad", "code": "4" * 9999}}, UpstreamFailed, "bad_gateway"),
        ({"error": {"type": "invalid_request_error"}}, InvalidRequest, "invalid_value"),
        ({"object": "error", "message": "x", "code": 400}, InvalidRequest, "invalid_value"),
        ({"detail": "Not Found"}, UpstreamFailed, "bad_gateway"),
        (
            {"error": {"message": "the request exceeds the available context size", "code": 400}},
            InvalidRequest,
            "context_length_exceeded",
        ),
    ],
)
def test_errors_in_a_reply(error: dict[str, Any], kind: type[ServiceError], code: str) -> None:
    data = json.dumps(error).encode()
    with pytest.raises(kind) as before:
        fed(reader(), data)
    assert before.value.code == code
    with pytest.raises(kind):
        reader().whole(data)
    begun = reader()
    fed(begun, json.dumps(chunk(content="Hi")).encode())
    with pytest.raises(UpstreamFailed, match="broke its reply off"):
        fed(begun, data)


@each_of(
    "nothing", [None, {}, "", [], False, 0, {"code": None, "message": ""}, {"type": {}, "code": []}]
)
def test_an_error_that_is_empty_is_none(nothing: object) -> None:
    assert said(chunk("stop", content="Hi") | {"error": nothing}) == STOP
    odd: dict[str, Any] = {"delta": {"content": "Hi"}, "finish_reason": "stop", "index": "0"}
    assert said({"choices": [odd], "error": nothing}) == STOP
    choice = {"message": {"content": "Hi"}, "finish_reason": "stop"}
    whole = reader().whole(json.dumps({"choices": [choice], "error": nothing}).encode())
    assert whole[:-1] == STOP
    with pytest.raises(UpstreamFailed):
        reader().whole(json.dumps({"error": nothing}).encode())


@each_of(
    ("reason", "told"),
    [
        ("MAX_TOKENS", "length"),
        ("model_context_window_exceeded", "length"),
        ("sensitive", "content_filter"),
        ("SAFETY", "content_filter"),
        ("STOP", "stop"),
        ("eos", "stop"),
    ],
)
def test_an_end_in_the_words_of_others(reason: str, told: FinishReason) -> None:
    assert said(chunk(content="Hi"), chunk(reason))[-1] == Finished(told)
    choice = {"message": {"content": "Hi"}, "finish_reason": reason}
    body = json.dumps({"choices": [choice], "usage": USAGE}).encode()
    assert read_fast_path(body, None) is None
    assert reader().whole(body)[1] == Finished(told)


@pytest.mark.parametrize(
    "reason", ["error", "network_error", "abort", "insufficient_system_resource"]
)
def test_an_end_that_is_none(reason: str) -> None:
    with pytest.raises(UpstreamFailed, match="broke its reply off"):
        read(reader(), chunk(content="Hi"), chunk(reason))


def halves(text: str) -> list[str]:
    """The text cut at every sixteen bits, as servers see it whose strings are made of these."""
    units = text.encode("utf-16-be", "surrogatepass")
    pairs = [units[at : at + 2] for at in range(0, len(units), 2)]
    return [pair.decode("utf-16-be", "surrogatepass") for pair in pairs]


@given(
    st.text(alphabet='a"\\\U0001f600\U00010348é', max_size=9),
    st.sampled_from(["content", "reasoning_content"]),
)
def test_characters_that_were_cut_in_two_are_whole(text: str, name: str) -> None:
    twice = {"reasoning_content": "reasoning"}.get(name, name)
    got = said(*(chunk(**{name: half, twice: half}) for half in halves(text)), chunk("stop"))
    kind = TextDelta if name == "content" else ReasoningDelta
    assert got == ([kind(text)] if text else []) + [Finished("stop")]


def test_characters_of_arguments_that_were_cut_in_two_are_whole() -> None:
    pieces = (call(arguments=half) for half in halves('{"a":"\U0001f600"}'))
    assert said(call(id="c1", name="f"), *pieces, chunk("stop"))[1] == ToolCallDelta(
        0, '{"a":"\U0001f600"}'
    )


@pytest.mark.parametrize(
    ("text", "told"),
    [("a\ud83d", "a\ufffd"), ("\ude00b", "\ufffdb"), ("a\ud83db", "a\ufffdb")],
)
def test_half_a_character_does_not_cost_the_text(text: str, told: str) -> None:
    assert said(chunk(content=text), chunk("stop")) == [TextDelta(told), Finished("stop")]
    choice = {"message": {"content": text}, "finish_reason": "stop"}
    whole = reader().whole(json.dumps({"choices": [choice]}).encode())
    assert joined(whole[:-1]) == [TextDelta(told), Finished("stop")]


def test_half_a_character_of_reasoning_is_told_before_the_answer() -> None:
    got = said(chunk(reasoning_content="a\ud83d"), chunk(content="Hi"), chunk("stop"))
    assert got == [ReasoningDelta("a\ufffd"), *STOP]


def test_choices_that_nobody_asked_for_are_left_out() -> None:
    """Their text is not more of the answer, and their end is not its end."""
    more = {"index": 1, "delta": {"content": "Ho"}, "finish_reason": "length"}
    assert said(chunk(content="H"), {"choices": [more]}, chunk("stop", content="i")) == STOP
    whole = [
        {"index": index, "message": {"content": text}, "finish_reason": "stop"}
        for index, text in enumerate(("Hi", "Ho", "Hu"))
    ]
    body = json.dumps({"choices": whole}).encode()
    assert joined(reader().whole(body)[:-1]) == STOP
    two = joined(reader(n=2).whole(body)[:-1])
    assert [event for event in two if isinstance(event, TextDelta)] == [
        TextDelta("Hi"),
        TextDelta("Ho", (), 1),
    ]


@pytest.mark.parametrize(
    "chunks",
    [
        [call(id="a", name="f", arguments='{"a":'), chunk("stop")],
        [call(id="a", name="f", arguments="[1]"), chunk("tool_calls")],
        [call(id="a", name="unknown", arguments="{}"), chunk("tool_calls")],
        [chunk("MALFORMED_FUNCTION_CALL")],
    ],
)
def test_a_call_that_is_none_is_the_models_doing(chunks: list[dict[str, Any]]) -> None:
    """So the request goes to another target, and this one stays as it was for others."""
    with pytest.raises(UpstreamFailed) as failure:
        read(reader(), *chunks)
    assert failure.value.error_class is ErrorClass.UNUSABLE_OUTPUT


@pytest.mark.parametrize("end", ["", "data: [DONE]\n", "data: [DONE]\n\n"])
def test_events_without_empty_lines_between_them(end: str) -> None:
    lines = "".join(
        f"data: {json.dumps(each)}\n"
        for each in (chunk(content="H"), chunk(content="i"), chunk("stop"))
    )
    decoder, got, events = EventDecoder(values=True), reader(), list[Event]()
    got.feed(decoder.feed(f"{lines}{end}".encode()), events)
    got.feed(decoder.close(), events)
    got.finish(events)
    assert joined(events[:-1]) == STOP


@each_of("nothing", ["[]", "null", '{"foo": 1}', '{"type": {}}', "{}"])
def test_what_says_nothing_is_a_sign_of_life(nothing: str) -> None:
    assert said(nothing, chunk(content="H"), nothing, chunk("stop", content="i"), nothing) == STOP
    with pytest.raises(UpstreamFailed):
        reader().whole(nothing.encode())


def test_bytes_that_are_no_characters_do_not_cost_the_text() -> None:
    cut = b'{"choices":[{"delta":{"content":"Hi \xf0\x9f"}}]}'
    assert said(cut, chunk("stop")) == [TextDelta("Hi \ufffd"), Finished("stop")]


def test_a_stream_without_its_end() -> None:
    cut = reader()
    fed(cut, json.dumps(chunk(content="Hi")).encode())
    with pytest.raises(UpstreamFailed, match="before it was complete"):
        cut.finish([])
    ended = reader()
    fed(ended, json.dumps(chunk("stop", content="Hi")).encode())
    last: list[Event] = []
    ended.finish(last)
    assert last[0] == Finished("stop")
    count = len(last)
    ended.finish(last)
    assert len(last) == count
    with pytest.raises(UpstreamFailed, match="before it began"):
        fed(reader(), b"[DONE]")


def test_an_end_is_not_taken_back() -> None:
    """Some servers have a reason in every piece, which says nothing where there is none."""
    assert said(chunk("", content="Hi"), chunk("length"), chunk("")) == [
        TextDelta("Hi"),
        Finished("length"),
    ]


def test_nothing_follows_the_end() -> None:
    one = reader()
    read(one, chunk("stop", content="Hi"))
    assert fed(one, b"[DONE]") == []
    assert fed(one, json.dumps(chunk(content="more")).encode()) == []


def test_what_came_before_a_failure_is_not_lost() -> None:
    one, events = reader(), list[Event]()
    good = json.dumps(chunk(content="Hi")).encode()
    with pytest.raises(UpstreamFailed, match="cannot be read"):
        one.feed([good, b"{", good], events)
    assert events == [TextDelta("Hi")]


def test_the_fingerprint_is_the_server_s() -> None:
    one = reader()
    read(one, {**chunk("stop", content="x"), "system_fingerprint": "fp_1"})
    assert one.fingerprint == "fp_1"


# Properties


def deltas(message: dict[str, Any], cut: st.DataObject) -> Iterator[dict[str, Any]]:
    """A message in pieces, cut anywhere."""
    for name in ("reasoning_content", "content"):
        rest = message.get(name) or ""
        while rest:
            size = cut.draw(st.integers(1, len(rest)))
            yield chunk(**{name: rest[:size]})
            rest = rest[size:]
    for index, one in enumerate(message.get("tool_calls") or ()):
        yield call(index, id=one["id"], name=one["function"]["name"])
        rest = one["function"]["arguments"]
        while rest:
            size = cut.draw(st.integers(1, len(rest)))
            yield call(index, arguments=rest[:size])
            rest = rest[size:]


TEXTS = st.one_of(
    st.text(max_size=20),
    st.text(alphabet="<think>/ \nab", max_size=40),
    st.builds("<think>{}</think>{}".format, st.text(max_size=9), st.text(max_size=9)),
)
MESSAGES = st.fixed_dictionaries(
    {
        "content": TEXTS,
        "reasoning_content": st.one_of(st.none(), st.text(max_size=20)),
        "tool_calls": st.lists(
            st.fixed_dictionaries(
                {
                    "id": st.uuids().map(str),
                    "function": st.fixed_dictionaries(
                        {"name": st.sampled_from("fgh"), "arguments": st.just('{"a": "é"}')}
                    ),
                }
            ),
            max_size=3,
        ),
    }
)


@given(MESSAGES, st.sampled_from(["stop", "length", "tool_calls"]), st.data())
@settings(deadline=None)
def test_a_stream_says_what_the_plain_reply_says(
    message: dict[str, Any], finish: str, data: st.DataObject
) -> None:
    assume(finish != "tool_calls" or message["tool_calls"])  # else it may be no reply
    body = {"choices": [{"message": message, "finish_reason": finish}], "usage": USAGE}
    whole = reader().whole(json.dumps(body).encode())
    streamed = read(reader(), *deltas(message, data), chunk(finish), LAST)
    in_order(whole)
    in_order(streamed)
    assert joined(streamed) == joined(whole)


def pieces(stream: bytes, cuts: list[int] | None) -> Iterator[bytes]:
    """The stream cut at some places, or with ``None`` at every byte."""
    places = sorted(range(len(stream)) if cuts is None else {cut % len(stream) for cut in cuts})
    for begin, end in zip([0, *places], [*places, len(stream)], strict=True):
        yield stream[begin:end]


@given(
    MESSAGES,
    st.sampled_from([b"\n", b"\r\n"]),
    st.booleans(),
    st.none() | st.lists(st.integers(0, 9999), max_size=12),
    st.data(),
)
@settings(deadline=None)  # a busy machine takes its time
def test_the_cuts_of_the_network_do_not_matter(
    message: dict[str, Any],
    newline: bytes,
    comments: bool,
    cuts: list[int] | None,
    data: st.DataObject,
) -> None:
    chunks = [*deltas(message, data), chunk("stop"), LAST]
    lines = [b"data: " + json.dumps(one).encode() + 2 * newline for one in chunks]
    stream = (b": ping" + 2 * newline if comments else b"").join([b"", *lines, b"data: [DONE]\n\n"])
    one, decoder, events = reader(), EventDecoder(), list[Event]()
    for piece in pieces(stream, cuts):
        one.feed(decoder.feed(piece), events)
    assert events == read(reader(), *chunks)


@given(st.lists(st.binary(max_size=60), max_size=5))
@settings(deadline=None)
def test_garbage_is_a_failure_of_the_upstream(pieces: list[bytes]) -> None:
    one = reader()
    for piece in pieces:
        with suppress(ServiceError):
            fed(one, piece)


def details(name: str) -> st.SearchStrategy[dict[str, Any] | None]:
    """Some of the tokens, where the server says that."""
    return st.none() | st.dictionaries(st.just(name), st.integers(0, 9) | st.none())


MESSAGES = st.fixed_dictionaries(
    {"role": st.just("assistant"), "content": st.text(max_size=3) | st.none()},
    optional={
        "reasoning_content": st.text(max_size=2),
        "refusal": st.text(max_size=2) | st.none(),
        "tool_calls": st.just([]),
    },
)
WHOLES = st.fixed_dictionaries(
    {
        "choices": st.lists(
            st.fixed_dictionaries(
                {
                    "index": st.integers(0, 1),
                    "message": MESSAGES,
                    "finish_reason": st.sampled_from(
                        [
                            "stop",
                            "length",
                            "max_tokens",
                            "tool_calls",
                            "content_filter",
                            "odd",
                            None,
                        ]
                    ),
                }
            ),
            min_size=1,
            max_size=2,
        )
    },
    optional={
        "usage": st.dictionaries(
            st.sampled_from(["prompt_tokens", "completion_tokens", "reasoning_tokens"]),
            st.integers(0, 9) | st.none(),
        )
        | st.fixed_dictionaries(
            {"prompt_tokens": st.integers(0, 9), "completion_tokens": st.integers(0, 9)},
            optional={
                "total_tokens": st.integers(0, 27),
                "prompt_tokens_details": details("cached_tokens"),
                "completion_tokens_details": details("reasoning_tokens"),
                "prompt_cache_hit_tokens": st.integers(0, 9),
                "cached_tokens": st.integers(0, 9),
                "reasoning_tokens": st.integers(0, 9),
            },
        ),
        "system_fingerprint": st.text(max_size=2),
    },
)


@given(WHOLES, st.sampled_from([DIALECTS["openai"], DIALECTS["vllm"], DIALECTS["mistral"]]))
def test_a_plain_reply_says_the_same_read_the_quick_way(
    body: dict[str, Any], dialect: Dialect
) -> None:
    careful = Incoming(ASKED, dialect)
    data = json.dumps(body).encode()
    quick = read_fast_path(data, None)
    if quick is not None:
        events, fingerprint = quick
        assert list(events) == careful.whole(data)
        assert events[-1] == careful.usage
        assert (fingerprint or "") == (careful.fingerprint or "")


def test_what_cannot_be_read_is_not_read_the_quick_way() -> None:
    assert read_fast_path(b'{"choices":' + b"[" * 9999, None) is None
    assert read_fast_path(b'{"x":' + b"[" * 9999, None) is None


def test_elements_where_an_everyday_reply_has_none_are_not_read() -> None:
    """They are not bounded yet, and half a million such numbers would take seconds."""
    body = (
        b'{"choices":[{"message":{"content":"a","%s":[%s1]},"finish_reason":"stop"}],'
        b'"usage":{"prompt_tokens":1,"completion_tokens":1}}'
    )
    for name in (b"tool_calls", b"reasoning_details"):
        assert read_fast_path(body % (name, b"1e289," * 500_000), None) is None
        assert read_fast_path((body % (name, b"")).replace(b"[1]", b"[]"), None) is not None


def test_an_ordinary_reply_is_read_the_quick_way() -> None:
    message = {"role": "assistant", "content": "Hi"}
    body = {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": USAGE}
    reply = json.dumps(body).encode()
    assert read_fast_path(reply, Separation()) == ((*STOP, TOLD), None)


def test_text_that_may_begin_with_reasoning_is_not_read_the_quick_way() -> None:
    message = {"role": "assistant", "content": "<think>Hm</think>Hi"}
    body = {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": USAGE}
    assert read_fast_path(json.dumps(body).encode(), Separation()) is None
