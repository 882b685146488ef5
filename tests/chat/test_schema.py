"""Schemas that are enforced, and the place of refusals."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import jsonschema
import pytest
from casekit import each_of
from chatkit import validate
from hypothesis import given
from hypothesis import strategies as st
from llguidance import LLMatcher, LLTokenizer

from causerie.chat.schema import WhiteSpace, choice, constraint, prepare, regex
from causerie.chat.schema.keywords import SchemaRefused
from causerie.protocol.request import JsonSchema

Schema = Mapping[str, object] | bool


_BYTES = LLTokenizer("byte")


@lru_cache(16)
def _compiled(grammar: str) -> LLMatcher:
    matcher = LLMatcher(_BYTES, "%llguidance {}\n" + grammar, log_level=0)
    assert not matcher.is_error(), matcher.get_error()
    return matcher


def admits(grammar: str, text: str) -> bool:
    matcher = _compiled(grammar).deep_copy()
    raw = text.encode()
    return matcher.try_consume_tokens(list(raw)) == len(raw) and matcher.is_accepting()


def allows(schema: Schema, text: str) -> bool:
    return admits("start: %json " + prepare(schema, param="p").text, text)


def test_json_is_written_as_python_writes_it() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "array"}, "b": {"type": "null"}}}
    assert allows(schema, json.dumps({"a": [1, "x", {"k": [2, 3]}], "b": None}))
    for loose in ('{"a":[1]}', '{ "a": [1]}', '{"a": [1,2]}', '{"a": [1]\n}', '{"a":  [1]}'):
        assert not allows(schema, loose)


def test_properties_keep_their_order_and_others_are_left_out() -> None:
    schema = {"type": "object", "properties": {"b": {}, "a": {}}, "required": ["b"]}
    assert allows(schema, '{"b": 1, "a": 2}')
    assert not allows(schema, '{"a": 2, "b": 1}')
    assert not allows(schema, '{"b": 1, "c": 2}')
    assert allows({**schema, "additionalProperties": True}, '{"b": 1, "c": 2}')


def test_objects_that_are_put_together_stay_open() -> None:
    one = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    two = {"type": "object", "properties": {"b": {"type": "integer"}}, "required": ["b"]}
    assert allows({"allOf": [one, two]}, '{"a": 1, "b": 2}')
    shared = {"allOf": [{"$ref": "#/$defs/one"}, two], "$defs": {"one": one}}
    assert allows(shared, '{"a": 1, "b": 2}')
    assert not allows({"anyOf": [one, two]}, '{"a": 1, "b": 2}')


# One of two properties and never both, as TypeScript's generators write it.
EITHER = {
    "oneOf": [
        {
            "type": "object",
            "properties": {"a": {"type": "string"}, "b": {"not": {}}},
            "required": ["a"],
        },
        {
            "type": "object",
            "properties": {"a": {"not": {}}, "b": {"type": "integer"}},
            "required": ["b"],
        },
    ]
}


@each_of(
    ("schema", "good", "bad"),
    [
        (True, '{"x": [1]}', "nonsense"),
        ({"const": {"a": [1, None]}}, '{"a": [1, null]}', '{"a": [1]}'),
        ({"enum": ["a", 1, None]}, "1", '"b"'),
        ({"type": ["string", "null"]}, "null", "1"),
        ({"type": "integer", "minimum": -3, "exclusiveMaximum": 5}, "-3", "5"),
        ({"type": "integer", "minimum": 3, "exclusiveMinimum": True}, "4", "3"),
        ({"type": "number", "multipleOf": 0.1}, "0.3", "0.35"),
        ({"type": "number", "exclusiveMinimum": 0, "maximum": 1}, "0.001", "0"),
        ({"type": "number", "minimum": 1e-9}, "0.000000001", "0.0000000009"),
        ({"type": "number", "multipleOf": 1e-8}, "0.00000003", "0.000000031"),
        ({"type": "integer", "multipleOf": 1e-8}, "7", "0.5"),
        ({"type": "integer", "maximum": 2**64 - 1}, f"{2**53}", f"{2**65}"),
        ({"type": "integer", "exclusiveMaximum": 10**16}, f"{2**53}", f"{10**16}"),
        ({"minimum": -(2**64), "exclusiveMaximum": 9.7e26, "maximum": 8}, f"-{2**53}", "9"),
        ({"type": "number", "minimum": 0.001, "exclusiveMinimum": 0, "maximum": 0.5}, "0.1", "0"),
        ({"type": "string", "minLength": 2, "pattern": "^a+$"}, '"aa"', '"a"'),
        ({"type": "string", "format": "date", "minLength": 5}, '"2024-02-29"', '"2024-2-29"'),
        ({"type": "string", "format": "uri"}, '"https://a.b/c?d=e#f"', '"a b"'),
        ({"type": "string", "format": "uri", "pattern": "^h"}, '"h:x"', '"g:x"'),
        ({"type": "integer", "format": "int64"}, "7", '"7"'),
        ({"type": "array", "prefixItems": [{"type": "null"}], "items": False}, "[null]", "[1]"),
        ({"items": [{"type": "null"}], "additionalItems": {"type": "integer"}}, "[null, 1]", "[1]"),
        ({"type": "array", "minItems": 1, "maxItems": 2.0}, "[1, 2]", "[1, 2, 3]"),
        ({"type": "object", "patternProperties": {"^x": {"type": "null"}},
          "additionalProperties": False}, '{"x1": null}', '{"y": null}'),
        ({"type": "object", "minProperties": 1}, '{"a": 1}', "{}"),
        ({"type": "object", "propertyNames": {"enum": ["a", "b", 3]}}, '{"b": 1}', '{"c": 1}'),
        ({"type": "object", "propertyNames": {"$ref": "#/$defs/Name", "title": "Key"},
          "additionalProperties": {"type": "integer"}, "properties": {"a": {"type": "null"}},
          "$defs": {"Name": {"type": "string", "enum": ["a", "b"]}}}, '{"a": null, "b": 1}',
         '{"a": null, "b": null}'),
        ({"type": "object", "propertyNames": {"anyOf": [{"type": "string", "const": "a"},
          {"enum": ["b"]}]}, "additionalProperties": {"type": "null"}},
         '{"b": null}', '{"c": null}'),
        ({"type": "string", "format": "starts_with", "pattern": "^a.*"}, '"ab"', '"ba"'),
        ({"type": "string", "format": "includes", "allOf": [{"pattern": "^a"}, {"pattern": "b"}]},
         '"ab"', '"a"'),
        ({"type": "object", "propertyNames": {"const": "a"}, "additionalProperties": False}, "{}",
         '{"a": 1}'),
        ({"$ref": "#/$defs/a%20b", "$defs": {"a b": {"type": "object",
          "propertyNames": {"const": "%"}, "additionalProperties": {"type": "null"}}}},
         '{"%": null}', '{"%": 1}'),
        ({"type": "object", "propertyNames": {"type": "string", "minLength": 1, "maxLength": 2},
          "additionalProperties": {"type": "integer"}}, '{"ab": 1, "\\n": 2}', '{"": 1}'),
        ({"type": "object", "propertyNames": {"$ref": "#/$defs/N"}, "$defs": {"N":
          {"type": "string", "pattern": "^a", "format": "starts_with"}}}, '{"ab": 1}', '{"b": 1}'),
        ({"properties": {"a": {"not": {}}, "b": {}}}, '{"b": 1}', '{"a": 1}'),
        ({"items": {"not": {"description": "Never."}}}, "[]", "[1]"),
        ({"anyOf": [{"not": True}, {"type": "null"}]}, "null", "1"),
        ({"type": "string", "format": "password"}, '"a"', "1"),
        ({"format": "uuid4"}, '"9b2d4f6a-1c3e-4a5b-8c7d-0123456789ab"',
         '"9b2d4f6a-1c3e-1a5b-8c7d-0123456789ab"'),
        ({"type": "string", "format": "url", "maxLength": 9}, '"https:a.b"', '"a b"'),
        ({"type": "string", "format": "byte"}, '"YQ=="', '"YQ="'),
        ({"type": "string", "format": "char"}, '"é"', '"ab"'),
        ({"type": "string", "format": "decimal"}, '"-1.50"', '"1e5"'),
        ({"$id": "N", "type": "object", "properties": {"n": {"items": {"$ref": "N"}}},
          "examples": [{"$id": "N"}]}, '{"n": [{"n": []}]}', '{"n": [1, {"m": 1}]}'),
        ({"$id": "N", "type": "object", "properties": {"const": {"items": {"$ref": "N"}}}},
         '{"const": [{"const": []}]}', '{"const": [1]}'),
        ({"prefixItems": [{"$id": "T", "type": "array", "items": {"$ref": "T"}},
          {"$id": "T", "type": "array", "items": {"$ref": "T"}}]}, "[[[]], []]", "[[], [1]]"),
        ({"oneOf": [{"type": "string"}, {"type": "integer"}]}, "1", "1.5"),
        ({"oneOf": [{"type": "string"}, {"not": {}}]}, '"a"', "1"),
        (EITHER, '{"a": "x"}', '{"a": "x", "b": 1}'),
        ({"$ref": "#/definitions/a~1b%25", "definitions": {"a/b%": {"type": "null"}}}, "null", "1"),
        ({"$ref": "#/$defs/", "$defs": {"": {"type": "null"}}}, "null", "1"),
        ({"type": "string", "x-note": 1, "title": "T", "default": 3, "uniqueItems": False}, '"a"',
         "1"),
    ],
)  # fmt: skip
def test_a_schema_admits_what_it_says(schema: Schema, good: str, bad: str) -> None:
    assert allows(schema, good)
    assert not allows(schema, bad)


def test_recursion_through_properties() -> None:
    tree = {
        "type": "object",
        "properties": {"children": {"type": "array", "items": {"$ref": "#"}}},
        "required": ["children"],
    }
    assert allows(tree, '{"children": [{"children": []}]}')
    assert not allows(tree, '{"children": [1]}')


def test_options_with_different_tags_exclude_each_other() -> None:
    def tagged(name: str) -> dict[str, object]:
        return {"type": "object", "properties": {"kind": {"const": name}}, "required": ["kind"]}

    schema = {
        "discriminator": {"propertyName": "kind"},
        "oneOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}],
        "$defs": {"a": tagged("a"), "b": tagged("b")},
    }
    assert allows(schema, '{"kind": "b"}')
    assert not allows(schema, '{"kind": "c"}')


@each_of(
    ("schema", "pointer"),
    [
        ({"propertyNames": {"pattern": "(?=a)b"}}, "#/propertyNames/pattern"),
        ({"propertyNames": {"minLength": "2"}}, "#/propertyNames/minLength"),
        ({"properties": {"a/b": {"not": {"minLength": "1"}}}}, "#/properties/a~1b/not/minLength"),
        ({"properties": {"a%": {"if": 3}}}, "#/properties/a%25/if"),
        ({"uniqueItems": 1}, "#/uniqueItems"),
        ({"dependentRequired": {"a": [1]}}, "#/dependentRequired/a/required"),
        ({"dependentSchemas": {"a": 1}}, "#/dependentSchemas/a"),
        ({"dependencies": []}, "#/dependencies"),
        ({"minItems": 100_000}, "#/minItems"),
        ({"not": {"$ref": "#"}}, "#"),
        ({"not": {}}, "#"),
        ({"propertyNames": {"$ref": "#/propertyNames"}}, "#/propertyNames"),
        ({"propertyNames": {"$ref": "n.json#/N"}, "N": {"enum": ["a"]}}, "#/propertyNames/$ref"),
        ({"$dynamicRef": "#a"}, "#"),
        ({"const": 2**53 + 1}, "#/const"),
        ({"multipleOf": 123456789}, "#/multipleOf"),
        ({"items": {"enum": [1, [2**60 + 1]]}}, "#/items/enum/1/0"),
        ({"type": "integer", "minimum": 2**60 + 1}, "#/minimum"),
        ({"type": "integer", "exclusiveMaximum": -(2**60)}, "#/exclusiveMaximum"),
        ({"type": "integer", "multipleOf": 2**60}, "#/multipleOf"),
        ({"properties": {"a": {"$id": "N"}, "b": {"$id": "N", "type": "null"}}},
         "#/properties/a/$id"),
        ({"$id": "N", "items": {"$ref": "M"}}, "#/items/$ref"),
        ({"$defs": {"a": {"$dynamicAnchor": "T"}, "b": {"$dynamicAnchor": "T", "type": "null"}},
          "items": {"$dynamicRef": "#T"}}, "#/items"),
        ({"type": "string", "pattern": "(?=a)b"}, "#/pattern"),
        ({"type": "string", "pattern": "^a(?!b)"}, "#/pattern"),
        ({"type": "string", "pattern": "^(?!a)b"}, "#/pattern"),
        ({"type": "string", "pattern": "^(?!.*$)b"}, "#/pattern"),
        ({"type": "string", "pattern": "^(?!a*$)a|b"}, "#/pattern"),
        ({"type": "string", "pattern": "^(?!a*$"}, "#/pattern"),
        ({"type": "object", "patternProperties": {"^(?!a*$)": {}}}, "#/patternProperties/^(?!a*$)"),
        ({"type": "string", "pattern": "(a)\\1"}, "#/pattern"),
        ({"type": "string", "pattern": "\\bx"}, "#/pattern"),
        ({"propertyNames": {"anyOf": [{"$ref": "#/propertyNames"}]}}, "#/propertyNames"),
        ({"format": 3}, "#/format"),
        ({"$ref": "https://example.com/s.json"}, "#/$ref"),
        ({"$ref": "#name"}, "#/$ref"),
        ({"$ref": "#/$defs/none"}, "#/$ref"),
        ({"$ref": "#/$defs/a/", "$defs": {"a": {"type": "null"}}}, "#/$ref"),
        ({"anyOf": [{"$ref": "#"}, {"type": "null"}]}, "#"),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}},
         "#/$defs/a"),
        ({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}, "#"),
        (False, "#"),
        ({"type": "any"}, "#/type"),
        ({"type": []}, "#/type"),
        ({"enum": []}, "#/enum"),
        ({"anyOf": []}, "#/anyOf"),
        ({"anyOf": {"type": "null"}}, "#/anyOf"),
        ({"properties": []}, "#/properties"),
        ({"properties": {"a": 3}}, "#/properties/a"),
        ({"required": "a"}, "#/required"),
        ({"const": 1e16}, "#/const"),
        ({"const": [10**100]}, "#/const/0"),
        ({"enum": [float("nan")]}, "#/enum/0"),
        ({"minimum": 1e-13}, "#/minimum"),
        ({"minimum": 10**100}, "#/minimum"),
        ({"maximum": float("inf")}, "#/maximum"),
        ({"minimum": "3"}, "#/minimum"),
        ({"exclusiveMinimum": 0, "maximum": 0.5}, "#/exclusiveMinimum"),
        ({"multipleOf": 0}, "#/multipleOf"),
        ({"multipleOf": 3, "exclusiveMaximum": 0}, "#/multipleOf"),
        ({"minLength": -1}, "#/minLength"),
        ({"maxLength": 1.5}, "#/maxLength"),
    ],
)  # fmt: skip
def test_what_would_not_be_enforced_is_refused(schema: Schema, pointer: str) -> None:
    with pytest.raises(SchemaRefused) as caught:
        prepare(schema, param="response_format.json_schema.schema")
    assert caught.value.param == "response_format.json_schema.schema"
    assert caught.value.pointer == pointer
    assert pointer in str(caught.value)


@each_of(
    ("schema", "ignored"),
    [
        ({"type": "string", "minlength": 3}, ["keyword minlength ignored (similar to minLength)"]),
        ({"requried": ["a"]}, ["keyword requried ignored (similar to required)"]),
        ({"colour": "red", "items": {"colour": "blue"}}, ["keyword colour ignored"]),
        ({"x-guidance": {"lenient": True}}, ["keyword x-guidance ignored"]),
        ({"x-order": 1, "title": "T", "$comment": "C"}, []),
        ({"a, b: ü\r\n": 1}, ["keyword a%2C%20b:%20%C3%BC%0D%0A ignored"]),
        ({"\ud800": 1}, ["keyword %3F ignored"]),
        ({"k" * 100: 1}, ["keyword " + "k" * 60 + " ignored"]),
        ({"format": "currency"}, ["format currency ignored"]),
        ({"type": "string", "format": "starts_with"}, ["format starts_with ignored"]),
        ({"type": "string", "format": "starts_with", "pattern": "^a"}, []),
        ({"type": "integer", "format": "int32"}, []),
        ({"properties": {"colour": {"const": {"odd": 1}, "default": {"odd": 1}}}}, []),
        ({"$ref": "#/components/schemas/A", "components": {"schemas": {"A": {"odd": 1}}}},
         ["keyword odd ignored"]),
    ],
)  # fmt: skip
def test_unknown_keywords_and_formats_are_ignored_and_named(
    schema: Schema, ignored: list[str]
) -> None:
    assert list(prepare(schema, param="p").ignored) == [f"p {name}" for name in ignored]


@each_of(
    ("name", "good", "bad"),
    [
        ("iri", ["https://a.b/c?d#e", "urn:x:y", "file:///a/b"], ["", "//a", "a b", "a://"]),
        ("uri-reference", ["", "/a/b", "a?b", "#c", "https://a.b", "./x:y"],
         ["a b", "\\a", "//", "%zz"]),
        ("iri-reference", ["/a"], ["a b"]),
        ("uri-template", ["/a/{id}", "{?x,y*}", "{+p:3}", "%20"],
         ["{", "{a", "{a b}", "}", "{a:0}"]),
        ("idn-email", ["a.b@c.d"], ["a", "@b"]),
        ("idn-hostname", ["a-b.c"], ["-a", "a..b"]),
        ("json-pointer", ["", "/", "/a~0b/~1", "/a//b"], ["a", "/~2", "/~"]),
        ("relative-json-pointer", ["0", "1#", "2/a"], ["", "01", "-1", "1a", "#"]),
        ("regex", ["", "^a+b?$", "(?:a|b)*", "[^a-z0-9]{2}", "\\d\\.", "^/a/(.*)$", "a{3,16}",
                   "a{2,}b{0,2}"],
         ["(", "[", "a)", "*", "[z-a]", "a{3,2}"]),
    ],
)  # fmt: skip
def test_every_format_of_the_standard_is_enforced(
    name: str, good: list[str], bad: list[str]
) -> None:
    schema = {"type": "string", "format": name}
    assert not prepare(schema, param="p").ignored
    for text in good:
        assert allows(schema, json.dumps(text)), text
        assert validate(json.dumps(text), JsonSchema(schema)) is None
        if name == "regex":
            re.compile(text)
    for text in bad:
        assert not allows(schema, json.dumps(text)), text
        assert validate(json.dumps(text), JsonSchema(schema)) is not None


def test_few_of_many_unknown_keywords_are_named() -> None:
    found = prepare({f"odd{at}": 1 for at in range(1000)}, param="p").ignored
    assert 0 < len(found) <= 32


def test_what_surrounds_an_unknown_keyword_is_enforced() -> None:
    schema = {"type": "string", "odd": {"type": "integer"}, "maxLength": 2, "format": "odd"}
    assert allows(schema, '"ab"')
    assert not allows(schema, '"abc"')
    assert not allows(schema, "1")


@each_of(
    ("schema", "good", "bad"),
    [
        ({"type": "string", "nullable": True}, ['"a"', "null"], ["1"]),
        ({"type": ["string", "null"], "nullable": True}, ['"a"', "null"], ["1"]),
        ({"type": "string", "nullable": False}, ['"a"'], ["null"]),
        ({"nullable": True, "enum": ["a", None]}, ['"a"', "null"], ['"b"']),
        ({"type": "string", "enum": ["a"], "nullable": True}, ['"a"'], ["null"]),
        ({"oneOf": [{"type": "string", "nullable": True}, {"type": "integer"}]},
         ['"a"', "null", "1"], ["true"]),
    ],
)  # fmt: skip
def test_nullable_is_read_as_openapi_has_it(
    schema: Schema, good: list[str], bad: list[str]
) -> None:
    assert all(allows(schema, text) for text in good)
    assert not any(allows(schema, text) for text in bad)


def test_options_share_null_where_one_is_nullable() -> None:
    schema = {"oneOf": [{"type": "string", "nullable": True}, {"type": "null"}]}
    assert allows(schema, '"a"')
    assert not allows(schema, "null")


def of(required: str = "", **named: object) -> Schema:
    return {"type": "object", "properties": named, "required": required.split()}


KIND: Schema = {"enum": ["a", "b"]}
NUMBER: Schema = {"type": "integer"}


@each_of(
    "schema",
    [
        {"properties": {"a": {"$id": "other", "type": "array", "items": {"$ref": "#"}}}},
        {"properties": {"a": {"$ref": "#T"}}, "$defs": {"x": {"$anchor": "T", "type": "array",
                                                             "items": {"$ref": "#T"}}}},
        {"$id": "https://a.b/root.json", "properties": {"a": {"$ref": "list.json"}},
         "$defs": {"x": {"$id": "/list.json", "type": "array", "items": {"$ref": "#/$defs/y"},
                         "$defs": {"y": {"$ref": "https://a.b/list.json#"}}}}},
        {"$id": "https://a.b/c/", "properties": {"a": {"$ref": "d#T"}},
         "$defs": {"x": {"$id": "d", "$defs": {"y": {"$anchor": "T", "type": "array",
                                                    "items": {"$ref": "#T"}}}}}},
        {"$id": "urn:x:y", "properties": {"a": {"$ref": "urn:x:y#/$defs/x"}},
         "$defs": {"x": {"type": "array", "items": {"$ref": "urn:x:y#/$defs/x"}}}},
        {"properties": {"a": {"$ref": "#T"}},
         "$defs": {"x": {"$dynamicAnchor": "T", "type": "array", "items": {"$ref": "#T"}}}},
        {"properties": {"a": {"$id": "/properties/a", "type": "array",
                              "items": {"$ref": "#/$defs/x"}}},
         "$defs": {"x": {"type": "array", "maxItems": 0}}},
        {"properties": {"a": {"$id": "#/properties/a", "type": "array",
                              "items": {"type": "array", "maxItems": 0}}}},
    ],
)  # fmt: skip
def test_addresses_and_anchors_name_places(schema: dict[str, object]) -> None:
    schema = {"type": "object", **schema}
    for text, valid in (('{"a": [[], []]}', True), ('{"a": []}', True), ('{"a": [1]}', False)):
        assert allows(schema, text) is valid
        assert (validate(text, JsonSchema(schema)) is None) is valid


def follows(text: str, schema: Any) -> bool:
    """Judge by another implementation; ``dependencies`` are of older drafts."""
    is_old = "dependencies" in schema
    judge = jsonschema.Draft7Validator if is_old else jsonschema.Draft202012Validator
    return bool(judge(schema).is_valid(json.loads(text)))


@each_of(
    ("schema", "good", "bad"),
    [
        ({**of("k", k=KIND, x=NUMBER), "if": of(k={"const": "a"}), "then": {"required": ["x"]}},
         ['{"k": "a", "x": 1}', '{"k": "b"}', '{"k": "b", "x": 1}'], ['{"k": "a"}', '{"z": 1}']),
        ({**of("k", k=KIND), "if": of(k={"const": "a"}), "then": of("x", x=NUMBER),
          "else": of("y", y=NUMBER)},
         ['{"k": "a", "x": 1}', '{"k": "b", "y": 1}'], ['{"k": "a", "y": 1}', '{"k": "b"}']),
        ({**of(k={"type": "string"}), "if": of("k", k={"const": "ab"}), "then": False},
         ["{}", '{"k": "a"}', '{"k": "abc"}', '{"k": ""}'], ['{"k": "ab"}']),
        ({**of(a={}, b={}, c={}), "dependentRequired": {"a": ["b"], "b": ["c"]}},
         ["{}", '{"c": 1}', '{"b": 1, "c": 1}', '{"a": 1, "b": 1, "c": 1}'],
         ['{"a": 1}', '{"a": 1, "b": 1}', '{"b": 1}']),
        ({**of(a={}, b={}), "dependencies": {"a": ["b"]}}, ["{}", '{"b": 1}', '{"a": 1, "b": 1}'],
         ['{"a": 1}', '{"z": 1}']),
        ({**of(a={}), "dependentSchemas": {"a": of("d", d=NUMBER)}},
         ["{}", '{"a": 1, "d": 2}'], ['{"a": 1}', '{"a": 1, "d": ""}']),
        ({"type": "string", "not": {"const": "no"}}, ['"n"', '"nope"', '""'], ['"no"']),
        ({"type": "string", "not": {"enum": ["no", "", "nö^]"]}}, ['"n"', '"nö"'],
         ['"no"', '""', '"nö^]"']),
        ({"type": "integer", "not": {"enum": [3, 5]}}, ["2", "4", "6"], ["3", "5"]),
        ({"not": {"type": ["string", "object"]}}, ["1", "null", "[]"], ['"a"', "{}"]),
        ({"type": "string", "not": {"minLength": 2}}, ['"a"'], ['"ab"']),
        ({**of(a={}, b={}), "not": {"required": ["a", "b"]}}, ["{}", '{"a": 1}', '{"b": 1}'],
         ['{"a": 1, "b": 1}']),
        ({**of(a={}, b={}), "not": {"anyOf": [{"required": ["a"]}, {"required": ["b"]}]}},
         ["{}"], ['{"a": 1}', '{"b": 1}']),
        ({**of(a={}, b={}), "oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
         ['{"a": 1}', '{"b": 1}'], ["{}", '{"a": 1, "b": 1}']),
        ({"oneOf": [of("a", a=NUMBER), of("b", b=NUMBER)]}, ['{"a": 1}', '{"b": 1}'],
         ['{"a": 1, "b": 1}', '{"a": 1, "c": 1}', "{}"]),
        ({"oneOf": [{**of(a={}, c={}), "additionalProperties": False},
                    {**of(b={}, c={}), "additionalProperties": False}]},
         ['{"a": 1}', '{"a": 1, "c": 1}', '{"b": 1}'], ["{}", '{"c": 1}', '{"a": 1, "b": 1}']),
        ({"oneOf": [of("k", k={"type": "string", "pattern": "^a$"}),
                    of("k", k={"type": "string", "pattern": "^b$"})]},
         ['{"k": "a"}', '{"k": "b"}'], ['{"k": "c"}']),
        ({"oneOf": [{**of(**{f"a{at}": {} for at in range(9)}), "additionalProperties": False},
                    {**of(x=of(b=KIND), y=of(b=KIND)), "additionalProperties": False}]},
         ['{"a0": 1, "a8": 1}', '{"a8": 1}', '{"x": {"b": "a"}}'], ["{}", '{"a1": 1, "x": {}}']),
        ({"oneOf": [{"type": "string"}, {"const": "x"}, NUMBER]}, ['"y"', "1"], ['"x"', "true"]),
        ({**of(a={}, b={}), "minProperties": 1}, ['{"a": 1}', '{"b": 1}', '{"a": 1, "b": 1}'],
         ["{}"]),
        ({**of(a={}, b={}), "maxProperties": 1}, ["{}", '{"a": 1}', '{"b": 1}'],
         ['{"a": 1, "b": 1}']),
        ({**of(a={}, b={}, c={}), "minProperties": 1, "maxProperties": 1}, ['{"c": 1}'],
         ["{}", '{"a": 1, "b": 1}']),
        ({"type": "array", "items": {"type": ["integer", "null"]}, "contains": NUMBER},
         ["[1]", "[1, null]"], ["[]", "[null]"]),
        ({"type": "array", "contains": NUMBER, "minContains": 2}, ['[1, 2, "a"]'], ["[1]"]),
        ({**of(xa={"type": "string"}), "patternProperties": {"^x": {"minLength": 2}}},
         ['{"xa": "ab", "xb": 1}', '{"xc": "ab"}'], ['{"xa": "a"}', '{"xb": "a"}']),
        ({"patternProperties": {"^x": NUMBER, "y$": NUMBER}, "additionalProperties": False,
          "type": "object"}, ['{"x": 1, "zy": 2, "xy": 3}'], ['{"x": ""}', '{"z": 1}']),
        ({"type": "array", "items": KIND, "uniqueItems": True}, ['["a", "b"]'],
         ['["a", "b", "a"]']),
        ({"type": "array", "maxItems": 100_000}, ["[]", "[1]"], ["1"]),
        ({"allOf": [of("a", a=NUMBER), of(b=NUMBER)], "unevaluatedProperties": False},
         ['{"a": 1}', '{"a": 1, "b": 2}'], ['{"a": 1, "c": 2}']),
        ({"type": "array", "prefixItems": [NUMBER], "unevaluatedItems": False}, ["[]", "[1]"],
         ["[1, 2]"]),
    ],
)  # fmt: skip
def test_rules_that_no_grammar_has_are_said_with_others(
    schema: Schema, good: list[str], bad: list[str]
) -> None:
    for text in good:
        assert allows(schema, text), text
        assert validate(text, JsonSchema(schema)) is None, text
    for text in bad:
        assert not allows(schema, text), text
        assert follows(text, schema) is (validate(text, JsonSchema(schema)) is None)


@each_of(
    ("schema", "keyword", "good", "bad"),
    [
        ({"type": "array", "uniqueItems": True}, "uniqueItems", '[1, "1", true]', "[1, 1.0]"),
        ({"type": "string", "pattern": r"^(\S+\s){0,9}\S+$", "maxLength": 201}, "maxLength",
         f'"{"a " * 9}b"', f'"{"a" * 202}"'),
        ({"type": "string", "not": {"pattern": "^a"}}, "not", '"b"', '"a"'),
        ({"type": "string", "if": {"pattern": "^a"}, "then": {"maxLength": 1}}, "if", '"a"',
         '"ab"'),
        ({"oneOf": [{"pattern": "^a"}, {"pattern": "b$"}], "type": "string"}, "oneOf", '"a"',
         '"ab"'),
        ({"type": "array", "contains": NUMBER, "maxContains": 1}, "maxContains", "[1]", "[1, 2]"),
        ({"type": "object", "minProperties": 2}, "minProperties", '{"a": 1, "b": 2}', '{"a": 1}'),
        ({**of(a={}), "allOf": [{"required": ["a"]}], "unevaluatedProperties": False},
         "unevaluatedProperties", '{"a": 1}', '{"a": 1, "b": 1}'),
        ({"propertyNames": {"pattern": "^a"}, "properties": {"b": {}}, "type": "object",
          "additionalProperties": True}, "propertyNames", '{"ab": 1}', '{"b": 1}'),
        ({"allOf": [{"patternProperties": {"^x": NUMBER}}, {"type": "object"}]},
         "patternProperties", '{"x": 1}', '{"x": ""}'),
        ({"type": "object", "patternProperties": {"^x": NUMBER, "y$": {"type": "string"}}},
         "patternProperties", '{"x": 1}', '{"xy": 1}'),
    ],
)  # fmt: skip
def test_rules_that_no_grammar_can_say_are_left_to_the_check(
    schema: Schema, keyword: str, good: str, bad: str
) -> None:
    left = prepare(schema, param="p").left
    assert keyword in {name for _, name in left}
    assert allows(schema, good)
    assert validate(good, JsonSchema(schema)) is None
    assert validate(bad, JsonSchema(schema)) is not None


def test_names_that_are_listed_are_counted_for_each_map() -> None:
    names = {"enum": [f"n{at}" for at in range(1000)]}
    closed = {"propertyNames": {"$ref": "#/$defs/N"}, "additionalProperties": False}
    with pytest.raises(SchemaRefused, match="more than 10000"):
        prepare({"prefixItems": [closed] * 11, "$defs": {"N": names}}, param="p")


def _deep(levels: int) -> dict[str, object]:
    schema: dict[str, object] = {"type": "null"}
    for _ in range(levels):
        schema = {"type": "array", "items": schema}
    return schema


@each_of(
    "schema",
    [
        _deep(500),
        {"const": json.loads("[" * 400 + "]" * 400)},
        {"type": "object", "properties": {f"p{at}": {} for at in range(10_001)}},
        {"description": "", "enum": ["x" * 1000 + str(at) for at in range(4_000)]},
        {"enum": list(range(100_000))},
        {"allOf": [{"allOf": [{"minLength": 1}] * 200}] * 200},
    ],
    ids=["deep", "deep constant", "properties", "four megabytes", "values", "allOf"],
)
def test_schemas_out_of_all_proportion_are_refused(schema: Schema) -> None:
    with pytest.raises(SchemaRefused, match=r"more than|deeper"):
        prepare(schema, param="p")


def test_half_a_surrogate_pair_is_refused() -> None:
    with pytest.raises(SchemaRefused, match="surrogate"):
        prepare({"const": "\ud800"}, param="p")
    with pytest.raises(SchemaRefused, match="surrogate"):
        choice(["\ud800"], param="p")


def test_options_out_of_all_proportion_are_refused() -> None:
    half = "x" * 250_000
    assert choice([half, half], param="p")
    with pytest.raises(SchemaRefused, match="500001 characters together, of at most 500000"):
        choice([half, half, "x"], param="p")


def test_any_object() -> None:
    grammar = "start: %json " + constraint(
        {"type": "object"}, param="p", white_space=WhiteSpace.ANY
    )
    assert admits(grammar, '{"a": {"b": [1.5, "x", null, true]}}')
    assert admits(grammar, "{}")
    assert not admits(grammar, "[]")


@each_of(
    ("pattern", "good", "bad"),
    [
        ("a/b", "a/b", "a"),
        (r"^\d{3}$", "123", "1234"),
        ("^a|b$", "b", "ab"),
        ("a.c", "abc", "a\nc"),
        ("a\nb", "a\nb", "ab"),
        (r"[\s\S]+", "a\n", ""),
        (r"\w+", "a_1", "é"),
        ("[^/]+", "ab", "a/b"),
        (r"[a\]&&b[]", "&", "c"),
        ("{x}", "{x}", "x"),
        (r"\u00e9\x41\t", "éA\t", "éA"),
        (r"[\S]", "a", " "),
        (r"(?<year>\d{4})?-", "2024-", "24-"),
        (r"\p{Lu}", "É", "é"),
        ("a+?", "aaa", "b"),
    ],
)
def test_patterns_match_whole_texts(pattern: str, good: str, bad: str) -> None:
    grammar = "start: " + regex(pattern, param="structured_outputs.regex")
    assert admits(grammar, good)
    assert not admits(grammar, bad)


@each_of(
    "pattern",
    [
        r"^(?!^[-+.]*$)[+-]?0*\d*\.?\d*$",  # pydantic's of a `Decimal`
        r"^(?!\s*$).{2,}",
        r"^(?!a+$)(?!\.*$)",
        r"^(?=.*[ab])(?=.*\d|-+$)[ab\d.-]+$",
        r"^(?=(a|0)(0|\+))",
        "^(?=^a|b.$)(?=)",
    ],
)
@given(text=st.text("ab01-+. ", max_size=5))
def test_look_aheads_at_the_start_hold(pattern: str, text: str) -> None:
    schema = {"type": "string", "pattern": pattern}
    document = json.dumps(text)
    assert allows(schema, document) == (re.search(pattern, text) is not None)
    assert (validate(document, JsonSchema(schema)) is None) == allows(schema, document)


@each_of(
    "pattern",
    ["(?=a)", "^(?=a)a", "(?<!a)b", r"(a)\1", r"\bx", "(?i)a", "a++", "*a", "(a", "a)", "[a",
     "[b-a]", "[]", "a\\", r"\Z", "(^a)b", "a^b", "a{3,1}", r"\ud800", "", "a" * 5_000],
)  # fmt: skip
def test_patterns_nobody_can_follow_are_refused(pattern: str) -> None:
    with pytest.raises(SchemaRefused) as caught:
        regex(pattern, param="structured_outputs.regex")
    assert caught.value.param == "structured_outputs.regex"


def test_choices_are_written_exactly() -> None:
    options = ['say "hi"', "a\\b", "tab\t", "del\x7f", "é😀", "<|im_end|>", "i", "in", ""]
    grammar = "start: OPTION\nOPTION: " + choice(options, param="structured_outputs.choice")
    for option in options:
        assert admits(grammar, option)
    assert not admits(grammar, "a")
