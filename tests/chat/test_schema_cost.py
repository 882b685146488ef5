"""Schemas that are hostile by their cost. Work is counted, not timed."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from casekit import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from causerie.chat.answer import SchemaCache, answer_plan, callable_functions
from causerie.chat.schema import WhiteSpace, disjoint, prepare, values
from causerie.chat.schema.disjoint import SchemaDisjointness
from causerie.chat.schema.keywords import SchemaRefused
from causerie.errors import InvalidRequest
from causerie.protocol.request import ChatRequest, JsonSchema, Message, Tool

MOST_COMPARED = 8_100  # pairs of schemas, in one document


class Counted:
    """Pairs of schemas that are compared, and constants that are written for it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.compared = self.constants = 0
        compare, write = SchemaDisjointness._prove_disjoint, values.canonical

        def compared(*args: Any) -> bool:
            self.compared += 1
            return compare(*args)

        def canonical(value: object) -> str:
            self.constants += 1
            return write(value)

        monkeypatch.setattr(SchemaDisjointness, "_prove_disjoint", compared)
        monkeypatch.setattr(disjoint, "canonical", canonical)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counted:
    return Counted(monkeypatch)


def enums(options: int, constants: int) -> dict[str, Any]:
    return {"oneOf": [{"enum": [f"{at}.{k}" for k in range(constants)]} for at in range(options)]}


def objects(options: int, names: int) -> dict[str, Any]:
    named = [f"name{at}" for at in range(names)]
    option = {
        "type": "object",
        "properties": {name: {"type": "string"} for name in named},
        "required": named,
    }
    return {"oneOf": [{**option, "title": str(at)} for at in range(options)]}


def nested(options: int, deep: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(min(deep, 3)):
        schema = {"type": "object", "properties": {"a": schema}, "required": ["a"]}
        schema = {"anyOf": [dict(schema, title=str(at)) for at in range(3)]}
    return {"oneOf": [dict(schema, title=str(at)) for at in range(min(options, 12))]}


def anything(options: int, _: int) -> dict[str, Any]:
    return {"oneOf": [{} for _ in range(options)]}


_GENERATORS = st.sampled_from([enums, objects, nested, anything])


@settings(
    max_examples=examples(8),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_options_are_compared_a_bounded_number_of_times(
    data: st.DataObject, counted: Counted
) -> None:
    counted.compared = counted.constants = 0
    properties = {}
    written = 0
    for at in range(data.draw(st.integers(1, 3))):
        make = data.draw(_GENERATORS)
        options, size = data.draw(st.integers(2, 120)), data.draw(st.integers(1, 20))
        properties[f"p{at}"] = make(options, size)
        written += options * size
    with suppress(SchemaRefused):
        prepare({"type": "object", "properties": properties}, param="schema")
    assert counted.compared <= MOST_COMPARED
    assert counted.constants <= written


def test_each_list_of_constants_is_written_once(counted: Counted) -> None:
    prepare(enums(60, 100), param="schema")
    assert counted.constants == 60 * 100


def test_options_are_not_compared_further_once_too_many_overlap(counted: Counted) -> None:
    prepared = prepare(objects(300, 3), param="schema")
    assert ("#/oneOf", "oneOf") in prepared.left
    assert counted.compared < 1_000


def test_options_with_constants_of_their_own_are_still_told_apart(counted: Counted) -> None:
    assert prepare(enums(100, 20), param="schema").left == ()


@pytest.mark.parametrize("as_tool", [False, True])
async def test_a_schema_of_megabytes_is_refused_unread(as_tool: bool) -> None:
    schema = {"type": "object", "properties": {f"a{at}": {} for at in range(200_000)}}
    request = ChatRequest("m", (Message("user", "Write."),), tools=(Tool("f", schema),))
    with pytest.raises(InvalidRequest, match="too long") as refused:
        if as_tool:
            await callable_functions(request, (), SchemaCache())
        else:
            output = JsonSchema(schema)
            await answer_plan(output, (), SchemaCache(), white_space=WhiteSpace.FIXED)
    assert refused.value.code == "unsupported_schema"
