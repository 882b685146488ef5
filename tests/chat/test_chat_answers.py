"""Forms of an answer that come again: prepared once, and enforced as the first time."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import pytest
from casekit import each_of
from chatkit import Unchecked, continued, together, whole_and_cuts
from formatkit import WEATHER

from causerie.chat import answer
from causerie.chat import schema as schemas
from causerie.chat.answer import AnswerPlan, SchemaCache, answer_plan
from causerie.chat.chat import TextChat
from causerie.chat.schema import PreparedSchema, WhiteSpace
from causerie.engines.registry import FakeEngine, FakeScript
from causerie.errors import InvalidRequest
from causerie.protocol.events import TextDelta
from causerie.protocol.request import (
    ChatRequest,
    Grammar,
    JsonObject,
    JsonSchema,
    Message,
    OutputFormat,
    Regex,
    TextChoice,
    Thinking,
    Tool,
    ToolChoice,
)

PARAM = "response_format.json_schema.schema"


def schema(param: str = PARAM, **more: Mapping[str, object]) -> JsonSchema:
    properties = {**WEATHER["properties"], **more}
    return JsonSchema({**WEATHER, "properties": properties}, "weather", param)


def long() -> JsonSchema:
    """More than is taken apart on the event loop."""
    return schema(note={"description": "x" * 20_000})


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record the thread in which each schema is prepared."""
    seen: list[str] = []

    def prepare(schema: Mapping[str, object], **how: Any) -> PreparedSchema:
        seen.append(threading.current_thread().name)
        return genuine(schema, **how)

    genuine = schemas.prepare
    monkeypatch.setattr(answer, "prepare", prepare)
    return seen


async def of(
    output: OutputFormat, schema_cache: SchemaCache, white_space: WhiteSpace = WhiteSpace.PRETTY
) -> AnswerPlan:
    return await answer_plan(output, ["<|im_end|>"], schema_cache, white_space=white_space)


async def test_a_schema_is_prepared_once(threads: list[str]) -> None:
    schema_cache = SchemaCache()
    assert await of(schema(), schema_cache) is await of(schema(), schema_cache)
    assert threads == [threading.current_thread().name]


async def test_a_long_schema_holds_up_nobody(threads: list[str]) -> None:
    schema_cache = SchemaCache()
    assert await of(long(), schema_cache) is await of(long(), schema_cache)
    assert len(threads) == 1
    assert threads != [threading.current_thread().name]


async def test_white_space_makes_another_form(threads: list[str]) -> None:
    schema_cache = SchemaCache()
    assert await of(schema(), schema_cache) != await of(schema(), schema_cache, WhiteSpace.ANY)
    assert len(threads) == 2


async def test_a_refusal_names_its_field_each_time() -> None:
    schema_cache = SchemaCache()
    for param in (PARAM, "structured_outputs.json", PARAM):
        with pytest.raises(InvalidRequest, match="#/properties/more/type ") as refused:
            await of(schema(param, more={"type": "any"}), schema_cache)
        assert refused.value.param == param


@each_of(
    ("output", "spells"),
    [
        (schema(more={"const": "<|im_end|>"}), True),
        (schema(), False),
        (JsonObject(), False),
        (TextChoice(("yes", "no")), False),
        (TextChoice(("yes", "<|im_end|>")), True),
        (Regex("[a-z]+"), True),  # of these there is no telling
        (Grammar('start: "yes"'), True),
    ],
)
async def test_it_is_known_what_may_spell_a_control_token(
    output: OutputFormat, spells: bool
) -> None:
    schema_cache = SchemaCache()
    for _ in range(2):
        assert (await of(output, schema_cache)).spell is spells


async def test_a_grammar_that_was_written_before_is_the_one_that_is_asked_for() -> None:
    """Requests that differ in anything but the schema are as if nothing had come before."""
    engine = FakeEngine("m", FakeScript(["x"] * 100), context_length=100_000)
    chat = TextChat(engine, Unchecked())
    tool = Tool("get_weather", WEATHER)
    requests = [
        ChatRequest("m", (Message("user", "Hi"),), output=output, thinking=thinking, **more)
        for output in (
            schema(),
            long(),
            JsonObject(),
            TextChoice(("yes", "no")),
            TextChoice(("no",)),
        )
        for thinking in (Thinking(), Thinking(True), Thinking(False))
        for more in ({}, {"tools": (tool,)}, {"tools": (tool,), "tool_choice": ToolChoice("none")})
    ]
    for request in [*requests, *requests]:
        alone = FakeEngine("m", FakeScript(["x"]), context_length=100_000)
        for each in (chat, TextChat(alone, Unchecked())):
            async with each.generate(request) as made:
                await anext(aiter(made.events))
        assert engine.requests[-1].grammar == alone.requests[-1].grammar
    assert len({each.grammar for each in engine.requests}) >= 10


def goes_on(begun: str, output: OutputFormat, **more: Any) -> ChatRequest:
    said = (Message("user", "Hi"), Message("assistant", begun))
    return ChatRequest("m", said, output=output, continue_final_message=True, **more)


@each_of(
    ("output", "begun", "whole"),
    [
        (schema(), '{"city": "Pa', '{"city": "Paris"}'),
        (schema(), '{"city": "P\u00fc', '{"city": "P\u00fcr"}'),
        (schema(), ' {\n  "city"', ' {\n  "city" : "Paris" }'),
        (schema(), '{"city": "Paris"}', '{"city": "Paris"}'),
        (JsonObject(), '{"a": [1, ', '{"a": [1, 2]}'),
        (TextChoice(("yes", "no")), "ye", "yes"),
        (Regex("[a-z]+-[0-9]+"), "abc-", "abc-12"),
    ],
)
async def test_a_form_goes_on_where_the_message_that_is_continued_ends(
    output: OutputFormat, begun: str, whole: str
) -> None:
    chat = TextChat(FakeEngine("m", FakeScript([whole.lstrip()])), Unchecked())
    reply, cuts = await whole_and_cuts(chat, goes_on(begun, output))
    assert (begun + reply.text, reply.finish) == (whole, "stop")
    for cut in cuts:
        assert (await continued(chat, goes_on(begun, output), cut)).said == reply.said


async def test_every_choice_goes_on_with_the_form() -> None:
    chat = TextChat(FakeEngine("m", FakeScript(['{"city": "Paris"}'])), Unchecked())
    async with chat.generate(goes_on('{"city": ', schema(), n=2)) as answer:
        events = [event async for batch in answer.events for event in batch]
    for choice in range(2):
        said = [
            each.text for each in events if isinstance(each, TextDelta) and each.choice == choice
        ]
        assert "".join(said) == '"Paris"}'


@pytest.mark.parametrize("begun", ["Sure: {", '{"town": "', '{"city": "Paris"} and'])
async def test_what_begins_no_answer_of_the_form_is_not_continued(begun: str) -> None:
    chat = TextChat(FakeEngine("m", FakeScript(["x"])), Unchecked())
    async with chat.generate(goes_on(begun, schema())) as answer:
        with pytest.raises(InvalidRequest, match="beginning of an answer") as refused:
            await anext(aiter(answer.events))
    assert refused.value.param == "continue_final_message"


async def test_a_forced_call_comes_behind_a_message_that_is_continued() -> None:
    call = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'
    chat = TextChat(FakeEngine("m", FakeScript([call])), Unchecked())
    tools: dict[str, Any] = {
        "tools": (Tool("get_weather", WEATHER),),
        "tool_choice": ToolChoice("required"),
    }
    async with chat.generate(goes_on("Let me look.", schema(), **tools)) as answer:
        reply = together([batch async for batch in answer.events])
    assert [each.name for each in reply.calls] == ["get_weather"]
