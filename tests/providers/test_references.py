"""References of schemas: each that leads out is found wherever a schema may stand."""

from __future__ import annotations

from typing import Any

import pytest
from casekit import each_of
from hypothesis import given
from hypothesis import strategies as st

from causerie.errors import InvalidRequest
from causerie.providers.history import check_references

OUTSIDE = "https://metadata.internal/schema.json"
WORDS = st.sampled_from(
    ["default", "const", "enum", "example", "examples", "$ref", "$id", "$schema", "properties", "a"]
)
BY_NAME = (
    "properties",
    "patternProperties",
    "$defs",
    "definitions",
    "dependentSchemas",
    "dependencies",
)
ONE = ("items", "not", "if", "then", "additionalProperties", "propertyNames", "contains", "x-note")
SEVERAL = ("allOf", "anyOf", "oneOf", "prefixItems", "items")
DATA = ("const", "default", "example")
LISTED_DATA = ("enum", "examples")
NOISE: dict[str, Any] = {
    "type": "object",
    "properties": {"default": {"$ref": "#/$defs/a"}},
    "$defs": {"a": {"type": "string"}},
}
LEADS_OUT = st.sampled_from(
    [
        {"$ref": OUTSIDE},
        {"$ref": "//metadata.internal/x#/a"},
        {"$ref": "file:///etc/passwd"},
        {"$ref": [OUTSIDE]},
        {"$ref": None},
        {"$ref": {"$ref": OUTSIDE}},
        {"$dynamicRef": OUTSIDE},
        {"$recursiveRef": OUTSIDE},
        {"$schema": OUTSIDE},
        {"$schema": [OUTSIDE]},
        {"$schema": "https://json-schema.org.metadata.internal/draft-07/schema#"},
        {"$schema": "https://json-schema.org/draft/2020-12/schema?at=metadata.internal"},
        {"$ref": "other.json"},
        {"id": "https://metadata.internal/", "$ref": "#/$defs/a"},
    ]
)


@st.composite
def inside(draw: st.DrawFn, innermost: st.SearchStrategy[Any]) -> dict[str, Any]:
    """Draw a schema that has the innermost one at some position of a schema."""
    schema = draw(innermost)
    for _ in range(draw(st.integers(1, 5))):
        kind = draw(st.sampled_from(["by name", "one", "several"]))
        if kind == "by name":
            schema = {draw(st.sampled_from(BY_NAME)): {draw(WORDS): schema}}
        elif kind == "one":
            schema = {draw(st.sampled_from(ONE)): schema}
        else:
            schema = {draw(st.sampled_from(SEVERAL)): [{"type": "string"}, schema]}
    return {**NOISE, **schema}


@st.composite
def data(draw: st.DrawFn) -> dict[str, Any]:
    value = draw(inside(LEADS_OUT))
    if draw(st.booleans()):
        return {draw(st.sampled_from(DATA)): value}
    return {draw(st.sampled_from(LISTED_DATA)): [value]}


def checked(schema: dict[str, Any]) -> None:
    check_references({"tools": [{"function": {"name": "f", "parameters": schema}}]})
    check_references({"response_format": {"json_schema": {"name": "n", "schema": schema}}})


@given(inside(LEADS_OUT))
def test_what_leads_out_is_found_at_every_position_of_a_schema(schema: dict[str, Any]) -> None:
    for fields in (
        {"tools": [{"function": {"name": "f", "parameters": schema}}]},
        {"response_format": {"type": "json_schema", "json_schema": {"schema": schema}}},
        {"structured_outputs": {"json": schema}},
    ):
        with pytest.raises(InvalidRequest) as refused:
            check_references(fields)
        assert refused.value.code == "unsupported_schema"


@given(inside(data()))
def test_data_that_looks_like_a_reference_is_none(schema: dict[str, Any]) -> None:
    checked(schema)


@given(data())
def test_data_is_a_schema_where_a_reference_names_it(schema: dict[str, Any]) -> None:
    (word,) = schema
    place = f"#/{word}/0" if word in LISTED_DATA else f"#/{word}"
    with pytest.raises(InvalidRequest):
        checked({**schema, "properties": {"a": {"$ref": place}}})


@each_of(
    "schema",
    [
        {"$id": "https://acme.test/a", "$defs": {"b": {"$id": "b", "type": "string"}}, "$ref": "b"},
        {"$id": "https://acme.test/a", "items": {"$ref": "https://acme.test/a"}},
        {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"},
        {"$schema": "https://json-schema.org/draft/2019-09/schema", "$recursiveRef": "#"},
        {"$dynamicAnchor": "node", "items": {"$dynamicRef": "#node"}},
        {"properties": {"$ref": {"type": "string"}, "href": {"const": "x"}, "$schema": {}}},
        {"id": "step-1", "properties": {"a": {"id": "step-2", "$ref": "#/$defs/x"}}, "$defs": {}},
        {"$ref": "#/definitions/a", "definitions": {"a": {}}},
    ],
)
def test_what_stays_inside_is_sent(schema: dict[str, Any]) -> None:
    checked(schema)


def test_the_work_for_all_schemas_of_a_request_is_bounded() -> None:
    many = {f"p{n}": {"$id": f"n{n}"} for n in range(600)}
    tool = {"function": {"name": "f", "parameters": {"properties": many}}}
    check_references({"tools": [tool]})
    with pytest.raises(InvalidRequest, match="too large"):
        check_references({"tools": [tool, tool]})
    wide: dict[str, Any] = {"allOf": [{} for _ in range(15_000)], "$id": "a"}
    tool = {"function": {"name": "f", "parameters": wide}}
    with pytest.raises(InvalidRequest, match="too large"):
        check_references({"tools": [tool, tool]})
