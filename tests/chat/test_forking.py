"""A copy of a reader reads on as the reader itself would, and neither sees what the other reads."""

from __future__ import annotations

from copy import copy

from casekit import examples
from formatkit import TOOLS, Call, admits, write_calls
from hypothesis import given, settings
from hypothesis import strategies as st

from causerie.chat.backtracking import fork
from causerie.chat.call_syntax.base import GrowingList, GrowingText
from causerie.chat.formats.registry import FORMATS
from causerie.chat.generation import GeneratedCallIds
from causerie.chat.parser import Parser
from causerie.protocol.events import ContentEvent

ARGUMENTS = [
    {"city": "a\"b\\c </d> \u2028 it's", "tags": ["x", "y"]},
    {"city": "Oslo", "days": 3, "more": {"a": [1, None]}},
    {"city": ""},
]
CALLS = [Call("get_weather", each) for each in ARGUMENTS] + [Call("now", {})]
PLAIN = '```json\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n```\n and more'
WORDS = ["Hi ", "<think>no</think>", "{", '"', "<", "[", "\n"]


def texts() -> st.SearchStrategy[tuple[int, str]]:
    """Numbers of formats, and replies in them."""
    formats = st.integers(0, len(FORMATS) - 1)
    calls = st.lists(st.sampled_from(CALLS), min_size=1, max_size=2)
    words = st.lists(st.sampled_from(WORDS), max_size=3).map("".join)
    return st.builds(reply, formats, words, calls, st.booleans())


def reply(number: int, words: str, calls: list[Call], plain: bool) -> tuple[int, str]:
    section = FORMATS[number].calls
    if plain or section is None:
        return number, PLAIN + words
    return number, words + section.lead + write_calls(section, calls) + words


def parser_of(number: int) -> Parser:
    ids = GeneratedCallIds(set(), False, [f"id{at}" for at in range(9)])
    parser = Parser(FORMATS[number], tools=TOOLS, reasoning_open=False, call_id=ids)
    parser.read_unmarked(admits)
    return parser


def read(parser: Parser, text: str, size: int) -> list[ContentEvent]:
    return [
        event for at in range(0, len(text), size) for event in parser.feed(text[at : at + size])
    ]


@settings(max_examples=examples(300), deadline=None)
@given(texts(), texts(), st.integers(1, 9), st.data())
def test_a_parser(
    told: tuple[int, str], other: tuple[int, str], size: int, data: st.DataObject
) -> None:
    number, text = told
    cut = data.draw(st.integers(0, len(text)))
    whole = parser_of(number)
    expected = read(whole, text[:cut], size) + read(whole, text[cut:], size) + whole.finish()

    parser = parser_of(number)
    begun = read(parser, text[:cut], size)
    kept, astray = fork(parser), fork(parser)
    assert begun + read(parser, text[cut:], size) + parser.finish() == expected
    read(astray, other[1], size)
    again = fork(kept)
    assert begun + read(kept, text[cut:], size) + kept.finish() == expected
    read(astray, other[1], size)
    assert begun + read(again, text[cut:], size) + again.finish() == expected


@settings(max_examples=examples(200), deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.one_of(st.none(), st.text("abc", max_size=3))), max_size=30
    )
)
def test_what_grows(steps: list[tuple[int, str | None]]) -> None:
    """Any tree of copies: each has what was added to it and to those that it is a copy of."""
    made = [(GrowingList[str](), GrowingText(), list[str]())]
    for which, added in steps:
        items, text, model = made[which % len(made)]
        if added is None:
            made.append((copy(items), copy(text), list(model)))
            continue
        items.append(added)
        text.add(added)
        model.append(added)
    for items, text, model in made:
        whole = "".join(model)
        assert [*items] == model[::-1]
        assert (str(text), text.size) == (whole, len(whole))
        assert text.between(1, len(whole) - 1) == whole[1 : len(whole) - 1]
