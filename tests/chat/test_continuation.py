"""Replies that broke off and are continued: at every place, with and without their tokens."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from casekit import each_of
from chatkit import Unchecked, continued, whole_and_cuts
from formatkit import TOOLS, WEATHER

from causerie.chat.chat import TextChat, TextChatOptions
from causerie.chat.formats.format import ModelFormat
from causerie.chat.formats.registry import FORMATS
from causerie.chat.parser import Parser
from causerie.chat.prompt import before_call
from causerie.chat.resumed_reply import (
    Diverged,
    Given,
    answer_space,
    call_space,
    can_write,
    writings,
)
from causerie.chat.schema import WhiteSpace
from causerie.chat.template import ChatTemplate
from causerie.engines.registry import FakeEngine, FakeScript
from causerie.errors import UpstreamFailed
from causerie.protocol.events import (
    Finished,
    Partial,
    PartialCall,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    ToolCallStarted,
    Trail,
)
from causerie.protocol.request import (
    ChatRequest,
    JsonSchema,
    Message,
    TextChoice,
    Thinking,
    Tool,
    ToolChoice,
)

SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "size": {"enum": ["s", "m"]}},
    "required": ["name", "size"],
    "additionalProperties": False,
}
TOOL = Tool("get_weather", WEATHER)
CALL = (
    '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Köln", "days": 2}}\n</tool_call>'
)
NO_TOOLS = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
THOUGHT = "<think>\nWas ist 日本?\n\nHm.\n</think>\n\nEin Land <b>."


def asked(**changes: Any) -> ChatRequest:
    return ChatRequest("m", (Message("user", "Hi"),), **changes)


def chat(reply: str, form: str = "qwen-3") -> TextChat:
    return TextChat(FakeEngine("m", FakeScript([reply])), Unchecked(), TextChatOptions(format=form))


CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "text": ("Grüße 🎉 an\n alle. ", {}),
    "thinking": (THOUGHT, {}),
    "thinking under a schema": (
        '<think>\nHm.\n</think>\n\n{"name": "ü\\n", "size": "m"}',
        {"output": JsonSchema(SCHEMA)},
    ),
    "schema": ('{"name": "a, b: c", "size": "s"}', {"output": JsonSchema(SCHEMA)}),
    "choice": ("two", {"output": TextChoice(("one", "two", "three"))}),
    "forced call": (CALL, {"tools": (TOOL,), "tool_choice": ToolChoice("required")}),
    "two calls": (f"{CALL}\n{CALL}", {"tools": (TOOL,), "tool_choice": ToolChoice("required")}),
    "text and call": (f"Let me see.\n{CALL}", {"tools": (TOOL,)}),
    "thinking and call": (f"<think>\nHm.\n</think>\n\n{CALL}", {"tools": (TOOL,)}),
    "nearly a call": ("a <tool b <tool_cal", {"tools": (TOOL,)}),
    "stop": ("one EN two END three", {"stop": ("END", "zzz")}),
    "length": ("one two three", {"max_tokens": 9}),
    "minimum": ("a", {"min_tokens": 1, "max_tokens": 3}),
    "stop behind the minimum": ("END a END b", {"min_tokens": 5, "stop": ("END",)}),
}


@each_of("tokens_known", [True, False], every=3)
@each_of("case", CASES)
async def test_cut_anywhere_it_is_the_same_reply(case: str, tokens_known: bool) -> None:
    reply, changes = CASES[case]
    request = asked(**changes)
    whole, cuts = await whole_and_cuts(chat(reply), request)
    assert cuts
    for cut in cuts:
        if not tokens_known:
            cut = replace(cut, partial=replace(cut.partial, trail=None))
        merged = await continued(chat(reply), request, cut)
        assert merged.said == whole.said
        assert merged.calls[: len(cut.partial.calls)] == [
            replace(call, arguments=merged.calls[at].arguments)
            for at, call in enumerate(cut.partial.calls)
        ]
        if tokens_known:
            assert merged.usage is not None
            assert whole.usage is not None
            assert merged.usage.prompt == whole.usage.prompt
            assert merged.usage.completion == whole.usage.completion - cut.partial.completion
            assert merged.usage.reasoning == whole.usage.reasoning - cut.partial.reasoning_tokens


async def test_one_call_stays_one_when_it_is_continued() -> None:
    """The rest has as many tokens as the rest of the undisturbed reply, whose model writes one."""
    request = asked(tools=(TOOL,), tool_choice=ToolChoice("required"))
    script, options = FakeScript([f"{CALL}\n{CALL}"]), TextChatOptions(template=NO_TOOLS)
    target = TextChat(FakeEngine("m", script), Unchecked(), options)
    whole, cuts = await whole_and_cuts(target, request)
    begun = next(cut for cut in cuts if cut.partial.calls)
    again = TextChat(FakeEngine("m", script), Unchecked(), options)
    merged = await continued(again, request, begun)
    assert merged.said == whole.said
    assert whole.usage is not None
    assert merged.usage is not None
    assert merged.usage.completion == whole.usage.completion - begun.partial.completion


async def test_a_reply_is_continued_again_and_again() -> None:
    request = asked(tools=(TOOL,), tool_choice=ToolChoice("required"))
    whole, cuts = await whole_and_cuts(chat(CALL), request)
    early, late = cuts[1], cuts[-2]
    async with chat(CALL).generate(request, early.partial) as answer:
        events = aiter(answer.events)
        batches = [await anext(events) for _ in range(len(late.before) - len(early.before))]
        trail = answer.trail()
    assert trail == late.partial.trail
    again = replace(late, before=(*early.before, *batches))
    merged = await continued(chat(CALL), request, again)
    assert merged.said == whole.said


async def test_what_had_not_gone_out_comes_first() -> None:
    """The target was ahead of its reader when it broke off."""
    _, cuts = await whole_and_cuts(chat("one two three"), asked())
    late = cuts[-1]
    behind = replace(cuts[2], partial=replace(cuts[2].partial, trail=late.partial.trail))
    merged = await continued(chat("one two three"), asked(), behind)
    assert merged.text == "one two three"


async def test_log_probabilities_have_no_gap() -> None:
    request = asked(top_logprobs=1, tools=(TOOL,))
    reply = "a <tool b ü <tool_cal"
    whole, cuts = await whole_and_cuts(chat(reply), request)
    for cut in cuts:
        merged = await continued(chat(reply), request, cut)
        assert merged.said == whole.said
        assert [one.raw for one in merged.logprobs] == [one.raw for one in whole.logprobs]


async def test_an_answer_that_the_prompt_begins_is_not_begun_again() -> None:
    template = (Path(__file__).parents[1] / "templates" / "kimi-k3.jinja").read_text()
    engine = FakeEngine("m", FakeScript(["Once upon"]), template=template)
    request = asked(thinking=Thinking(enabled=False))
    async with TextChat(engine, Unchecked()).generate(request, Partial(text="Once")) as answer:
        await anext(aiter(answer.events))
    prompt = bytes(engine.requests[0].prompt).decode()
    assert prompt.rpartition("assistant")[2].endswith("response<|sep|>Once")
    assert prompt.count("<|open|>response<|sep|>") == 1


async def test_the_budget_of_the_reasoning_counts_on() -> None:
    request = asked(thinking=Thinking(enabled=True, budget=8), max_tokens=60)
    spent = Partial(reasoning="one two", completion=9, reasoning_tokens=9)
    async with chat("never").generate(request, spent) as answer:
        first = await anext(aiter(answer.events))
    assert not any(isinstance(event, ReasoningDelta) for event in first)


async def test_a_reply_whose_last_token_had_come_is_ended() -> None:
    engine = FakeEngine("m")
    target = TextChat(engine, Unchecked(), TextChatOptions(format="qwen-3"))
    words = (await engine.facts()).words
    end = (await engine.facts()).end_tokens[0]
    done = Partial(text="Yes.", completion=5, trail=Trail(words, (*b"Yes.", end)))
    async with target.generate(asked(), done) as answer:
        events = [event for batch in [b async for b in answer.events] for event in batch]
    assert [type(event).__name__ for event in events] == ["Finished", "Usage"]
    assert not engine.requests


async def test_tokens_that_say_something_else_are_not_used() -> None:
    engine = FakeEngine("m", FakeScript(["Yes. No."]))
    target = TextChat(engine, Unchecked(), TextChatOptions(format="qwen-3"))
    words = (await engine.facts()).words
    partial = Partial(text="Yes.", completion=4, trail=Trail(words, tuple(b"Oh")))
    async with target.generate(asked(), partial) as answer:
        batches = [batch async for batch in answer.events]
    texts = [e.text for batch in batches for e in batch if isinstance(e, TextDelta)]
    assert "".join(texts) == " No."


async def test_what_cannot_be_continued_is_said_so() -> None:
    target = chat("x")
    broken = Partial(text="a", calls=(PartialCall(0, "c", "get_weather", '{"city": "K'),))
    with pytest.raises(UpstreamFailed, match="cannot go on"):
        async with target.generate(asked(), replace(broken, text="a <tool_call>")):
            pytest.fail("it was accepted")
    assert not target.continues(asked(n=2), Partial())
    other = replace(broken, calls=(PartialCall(0, "a", "get_weather", "{"), *broken.calls))
    assert not target.continues(asked(tools=(TOOL,)), other)
    assert chat("x").continues(asked(), other), "before the model is loaded nobody knows"


async def test_what_a_constraint_never_admitted_is_not_continued() -> None:
    request = asked(output=JsonSchema(SCHEMA))
    with pytest.raises(UpstreamFailed, match="does not admit"):
        async with chat("x").generate(request, Partial(text='{"size": ')) as answer:
            await anext(aiter(answer.events))


@pytest.mark.parametrize(
    ("text", "rest"), [('{"name":"a"', '"size"'), ('{\n "name": "a: b, c",\n', '"size"')]
)
async def test_white_space_of_others_is_taken_over(text: str, rest: str) -> None:
    request = asked(output=JsonSchema(SCHEMA))
    async with chat("m").generate(request, Partial(text=text, completion=3)) as answer:
        batches = [batch async for batch in answer.events]
    new = "".join(e.text for batch in batches for e in batch if isinstance(e, TextDelta))
    assert rest in new


@each_of(
    ("text", "pretty"),
    [
        ("", True),
        ('{"a": [1, 2', True),
        ('{"a":1', True),
        ('{"a" : 1', True),
        ('{\n  "a": 1,\n\n\t"b', True),
        ('{"a":  1', False),
        ('{"a":\n\n\n1', False),
        ('{"a":\n' + 33 * " " + "1", False),
        ('{"a":\r\n1', False),
        ('{"a": "x:y,  z', True),
        ('{"a": "x\\"  :1', True),
        ('{"a": 1, ', True),
        ('{"a": 1,\n  ', True),
    ],
)
def test_white_space_of_answers_is_recognised(text: str, pretty: bool) -> None:
    assert answer_space(text) is (WhiteSpace.PRETTY if pretty else WhiteSpace.ANY)


@each_of(
    ("arguments", "pretty"),
    [
        ("", True),
        ('{"a": [1, 2', True),
        ('{"a":1', True),
        ('{"a" : 1', True),
        ('{"a": "x:y,  z', True),
        ('{"a": "x\\"  :1', True),
        ('{\n  "a": 1,\n', True),
        ('{"a":  1', False),
        ('{\r\n"a', False),
    ],
)
def test_white_space_of_arguments_is_recognised(arguments: str, pretty: bool) -> None:
    partial = Partial(calls=(PartialCall(0, "c", "f", arguments),))
    assert call_space(partial) is (WhiteSpace.PRETTY if pretty else WhiteSpace.ANY)


REASONED = FORMATS
CALLING = FORMATS
ARGUMENTS = '{"city": "Köln", "days": 2}'


@each_of("form", FORMATS, ids=lambda form: form.name)
def test_every_format_writes_text_that_broke_off(form: ModelFormat) -> None:
    assert_written(form, Partial(text="Well, the answ"))


@each_of("form", REASONED, ids=lambda form: form.name, every=3)
@each_of("is_open", [False, True])
def test_every_format_writes_reasoning_that_broke_off(form: ModelFormat, is_open: bool) -> None:
    assert_written(form, Partial(reasoning="Let me thi"), is_open=is_open)
    assert_written(form, Partial(reasoning="Hm.", text="Well, the answ"), is_open=is_open)


@each_of("form", CALLING, ids=lambda form: form.name)
def test_every_format_writes_calls_that_broke_off(form: ModelFormat) -> None:
    partial = Partial(calls=(PartialCall(0, "abcdefgh1", "get_weather", ARGUMENTS),))
    assert_written(form, partial)
    cut = replace(partial, calls=(PartialCall(0, "call_1", "get_weather", ARGUMENTS[:12]),))
    if can_write(form, cut):
        assert_written(form, cut)


@each_of("form", [f for f in CALLING if not f.calls.at_start], ids=lambda form: form.name)
def test_every_format_writes_a_call_behind_a_text_as_its_template_does(form: ModelFormat) -> None:
    source = (Path(__file__).parents[1] / "templates" / f"{form.name}.jinja").read_text()
    call = PartialCall(0, "abcdefgh1", "get_weather", ARGUMENTS)
    between = before_call(ChatTemplate(source, bos_token="", eos_token=""), form)
    assert between is not None
    assert_written(form, Partial(text="I look.", calls=(call,)), between=between)


@each_of(
    "form",
    [f for f in CALLING if f.calls.parallel],
    ids=lambda form: form.name,
    every=3,
)
async def test_calls_with_values_of_every_kind_are_continued_under_their_constraint(
    form: ModelFormat,
) -> None:
    """They are written anew as the constraint has them: ``True`` for Qwen's coder, types by name
    for Kimi K3."""
    source = (Path(__file__).parents[1] / "templates" / f"{form.name}.jinja").read_text()
    values = '{"city": "Oslo", "days": 3, "hot": true, "tags": ["a"]}'
    made = (("get_weather", values), ("time", '{"zone": "UTC"}'))
    calls = tuple(PartialCall(at, f"c{at}", *call) for at, call in enumerate(made))
    tools = tuple(Tool(name, schema) for name, schema in TOOLS.items())
    required = asked(tools=tools, tool_choice=ToolChoice("required"))
    engine = FakeEngine("m", FakeScript(["x"]), template=source)
    target = TextChat(engine, Unchecked(), TextChatOptions(format=form.name))
    async with target.generate(required, Partial(calls=calls)) as answer:
        rest = [event async for batch in answer.events for event in batch]
    assert any(isinstance(event, Finished) for event in rest)


def assert_written(
    form: ModelFormat, partial: Partial, *, is_open: bool = False, between: str | None = None
) -> None:
    """One of the texts, read by the format's own parser, is the reply so far."""
    for text in writings(
        form, partial, reasoning_open=is_open, leading="", earlier=0, between=between
    ):
        parser = Parser(
            form, tools=TOOLS, reasoning_open=is_open, call_id=lambda name, given: given or name
        )
        given = Given(partial)
        try:
            assert not given.new(parser.feed(str.__str__(text)))
        except Diverged:
            continue
        if given.all_seen:
            return
    pytest.fail(f"no text of {form.name} says it")


def test_given_tells_what_is_new() -> None:
    given = Given(Partial("ab", "cd", (PartialCall(0, "i", "f", '{"a'),)))
    assert given.new([ReasoningDelta("a"), ReasoningDelta("bx")]) == [ReasoningDelta("x")]
    assert given.new([TextDelta("cdy")]) == [TextDelta("y")]
    assert not given.all_seen
    assert given.new([ToolCallStarted(0, "j", "f"), ToolCallDelta(0, '{"a": 1')]) == [
        ToolCallDelta(0, '": 1')
    ]
    assert given.all_seen
    assert given.new([ToolCallStarted(1, "j", "f")]) == [ToolCallStarted(1, "j", "f")]
    with pytest.raises(Diverged):
        Given(Partial(text="ab")).new([TextDelta("b")])
    with pytest.raises(Diverged):
        Given(Partial(calls=(PartialCall(0, "i", "f", ""),))).new([ToolCallStarted(0, "j", "g")])
