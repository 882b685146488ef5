"""The scripted engine beyond the contract: its script, its options, whole chats over it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

import jinja2
import pytest
from casekit import each_of

from causerie.chat.formats.registry import detect
from causerie.engines.base import (
    EngineFailed,
    EngineState,
    Output,
    Stopped,
    TextEngine,
    TextRequest,
    Token,
)
from causerie.engines.registry import (
    FAKE_CONTROL,
    FAKE_END,
    FAKE_TEMPLATE,
    FakeEngine,
    FakeScript,
    engine_factory,
)
from causerie.protocol.parameters import SamplingParams


async def said(engine: TextEngine, prompt: str = "", **rest: Any) -> tuple[str, Stopped]:
    ids = await engine.tokenize([prompt], special=True)
    request = TextRequest(ids, **{"max_tokens": 200, **rest})
    async with engine.generate(request) as output:
        items = [item async for item in output]
    assert isinstance(items[-1], Stopped)
    return "".join(item.text for item in items if isinstance(item, Token)), items[-1]


def chat(*messages: Mapping[str, object], **rest: object) -> str:
    environment = jinja2.Environment(autoescape=False)
    return environment.from_string(FAKE_TEMPLATE).render(
        messages=messages, add_generation_prompt=True, **rest
    )


async def test_replies_are_said_in_turn() -> None:
    engine = FakeEngine("a", FakeScript(["one", "zwei ü"]))
    assert [(await said(engine))[0] for _ in range(3)] == ["one", "zwei ü", "one"]
    assert len(engine.requests) == 3


@each_of("text", ["Hello", "two\nlines", "the user\nsaid", "ends in\nassistant", "ä🎉", ""])
async def test_without_a_script_it_repeats_the_user(text: str) -> None:
    prompt = chat({"role": "system", "content": "Be."}, {"role": "user", "content": text})
    assert (await said(FakeEngine("a"), prompt))[0] == text


async def test_it_repeats_the_last_user_not_the_last_message() -> None:
    prompt = chat(
        {"role": "user", "content": "first"},
        {"role": "user", "content": "second"},
        {"role": "assistant", "content": "no"},
        {"role": "tool", "content": "42"},
    )
    assert (await said(FakeEngine("a"), prompt))[0] == "second"


async def test_under_another_template_it_repeats_everything() -> None:
    assert (await said(FakeEngine("a"), "plain <|im_end|>text"))[0] == "plain text"


async def test_control_tokens_of_a_reply_are_control_tokens() -> None:
    engine = FakeEngine("a", FakeScript(["a<|im_start|>b<|im_end|>never"]))
    assert (await said(engine))[0] == "ab"
    text, stopped = await said(engine, visible=("<|im_start|>",))
    assert text == "a<|im_start|>b"
    assert (stopped.reason, stopped.completion_tokens) == ("stop", 4)


async def test_control_text_of_a_user_stays_plain() -> None:
    engine = FakeEngine("a")
    ids = await engine.tokenize(["say <|im_end|> twice"], special=False)
    async with engine.generate(TextRequest(ids, 100)) as output:
        text = "".join([item.text async for item in output if isinstance(item, Token)])
    assert text == "say <|im_end|> twice"


async def test_it_fails_where_the_script_says() -> None:
    engine = FakeEngine("a", FakeScript(["abc"], fail_after=2))
    got = []
    with pytest.raises(EngineFailed, match="the script says"):
        async with engine.generate(TextRequest([1], 10)) as output:
            async for item in output:
                got.append(item)
    assert "".join(item.text for item in got if isinstance(item, Token)) == "ab"
    assert engine.status().busy == 0


async def test_the_gate_lets_tokens_out_one_by_one() -> None:
    gate = asyncio.Semaphore(0)
    engine = FakeEngine("a", FakeScript(["ab"], gate=gate))
    async with engine.generate(TextRequest([1], 10)) as output:
        await anext(output)
        async with asyncio.TaskGroup() as group:
            token = group.create_task(next_of(output))
            await asyncio.sleep(0)
            assert not token.done()
            assert engine.status().busy == 1
            gate.release()
        assert token.result() == Token(97, "a", b"a")
    assert engine.status().busy == 0


async def next_of(output: AsyncIterator[Output]) -> Output:
    return await anext(output)


async def test_a_long_text_lets_others_have_their_turn() -> None:
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.get_running_loop().create_task(count())
    await said(FakeEngine("a", FakeScript(["x"])), max_tokens=1000, ignore_eos=True)
    counting.cancel()
    assert turns >= 100


async def test_a_context_that_is_full_ends_the_text() -> None:
    engine = FakeEngine("a", FakeScript(["x" * 100]), context_length=20)
    text, stopped = await said(engine, "p" * 15)
    assert (text, stopped.reason) == ("x" * 5, "length")


async def test_a_banned_end_never_comes() -> None:
    engine = FakeEngine("a", FakeScript(["ab"]))
    text, stopped = await said(
        engine, max_tokens=5, sampling=SamplingParams(logit_bias={FAKE_END: -100.0})
    )
    assert (text, stopped.reason) == ("ababa", "length")


async def test_a_banned_token_is_left_out() -> None:
    engine = FakeEngine("a", FakeScript(["banana"]))
    assert (await said(engine, sampling=SamplingParams(logit_bias={97: -100.0})))[0] == "bnn"


@each_of(
    ("reply", "grammar", "text"),
    [
        ("yes", 'start: "yes" | "no"', "yes"),
        ("whatever", 'start: "yes" | "no"', "no"),
        ("7 dwarfs", "start: /[0-9]{3}/", "700"),
        ('{"a": 5}', 'start: %json {"type": "object", "additionalProperties": {}}', '{"a": 5}'),
        (
            "no JSON",
            'start: %json {"type": "object", "properties": {"a": {"type": "integer"}}, '
            '"required": ["a"], "additionalProperties": false}',
            '{"a":0}',
        ),
    ],
)
async def test_under_a_grammar_it_says_what_is_admitted(
    reply: str, grammar: str, text: str
) -> None:
    engine = FakeEngine("a", FakeScript([reply]))
    got, stopped = await said(engine, grammar="%llguidance {}\n" + grammar)
    assert (got, stopped.reason) == (text, "stop")


async def test_a_grammar_that_is_none_fails() -> None:
    with pytest.raises(EngineFailed, match="does not compile"):
        await said(FakeEngine("a"), grammar="%llguidance {}\nstart: nothing")


def test_its_template_is_of_a_family_with_tools() -> None:
    assert detect(FAKE_TEMPLATE).name == "hermes"


def test_its_template_shows_tools_and_calls() -> None:
    call = {"function": {"name": "add", "arguments": {"a": 1}}}
    prompt = chat(
        {"role": "assistant", "content": None, "tool_calls": [call, call]},
        tools=[{"type": "function", "function": {"name": "add"}}],
    )
    written = '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'
    assert f"assistant\n{written}\n{written}<|im_end|>" in prompt
    assert '\n{"name": "add"}\n' in prompt


async def test_it_comes_from_options() -> None:
    engine = engine_factory("fake")("a", None, {"replies": ["Hi"], "slots": 3, "fail_after": 2})
    assert engine.slots == 3
    assert engine.status().state is EngineState.ABSENT
    await engine.start()
    assert engine.status().state is EngineState.READY
    with pytest.raises(EngineFailed):
        await said(engine)


@each_of(
    ("options", "message"),
    [
        ({"repies": []}, "no option repies; it takes replies, fail_after"),
        ({"replies": "Hi"}, "replies is a list of strings"),
        ({"replies": [1]}, "replies is a list of strings"),
        ({"slots": 0}, "slots is a number from 1"),
        ({"slots": True}, "slots is a number from 1"),
        ({"context_length": "8k"}, "context_length is a number from 1"),
        ({"template": 1}, "template is a string"),
    ],
)
def test_wrong_options_are_named(options: Mapping[str, Any], message: str) -> None:
    with pytest.raises(EngineFailed, match=message):
        FakeEngine.from_options("a", None, options)


async def test_control_text_is_plain_unless_asked_for() -> None:
    engine = FakeEngine("a")
    for text, id in FAKE_CONTROL.items():
        assert await engine.tokenize([text], special=True) == [id]
        assert await engine.tokenize([text], special=False) == list(text.encode())
