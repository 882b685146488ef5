"""An answer that is nothing but calls, in a spelling that is not the family's own."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import pytest
from casekit import each_of
from chatkit import Reply, Unchecked, continued, together, whole_and_cuts
from formatkit import TOOLS, Told, read
from grammarkit import Vocabulary, vocabularies
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from causerie.chat.chat import TextChat, TextChatOptions
from causerie.chat.constraint import CallPlan, compose
from causerie.chat.formats.format import ModelFormat
from causerie.chat.formats.registry import by_name
from causerie.engines.registry import FakeEngine, FakeScript
from causerie.protocol.request import ChatRequest, JsonObject, Message, Tool

PARIS, OSLO = {"city": "Paris"}, {"city": "Oslo", "days": 3}


def call(name: str, arguments: object, key: str = "arguments", indent: int | None = None) -> str:
    return json.dumps({"name": name, key: arguments}, indent=indent)


ONE = call("get_weather", PARIS)
PRETTY = call("get_weather", PARIS, indent=2)
OTHER = call("get_weather", OSLO)
CALLS = [
    (ONE, [PARIS]),
    (PRETTY, [PARIS]),
    (call("get_weather", PARIS, "parameters"), [PARIS]),
    ('{"type": "function", ' + ONE[1:], [PARIS]),
    (f"```json\n{PRETTY}\n```", [PARIS]),
    (f"```\n{ONE}\n```", [PARIS]),
    (f"```tool_call\n{ONE}\n```\n", [PARIS]),
    (f"\n```json\n{ONE}", [PARIS]),  # the fence is not closed
    (f"[{ONE}]", [PARIS]),
    (f"[{ONE}, {OTHER}]", [PARIS, OSLO]),
    (f"```json\n[\n{PRETTY},\n{OTHER}\n]\n```", [PARIS, OSLO]),
    (f"{ONE}\n{OTHER}", [PARIS, OSLO]),
    (f"```json\n{ONE}\n```\n```json\n{OTHER}\n```", [PARIS, OSLO]),
    (f"```json\n{PRETTY}\n```\n\n```\n{OTHER}", [PARIS, OSLO]),
    (f"```json\n{ONE}\n```\n```json\n{ONE}\n```", [PARIS]),
    (f"```json\n{ONE}\n```\n```json\n[{OTHER}]\n```", [PARIS, OSLO]),
    (f"```json\n[{ONE}]\n```\n```json\n[\n{OTHER}\n]\n```", [PARIS, OSLO]),
    ('[get_weather(city="Paris")]', [PARIS]),
    ("[get_weather(city='Paris'), get_weather(days=3, city=\"Oslo\")]", [PARIS, OSLO]),
    (f"{ONE}\n</tool_call>", [PARIS]),
    (f"{ONE}\n</tool_call>\n</tool_call>", [PARIS]),
    (f"{ONE}\n</tool_call>\n<tool_call>\n{OTHER}\n</tool_call>", [PARIS, OSLO]),
    (f"[{ONE}, {ONE}]", [PARIS]),  # the same again ends the message
]
TEXTS = [
    f"Call it so:\n```json\n{ONE}\n```",
    f"```json\n{ONE}\n```\nThis asks for the weather.",
    f"{ONE} is a call.",
    f"{ONE}\n\n{OTHER} or so",
    f"```python\n{ONE}\n```",
    f"```json\n{ONE}\n```\nor\n```json\n{OTHER}\n```",
    f"```json\n{ONE}\n```\n```json",
    f"```json\n{ONE}\n```\n```",
    f"```json\n{ONE}\n```\n```json\n{call('someone', PARIS)}\n```",
    call("someone", PARIS),
    f"```json\n{call('someone', PARIS)}\n```",
    f"[{ONE}, {call('someone', PARIS)}]",
    call("get_weather", {"city": 1}),
    call("get_weather", {"town": "Paris"}),
    call("get_weather", {}),
    call("get_weather", []),
    call("get_weather", "Paris"),
    '{"name": "get_weather"}',
    '{"arguments": {"city": "Paris"}}',
    '{"city": "Paris"}',
    ONE[:-1],
    ONE[:30],
    f"[{ONE},",
    f"```json\n{ONE}\n``",
    '[get_weather(city="Paris")] is a call.',
    "[get_weather(days=3)]",
    "[someone(city='Paris')]",
    "[get_weather]",
    "get_weather(city='Paris')",
    "[1] says so.",
    "`get_weather` may help.",
    "{",
    "```",
    "```json",
]


@each_of("size", [0, 1, 3])
@each_of(("text", "arguments"), CALLS)
def test_an_answer_that_is_a_call_is_read_as_one(
    text: str, arguments: list[object], size: int
) -> None:
    told = read(by_name("hermes"), text, size=size)
    assert (told.answer, told.calls) == ("", [("get_weather", each) for each in arguments])


@each_of("size", [0, 1, 3])
@each_of("text", TEXTS)
def test_all_other_text_stays_text(text: str, size: int) -> None:
    assert read(by_name("hermes"), text, size=size) == Told(answer=text)
    thought = read(by_name("qwen-3"), f"<think>\nHm.\n</think>\n\n{text}", size=size)
    assert thought == Told(reasoning="Hm.", answer=text)


@each_of("name", ["qwen-3", "kimi-k2", "deepseek-v3", "glm-4.5", "llama-3"])
def test_every_family_may_write_a_call_in_a_fence(name: str) -> None:
    told = read(by_name(name), f"```json\n{PRETTY}\n```", size=2)
    assert (told.answer, told.calls) == ("", [("get_weather", PARIS)])


def test_arguments_may_hold_what_marks_other_parts() -> None:
    city = "```</think>\n<tool_call> [TOOL_CALLS] <think>"
    told = read(by_name("qwen-3"), f"```json\n{call('get_weather', {'city': city})}\n```", size=1)
    assert (told.answer, told.calls) == ("", [("get_weather", {"city": city})])


def test_a_call_of_the_family_may_follow_an_example() -> None:
    own = f"<tool_call>\n{OTHER}\n</tool_call>"
    told = read(by_name("hermes"), f"```json\n{ONE}\n```\nLike this:\n{own}", size=2)
    assert told.answer.strip() == f"```json\n{ONE}\n```\nLike this:"
    assert told.calls == [("get_weather", OSLO)]


@given(data=st.data())
def test_no_text_is_lost_and_no_cut_matters(data: st.DataObject) -> None:
    parts = ["```", "json", "\n", " ", "[", "]", ",", "{", "}", ONE, PRETTY, OTHER, "</tool_call>"]
    words = [*parts, '{"name": "', "get_weather", '"arguments":', "Hello", "`", '"']
    text = "".join(data.draw(st.lists(st.sampled_from(words), max_size=10)))
    cuts = data.draw(st.lists(st.integers(0, len(text) or 1), min_size=1, max_size=8))
    form = by_name("hermes")
    whole = read(form, text)
    assert read(form, text, cuts=cuts) == whole
    assert read(form, text, cuts=range(1, len(text))) == whole
    assert whole.calls or whole.answer == text


def refused(
    form: ModelFormat,
    model: tuple[Mapping[str, int], Vocabulary],
    text: str,
    *,
    parallel: bool = True,
    reasoning: str = "none",
) -> str | None:
    plan = CallPlan(TOOLS, required=False, parallel=parallel, unmarked=True)
    grammar = compose(form, model[0], reasoning=reasoning, calls=plan, answer=None)
    assert grammar is not None
    return model[1].refused_at(grammar, text)


@each_of("name", ["hermes", "qwen-3", "qwen-3-coder", "kimi-k2", "mistral"])
def test_the_grammar_holds_unmarked_calls_to_the_schemas(name: str) -> None:
    form = by_name(name)
    for model in vocabularies(form):
        for text, _ in CALLS:
            assert refused(form, model, text) is None or "tool_call" in text, text
        again = f"```json\n{ONE}\n```\n```json\n"
        for fence in ("", "```json\n", "```\n[\n  ", again):
            begin = f'{fence}{{"name": "get_weather", "arguments": {{"'
            assert refused(form, model, begin + 'city": 1') == begin + 'city": 1'
            assert refused(form, model, begin + "town") == begin + "t"


@each_of("name", ["hermes", "qwen-3", "qwen-3-coder", "kimi-k2", "mistral"])
def test_the_grammar_leaves_other_text_free(name: str) -> None:
    form = by_name(name)
    broken = ("{}", "[]", '"Paris"', "town", ": 1}")  # not by the schema
    for model in vocabularies(form):
        for text in TEXTS:
            if not any(each in text for each in broken) and not text.startswith(ONE[:30]):
                assert refused(form, model, text) is None, text
        behind = f"```json\n{ONE}\n```\nThis asks for the weather. {{x}}"
        assert refused(form, model, behind) is None


def test_one_call_is_one_where_several_are_not_allowed() -> None:
    form = by_name("hermes")
    for model in vocabularies(form):
        assert refused(form, model, f"[{ONE}]", parallel=False) is None
        assert refused(form, model, f"[{ONE}, ", parallel=False) == f"[{ONE},"
        assert refused(form, model, f"{ONE}\n{{", parallel=False) == f"{ONE}\n{{"
        fenced = f"```json\n{ONE}\n```\n"
        assert refused(form, model, fenced, parallel=False) is None
        assert refused(form, model, f"{fenced}```json", parallel=False) == f"{fenced}```"


def test_a_call_behind_reasoning_is_held_to_its_schema() -> None:
    form = by_name("qwen-3")
    control = [model for model in vocabularies(form) if "</think>" in model[0]]
    assert control
    begin = '<think>\nHm.\n</think>\n\n```json\n{"name": "get_weather", "arguments": {"'
    for model in control:
        assert refused(form, model, begin + "t", reasoning="possible") == begin + "t"


FENCED = f"```json\n{PRETTY}\n```"
ASKED = ChatRequest(
    "m", (Message("user", "Hi"),), tools=(Tool("get_weather", TOOLS["get_weather"]),)
)


def chat(text: str) -> TextChat:
    return TextChat(FakeEngine("m", FakeScript([text] * 2)), Unchecked(), TextChatOptions())


async def replied(text: str, request: ChatRequest = ASKED) -> Reply:
    async with chat(text).generate(request) as answer:
        return together([batch async for batch in answer.events])


async def test_a_reply_of_unmarked_calls_ends_as_one_with_calls() -> None:
    reply = await replied(FENCED)
    assert (reply.text, reply.finish) == ("", "tool_calls")
    assert [(each.name, json.loads(each.arguments)) for each in reply.calls] == [
        ("get_weather", PARIS)
    ]


async def test_an_example_beside_text_goes_out_whole() -> None:
    text = f"{FENCED}\nThis asks for the weather."
    reply = await replied(text)
    assert (reply.text, reply.calls, reply.finish) == (text, [], "stop")


async def test_a_call_that_is_cut_stays_text() -> None:
    reply = await replied(FENCED, structs.replace(ASKED, max_tokens=20))
    assert (reply.calls, reply.finish) == ([], "length")
    assert reply.text
    assert FENCED.startswith(reply.text)


async def test_an_answer_in_json_that_was_asked_for_is_no_call() -> None:
    reply = await replied(ONE, structs.replace(ASKED, output=JsonObject()))
    assert (reply.text, reply.calls, reply.finish) == (ONE, [], "stop")


async def test_log_probabilities_of_a_call_are_not_given_out() -> None:
    reply = await replied(FENCED, structs.replace(ASKED, top_logprobs=0))
    assert (len(reply.calls), reply.logprobs) == (1, [])
    text = f"{FENCED}\nSo."
    reply = await replied(text, structs.replace(ASKED, top_logprobs=0))
    assert b"".join(token.raw for token in reply.logprobs).decode() == text


@pytest.mark.parametrize("text", [FENCED, f"{FENCED}\nThis asks for it."])
async def test_a_reply_that_broke_off_goes_on_to_the_same_end(text: str) -> None:
    whole, cuts = await whole_and_cuts(chat(text), ASKED)
    for cut in cuts:
        reply = await continued(chat(text), ASKED, cut)
        assert (reply.text, reply.finish) == (whole.text, whole.finish)
        assert [each.arguments for each in reply.calls] == [each.arguments for each in whole.calls]


def _sizes(tools: Sequence[str]) -> Mapping[str, Mapping[str, object]]:
    schema = {
        "type": "object",
        "properties": {f"p{at}": {"type": "string"} for at in range(20)},
        "additionalProperties": False,
    }
    return dict.fromkeys(tools, schema)


def test_many_functions_are_still_offered() -> None:
    form = by_name("hermes")
    model = next(iter(vocabularies(form)))
    tools = _sizes([f"f{at}" for at in range(128)])
    plan = CallPlan(tools, required=False, parallel=True, unmarked=True)
    grammar = compose(form, model[0], reasoning="none", calls=plan, answer=None)
    assert grammar is not None
    own = '<tool_call>\n{"name": "f5", "arguments": {}}\n</tool_call>'
    assert model[1].refused_at(grammar, own) is None
