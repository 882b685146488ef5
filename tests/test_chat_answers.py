"""Forms of an answer that come again: prepared once, and enforced as the first time."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import pytest
from chatkit import Unchecked
from formatkit import WEATHER

from causerie.chat import answer
from causerie.chat.answer import AnswerPlan, answer_plan
from causerie.chat.chat import TextChat
from causerie.chat.recall import Recall
from causerie.engines.fake import FakeEngine, Script
from causerie.errors import InvalidRequest
from causerie.protocol.request import (
    ChatRequest,
    Choice,
    Grammar,
    JsonObject,
    JsonSchema,
    Message,
    OutputFormat,
    Regex,
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
    """Where each schema was looked at."""
    seen: list[str] = []

    def prepare(schema: Mapping[str, object], **how: Any) -> str:
        seen.append(threading.current_thread().name)
        return genuine(schema, **how)

    genuine = answer.prepare
    monkeypatch.setattr(answer, "prepare", prepare)
    return seen


async def of(output: OutputFormat, recall: Recall, *, any_space: bool = False) -> AnswerPlan:
    return await answer_plan(output, ["<|im_end|>"], recall, any_space=any_space)


async def test_a_schema_is_prepared_once(threads: list[str]) -> None:
    recall = Recall()
    assert await of(schema(), recall) is await of(schema(), recall)
    assert threads == [threading.current_thread().name]


async def test_a_long_schema_holds_up_nobody(threads: list[str]) -> None:
    recall = Recall()
    assert await of(long(), recall) is await of(long(), recall)
    assert len(threads) == 1
    assert threads != [threading.current_thread().name]


async def test_white_space_makes_another_form(threads: list[str]) -> None:
    recall = Recall()
    assert await of(schema(), recall) != await of(schema(), recall, any_space=True)
    assert len(threads) == 2


async def test_a_refusal_names_its_field_each_time() -> None:
    recall = Recall()
    for param in (PARAM, "structured_outputs.json", PARAM):
        with pytest.raises(InvalidRequest, match="#/properties/more ") as refused:
            await of(schema(param, more={"not": {"const": 1}}), recall)
        assert refused.value.param == param


@pytest.mark.parametrize(
    ("output", "spells"),
    [
        (schema(more={"const": "<|im_end|>"}), True),
        (schema(), False),
        (JsonObject(), False),
        (Choice(("yes", "no")), False),
        (Choice(("yes", "<|im_end|>")), True),
        (Regex("[a-z]+"), True),  # of these there is no telling
        (Grammar('start: "yes"'), True),
    ],
)
async def test_it_is_known_what_may_spell_a_control_token(
    output: OutputFormat, spells: bool
) -> None:
    recall = Recall()
    for _ in range(2):
        assert (await of(output, recall)).spell is spells


async def test_a_grammar_that_was_written_before_is_the_one_that_is_asked_for() -> None:
    """Whatever differs beside the schema: each is as if nothing had come before."""
    engine = FakeEngine("m", Script(["x"] * 100), context_length=100_000)
    chat = TextChat(engine, Unchecked())
    tool = Tool("get_weather", WEATHER)
    requests = [
        ChatRequest("m", (Message("user", "Hi"),), output=output, thinking=thinking, **more)
        for output in (schema(), long(), JsonObject(), Choice(("yes", "no")), Choice(("no",)))
        for thinking in (Thinking(), Thinking(True), Thinking(False))
        for more in ({}, {"tools": (tool,)}, {"tools": (tool,), "tool_choice": ToolChoice("none")})
    ]
    for request in [*requests, *requests]:
        alone = FakeEngine("m", Script(["x"]), context_length=100_000)
        for each in (chat, TextChat(alone, Unchecked())):
            async with each.generate(request) as made:
                await anext(aiter(made.events))
        assert engine.requests[-1].grammar == alone.requests[-1].grammar
    assert len({each.grammar for each in engine.requests}) >= 10
