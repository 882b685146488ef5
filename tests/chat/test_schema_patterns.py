"""Patterns of properties: all hold, and comparing them takes a bounded time."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from casekit import each_of
from chatkit import validate

from causerie.chat.answer import SchemaCache, answer_plan, callable_functions
from causerie.chat.schema import WhiteSpace, prepare
from causerie.chat.schema.disjoint import beginnings_meet, matches
from causerie.chat.schema.pattern import searches
from causerie.protocol.request import ChatRequest, JsonSchema, Message, Tool


def test_patterns_that_are_written_alike_all_hold() -> None:
    schema = {"patternProperties": {r"^\d": {"type": "integer"}, "^[0-9]": {"minimum": 5}}}
    for text, valid in (('{"1": 5}', True), ('{"1": 5.5}', False), ('{"1": 4}', False)):
        assert (validate(text, JsonSchema(schema)) is None) is valid


def test_patterns_that_begin_differently_are_all_in_the_grammar() -> None:
    each = {f"^{name}": {"type": "string", "minLength": n} for n, name in enumerate("abcdefghij")}
    prepared = prepare({"type": "object", "patternProperties": each}, param="p")
    assert prepared.left == ()
    assert all(f'"^{name}"' in prepared.text for name in "abcdefghij")


def test_few_patterns_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[str, str]] = []

    def overlap(one: str, other: str) -> bool:
        compared.append((one, other))
        return False

    monkeypatch.setattr("causerie.chat.schema.normal.may_overlap", overlap)
    each = {f"a.*{n}$": {"type": "string", "minLength": n} for n in range(40)}
    prepared = prepare({"type": "object", "patternProperties": each}, param="p")
    assert len(compared) == 6
    assert len(prepared.left) == 36  # the other patterns are only checked


@each_of(
    ("one", "other", "apart"),
    [
        ("^a", "^b", True),
        ("^k1$", "^k12$", True),
        ("^k1", "^k12", False),
        ("^k1?", "^k2", False),
        ("^ab*", "^ac", False),
        ("^a|b", "^b", False),
        ("a", "^b", False),
        ("^a$", "^a", False),
        ("^a{0,2}b", "^b", False),
    ],
)
def test_beginnings_tell_patterns_apart(one: str, other: str, apart: bool) -> None:
    for first, second in ((one, other), (other, one)):
        assert beginnings_meet(first, second) is not apart


@each_of(
    ("pattern", "matched", "others"),
    [
        ("^x-", ("x-", "x-a"), ("a", "ax-")),
        ("a b$", ("a b", "ca b"), ("a b ", "a b\n")),
        ("^ab$", ("ab",), ("a", "abc", "ab\n")),
        ("ü", ("für",), ("fur",)),
        ("^(ab|c)[0-9]+$", ("ab1", "c23"), ("b1", "ab", "ab1\n")),
        (r"[\"\\]", ('a"', "b\\c"), ("a", "/")),
        ("^.$", ("ü", "😀"), ("", "ab")),
    ],
)
def test_patterns_match_names(pattern: str, matched: Sequence[str], others: Sequence[str]) -> None:
    [rewritten] = searches(pattern)
    assert [name for name in (*matched, *others) if matches(rewritten, name)] == [*matched]


# Python's own matcher goes back 2^60 times here, and holds up all threads meanwhile.
async def test_no_pattern_of_names_goes_back_without_end() -> None:
    name = f"{'a' * 60}!"
    for named in ({"properties": {name: {"type": "string"}}}, {"required": [name]}):
        schema = {
            "type": "object",
            **named,
            "patternProperties": {"^(a+)+$": {"type": "integer"}},
            "additionalProperties": {"type": "string"},
        }
        output = JsonSchema(schema)
        await answer_plan(output, (), SchemaCache(), white_space=WhiteSpace.PRETTY)
        request = ChatRequest("m", (Message("user", "Go."),), tools=(Tool("f", schema),))
        functions = await callable_functions(request, (), SchemaCache())
        assert functions.admits("f", json.dumps({name: ""}))
        assert not functions.admits("f", json.dumps({name: 1}))
