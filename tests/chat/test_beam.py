"""Calls that only the end of their message ends, and only its header names."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from casekit import each_of
from chatkit import Unchecked, together
from formatkit import TOOLS, Told, read
from grammarkit import vocabularies

from causerie.chat.chat import TextChat
from causerie.chat.constraint import CallPlan, compose
from causerie.chat.formats.registry import by_name
from causerie.engines.registry import FakeEngine, FakeScript
from causerie.protocol.request import ChatRequest, Message, Tool, ToolChoice

BEAM = by_name("beam")
TEMPLATE = (Path(__file__).parents[1] / "templates" / "beam.jinja").read_text()
THOUGHT = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant"
XML = "<|channel|>analysis <|constrain|>xml<|message|>"
CITY = '<rfl:parameter name="city">\nParis\n</rfl:parameter>'
DAYS = '<rfl:parameter name="days">\n3\n</rfl:parameter>'
PARIS: Mapping[str, object] = {"city": "Paris"}
NEXT = "<|end|><|start|>assistant"


@each_of("size", [0, 1, 3, 8])
@each_of(
    ("text", "expected"),
    [
        (f"{THOUGHT} to=get_weather{XML}{CITY}{DAYS}{NEXT} to=now{XML}<|call|>",
         Told("Hm.", "", [("get_weather", {**PARIS, "days": 3}), ("now", {})])),
        (f" to=now{XML}", Told("", "", [("now", {})])),
        (f" to=get_weather{XML}{CITY}\n{DAYS}",
         Told("", "", [("get_weather", {**PARIS, "days": 3})])),
        # The last line break of a value, written as text, leaves no room for the tag behind it.
        (f" to=get_weather{XML}" + '<rfl:parameter name="city">\nParis\n\n' + DAYS,
         Told("", "", [("get_weather", {"city": "Paris\n", "days": 3})])),
        (f" to=get_weather{XML}" + '<rfl:parameter name="city">\na\n<rfl:parameter>b\n'
         "</rfl:parameter>", Told("", "", [("get_weather", {"city": "a\n<rfl:parameter>b"})])),
        (f"<|channel|>commentary to=get_weather<|message|>{CITY}<|end|>",
         Told("", "", [("get_weather", PARIS)])),
        (f' to=get_weather{XML}{{"city": "Paris"}}<|call|>',
         Told("", "", [("get_weather", PARIS)])),
        # Neither the call of another's function, nor text about calls.
        (f" to=get_wether{XML}{CITY}<|call|>", Told(CITY)),
        (f"{THOUGHT}<|channel|>final<|message|>Write to=now{{x}} and {CITY}.<|return|>",
         Told("Hm.", f"Write to=now{{x}} and {CITY}.")),
    ],
)  # fmt: skip
def test_messages(text: str, expected: Told, size: int) -> None:
    assert read(BEAM, text, size=size) == expected


@pytest.mark.parametrize("forbidden", [False, True])
def test_no_call_is_written_freely(forbidden: bool) -> None:
    plan = CallPlan(TOOLS, required=False, parallel=True, forbidden=forbidden)
    good = f"get_weather{XML}{CITY}"
    for tokens, vocabulary in vocabularies(BEAM):
        grammar = compose(BEAM, tokens, reasoning="possible", calls=plan, answer=None)
        assert grammar is not None
        for before in (" to=", f"{THOUGHT} to="):
            assert (vocabulary.refused_at(grammar, before + good) is None) is not forbidden
            for wrong in (f"get_wether{XML}{CITY}", f"get_weather{XML}{DAYS}", f"now{XML}{CITY}"):
                assert vocabulary.refused_at(grammar, before + wrong) is not None
        said = "<|channel|>final<|message|>Write to=now and <b>."
        assert vocabulary.refused_at(grammar, THOUGHT + said) is None


async def finish(text: str, limit: int | None, choice: ToolChoice) -> tuple[object, str | None]:
    chat = TextChat(FakeEngine("m", FakeScript([text]), template=TEMPLATE), Unchecked())
    tools = tuple(Tool(name, schema, "") for name, schema in TOOLS.items())
    request = ChatRequest(
        "m", (Message("user", "x"),), tools=tools, tool_choice=choice, max_tokens=limit
    )
    async with chat.generate(request) as answer:
        reply = together([batch async for batch in answer.events])
    return [(call.name, call.arguments) for call in reply.calls], reply.finish


@pytest.mark.parametrize("mode", ["auto", "required"])
async def test_only_the_end_of_the_text_makes_it_a_call(mode: str) -> None:
    """A limit that is met between two parameters leaves half a call."""
    choice = ToolChoice(mode)
    text = f" to=get_weather{XML}{CITY}"
    whole = [("get_weather", '{"city": "Paris"}')]
    assert await finish(text, None, choice) == (whole, "tool_calls")
    calls, reason = await finish(text, len(text), choice)
    assert (calls, reason) == ([("get_weather", '{"city": "Paris"')], "length")
