"""Replies that deviate from their family's form: nothing vanishes, nothing is glued together."""

from __future__ import annotations

import json
import re

from casekit import each_of
from deviationkit import DEVIATIONS
from formatkit import Call, Told, read, write_calls, write_reasoning, write_said
from hypothesis import given
from hypothesis import strategies as st

from causerie.chat.formats.format import ModelFormat
from causerie.chat.formats.registry import FORMATS, by_name
from causerie.chat.parser import ReasoningEnd

# Without a marker only a call in the declared form is one.
MARKED = [form for form in FORMATS if not form.calls.at_start]
SIZES = (0, 1, 2, 3, 7)


def made(form: ModelFormat, deviation: str) -> list[Call]:
    needs_place = deviation in ("with_a_key_without_value", "with_half_a_pair")
    first = {"city": "Pa}ris"} if needs_place else {"city": "Pa}ris", "days": 3}
    calls = [Call("get_weather", first), Call("get_weather", {"city": "Rome"}, "abcdefgh2")]
    return calls if form.calls.parallel else calls[:1]


def expected(calls: list[Call], deviation: str) -> list[tuple[str, object]]:
    ended: list[tuple[str, object]] = [("now", {})] if deviation == "ended_at_once" else []
    return [*ended, *((call.name, dict(call.arguments)) for call in calls)]


@each_of("deviation", DEVIATIONS, every=3)
def test_a_call_that_deviates_is_read_as_what_it_means(deviation: str) -> None:
    tried = 0
    for form in MARKED:
        calls = made(form, deviation)
        text = DEVIATIONS[deviation](form, calls)
        if text is None:
            continue
        tried += 1
        for size in SIZES:
            told = read(form, form.calls.lead + text, size=size)
            assert told.calls == expected(calls, deviation), (form.name, text, size)
            assert not told.answer.strip(), (form.name, told.answer)
            assert not told.open
    assert tried


@given(data=st.data())
def test_a_stream_says_what_the_whole_says(data: st.DataObject) -> None:
    """Any deviation of any format, cut into any pieces, and cut off anywhere."""
    form = data.draw(st.sampled_from(MARKED))
    deviation = data.draw(st.sampled_from(list(DEVIATIONS)))
    text = DEVIATIONS[deviation](form, made(form, deviation))
    if text is None:
        return
    text = f"Let me look.{text}And then."
    text = text[: data.draw(st.integers(1, len(text)))]
    cuts = data.draw(st.lists(st.integers(0, len(text)), min_size=1, max_size=11))
    try:
        whole: object = read(form, text)
    except json.JSONDecodeError:
        whole = None
    for pieces in (cuts, range(1, len(text))):
        if whole is not None:
            assert read(form, text, cuts=list(pieces)) == whole


@each_of("form", MARKED, ids=lambda form: form.name, every=3)
def test_text_around_calls_is_not_glued_together(form: ModelFormat) -> None:
    section = write_calls(form.calls, [Call("get_weather", {"city": "Paris"}, "abcdefgh1")])
    before = write_said(form, "Let me look.") + form.calls.lead
    after = f"{form.said_close}{form.answer_open}There it is.{form.answer_close}"
    for text in (before + section + after, f"{before}\n\n{section}\n{after}"):
        for size in SIZES:
            told = read(form, text, size=size)
            assert told.calls == [("get_weather", {"city": "Paris"})]
            assert re.fullmatch(r"Let me look\.\s+There it is\.", told.answer), told.answer


@each_of("form", FORMATS, ids=lambda form: form.name, every=3)
def test_two_pieces_of_reasoning_are_not_glued_together(form: ModelFormat) -> None:
    text = write_reasoning(form.reasoning, "Hm.") + write_reasoning(form.reasoning, "So.")
    for size in SIZES:
        told = read(form, f"{text}{form.answer_open}Yes.", size=size)
        assert re.fullmatch(r"Hm\.\s+So\.", told.reasoning), told.reasoning
        assert told.answer == "Yes."


@each_of("form", FORMATS, ids=lambda form: form.name, every=3)
def test_reasoning_that_is_opened_twice_is_opened_once(form: ModelFormat) -> None:
    text = write_reasoning(form.reasoning, "Hm.") + form.answer_open + "Yes."
    twice = form.reasoning.open + form.reasoning.after_open + text
    for size in SIZES:
        assert read(form, twice, size=size) == Told("Hm.", "Yes.")
        for end in ReasoningEnd:
            opened = read(form, text, size=size, reasoning_open=True, reasoning_end=end)
            assert opened == Told("Hm.", "Yes.")


@each_of("size", SIZES)
@each_of(
    "text",
    [
        "<function=now>\n</function>\n</tool_call>",
        "<function=now></function></tool_call>\n",
        "<tool_call><function=now></tool_call>",
        '<tool_call>\n{"name": "now"}\n</tool_call>',
        "<tool_call>\n<function=now/>\n</tool_call>",
        '<tool_call>\n<invoke name="now"></invoke>\n</tool_call>',
    ],
)
def test_a_function_without_arguments_in_other_spellings(text: str, size: int) -> None:
    assert read(by_name("qwen-3-coder"), text, size=size) == Told(calls=[("now", {})])


@each_of("size", SIZES)
@each_of(
    ("name", "text"),
    [
        ("mistral", "get_weather is a function."),
        ("mistral", 'Call get_weather[ARGS]{"city": "Paris"}'),
        ("mistral", 'other[ARGS]{"city": "Paris"}'),
        ("glm-4.5", "get_weather"),
        ("glm-4.5", "get_weather\nis a function"),
        ("glm-4.7", "get_weather<arg_key> is how a call begins."),
        ("glm-4.7", "It is now</tool_call>"),
    ],
)
def test_the_name_of_a_function_alone_is_no_call(name: str, text: str, size: int) -> None:
    assert read(by_name(name), text, size=size) == Told(answer=text)


@each_of("size", SIZES)
@each_of(
    ("name", "text"),
    [
        # No call is plain here: no function, an unknown one, no arguments where some are needed.
        ("hermes", "A <tool_call> is a tag."),
        ("hermes", '<tool_call>\n{"a": 1}\n</tool_call>'),
        ("hermes", '<tool_call>\n{"name": "get_weather"}\n</tool_call>'),
        ("hermes", '<tool_call>\n{"arguments": {"city": "Paris"}, "name": "other"}\n</tool_call>'),
        ("hermes", "<tool_call>\n[1, 2]\n</tool_call>"),
        ("qwen-3-coder", "<tool_call>\n<function=get_weather/>\n</tool_call> is short."),
        ("glm-4.5", "<tool_call>get_weather\nwith a city</tool_call>"),
        ("minimax-m2", '<minimax:tool_call>\n<invoke name="get_weather"/>\n</minimax:tool_call>'),
        ("mistral-nemo", "[TOOL_CALLS] is a marker."),
        ("deepseek-v3.1", "<｜tool▁calls▁begin｜>Paris"),
        ("kimi-k2", "<|tool_calls_section_begin|><|tool_calls_section_end|>"),
    ],
)
def test_what_is_no_call_stays_text(name: str, text: str, size: int) -> None:
    assert read(by_name(name), text, size=size) == Told(answer=text)
