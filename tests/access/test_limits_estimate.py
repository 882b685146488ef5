"""Tokens guessed from sizes: near enough for a reservation, and never nothing."""

from __future__ import annotations

import msgspec
import pytest
from casekit import each_of
from msgspec import structs

from causerie.access.limits import Estimate, Tokens, estimate
from causerie.protocol.parameters import ParsingRules
from causerie.protocol.request import (
    UNNAMED_OUTPUT,
    ChatRequest,
    ImagePart,
    JsonSchema,
    Message,
    TextPart,
    Tool,
    ToolCall,
)
from causerie.protocol.targets import Candidate, TokenBounds
from causerie.shapes.chat_completions.reader import parse


def request(*messages: Message, **rest: object) -> ChatRequest:
    return ChatRequest(model="m", messages=messages, **rest)  # type: ignore[arg-type]  # fields by name


@each_of(
    ("text", "tokens"),
    [("", 0), ("a", 1), ("abcd", 1), ("abcde", 2), ("你好", 2), ("é", 1), ("\ud800", 1)],
)
def test_text_by_its_size(text: str, tokens: int) -> None:
    assert estimate(request(Message("user", text))).input == tokens + 4


def test_parts_calls_and_reasoning_count() -> None:
    parts = (TextPart("x" * 40), ImagePart("data:image/png;base64," + "A" * 100_000))
    call = ToolCall("c", "look", '{"a":1}!')
    messages = (
        Message("user", parts),
        Message("assistant", None, reasoning_content="y" * 8, tool_calls=(call,)),
    )
    assert estimate(request(*messages)).input == (4 + 10 + 1024) + (4 + 2 + 1 + 2)


def test_tools_documents_and_schemas_count() -> None:
    schema = {"type": "object"}
    asked = request(
        Message("user", "hi"),
        tools=(Tool("look", schema, "Looks."),),
        documents=({"text": "z" * 400},),
        output=JsonSchema(schema),
    )
    assert estimate(asked).input == 5 + (1 + 2 + 5) + 103 + 5


def test_output_by_its_limit_for_each_choice() -> None:
    message = Message("user", "hi")
    assert estimate(request(message, max_tokens=50, n=3)) == Tokens(5, 150)
    assert estimate(request(message)) == Tokens(5, UNNAMED_OUTPUT)


def test_output_by_what_is_given_at_most() -> None:
    asked = request(Message("user", "hi"), max_tokens=50, n=3)
    few, more = (Candidate(str(most), bounds=TokenBounds(None, most)) for most in (7, 9))
    assert estimate(asked, [few, more]) == Tokens(5, 27)
    assert estimate(asked, [few, Candidate("unbounded")]) == Tokens(5, 150)
    assert estimate(asked, [Candidate("long", bounds=TokenBounds(None, 60))]) == Tokens(5, 150)


@pytest.mark.parametrize("second", ["abcde", "你好", "", [{"type": "text", "text": "abc"}]])
def test_a_length_that_reading_left_behind_says_the_same(second: object) -> None:
    said = [{"role": "system", "content": "abcd" * 9}, {"role": "user", "content": second}]
    body = msgspec.json.encode({"model": "m", "messages": said})
    read = parse(body, ParsingRules())
    assert (read.characters is None) == (second not in ("abcde", ""))
    assert estimate(read) == estimate(structs.replace(read, characters=None))


def test_an_estimate_is_made_once() -> None:
    """Limits, budgets and the journal ask for it, and tools are written as JSON for it."""
    made = Estimate(request(Message("user", "abcd")), ())
    first = made()
    assert first == estimate(request(Message("user", "abcd")))
    assert made() is first
