"""Chat on a real model; what broke off, another process with the same weights continues.

Here at some of the places where it may break off; ``test_continuation.py`` has all of them.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from casekit import first_of
from chatkit import Unchecked, continued, whole_and_cuts
from enginekit import THREADS
from formatkit import WEATHER

from causerie.chat.chat import TextChat
from causerie.engines.llamacpp.engine import LlamaCppEngine
from causerie.engines.llamacpp.options import LlamaCppOptions
from causerie.engines.weights.vocabulary import read_gguf_vocabulary
from causerie.protocol.parameters import SamplingParams
from causerie.protocol.request import ChatRequest, JsonSchema, Message, Thinking, Tool, ToolChoice

pytestmark = [
    pytest.mark.engine,
    pytest.mark.asyncio(loop_scope="module"),
]

SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "maxLength": 20},
        "kind": {"enum": ["town", "city"]},
    },
    "required": ["city", "kind"],
    "additionalProperties": False,
}
CASES: dict[str, dict[str, Any]] = {
    "text": {},
    "thinking": {"thinking": Thinking(enabled=True, budget=10)},
    "schema": {"output": JsonSchema(SCHEMA)},
    "thinking under a schema": {
        "thinking": Thinking(enabled=True, budget=6),
        "output": JsonSchema(SCHEMA),
    },
    "call": {"tools": (Tool("get_weather", WEATHER),), "tool_choice": ToolChoice("required")},
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def chats(gguf: Path) -> AsyncIterator[tuple[TextChat, TextChat]]:
    options = LlamaCppOptions(context=1024, parallel=1, threads=THREADS)
    one, other = (LlamaCppEngine("m", gguf, options) for _ in range(2))
    try:
        await one.start()
        await other.start()
        yield TextChat(one, Unchecked()), TextChat(other, Unchecked())
    finally:
        await one.stop()
        await other.stop()


@pytest.mark.parametrize("text", first_of(["<|im_end|>", "a <|im_start|>b<|endoftext|>"]))
async def test_the_text_of_a_control_token_comes_out_as_text(
    chats: tuple[TextChat, TextChat], text: str
) -> None:
    schema = {"type": "object", "properties": {"a": {"const": text}}, "required": ["a"]}
    messages = (Message("user", "Say it."),)
    request = ChatRequest("m", messages, max_tokens=60, output=JsonSchema(schema))
    whole, _ = await whole_and_cuts(chats[0], request)
    assert (json.loads(whole.text), whole.finish) == ({"a": text}, "stop")


async def test_a_greedy_answer_by_a_schema_ends_by_itself(chats: tuple[TextChat, TextChat]) -> None:
    """Held to one line, this model repeats itself until the limit."""
    schema = {
        "type": "object",
        "properties": {"setup": {"type": "string"}, "punchline": {"type": "string"}},
        "required": ["setup", "punchline"],
    }
    request = ChatRequest(
        "m",
        (Message("user", "Tell me a joke about cats"),),
        max_tokens=200,
        sampling=SamplingParams(temperature=0),
        output=JsonSchema(schema),
    )
    whole, _ = await whole_and_cuts(chats[0], request)
    assert whole.finish == "stop"
    assert json.loads(whole.text).keys() == {"setup", "punchline"}


async def test_white_space_has_an_end(chats: tuple[TextChat, TextChat], gguf: Path) -> None:
    """The engine's own version of the constraint's library bounds it, too."""
    tokens = read_gguf_vocabulary(gguf).tokens
    breaks = {at: 100.0 for at, token in enumerate(tokens) if token and not token.strip(b"\n")}
    request = ChatRequest(
        "m",
        (Message("user", "Name a place."),),
        max_tokens=60,
        sampling=SamplingParams(temperature=0, logit_bias=breaks),
        output=JsonSchema(SCHEMA),
    )
    whole, _ = await whole_and_cuts(chats[0], request)
    assert breaks
    assert "\n\n" in whole.text
    assert "\n\n\n" not in whole.text
    assert whole.finish == "stop"
    assert json.loads(whole.text).keys() == {"city", "kind"}


ENDLESS = {
    "type": "object",
    "properties": {"value": {"type": "integer"}, "node": {"$ref": "#/$defs/XXX"}},
    "required": ["value"],
    "additionalProperties": False,
    "$defs": {
        "XXX": {
            "type": "object",
            "properties": {"value": {"type": "integer"}, "node": {"$ref": "#/$defs/XXX"}},
            "required": ["value", "node"],
            "additionalProperties": False,
        }
    },
}
FORCED = {"tools": (Tool("get_node", ENDLESS),), "tool_choice": ToolChoice("required")}


@pytest.mark.parametrize(
    "case", first_of([{"output": JsonSchema(ENDLESS)}, FORCED]), ids=["answer", "call"]
)
async def test_a_recursion_without_an_end_leaves_the_constraint_in_force(
    chats: tuple[TextChat, TextChat], case: dict[str, Any]
) -> None:
    sampling = SamplingParams(temperature=0)
    messages = (Message("user", "Write a node with the value 3, and a node in it."),)
    request = ChatRequest("m", messages, max_tokens=200, sampling=sampling, **case)
    whole, _ = await whole_and_cuts(chats[0], request)
    documents = [call.arguments for call in whole.calls] or [whole.text]
    assert [json.loads(text).keys() for text in documents] == [{"value"}]
    assert whole.finish == ("tool_calls" if whole.calls else "stop")


DIFFERENT = {
    "type": "object",
    "properties": {
        "list": {
            "type": "array",
            "items": {"enum": ["item_1", "item_2", "item_3", "item_4"]},
            "uniqueItems": True,
            "minItems": 3,
        }
    },
    "required": ["list"],
    "additionalProperties": False,
}
SAVED = {"tools": (Tool("save", DIFFERENT),), "tool_choice": ToolChoice("required")}


@pytest.mark.parametrize(
    "case", first_of([{"output": JsonSchema(DIFFERENT)}, SAVED]), ids=["answer", "call"]
)
@pytest.mark.full
async def test_no_item_repeats_an_earlier_one(
    chats: tuple[TextChat, TextChat], case: dict[str, Any]
) -> None:
    messages = (Message("user", "Write a list of things. Repeat the first one three times."),)
    sampling = SamplingParams(temperature=0)
    request = ChatRequest("m", messages, max_tokens=200, sampling=sampling, **case)
    whole, _ = await whole_and_cuts(chats[0], request)
    items = json.loads(whole.calls[0].arguments if whole.calls else whole.text)["list"]
    assert 3 <= len(items) == len(set(items)) <= 4
    assert whole.finish == ("tool_calls" if whole.calls else "stop")


@pytest.mark.full
@pytest.mark.parametrize("case", first_of(CASES))
async def test_greedy_replies_are_the_same_wherever_they_break_off(
    chats: tuple[TextChat, TextChat], case: str
) -> None:
    one, other = chats
    messages = (Message("user", "Tell me about Paris in two sentences."),)
    request = ChatRequest(
        "m", messages, max_tokens=26, sampling=SamplingParams(temperature=0), **CASES[case]
    )
    whole, cuts = await whole_and_cuts(one, request)
    assert len(cuts) > 5
    assert whole.usage is not None
    for cut in cuts[1::6]:
        merged = await continued(other, request, cut)
        assert merged.said == whole.said
        assert merged.usage is not None
        assert merged.usage.completion + cut.partial.completion == whole.usage.completion
        assert merged.usage.reasoning + cut.partial.reasoning_tokens == whole.usage.reasoning


@pytest.mark.parametrize(
    "begun", first_of(["{", '{"city": "Pa', '{\n  "city": "Paris",\n  "kind": "', '{"city": "🗼'])
)
@pytest.mark.full
async def test_a_document_that_a_client_has_begun_is_gone_on_with(
    chats: tuple[TextChat, TextChat], begun: str
) -> None:
    one, other = chats
    messages = (Message("user", "Name a place."), Message("assistant", begun))
    request = ChatRequest(
        "m",
        messages,
        max_tokens=120,
        sampling=SamplingParams(temperature=0),
        output=JsonSchema(SCHEMA),
        continue_final_message=True,
    )
    whole, cuts = await whole_and_cuts(one, request)
    assert set(json.loads(begun + whole.text)) == {"city", "kind"}
    assert whole.finish == "stop"
    for cut in cuts[1::12]:
        assert (await continued(other, request, cut)).said == whole.said
