"""Messages on channels: every spelling of a header that models were seen to write."""

from __future__ import annotations

from itertools import product

import pytest
from casekit import each_of
from formatkit import TOOLS, Told, read
from grammarkit import vocabularies

from causerie.chat.constraint import CallPlan, compose
from causerie.chat.formats.registry import by_name

PARIS = {"city": "Paris"}
BODY = '{"city": "Paris"}'
THOUGHT = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant"
CALLED = Told(reasoning="Hm.", calls=[("get_weather", PARIS)])
TYPES = [
    "",
    " ",
    " json",
    " code",
    "<|constrain|>json",
    " <|constrain|>json",
    " <|constrain|> json",
]
CHANNELS = ["analysis", "commentary"]
NAMES = ["gpt-oss", "llm-jp"]
ENDS = ["", "<|call|>", "<|end|>", "\n<|return|>"]
BEHIND = [f"<|channel|>{c} to=functions.get_weather{t}" for c, t in product(CHANNELS, TYPES)]
BEFORE = [f" to=functions.get_weather<|channel|>{c}{t}" for c, t in product(CHANNELS, TYPES)]
ODD = [
    "<|channel|>commentary  to=functions .get_weather ",
    "<|channel|>commentary to=functions. get_weather",
    "<|channel|>final to=functions.get_weather",
    "<|channel|> commentary to=get_weather",
    "<|channel|>commentary to=get_weather json",
    " to=get_weather<|channel|>commentary json",
    " to=functions.get_weather",
    " to=functions.get_weather <|constrain|>json",
    "<|start|>assistant<|channel|>commentary to=functions.get_weather",
    "to=functions.get_weather<|channel|>commentary",
]


@each_of("size", [0, 1, 4])
@each_of("name", NAMES)
def test_every_spelling_of_a_call(name: str, size: int) -> None:
    form = by_name(name)
    for header, end in product(
        [*BEHIND, *BEFORE, *ODD], ["", "<|call|>", "<|end|>", "\n<|return|>"]
    ):
        text = f"{THOUGHT}{header}<|message|>{BODY}{end}"
        assert read(form, text, size=size) == CALLED, text


@pytest.mark.parametrize("name", NAMES)
def test_the_constraint_admits_what_models_write(name: str) -> None:
    form = by_name(name)
    plan = CallPlan(TOOLS, required=False, parallel=True)
    for tokens, vocabulary in vocabularies(form):
        grammar = compose(form, tokens, reasoning="possible", calls=plan, answer=None)
        assert grammar is not None
        for header in (*BEHIND, *BEFORE):
            opened = f"{THOUGHT}{header}<|message|>"
            assert vocabulary.refused_at(grammar, opened + BODY) is None, header
            assert vocabulary.refused_at(grammar, opened + "{}") is not None, header


@each_of("size", [0, 1, 3, 8])
@each_of(
    ("text", "expected"),
    [
        # Several calls, with nothing or a preamble between them.
        (
            f"{THOUGHT}{BEHIND[0]}<|message|>{BODY}<|call|><|start|>assistant"
            "<|channel|>commentary to=functions.now<|message|>{}<|call|>",
            Told("Hm.", "", [("get_weather", PARIS), ("now", {})]),
        ),
        (
            f"{THOUGHT}<|channel|>commentary<|message|>I look.<|end|><|start|>assistant"
            f"{BEHIND[3]}<|message|>{BODY}",
            Told("Hm.", "I look.", [("get_weather", PARIS)]),
        ),
        (f"Let me look.<|start|>assistant{BEFORE[2]}<|message|>{BODY}<|call|>",
         Told("", "Let me look.", [("get_weather", PARIS)])),
        # Messages to a reader are what their channel says.
        ("<|channel|>analysis to=assistant<|message|>Hm.<|end|><|start|>assistant to=user"
         "<|channel|>final<|message|>Yes.<|return|>", Told("Hm.", "Yes.")),
        (" to=assistant<|channel|>commentary<|message|>Yes.", Told("", "Yes.")),
        ("<|channel|>final json<|message|>{}", Told("", "{}")),
        ("<|start|>assistant<|message|>Yes.", Told("", "Yes.")),
        # Messages to tools that nobody offered are not for the user.
        ("<|channel|>analysis to=python code<|message|>print(1)<|call|>", Told("print(1)")),
        ('<|channel|>commentary to=browser.search code<|message|>{"query": "x"}<|call|>',
         Told('{"query": "x"}')),
        (' to=container.exec<|channel|>analysis code<|message|>{"cmd": 1}', Told('{"cmd": 1}')),
        # A message that ends within its header has no text; nor has one that is cut there.
        (f"{THOUGHT}<|channel|>analysis<|end|><|start|>assistant<|channel|>final<|message|>Yes.",
         Told("Hm.", "Yes.")),
        (f"{THOUGHT}<|channel|>fin", Told("Hm.", "")),
        (f"{THOUGHT}", Told("Hm.", "")),
        # The text of an answer that only looks like a header.
        ("<|channel|>final<|message|>to=user is a header.", Told("", "to=user is a header.")),
        ("to=x is the syntax of a header here.", Told("", "to=x is the syntax of a header here.")),
        ("to=a<b is false", Told("", "to=a<b is false")),
        ("<|channel|>analysis<|message|>Hm, to=functions.x?<|end|><|start|>assistant"
         "<|channel|>final<|message|>Yes.", Told("Hm, to=functions.x?", "Yes.")),
    ],
)  # fmt: skip
def test_messages(text: str, expected: Told, size: int) -> None:
    for name in NAMES:
        assert read(by_name(name), text, size=size) == expected


@each_of("name", ["python", "browser.search", "container.exec"])
@each_of("channel", CHANNELS)
def test_a_built_in_recipient_is_a_function_where_one_is_offered(name: str, channel: str) -> None:
    tools = {name: {"type": "object"}}
    text = f'{THOUGHT}<|channel|>{channel} to={name} code<|message|>{{"code": "1"}}<|call|>'
    for size in (0, 1, 5):
        told = read(by_name("gpt-oss"), text, tools=tools, size=size)
        assert told == Told("Hm.", "", [(name, {"code": "1"})])


@each_of("header", [*BEHIND, *BEFORE, *ODD])
def test_a_call_that_nobody_asked_for_is_not_the_answer(header: str) -> None:
    text = (
        f"{THOUGHT}{header}<|message|>{BODY}<|call|><|start|>assistant"
        "<|channel|>final<|message|>Yes."
    )
    for size in (0, 1):
        told = read(by_name("gpt-oss"), text, tools=None, size=size)
        assert told.answer == "Yes."
        assert told.reasoning.startswith("Hm.")
        assert "<|" not in told.reasoning
