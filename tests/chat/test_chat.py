"""Chat on a text engine: what is refused, what grammars are told, what replies come to."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest
from casekit import each_of
from chatkit import Reply, Unchecked, together
from formatkit import WEATHER
from msgspec import structs

from causerie.chat.chat import TextChat, TextChatOptions
from causerie.engines.base import (
    EngineFailed,
    LoadFailed,
    ModelFacts,
    Output,
    PromptTooLong,
    Stopped,
    TextRequest,
    Token,
)
from causerie.engines.registry import FAKE_END, FakeEngine, FakeScript
from causerie.errors import ContextLengthExceeded, InternalError, InvalidRequest, Overloaded
from causerie.protocol.parameters import SamplingParams
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
    ToolCall,
    ToolChoice,
)
from causerie.protocol.targets import TokenBounds

UNFORCED = '%llguidance {"no_forcing": true}\n'


def asked(**changes: Any) -> ChatRequest:
    return ChatRequest("m", (Message("user", "Hi"),), **changes)


def valued(schema: dict[str, Any]) -> JsonSchema:
    return JsonSchema({"type": "object", "properties": {"a": schema}, "required": ["a"]})


async def grammar_of(request: ChatRequest) -> str:
    """The grammar that the engine is given for a request."""
    engine = FakeEngine("m", FakeScript(["x"]))
    async with TextChat(engine, Unchecked()).generate(request) as answer:
        await anext(aiter(answer.events))
    grammar = engine.requests[0].grammar
    assert grammar is not None
    return grammar


@pytest.mark.parametrize(
    "given",
    [
        {"stop_token_ids": (1, FAKE_END + 1)},
        {"sampling": SamplingParams(logit_bias={FAKE_END + 1: 1.0})},
    ],
)
async def test_a_token_of_another_vocabulary_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(
        InvalidRequest, match=f"token id {FAKE_END + 1}, but this model has"
    ) as refused:
        async with TextChat(FakeEngine("m"), Unchecked()).generate(asked(**given)):
            pytest.fail("it was accepted")
    assert refused.value.param in ("logit_bias", "stop_token_ids")


async def test_a_text_that_the_engine_does_not_even_read_is_told_with_the_least_it_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def refuse(*_: object, **__: object) -> list[int]:
        raise PromptTooLong(900_000, 4096)

    engine = FakeEngine("m")
    monkeypatch.setattr(FakeEngine, "tokenize", refuse)
    bounds = TokenBounds(context_length=2048)
    with pytest.raises(ContextLengthExceeded, match="at least 900000 tokens") as refused:
        async with TextChat(engine, Unchecked()).generate(asked(max_tokens=5, bounds=bounds)):
            pytest.fail("it was accepted")
    assert refused.value.metadata == {
        "prompt_tokens": 900_000, "max_tokens": 5, "context_length": 2048,
    }  # fmt: skip


async def test_an_output_limit_that_does_not_fit_is_lowered_or_refused() -> None:
    engine = FakeEngine("m")
    async with TextChat(engine, Unchecked()).generate(asked(max_tokens=100_000)) as answer:
        await anext(aiter(answer.events))
    limit = engine.requests[0].max_tokens
    assert limit == engine.context_length - len(engine.requests[0].prompt)
    assert answer.changes == [f"max_tokens lowered to {limit}"]
    with pytest.raises(ContextLengthExceeded, match="100000 tokens of output"):
        async with TextChat(engine, Unchecked()).generate(
            asked(max_tokens=100_000, keeps_output_limit=True)
        ):
            pytest.fail("it was accepted")


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


@each_of(
    "output",
    [
        TextChoice(("yes", "<|im_end|>")),
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
    "output", [TextChoice(("yes", "no")), JsonObject(), valued({"enum": ["a < b", "im_end"]})]
)
async def test_other_texts_are_written_in_the_usual_tokens(output: OutputFormat) -> None:
    assert not (await grammar_of(asked(output=output))).startswith(UNFORCED)


async def test_functions_with_such_texts_too() -> None:
    tool = Tool("f", {"type": "object", "properties": {"a": {"enum": ["<|im_end|>"]}}})
    assert (await grammar_of(asked(tools=(tool,)))).startswith(UNFORCED)


async def test_a_schema_that_is_refused_says_of_which_function_it_is() -> None:
    tools = (Tool("good", {}), Tool("bad", {"properties": {"a": {"type": "any"}}}))
    with pytest.raises(
        InvalidRequest, match="of `bad`: The schema at #/properties/a/type"
    ) as refused:
        await grammar_of(asked(tools=tools))
    assert refused.value.param == "tools[1].function.parameters"


async def test_parameters_of_a_function_may_refer_to_each_other() -> None:
    """As zod writes them; some formats write each parameter on its own."""
    box = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    listed = {"type": "array", "items": {"$ref": "#/properties/one"}}
    tool = Tool("pack", {"type": "object", "properties": {"one": box, "all": listed}})
    call = (
        "<tool_call>\n<function=pack>\n<parameter=all>"
        '\n[{"a": 1}]\n</parameter>\n</function>\n</tool_call>'
    )
    options = TextChatOptions(format="qwen-3-coder")
    reply = await replied(call, asked(tools=(tool,)), options)
    assert [call.arguments for call in reply.calls] == ['{"all": [{"a": 1}]}']


async def test_a_constrained_reply_may_end_with_every_end_token() -> None:
    assert f"<[{FAKE_END}]>" in await grammar_of(asked(output=JsonObject()))


CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Köln"}}\n</tool_call>'
TOOL = Tool("get_weather", WEATHER)
THINKING = """
{%- for message in messages %}
{{- '<|im_start|>' + message.role + '\n' }}
{%- if message.reasoning_content %}
{{- '<think>\n' + message.reasoning_content + '\n</think>\n\n' }}
{%- endif %}
{{- message.content + '<|im_end|>\n' }}
{%- endfor %}
""".strip()


async def replied(text: str, request: ChatRequest, options: TextChatOptions | None = None) -> Reply:
    engine = FakeEngine("m", FakeScript([text]))
    async with TextChat(engine, Unchecked(), options or TextChatOptions()).generate(
        request
    ) as answer:
        return together([batch async for batch in answer.events])


@each_of(
    ("text", "said"),
    [
        ("ü 🎉x", "ü 🎉x"),
        (f"Hi\n{CALL}", "Hi"),
        ("a <tool b", "a <tool b"),
        ('{"name": "nobody", "x": 1}', '{"name": "nobody", "x": 1}'),
        ("<think>\nHm\n</think>\n\nYes", "Yes"),
    ],
)
async def test_log_probabilities_are_of_the_answer_s_tokens(text: str, said: str) -> None:
    reply = await replied(text, asked(top_logprobs=0, tools=(TOOL,)))
    assert reply.text == said
    assert b"".join(token.raw for token in reply.logprobs).decode() == said


async def test_a_stop_string_that_was_held_back_at_the_end_is_met() -> None:
    """White space may have been the beginning of a call, until nothing came behind it."""
    reply = await replied("one\ntwo", asked(stop=("\n",), tools=(TOOL,), max_tokens=4))
    assert (reply.text, reply.finish) == ("one", "stop")


async def test_the_beginning_of_a_stop_string_is_text_where_the_reply_ends() -> None:
    reply = await replied("one EN", asked(stop=("END",), max_tokens=99))
    assert (reply.text, reply.finish) == ("one EN", "stop")


@each_of(("least", "text"), [(0, "a "), (2, "a "), (3, "a END b "), (5, "a END b "), (99, None)])
async def test_no_stop_string_cuts_the_least_that_was_asked_for(
    least: int, text: str | None
) -> None:
    reply = await replied("a END b END c", asked(stop=("END",), min_tokens=least, max_tokens=99))
    assert (reply.text, reply.finish) == ((text, "stop") if text else (reply.text, "length"))
    assert reply.usage
    assert reply.usage.completion >= least


async def test_no_stop_token_does_either() -> None:
    stop = ord("w")
    reply = await replied("one two", asked(stop_token_ids=(stop,), min_tokens=6))
    assert (reply.text, reply.finish) == ("one toone t", "stop")


class Whole(FakeEngine):
    """Tells a token of a character only when the character is whole, as llama.cpp does."""

    async def _generated_outputs(self, request: TextRequest) -> AsyncGenerator[Output, None]:
        held: list[Output] = []
        async with aclosing(FakeEngine._generated_outputs(self, request)) as outputs:
            async for output in outputs:
                if isinstance(output, Token):
                    held.append(output)
                    if not (output.text or output.id == FAKE_END):
                        continue
                for one in held if isinstance(output, Token) else [output]:
                    yield one
                held.clear()


@each_of(
    ("limits", "text", "finish"),
    [
        ({"max_tokens": 1}, "", "length"),
        ({"max_tokens": 7}, "🎉", "length"),
        ({"max_tokens": 8}, "🎉🎉", "length"),
        ({"max_tokens": 99, "min_tokens": 7}, "🎉🎉 b", "stop"),
        ({"max_tokens": 7, "min_tokens": 6}, "🎉", "length"),
    ],
)
async def test_a_reply_ends_at_its_limit_also_in_the_middle_of_a_character(
    limits: dict[str, int], text: str, finish: str
) -> None:
    engine = Whole("m", FakeScript(["🎉🎉 b"]))
    async with TextChat(engine, Unchecked()).generate(asked(**limits)) as answer:
        reply = together([batch async for batch in answer.events])
    assert (reply.text, reply.finish) == (text, finish)
    assert reply.usage
    if finish == "length":
        assert reply.usage.completion == limits["max_tokens"]


class Narrow(FakeEngine):
    """Makes two tokens in all, whatever it is asked for, as one whose context is full."""

    left = 2

    async def _generated_outputs(self, request: TextRequest) -> AsyncGenerator[Output, None]:
        made = 0
        async with aclosing(FakeEngine._generated_outputs(self, request)) as outputs:
            async for output in outputs:
                if isinstance(output, Token) and self.left:
                    self.left -= 1
                    made += 1
                    yield output
        yield Stopped("length", len(request.prompt), made, 0)


async def test_an_engine_that_has_no_room_left_ends_the_answer() -> None:
    engine = Narrow("m", FakeScript(["one two"]))
    async with TextChat(engine, Unchecked()).generate(asked(max_tokens=9)) as answer:
        reply = together([batch async for batch in answer.events])
    assert (reply.text, reply.finish) == ("on", "length")
    assert reply.usage
    assert reply.usage.completion == 2


@pytest.mark.parametrize("tokens", [1, 4, 10])
async def test_a_forced_call_that_is_cut_in_its_first_marker_is_no_answer(tokens: int) -> None:
    required = ToolChoice("required")
    reply = await replied(CALL, asked(tools=(TOOL,), tool_choice=required, max_tokens=tokens))
    assert (reply.text, reply.calls, reply.finish) == ("", [], "length")


@pytest.mark.parametrize(("stop", "fails"), [("\n", True), ("}", False)])
async def test_an_answer_that_no_stop_string_has_cut_is_checked(
    monkeypatch: pytest.MonkeyPatch, stop: str, fails: bool
) -> None:
    monkeypatch.setattr("causerie.chat.answer.AnswerPlan.fault", lambda *_: "It is wrong.")
    expected = pytest.raises(InternalError, match="wrong") if fails else nullcontext()
    with expected:
        await replied('{"a": 1}', asked(output=JsonObject(), stop=(stop,)))


class Forgetful(FakeEngine):
    """Gives up its grammar, as an engine does whose parser fails in the middle."""

    async def _generated_outputs(self, request: TextRequest) -> AsyncGenerator[Output, None]:
        async with aclosing(super()._generated_outputs(replace(request, grammar=None))) as outputs:
            async for output in outputs:
                yield output


async def unconstrained(text: str, request: ChatRequest) -> Reply:
    async with TextChat(Forgetful("m", FakeScript([text])), Unchecked()).generate(
        request
    ) as answer:
        return together([batch async for batch in answer.events])


async def test_a_forced_call_that_does_not_come_is_a_failure() -> None:
    required = ToolChoice("required")
    with pytest.raises(InternalError, match="required"):
        await unconstrained("", asked(tools=(TOOL,), tool_choice=required))


@each_of("mode", ["required", "auto"])
@each_of(
    "text",
    [
        CALL.replace('"city"', '"town"'),
        CALL.replace('{"city"', '{"x": 1, "city"'),
        CALL + CALL.replace('"Köln"', "[]"),
    ],
)
async def test_a_call_that_the_engine_did_not_hold_to_its_schema_is_no_answer(
    mode: Literal["required", "auto"], text: str
) -> None:
    with pytest.raises(InternalError, match="The arguments of 'get_weather'"):
        await unconstrained(text, asked(tools=(TOOL,), tool_choice=ToolChoice(mode)))


@pytest.mark.parametrize("mode", ["required", "auto"])
async def test_a_finished_call_is_checked_where_the_reply_is_cut_behind_it(
    mode: Literal["required", "auto"],
) -> None:
    wrong = CALL.replace('"Köln"', "[]")
    cut = asked(tools=(TOOL,), tool_choice=ToolChoice(mode), max_tokens=wrong.index("</tool_call>"))
    with pytest.raises(InternalError, match="The arguments of 'get_weather'"):
        await unconstrained(wrong, cut)
    earlier = asked(tools=(TOOL,), tool_choice=ToolChoice(mode), max_tokens=wrong.index("[]"))
    assert (await unconstrained(wrong, earlier)).finish == "length"


@pytest.mark.parametrize("text", ["def f(): pass", CALL + "\nThe weather is fine."])
async def test_text_in_the_place_of_a_forced_call_is_no_answer(text: str) -> None:
    with pytest.raises(InternalError, match="A call was required"):
        await unconstrained(text, asked(tools=(TOOL,), tool_choice=ToolChoice("required")))


@pytest.mark.parametrize(
    ("thought", "begun", "text", "reasoning", "answer"),
    [
        ("Let", None, "\nme see\n</think>\n\nYes", "\nme see", "Yes"),
        ("Let", "Ye", "s", "", "s"),
        (None, "Ye", "s", "", "s"),
    ],
)
async def test_a_message_is_continued_as_what_it_was(
    thought: str | None, begun: str | None, text: str, reasoning: str, answer: str
) -> None:
    request = ChatRequest(
        "m",
        (Message("user", "Hi"), Message("assistant", begun, reasoning_content=thought)),
        continue_final_message=True,
    )
    reply = await replied(text, request, TextChatOptions(format="qwen-3", template=THINKING))
    assert (reply.reasoning, reply.text) == (reasoning, answer)
    assert reply.usage
    assert bool(reply.usage.reasoning) == bool(reasoning)


async def test_log_probabilities_are_of_the_answer_alone() -> None:
    """Also where the budget ends the reasoning in the middle of a character."""
    engine = FakeEngine("m", FakeScript(["<think>\n\N{PARTY POPPER}", "Yes"]))
    chat = TextChat(engine, Unchecked(), TextChatOptions(format="qwen-3", template=THINKING))
    thinking = Thinking(enabled=True, budget=2)
    async with chat.generate(asked(thinking=thinking, top_logprobs=0)) as answer:
        reply = together([batch async for batch in answer.events])
    assert reply.text == "Yes"
    assert b"".join(token.raw for token in reply.logprobs).decode() == reply.text


TALK = """
{%- for message in messages %}
{{- message.role + ': ' + message.content + '\n\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ 'assistant:' }}{% endif %}
""".strip()


@pytest.mark.parametrize(
    ("said", "changes", "text"),
    [
        (" Hi there ", {}, "Hi there "),
        (" yes", {"output": TextChoice(("yes", "no"))}, "yes"),
        ("Hm.\n</think>\n\nYes", {"thinking": Thinking(enabled=True)}, "Yes"),
    ],
)
async def test_a_blank_that_the_template_writes_before_answers_is_no_part_of_them(
    said: str, changes: dict[str, Any], text: str
) -> None:
    """So the prompt of the next turn goes on from it."""
    engine = FakeEngine("m", FakeScript([said]), template=TALK)
    target, begun = TextChat(engine, Unchecked()), asked(**changes)
    async with target.generate(begun) as answer:
        told = together([batch async for batch in answer.events])
    assert told.text == text
    past = Message("assistant", told.text, reasoning_content=told.reasoning or None)
    async with target.generate(
        structs.replace(begun, messages=(*begun.messages, past, *begun.messages))
    ) as answer:
        await anext(aiter(answer.events))
    first, second = (bytes(request.prompt).decode() for request in engine.requests)
    assert second.startswith(first + said)


async def test_a_forced_call_does_not_begin_the_answer_that_the_prompt_has_begun() -> None:
    """Kimi K3 without thinking: its calls stand behind an answer, which may be empty."""
    template = (Path(__file__).parents[1] / "templates" / "kimi-k3.jinja").read_text()
    call = (
        '<|close|>response<|sep|><|open|>tools<|sep|><|open|>call tool="get_weather" index="1"'
        '<|sep|><|open|>argument key="city" type="string"<|sep|>Köln<|close|>argument<|sep|>'
        "<|close|>call<|sep|><|close|>tools<|sep|>"
    )
    engine = FakeEngine("m", FakeScript([call]), template=template)
    forced = asked(
        tools=(TOOL,), tool_choice=ToolChoice("required"), thinking=Thinking(enabled=False)
    )
    async with TextChat(engine, Unchecked()).generate(forced) as answer:
        reply = together([batch async for batch in answer.events])
        trail = answer.trail()
    assert reply.said == ("", "", [("get_weather", '{"city": "Köln"}')], "tool_calls")
    assert trail is not None
    assert bytes(token for token in trail.tokens if token < 256).decode() == call


HERMES_CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call>'
CODER_CALL = (
    "<tool_call>\n<function=get_weather>\n"
    "<parameter=city>\nOslo\n</parameter>\n</function>\n</tool_call>"
)


@each_of(
    ("name", "thinks", "call"),
    [
        ("bielik", None, "\n" + HERMES_CALL),
        ("bielik", True, "Hm.\n</think>\n\n" + HERMES_CALL),
        ("nemotron-3", False, "\n" + CODER_CALL),
        ("nemotron-3", True, "Hm.\n</think>\n" + CODER_CALL),
        ("hermes", None, HERMES_CALL),
    ],
)
async def test_a_forced_call_is_written_as_the_history_shows_it(
    name: str, thinks: bool | None, call: str
) -> None:
    """With the line break before it, or without."""
    template = (Path(__file__).parents[1] / "templates" / f"{name}.jinja").read_text()
    engine = FakeEngine("m", FakeScript([call]), template=template)
    target = TextChat(engine, Unchecked())
    thinking = Thinking(enabled=thinks)
    forced = asked(tools=(TOOL,), tool_choice=ToolChoice("required"), thinking=thinking)
    async with target.generate(forced) as answer:
        told = together([batch async for batch in answer.events])
    calls = tuple(ToolCall(made.id, made.name, made.arguments) for made in told.calls)
    past = Message("assistant", None, tool_calls=calls, reasoning_content=told.reasoning or None)
    result = Message("tool", "Rain.", tool_call_id=calls[0].id)
    then = structs.replace(forced, messages=(*forced.messages, past, result))
    async with target.generate(then) as answer:
        await anext(aiter(answer.events))
    first, second = (request.prompt for request in engine.requests)
    assert second[: len(first)] == first
    assert "".join(await engine.texts(second[len(first) :])).startswith(call)


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
