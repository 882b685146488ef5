"""Functions that come again with every turn: checked once, and enforced as the first time."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import pytest
from chatkit import Unchecked
from formatkit import WEATHER

from causerie.chat import answer
from causerie.chat import schema as schemas
from causerie.chat.answer import Functions, SchemaCache, callable_functions
from causerie.chat.chat import TextChat
from causerie.chat.schema import PreparedSchema
from causerie.engines.registry import FakeEngine, FakeScript
from causerie.errors import InvalidRequest
from causerie.protocol.request import ChatRequest, Message, Thinking, Tool, ToolChoice


def asked(*tools: Tool, **changes: Any) -> ChatRequest:
    return ChatRequest("m", (Message("user", "Hi"),), tools=tools, **changes)


def weather(name: str = "get_weather", **more: Mapping[str, object]) -> Tool:
    return Tool(name, {**WEATHER, "properties": {**WEATHER["properties"], **more}})


def many() -> list[Tool]:
    """More than is taken apart on the event loop."""
    return [weather(f"f{n}", note={"description": "x" * 1000}) for n in range(20)]


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Of which field each schema was that was looked at."""
    seen: list[str] = []

    def prepare(schema: Mapping[str, object], *, param: str) -> PreparedSchema:
        seen.append(param)
        return genuine(schema, param=param)

    genuine = schemas.prepare
    monkeypatch.setattr(answer, "prepare", prepare)
    return seen


async def of(request: ChatRequest, schema_cache: SchemaCache) -> Functions:
    return await callable_functions(request, ["<|im_end|>"], schema_cache)


@pytest.mark.parametrize("several", [False, True])
async def test_the_same_functions_are_checked_once(checks: list[str], several: bool) -> None:
    schema_cache = SchemaCache()
    first, again = (asked(*(many() if several else [weather()])) for _ in range(2))
    found = await of(first, schema_cache)
    assert await of(again, schema_cache) is found
    assert set(found.tools) == {tool.name for tool in first.tools}
    assert len(checks) == len(first.tools)


async def test_what_differs_is_checked_anew(checks: list[str]) -> None:
    schema_cache = SchemaCache()
    requests = [
        asked(weather()),
        asked(weather("other")),
        asked(weather(more={"type": "null"})),
        asked(weather(more={"const": 1})),
        asked(weather(more={"const": 1.0})),
        asked(weather(more={"const": True})),
        asked(weather(a={}, b={})),
        asked(weather(b={}, a={})),
        asked(weather("f"), weather("g")),
        asked(weather("g"), weather("f")),
        asked(weather("f"), weather("g"), tool_choice=ToolChoice("auto", frozenset({"g"}))),
    ]
    texts = {(await of(request, schema_cache)).text for request in requests}
    assert len(texts) == len(requests)
    assert len(checks) == len(requests) + 2  # where there are two of them
    none = await of(asked(weather(), tool_choice=ToolChoice("none")), schema_cache)
    assert none == Functions({})


async def test_a_refusal_names_the_place_each_time() -> None:
    schema_cache = SchemaCache()
    wrong = weather(more={"type": "any"})
    for index, request in enumerate((asked(wrong), asked(weather("f"), wrong))):
        with pytest.raises(InvalidRequest, match="get_weather") as refused:
            await of(request, schema_cache)
        assert refused.value.param == f"tools[{index}].function.parameters"


async def test_the_oldest_are_forgotten(checks: list[str]) -> None:
    first, second, third = (asked(weather(name)) for name in ("f", "g", "h"))
    schema_cache = SchemaCache(most=2 * len((await of(first, SchemaCache())).text))
    checks.clear()
    for request in (first, second, first, third, first, second):
        await of(request, schema_cache)
    assert len(checks) == 4  # the second is the one that had not come again


async def test_a_schema_that_spells_a_control_token_is_known_to() -> None:
    schema_cache = SchemaCache()
    for _ in range(2):
        assert (await of(asked(weather(more={"const": "<|im_end|>"})), schema_cache)).spell
        assert not (await of(asked(weather()), schema_cache)).spell


@pytest.mark.full
async def test_a_grammar_that_was_written_before_is_the_one_that_is_asked_for() -> None:
    """Requests that differ in anything but the functions are as if nothing had come before."""
    engine = FakeEngine("m", FakeScript(["x"] * 100), context_length=100_000)
    chat = TextChat(engine, Unchecked())
    ways = itertools.product(
        (ToolChoice("auto"), ToolChoice("required"), ToolChoice("required", frozenset({"f0"}))),
        (True, False),
        (Thinking(), Thinking(True), Thinking(False)),
        (many(), [weather("f0")]),
    )
    requests = [
        asked(*tools, tool_choice=choice, parallel_tool_calls=parallel, thinking=thinking)
        for choice, parallel, thinking, tools in ways
    ]
    for request in [*requests, *requests]:
        alone = FakeEngine("m", FakeScript(["x"]), context_length=100_000)
        for each in (chat, TextChat(alone, Unchecked())):
            async with each.generate(request) as answer:
                await anext(aiter(answer.events))
        assert engine.requests[-1].grammar == alone.requests[-1].grammar
    assert len({each.grammar for each in engine.requests}) >= 8


@pytest.mark.parametrize("declared", ["array", "string", [], ["array", "null"]])
async def test_parameters_that_admit_no_object_are_refused(declared: object) -> None:
    with pytest.raises(InvalidRequest) as refused:
        await of(asked(weather("g"), Tool("f", {"type": declared})), SchemaCache())
    error = refused.value
    assert (error.code, error.param) == ("unsupported_schema", "tools[1].function.parameters")
    assert "`f`" in error.message
    assert '`type` must be "object"' in error.message


async def test_arguments_are_objects_where_other_types_are_declared_too() -> None:
    schema = {**WEATHER, "type": ["object", "null"], "nullable": True}
    found = await of(asked(Tool("f", schema)), SchemaCache())
    assert found.admits("f", '{"city": "Bonn"}')
    assert not found.admits("f", "null")
