"""The finished answer against what was asked for."""

from __future__ import annotations

import json

import pytest

from causerie.chat.validation import validate
from causerie.protocol.request import (
    Grammar,
    JsonObject,
    JsonSchema,
    OutputFormat,
    Regex,
    ToolMode,
)


def _schema(**keywords: object) -> JsonSchema:
    return JsonSchema(keywords)


@pytest.mark.parametrize(
    ("output", "good", "bad"),
    [
        (JsonObject(), ' {"a": [1]}\n', "[]"),
        (JsonObject(), "{}", '{"a": NaN}'),
        (JsonObject(), "{}", '{"a": '),
        (JsonSchema(True), "3", "x"),
        (ToolMode(("yes", "no")), "no", "no "),
        (Regex(r"^\d+-[a-z]+$"), "12-ab", "12-"),
        (Regex("a|b"), "b", "ab"),
        (Grammar('start: "a" /[0-9]+/'), "a12", "a"),
        (Grammar('root ::= "a" [0-9]+'), "a12", "12"),
        (_schema(type="integer"), "3.0", "3.5"),
        (_schema(type="integer"), "3", "true"),
        (_schema(type=["null", "string"]), '"x"', "1"),
        (_schema(const={"a": [1, 2.0]}), '{"a": [1.0, 2]}', '{"a": [true, 2]}'),
        (_schema(enum=["a", 1, None, [0]]), "[0]", "false"),
        (_schema(enum=["a", "b"]), '"b"', '"c"'),
        (_schema(minimum=1, exclusiveMaximum=3), "1", "3"),
        (_schema(maximum=1, exclusiveMinimum=0), "0.5", "0"),
        (_schema(multipleOf=0.1), "0.3", "0.35"),
        (_schema(multipleOf=2), "1e3", "1e999"),
        (_schema(minLength=2, maxLength=3), '"é😀"', '"a"'),
        (_schema(pattern="^[a-z]+$"), '"ab"', '"aB"'),
        (_schema(pattern="b"), '"a\\u0062\\u0001"', '"a\\u0001"'),
        (_schema(pattern="^."), '"\\u007f"', '""'),
        (_schema(pattern="a"), '"a"', '"\\ud800"'),
        (_schema(type="string", format="date"), '"2024-02-29"', '"2023-02-29"'),
        (_schema(type="string", format="date"), '"0000-02-29"', '"2023-04-31"'),
        (_schema(type="string", format="date-time"), '"2024-02-29T00:00:60Z"',
         '"2023-02-29T00:00:00Z"'),
        (_schema(type="string", format="uri"), '"urn:a:b"', '"a b:c"'),
        (_schema(minItems=1, maxItems=2), "[1]", "[]"),
        (_schema(prefixItems=[{"type": "null"}], items=False), "[null]", "[null, 1]"),
        (_schema(items={"type": "null"}), "[null]", "[null, 1]"),
        (_schema(required=["a"], maxProperties=1), '{"a": 1}', '{"b": 1}'),
        (_schema(properties={"a": {"type": "null"}}), '{"a": null, "b": 1}', '{"a": 1}'),
        (_schema(additionalProperties={"type": "null"}, properties={"a": {}}), '{"a": 1}',
         '{"b": 1}'),
        (_schema(patternProperties={"^x": {"type": "null"}}, additionalProperties=False),
         '{"x1": null}', '{"y": null}'),
        (_schema(allOf=[{"minimum": 1}, {"maximum": 3}]), "2", "4"),
        (_schema(anyOf=[{"type": "null"}, {"minimum": 3}]), "null", "2"),
        (_schema(oneOf=[{"type": "null"}, {"type": "string"}]), '"x"', "2"),
        (_schema(**{"$ref": "#/$defs/a", "$defs": {"a": {"items": {"$ref": "#/$defs/a"},
                                                         "type": "array"}}}), "[[], [[]]]", "[1]"),
    ],
)  # fmt: skip
def test_good_and_bad_answers(output: OutputFormat, good: str, bad: str) -> None:
    assert validate(good, output) is None
    assert validate(bad, output) is not None


def test_the_place_is_named() -> None:
    output = _schema(properties={"a": {"items": {"type": "string"}}})
    assert validate('{"a": ["x", 1]}', output) == "The value at #/a/1 is not of the type string."


def test_objects_are_not_closed_here() -> None:
    assert validate('{"a": 1, "b": 2}', _schema(properties={"a": {}})) is None


def test_patterns_that_backtrack_elsewhere_are_decided() -> None:
    text = json.dumps("a" * 20_000 + "!")
    assert validate(text, _schema(type="string", pattern="^(a+)+$")) is not None
    assert validate("a" * 20_000 + "!", Regex("(a+)+")) is not None


def test_alternatives_that_multiply_are_given_up() -> None:
    twice = {"type": "array", "items": {"$ref": "#/$defs/a"}, "minItems": 1}
    schema = {
        "$ref": "#/$defs/a",
        "$defs": {"a": {"anyOf": [twice, twice, {"type": "string"}]}},
    }
    assert validate("[" * 60 + "]" * 60, JsonSchema(schema)) == (
        "The answer could not be checked against the schema within its bounds."
    )


def test_nesting_beyond_the_reader_is_no_json() -> None:
    wrong = validate("[" * 100_000, JsonObject())
    assert wrong is not None
    assert "not valid JSON" in wrong
