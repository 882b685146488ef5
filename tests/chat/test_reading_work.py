"""A long call in small pieces takes work in proportion to its length, however it is written.

Work is counted, not timed: bytes that are allocated while a piece is read, and characters of the
texts that are searched.
"""

from __future__ import annotations

import json
import sys
import tracemalloc
from collections.abc import Callable, Iterator, Mapping
from types import FrameType

from casekit import each_of
from formatkit import TOOLS, Call, admits, write_calls

from causerie.chat.document_watch import DocumentWatch
from causerie.chat.formats.registry import by_name
from causerie.chat.parser import Parser
from causerie.chat.schema.normal import Rewriter
from causerie.chat.validation import CheckedSchema

PIECE = 4
LENGTH = 6_000  # characters, about
MOST_ALLOCATED = 600  # bytes for each character; a text copied for each piece costs 750 more
MOST_SEARCHED = 400  # characters for each character; a text searched for each piece costs 750
SEARCHING = {"find", "rfind", "lstrip", "rstrip", "strip", "isspace", "partition", "split"}
VALUES: Mapping[str, Mapping[str, object]] = {
    "text": {"city": 'a"b\\c </d> ' * (LENGTH // 11)},
    "list": {"city": "Oslo", "tags": ["it's <a> {b}"] * (LENGTH // 12)},
    "any": {"city": "Oslo", "more": "word " * (LENGTH // 5)},
}
ANY = {"get_weather": {"properties": {"city": {"type": "string"}, "tags": {"type": "array"}}}}


def parser_of(family: str, tools: Mapping[str, Mapping[str, object]]) -> Parser:
    form = by_name(family)
    parser = Parser(form, tools=tools, reasoning_open=False, call_id=lambda name, _: name)
    parser.read_unmarked(admits)
    return parser


def pieces(text: str) -> Iterator[str]:
    return (text[at : at + PIECE] for at in range(0, len(text), PIECE))


def allocated(feed: Callable[[str], object], text: str) -> float:
    """Bytes for each character: the most at once, for each piece."""
    work = 0
    tracemalloc.start()
    try:
        for piece in pieces(text):
            tracemalloc.reset_peak()
            before, _ = tracemalloc.get_traced_memory()
            feed(piece)
            work += tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    return work / len(text)


def searched(feed: Callable[[str], object], text: str) -> float:
    """Characters for each character: of all texts of which a method looks at each."""
    work = 0

    def note(_: FrameType, event: str, called: object) -> None:
        nonlocal work
        of = getattr(called, "__self__", None)
        if event == "c_call" and isinstance(of, str) and called.__name__ in SEARCHING:  # type: ignore[attr-defined]
            work += len(of)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        for piece in pieces(text):
            feed(piece)
    finally:
        sys.setprofile(before)
    return work / len(text)


def assert_linear(feed: Callable[[], Callable[[str], object]], text: str) -> None:
    assert len(text) > LENGTH * 0.8
    assert allocated(feed(), text) < MOST_ALLOCATED
    assert searched(feed(), text) < MOST_SEARCHED


@each_of(
    ("family", "value"),
    [
        ("hermes", "text"),  # JSON
        ("mistral-small-3.2", "list"),  # behind the name of the function
        ("gpt-oss", "any"),  # behind a header
        ("qwen-3-coder", "text"),  # one parameter after the other
        ("qwen-3-coder", "list"),
        ("qwen-3-coder", "any"),
        ("deepseek-v3.2", "list"),  # with types
        ("beam", "text"),  # each up to the next
        ("beam", "list"),
        ("lfm-2", "text"),  # Python
        ("gemma-4", "text"),  # its own quotes
        ("minimax-m3", "text"),  # elements
        ("minimax-m3", "any"),
    ],
)
def test_a_call(family: str, value: str) -> None:
    calls = by_name(family).calls
    text = calls.lead + write_calls(calls, [Call("get_weather", VALUES[value])])
    assert_linear(lambda: parser_of(family, ANY).feed, text)


@each_of(
    "text",
    [
        '<tool_call>\n{"name": "get_weather", "arguments": '
        + json.dumps(json.dumps(VALUES["any"])),
        '<tool_call>\n{"name": "get_weather", "arguments": {' + " " * LENGTH,
        '{"name": "get_weather", "arguments": ' + json.dumps(VALUES["list"]),
        '<tool_call>\n{"name": "get_weather", "arguments": {}}' + " " * LENGTH,
        '<tool_call>\n{"name": "get_weather", "arguments": {}}\n<' + " " * LENGTH,
    ],
    ids=["quoted", "space", "unmarked", "space after", "mark"],
)
def test_a_call_that_is_odd(text: str) -> None:
    assert_linear(lambda: parser_of("hermes", TOOLS).feed, text)


def test_a_call_that_begins_like_an_earlier_one() -> None:
    calls = by_name("hermes").calls
    made = [Call("get_weather", {"city": "a" * (LENGTH // 2) + end}) for end in "bc"]
    assert_linear(lambda: parser_of("hermes", TOOLS).feed, write_calls(calls, made))


def test_a_document_that_is_watched() -> None:
    rules = CheckedSchema(Rewriter({"type": "array", "uniqueItems": True}, "schema").rewrite())
    text = json.dumps(["a" * (LENGTH // 2), *range(LENGTH // 12)])

    def watch() -> Callable[[str], object]:
        document = DocumentWatch(rules)
        return lambda piece: document.feed(piece, 0)

    assert_linear(watch, text)
