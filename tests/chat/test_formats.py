"""Formats: which template is of which, and what replies in each of them say."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import formatkit
import pytest
from casekit import each_of
from formatkit import TOOLS, Call, Told, read, write_calls, write_reasoning, write_said
from formats_page import formats_page
from hypothesis import given
from hypothesis import strategies as st

from causerie.chat.formats.format import Literal, ModelFormat
from causerie.chat.formats.registry import FORMATS, by_name, detect
from causerie.chat.parser import ReasoningEnd

OWN = Path(__file__).parents[1] / "templates"
PAGE = Path(__file__).parents[2] / "docs" / "reference/formats.md"
REAL = os.environ.get("CAUSERIE_TEMPLATES", "")
NAMES = [form.name for form in FORMATS]
CALLING = [form.name for form in FORMATS]

EXPECTED = {
    "Apertus-8B-Instruct": "apertus",
    "Apriel-1.6-15b-Thinker-fixed": "apriel",
    "Bielik-11B-v3.0-Instruct": "bielik",
    "ByteDance-Seed-OSS": "seed-oss",
    "Cohere2MoE": "command-a",
    "CohereForAI-c4ai-command-r-plus-tool_use": "command-r",
    "CohereForAI-c4ai-command-r7b-12-2024-tool_use": "command-r7b",
    "GLM-4.6": "glm-4.5",
    "GLM-4.7-Flash": "glm-4.7",
    "GigaChat3-10B-A1.8B": "gigachat-3",
    "GigaChat3.1-10B-A1.8B": "gigachat-3.1",
    "HuggingFaceTB-SmolLM3-3B": "smollm-3",
    "Kimi-K2-Instruct": "kimi-k2",
    "Kimi-K2-Thinking": "kimi-k2-thinking",
    "Kimi-K3": "kimi-k3",
    "LFM2-8B-A1B": "lfm-2",
    "LFM2.5-8B-A1B": "lfm-2.5",
    "LFM2.5-Instruct": "lfm-2",
    "MiMo-VL": "mimo",
    "MiniMax-M1": "minimax-m1",
    "MiniMax-M2": "minimax-m2",
    "MiniMax-M3": "minimax-m3",
    "Mistral-Small-3.2-24B-Instruct-2506": "mistral-small-3.2",
    "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": "nemotron-3",
    "NVIDIA-Nemotron-Nano-v2": "nemotron-nano-2",
    "NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use": "hermes",
    "NousResearch-Hermes-3-Llama-3.1-8B-tool_use": "hermes",
    "Qwen-QwQ-32B": "qwq-switched",
    "Qwen-Qwen2.5-7B-Instruct": "hermes",
    "Qwen-Qwen3-0.6B": "qwen-3",
    "Qwen3-Coder": "qwen-3-coder",
    "Qwen3.5-4B": "qwen-3.5",
    "Reka-Edge": "reka",
    "Spark2.5": "spark-2.5",
    "StepFun3.5-Flash": "step-3.5",
    "deepseek-ai-DeepSeek-R1-Distill-Llama-8B": "deepseek-r1",
    "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B": "deepseek-r1-switched",
    "deepseek-ai-DeepSeek-V3.1": "deepseek-v3.1",
    "deepseek-ai-DeepSeek-V3.2": "deepseek-v3.2",
    "deepseek-ai-DeepSeek-V4-Flash-0731": "deepseek-v4",
    "deepseek-ai-DeepSeek-V4": "deepseek-v4",
    "fireworks-ai-llama-3-firefunction-v2": "firefunction-2",
    "google-gemma-2-2b-it": "gemma-3",
    "google-gemma-4-31B-it-interleaved": "gemma-4",
    "google-gemma-4-31B-it": "gemma-4",
    "ibm-granite-granite-3.3-2B-Instruct": "granite-3.3",
    "ibm-granite-granite-4.0": "granite-4",
    "ibm-granite-granite-4.1": "granite-4",
    "inclusionai-ling-3.0-flash": "ling-3",
    "llama-cpp-deepseek-r1": "deepseek-r1",
    "llama-cpp-rwkv-world": "generic-thinking",
    "llm-jp-llm-jp-4.1-8b-thinking": "llm-jp",
    "meetkai-functionary-medium-v3.1": "functionary-3.1",
    "meetkai-functionary-medium-v3.2": "functionary-3.2",
    "meta-llama-Llama-3.1-8B-Instruct": "llama-3",
    "meta-llama-Llama-3.2-3B-Instruct": "llama-3",
    "meta-llama-Llama-3.3-70B-Instruct": "llama-3",
    "microsoft-Phi-3.5-mini-instruct": "generic",
    "mistralai-Ministral-3-14B-Reasoning-2512": "magistral",
    "mistralai-Mistral-Nemo-Instruct-2407": "mistral-nemo",
    "moonshotai-Kimi-K2": "kimi-k2",
    "muse-glimmer": "muse",
    "openai-gpt-oss-120b": "gpt-oss",
    "openbmb-MiniCPM5-1B": "minicpm-5",
    "poolside-Laguna-S-2.1": "laguna-s",
    "poolside-Laguna-XS-2.1": "laguna",
    "poolside-Laguna-XS.2": "laguna",
    "tencent-Hy3": "hunyuan-3",
    "unsloth-Apriel-1.5": "apriel",
    "unsloth-mistral-Devstral-Small-2507": "mistral",
    "upstage-Solar-Open-100B": "solar-open",
}

# Written as models were seen to write, not only as they should; expected: reasoning, answer, calls.
PARIS = {"city": "Paris"}
SAMPLES: list[tuple[str, str, Told]] = [
    (
        "hermes",
        'Let me look.\n<tool_call>{"name": "get_weather", '
        '"arguments": {"city": "Paris"}}</tool_call>',
        Told(answer="Let me look.", calls=[("get_weather", PARIS)]),
    ),
    ("hermes", "A <tool_call> is a tag.", Told(answer="A <tool_call> is a tag.")),
    (
        "hermes",
        '{"name": "get_weather", "arguments": {"city": "Paris"}}',
        Told(calls=[("get_weather", PARIS)]),
    ),
    (
        "hermes",
        '{"name": "someone", "arguments": {"city": "Paris"}}',
        Told(answer='{"name": "someone", "arguments": {"city": "Paris"}}'),
    ),
    (
        "hermes",
        '<tool_call>\n{"name": "get_weather", '
        '"arguments": {"city": "a</tool_call>b\\"}"}}\n</tool_call>',
        Told(calls=[("get_weather", {"city": 'a</tool_call>b"}'})]),
    ),
    (
        "hermes",
        '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Pa',
        Told(calls=[("get_weather", '{"city": "Pa')], open=True),
    ),
    (
        "qwen-3",
        '<think>\nI need it.\n<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>',
        Told(reasoning="I need it.", calls=[("now", {})]),
    ),
    (
        "qwen-3",
        "<think>\nA <tool_call> would do, but no.\n</think>\n\nHello",
        Told(reasoning="A <tool_call> would do, but no.", answer="Hello"),
    ),
    (
        "qwen-3.5",
        "<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n"
        "<parameter=hot>\nTrue\n</parameter>\n<parameter=tags>\n['a', \"b\"]\n</parameter>\n"
        "</function>\n</tool_call>",
        Told(calls=[("get_weather", {"city": "Paris", "hot": True, "tags": ["a", "b"]})]),
    ),
    (
        "qwen-3-coder",
        "<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n</function>",
        Told(calls=[("get_weather", PARIS)]),
    ),
    (
        "qwen-3-coder",
        "<tool_call>\n<function=get_weather>\n<parameter=city>\n  two\n\nlines\n\n</parameter>\n"
        "<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>",
        Told(calls=[("get_weather", {"city": "  two\n\nlines\n", "days": 3})]),
    ),
    (
        "llama-3",
        '{"name": "get_weather", "parameters": {"city": "Paris"}}',
        Told(calls=[("get_weather", PARIS)]),
    ),
    (
        "llama-3",
        '<|python_tag|>{"name": "get_weather", "parameters": {"city": "Paris"}}',
        Told(calls=[("get_weather", PARIS)]),
    ),
    (
        "llama-3",
        '{"type": "function", "name": "get_weather", "parameters": {"city": "Paris"}}',
        Told(calls=[("get_weather", PARIS)]),
    ),
    ("llama-3", '{"name": "Ann"} is JSON.', Told(answer='{"name": "Ann"} is JSON.')),
    (
        "llama-4-pythonic",
        "[get_weather(city='Paris', hot=True, tags=['a', \"b\",],), now()]",
        Told(
            calls=[("get_weather", {"city": "Paris", "hot": True, "tags": ["a", "b"]}), ("now", {})]
        ),
    ),
    (
        "llama-4-pythonic",
        '<|python_start|>[get_weather("Paris", 3)]<|python_end|>',
        Told(calls=[("get_weather", {"city": "Paris", "days": 3})]),
    ),
    ("llama-4-pythonic", "[1, 2] is a list.", Told(answer="[1, 2] is a list.")),
    (
        "mistral-nemo",
        '[TOOL_CALLS] [{"name": "get_weather", "arguments": {"city": "Paris"}, "id": "123456789"}]',
        Told(calls=[("get_weather", PARIS)]),
    ),
    (
        "magistral",
        '[THINK]Hm.[/THINK]Yes.[TOOL_CALLS]get_weather[ARGS]{"city": "Paris"}'
        "[TOOL_CALLS]now[ARGS]{}",
        Told(reasoning="Hm.", answer="Yes.", calls=[("get_weather", PARIS), ("now", {})]),
    ),
    (
        "deepseek-r1",
        "<think>\nHm.\n</think>\n\n<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>"
        'get_weather\n```json\n{"city": "Paris"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
        Told(reasoning="Hm.", calls=[("get_weather", PARIS)]),
    ),
    (
        "deepseek-v3.2",
        'Yes.\n\n<｜DSML｜function_calls>\n<｜DSML｜invoke name="get_weather">\n'
        '<｜DSML｜parameter name="city" string="true">12</｜DSML｜parameter>\n'
        '<｜DSML｜parameter name="days" string="false">12</｜DSML｜parameter>\n'
        "</｜DSML｜invoke>\n</｜DSML｜function_calls>",
        Told(answer="Yes.", calls=[("get_weather", {"city": "12", "days": 12})]),
    ),
    (
        "deepseek-v4",
        '<｜DSML｜tool_calls>\n<｜DSML｜invoke name="now">\n\n'
        "</｜DSML｜invoke>\n</｜DSML｜tool_calls>",
        Told(calls=[("now", {})]),
    ),
    (
        "glm-4.5",
        "\n<think>Hm.</think>\n<tool_call>get_weather\n<arg_key>city</arg_key>\n"
        "<arg_value>Paris</arg_value>\n<arg_key>tags</arg_key>\n"
        '<arg_value>["</arg_value>"]</arg_value>\n</tool_call>',
        Told(reasoning="Hm.", calls=[("get_weather", {"city": "Paris", "tags": ["</arg_value>"]})]),
    ),
    ("glm-4.7", "</think>Hello", Told(answer="Hello")),
    (
        "kimi-k2",
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:7"
        '<|tool_call_argument_begin|>{"city": "Paris"}<|tool_call_end|><|tool_calls_section_end|>',
        Told(calls=[("get_weather", PARIS)]),
    ),
    (
        "kimi-k3",
        "<|open|>think<|sep|>Hm.<|close|>think<|sep|><|open|>response<|sep|>Yes."
        '<|close|>response<|sep|><|open|>tools<|sep|><|open|>call tool="get_weather" index="1"'
        '<|sep|><|open|>argument key="city" type="string"<|sep|>3<|close|>argument<|sep|>'
        '<|open|>argument key="days" type="number"<|sep|>3<|close|>argument<|sep|>'
        "<|close|>call<|sep|><|close|>tools<|sep|><|close|>message<|sep|>",
        Told(reasoning="Hm.", answer="Yes.", calls=[("get_weather", {"city": "3", "days": 3})]),
    ),
    (
        "gpt-oss",
        "<|channel|>analysis<|message|>Hm, to=functions.x?<|end|><|start|>assistant"
        "<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>"
        '{"city":"Paris"}',
        Told(reasoning="Hm, to=functions.x?", calls=[("get_weather", PARIS)]),
    ),
    (
        "gpt-oss",
        "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary<|message|>"
        "I look.<|end|><|start|>assistant to=functions.get_weather<|channel|>commentary json"
        '<|message|>{"city":"Paris"}<|call|>',
        Told(reasoning="Hm.", answer="I look.", calls=[("get_weather", PARIS)]),
    ),
    (
        "gpt-oss",
        "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Hello",
        Told(reasoning="Hm.", answer="Hello"),
    ),
    (
        "gpt-oss",
        "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final <|constrain|>"
        'json<|message|>{"a": 1}',
        Told(reasoning="Hm.", answer='{"a": 1}'),
    ),
    (
        "minimax-m2",
        '<think>\nHm.\n</think>\n\n\n<minimax:tool_call>\n<invoke name="get_weather">\n'
        '<parameter name="city">Paris</parameter>\n</invoke>\n</minimax:tool_call>',
        Told(reasoning="Hm.", calls=[("get_weather", PARIS)]),
    ),
    (
        "minimax-m3",
        '</mm:think>Yes.]<]minimax[>[<tool_call>\n]<]minimax[>[<invoke name="get_weather">'
        "]<]minimax[>[<city>Pa<b>ris]<]minimax[>[</city>]<]minimax[>[<tags>]<]minimax[>[<item>1"
        "]<]minimax[>[</item>]<]minimax[>[</tags>]<]minimax[>[</invoke>\n]<]minimax[>[</tool_call>",
        Told(answer="Yes.", calls=[("get_weather", {"city": "Pa<b>ris", "tags": ["1"]})]),
    ),
    (
        "gemma-4",
        '<|channel>thought\nHm.<channel|><|tool_call>call:get_weather{city:<|"|>"P"<|"|>,'
        'hot:true,tags:[<|"|>a<|"|>]}<tool_call|><|tool_response>',
        Told(reasoning="Hm.", calls=[("get_weather", {"city": '"P"', "hot": True, "tags": ["a"]})]),
    ),
    (
        "granite-3.3",
        "<think>Hm.</think><response>Hello</response>",
        Told(reasoning="Hm.", answer="Hello"),
    ),
    (
        "granite-3",
        '<tool_call>[{"name": "get_weather", "arguments": {"city": "Paris"}}]',
        Told(calls=[("get_weather", PARIS)]),
    ),
    (
        "command-r7b",
        "<|START_THINKING|>Hm.<|END_THINKING|><|START_RESPONSE|>Hello<|END_RESPONSE|>",
        Told(reasoning="Hm.", answer="Hello"),
    ),
    (
        "command-a",
        '<|START_ACTION|>[\n    {"tool_call_id": "0", "tool_name": "get_weather", "parameters": '
        '{"city": "Paris"}},\n    {"tool_call_id": "1", "tool_name": "now", "parameters": {}}\n'
        "]<|END_ACTION|>",
        Told(calls=[("get_weather", PARIS), ("now", {})]),
    ),
    (
        "lfm-2",
        '<|tool_call_start|>[get_weather(city="Paris")]<|tool_call_end|>Looking.',
        Told(answer="Looking.", calls=[("get_weather", PARIS)]),
    ),
    (
        "minicpm-5",
        '<function name="get_weather"><param name="city"><![CDATA[a</param>\n<b>]]></param>'
        '<param name="days">2</param></function>',
        Told(calls=[("get_weather", {"city": "a</param>\n<b>", "days": 2})]),
    ),
    (
        "apriel",
        "Here are my reasoning steps:\nHm.\n[BEGIN FINAL RESPONSE]\nHello\n[END FINAL RESPONSE]",
        Told(reasoning="Hm.", answer="Hello"),
    ),
    (
        "solar-open",
        "<|think|>Hm.<|end|><|begin|>assistant<|tool_calls|><|tool_call:begin|>a1b2c3d4e5"
        "<|tool_call:name|>get_weather"
        '<|tool_call:args|>{"city": "Paris"}<|tool_call:end|><|calls|>',
        Told(reasoning="Hm.", calls=[("get_weather", PARIS)]),
    ),
    (
        "muse",
        " to=self<|message|>Hm.<|eom|><|start|>assistant to=user<|message|>Hello",
        Told(reasoning="Hm.", answer="Hello"),
    ),
    (
        "seed-oss",
        "<seed:think>Hm. <seed:cot_budget_reflect>12 used</seed:cot_budget_reflect></seed:think>\n"
        "<seed:tool_call>\n<function=get_weather>\n<parameter=city>Paris</parameter>\n"
        "<parameter=hot>False</parameter>\n</function>\n</seed:tool_call>",
        Told(
            reasoning="Hm. <seed:cot_budget_reflect>12 used</seed:cot_budget_reflect>",
            calls=[("get_weather", {"city": "Paris", "hot": False})],
        ),
    ),
]


def same(told: Told, expected: Told) -> bool:
    """Equal but for the white space at the end of an answer that calls follow."""
    parts = (told.reasoning, told.answer.strip(), told.calls, told.open)
    return parts == (expected.reasoning, expected.answer.strip(), expected.calls, expected.open)


def made(form: ModelFormat) -> list[Call]:
    """Two calls, or one where the family writes one."""
    first = Call(
        "get_weather",
        {"city": 'Pa"ris é\n<b>', "days": 3, "hot": True, "tags": ["a", "]}"]},
        "abcdefgh1",
    )
    return [first, Call("now", {}, "abcdefgh2")] if form.calls.parallel else [first]


@each_of("name", NAMES)
def test_own_template_is_detected(name: str) -> None:
    assert detect((OWN / f"{name}.jinja").read_text()).name == name


def test_every_real_template_is_detected() -> None:
    if not REAL or not Path(REAL).is_dir():
        pytest.skip("CAUSERIE_TEMPLATES does not name a folder of chat templates")
    found = {path.stem: detect(path.read_text()).name for path in Path(REAL).glob("*.jinja")}
    assert found == EXPECTED


def test_an_unknown_template_gets_the_fallback() -> None:
    assert detect("{{ messages[0].content }}").name == "generic"


def test_names_are_unique_and_found() -> None:
    assert len(set(NAMES)) == len(NAMES)
    assert by_name("kimi-k2").name == "kimi-k2"
    with pytest.raises(ValueError, match=r"no format 'kimi'; these are: .*kimi-k2, "):
        by_name("kimi")


def test_the_page_is_what_the_code_says() -> None:
    assert PAGE.read_text() == formats_page(), "run `make docs`"


@each_of("name", CALLING)
def test_triggers_are_where_a_section_begins(name: str) -> None:
    form = by_name(name)
    calls = form.calls
    for way in (calls, *calls.also):
        first = getattr(way.call[0], "text", "")
        assert way.is_named or way.starts
        fixed = [one.text for one in way.call if isinstance(one, Literal)]
        assert any(way.holds_at in text for text in fixed or [""])
        for trigger in way.starts:
            headed = form.header is not None and any(text.startswith(trigger) for text in fixed)
            assert headed or (way.begin + first).startswith(trigger)
        assert way.at_start or not calls.at_start


@each_of("name", NAMES)
def test_no_marker_begins_like_another(name: str) -> None:
    """A shorter marker would be taken before the longer one has arrived."""
    marks = list(_marks(by_name(name)))
    clashes = [(a, b) for a in marks for b in marks if a != b and b.startswith(a)]
    assert not clashes


def _marks(form: ModelFormat) -> Iterator[str]:
    yield from (mark for mark in (form.answer_open, form.answer_close, *form.skip) if mark)
    yield from (form.reasoning.open, form.reasoning.close, *form.reasoning.also_open)
    for way in (form.calls, *form.calls.also) if form.header is None else ():
        yield from (*way.starts, *way.lead_ins)


@each_of("name", CALLING)
def test_what_is_declared_is_read(name: str) -> None:
    form = by_name(name)
    calls = made(form)
    thought = write_reasoning(form.reasoning, "Hm, so.")
    expected = Told(
        reasoning="Hm, so.",
        calls=[(call.name, dict(call.arguments)) for call in calls],
    )
    text = thought + form.calls.lead + write_calls(form.calls, calls)
    for size in (0, 1, 3, 7):
        assert same(read(form, text, size=size), expected), size


@each_of("name", CALLING)
def test_an_answer_may_come_before_calls(name: str) -> None:
    form = by_name(name)
    calls = made(form)
    said = write_said(form, "Let me see.") + form.calls.lead
    told = read(form, said + write_calls(form.calls, calls))
    if form.calls.at_start:  # only a marker tells such a call from text
        assert told.answer.startswith("Let me see.")
    else:
        expected = [(call.name, dict(call.arguments)) for call in calls]
        assert same(told, Told(answer="Let me see.", calls=expected))


@each_of("name", NAMES)
def test_reasoning_and_answer(name: str) -> None:
    form = by_name(name)
    marks = form.reasoning
    answer = f"{form.answer_open}The <b>answer</b> [1] is {{x}}."
    whole = write_reasoning(marks, "Hm,\n\nso.") + answer + form.answer_close
    expected = Told(reasoning="Hm,\n\nso.", answer="The <b>answer</b> [1] is {x}.")
    opened = whole.removeprefix(marks.open + marks.after_open)
    for size in (0, 1):
        assert read(form, whole, size=size) == expected, size
        assert read(form, opened, size=size, reasoning_open=True) == expected, size
        assert read(form, whole, size=size, tools=None) == expected, size


@each_of("name", NAMES)
def test_white_space_before_reasoning_is_no_answer(name: str) -> None:
    form = by_name(name)
    text = "\n" + write_reasoning(form.reasoning, "Hm, so.") + form.answer_open + "Yes."
    for tools, size in product((None, TOOLS), (0, 1, 3)):
        case = (bool(tools), size)
        assert read(form, text, tools=tools, size=size) == Told("Hm, so.", "Yes."), case
        assert read(form, " \n ", tools=tools, size=size) == Told("", " \n "), case


@each_of("name", NAMES)
def test_the_indentation_of_an_answer_is_part_of_it(name: str) -> None:
    form = by_name(name)
    opened = write_reasoning(form.reasoning, "Hm, so.") + form.answer_open + form.answer_space
    text = "    return x"
    for tools, size in product((None, TOOLS), (0, 1)):
        told = read(form, opened + text, tools=tools, size=size)
        assert told == Told("Hm, so.", text), (bool(tools), size)


@each_of("name", NAMES)
def test_reasoning_that_is_cut_stays_reasoning(name: str) -> None:
    form = by_name(name)
    told = read(form, "I begin to", reasoning_open=True)
    assert told == Told(reasoning="I begin to")


@each_of(("name", "text", "expected"), SAMPLES)
def test_samples(name: str, text: str, expected: Told) -> None:
    for size in (0, 1, 2, 5):
        assert same(read(by_name(name), text, size=size), expected), size


@given(data=st.data())
def test_any_split_says_the_same(data: st.DataObject) -> None:
    name, text, _ = data.draw(st.sampled_from(SAMPLES))
    cuts = data.draw(st.lists(st.integers(0, len(text)), min_size=1, max_size=12))
    form = by_name(name)
    assert read(form, text, cuts=cuts) == read(form, text)


@given(data=st.data())
def test_any_text_at_all_says_the_same_however_it_is_cut(data: st.DataObject) -> None:
    """Pieces of real markers in any order: nothing raises, and no split matters."""
    form = by_name(data.draw(st.sampled_from(NAMES)))
    words = [*_marks(form), *_bits(form), "Hello ", "\n", " ", '{"city": "x"}', "now", "<", "["]
    text = "".join(data.draw(st.lists(st.sampled_from(words), max_size=14)))
    cuts = data.draw(st.lists(st.integers(0, len(text) or 1), min_size=1, max_size=8))
    whole = _attempt(form, text, [])
    assert _attempt(form, text, cuts) == whole
    assert _attempt(form, text, range(1, len(text))) == whole


def _bits(form: ModelFormat) -> Iterator[str]:
    for way in (form.calls, *form.calls.also):
        texts = [way.begin, way.separator, way.end, write_calls(way, [Call("now", {})])]
        texts += [getattr(segment, "text", "") for segment in way.call]
        yield from (text for text in texts if text)


def _attempt(form: ModelFormat, text: str, cuts: list[int] | range) -> object:
    try:
        told = formatkit.read(form, text, cuts=cuts)
    except ValueError:  # the arguments were no JSON: they are given out as the model wrote them
        return "no JSON"
    return told


@pytest.mark.parametrize("size", [0, 1, 3])
def test_reasoning_that_is_held_to_its_end_may_speak_of_calls(size: int) -> None:
    """A call in there was never held to a schema, so it is no call."""
    form = by_name("qwen-3")
    spoken = 'I write <tool_call>\n{"name": "Hello", "arguments": {"a": 1}}\n</tool_call> then.'
    call = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Bonn"}}\n</tool_call>'
    told = read(
        form,
        f"{spoken}</think>\n\n{call}",
        size=size,
        reasoning_open=True,
        reasoning_end=ReasoningEnd.OWN_MARKER,
    )
    assert told.reasoning == spoken
    assert told.calls == [("get_weather", {"city": "Bonn"})]
    assert told.answer == ""
