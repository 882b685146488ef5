"""Items that repeat earlier ones are seen as soon as they are complete, however the text is cut."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from casekit import each_of, examples
from grammarkit import fault_in
from hypothesis import given, settings
from hypothesis import strategies as st

from causerie.chat.document_watch import BrokenRule, DocumentWatch, Repeat
from causerie.chat.schema import prepare
from causerie.chat.schema.normal import Rewriter
from causerie.chat.validation import CheckedSchema

UNIQUE: dict[str, Any] = {"type": "array", "uniqueItems": True}
RULES = {
    "any": UNIQUE,
    "inside": {"properties": {"a": UNIQUE}},
    "items": {"items": UNIQUE},
    "first": {"prefixItems": [UNIQUE, {}], "items": {"items": UNIQUE}},
    "all": {"allOf": [{"additionalProperties": UNIQUE}]},
    "reference": {"$ref": "#/$defs/n", "$defs": {"n": {"items": {"$ref": "#/$defs/n"}, **UNIQUE}}},
    "names": {"patternProperties": {".": UNIQUE}},
}
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(0, 2)
    | st.just(1.0)
    | st.sampled_from(["", "a", '"\\']),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from("ab"), inner),
    max_leaves=12,
)


def watched(text: str, rules: dict[str, Any], cuts: list[int]) -> DocumentWatch:
    document = DocumentWatch(CheckedSchema(Rewriter(rules, "schema").rewrite()))
    edges = [0, *sorted(cut % (len(text) + 1) for cut in cuts), len(text)]
    for begin, end in pairwise(edges):
        document.feed(text[begin:end], begin)
    return document


@settings(max_examples=examples(60), deadline=None)
@given(st.sampled_from(sorted(RULES)), values, st.lists(st.integers(0, 200)), st.booleans())
def test_an_item_repeats_where_the_check_says_that_items_are_equal(
    name: str, value: object, cuts: list[int], pretty: bool
) -> None:
    rules, text = RULES[name], json.dumps(value, indent=2 if pretty else None)
    document = watched(f"{text}\n", rules, cuts)
    fault = fault_in(text, Rewriter(rules, "schema").rewrite())
    equal = fault is not None and "are equal" in fault
    if fault is None or equal:
        assert (document.fault is not None) == equal
    if document.fault is None:
        assert document.held_from is None


@each_of(
    ("text", "repeat"),
    [
        ("[1, 2, 1]", Repeat("#", 5, "")),
        ("[1, 1.0 ]", Repeat("#", 2, "")),
        ('["a","\\u0061"', Repeat("#", 4, "")),
        ('[{"a": 1, "b": 2}, {"b": 2, "a": 1}', Repeat("#", 17, "")),
        ("[[], []", Repeat("#", 3, "")),
        ("[[1, 2], [1, 1]", None),
        ("[1, 1", None),  # it may go on
        ('["a", "a', None),
    ],
)
def test_an_item_is_compared_once_it_is_complete(text: str, repeat: Repeat | None) -> None:
    assert watched(text, UNIQUE, list(range(len(text)))).fault == repeat


def test_text_is_held_from_the_outermost_item_that_may_be_taken_back() -> None:
    rules = {**UNIQUE, "items": UNIQUE}
    text = "[[1, 2], [1, 3]"
    held = [watched(text[:end], rules, list(range(end))).held_from for end in range(len(text) + 1)]
    assert held == [None] * 4 + [3] * 3 + [None] + [7] * 7 + [None]


def test_a_piece_that_ends_an_item_and_begins_the_next_names_what_is_before_the_comma() -> None:
    document = DocumentWatch(CheckedSchema(UNIQUE))
    for position, piece in enumerate(['["', "a", '","', "a", '"']):
        document.feed(piece, position)
    assert document.fault == Repeat("#", 2, '"')


@each_of("text", ["no JSON, at all", "[1, 1x, 1x", "]]", '{"a": [[}]', ", , ,"])
def test_text_that_is_no_json_is_passed_over(text: str) -> None:
    assert watched(text, UNIQUE, []).fault is None


@pytest.mark.parametrize(
    ("text", "content"), [('["ab", 12]', 4), ('{"name": null}', 4), ('[""]', 1), ("[{}, []]", 2)]
)
def test_content_is_counted_and_structure_is_not(text: str, content: int) -> None:
    assert watched(text, {}, []).content == content


def test_a_value_with_rules_that_no_grammar_has_is_held_until_it_is_complete() -> None:
    """Nothing else is held, and the fault names the part that it is about."""
    excluded = {"type": "string", "not": {"pattern": "^x"}}
    inner = {
        "type": "object",
        "properties": {"k": {"type": "string"}, "n": {"type": "integer"}},
        "if": {"properties": {"k": {"pattern": "^y"}}},
        "then": {"properties": {"n": {"minimum": 5}}},
    }
    schema = {"properties": {"a": excluded, "b": {"type": "string"}, "c": inner}}
    document = DocumentWatch(CheckedSchema(prepare(schema, param="p").rules))
    text = '{"a": "ab", "b": "x", "c": {"k": "y", "n": 3}}'
    held = []
    for position, character in enumerate(text):
        document.feed(character, position)
        held.append(document.held_from)
    begin, end = text.index('"ab"'), text.index('"ab"') + 3
    assert held[: end + 1] == [None] * begin + [begin] * (end - begin) + [None]
    inside = text.index('{"k"')
    assert set(held[end + 1 : inside]) == {None}
    assert set(held[inside:-2]) == {inside}
    name = text.index('"n"')
    assert isinstance(document.fault, BrokenRule)
    assert (document.fault.start, document.fault.blamed) == (inside, (name, len(text) - 2))


def test_an_excluded_text_is_found_as_soon_as_it_is_complete() -> None:
    schema = {"type": "array", "items": {"type": "string", "not": {"pattern": "^x"}}}
    document = DocumentWatch(CheckedSchema(prepare(schema, param="p").rules))
    for position, piece in enumerate(["[", '"a', '"', ', "x', 'y"']):
        document.feed(piece, position)
    assert isinstance(document.fault, BrokenRule)
    assert (document.fault.start, document.fault.blamed) == (3, None)
