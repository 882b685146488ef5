"""Chat on a text engine: what is refused at the start, and what its grammars are told."""

from __future__ import annotations

from typing import Any

import pytest
from chatkit import Unchecked
from formatkit import WEATHER

from causerie.chat.chat import TextChat
from causerie.engines.base import EngineFailed, LoadFailed, ModelFacts
from causerie.engines.fake import END, FakeEngine, Script
from causerie.errors import InvalidRequest, Overloaded
from causerie.protocol.request import (
    ChatRequest,
    Choice,
    Grammar,
    JsonObject,
    JsonSchema,
    Message,
    OutputFormat,
    Regex,
    Tool,
)

UNFORCED = '%llguidance {"no_forcing": true}\n'


def asked(**changes: Any) -> ChatRequest:
    return ChatRequest("m", (Message("user", "Hi"),), **changes)


def valued(schema: dict[str, Any]) -> JsonSchema:
    return JsonSchema({"type": "object", "properties": {"a": schema}, "required": ["a"]})


async def grammar_of(request: ChatRequest) -> str:
    """The grammar that the engine is given for a request."""
    engine = FakeEngine("m", Script(["x"]))
    async with TextChat(engine, Unchecked()).generate(request) as answer:
        await anext(aiter(answer.events))
    grammar = engine.requests[0].grammar
    assert grammar is not None
    return grammar


@pytest.mark.parametrize("name", ["min_tokens", "ignore_eos"])
@pytest.mark.parametrize(
    "constrained", [{"output": JsonObject()}, {"tools": (Tool("get_weather", WEATHER),)}]
)
async def test_a_constraint_says_where_a_reply_ends(name: str, constrained: dict[str, Any]) -> None:
    value = {"min_tokens": 3, "ignore_eos": True}[name]
    with pytest.raises(InvalidRequest, match="reply ends where its form does") as refused:
        async with TextChat(FakeEngine("m"), Unchecked()).generate(
            asked(**constrained, **{name: value})
        ):
            pytest.fail("it was accepted")
    assert (refused.value.param, refused.value.code) == (name, "unsupported_parameter")


@pytest.mark.parametrize(
    "output",
    [
        Choice(("yes", "<|im_end|>")),
        valued({"enum": ["a<|im_start|>b"]}),
        valued({"const": "<|im_end|>"}),
        valued({"type": "string", "pattern": r"^<\|im_end\|>$"}),
        valued({"type": "string", "pattern": "^<.im_[e]nd.>$"}),
        JsonSchema({"type": "object", "properties": {"<|end|>": {"type": "integer"}}}),
        Regex("a|b"),
        Grammar('start: "a"'),
    ],
)
async def test_texts_that_spell_control_tokens_stay_text(output: OutputFormat) -> None:
    assert (await grammar_of(asked(output=output))).startswith(UNFORCED)


@pytest.mark.parametrize(
    "output", [Choice(("yes", "no")), JsonObject(), valued({"enum": ["a < b", "im_end"]})]
)
async def test_other_texts_are_written_in_the_usual_tokens(output: OutputFormat) -> None:
    assert not (await grammar_of(asked(output=output))).startswith(UNFORCED)


async def test_functions_with_such_texts_too() -> None:
    tool = Tool("f", {"type": "object", "properties": {"a": {"enum": ["<|im_end|>"]}}})
    assert (await grammar_of(asked(tools=(tool,)))).startswith(UNFORCED)


async def test_a_constrained_reply_may_end_with_every_end_token() -> None:
    assert f"<[{END}]>" in await grammar_of(asked(output=JsonObject()))


class Unloadable(FakeEngine):
    """An engine that cannot be had."""

    failure: EngineFailed

    async def facts(self) -> ModelFacts:
        raise self.failure


@pytest.mark.parametrize(
    ("failure", "code", "words"),
    [
        (LoadFailed("/secret/path is no model", retry_after=7), "no_endpoint", "not be loaded"),
        (EngineFailed("later", loading=True, retry_after=7), "engine_loading", "being loaded"),
        (EngineFailed("gone", retry_after=7), "no_endpoint", "restarted"),
    ],
)
async def test_an_engine_that_is_not_there(failure: EngineFailed, code: str, words: str) -> None:
    engine = Unloadable("m")
    engine.failure = failure
    with pytest.raises(Overloaded, match=words) as refused:
        async with TextChat(engine, Unchecked()).generate(asked()):
            pytest.fail("it was accepted")
    assert refused.value.code == code
    assert refused.value.headers["Retry-After"] == "7"
    assert "secret" not in refused.value.message
