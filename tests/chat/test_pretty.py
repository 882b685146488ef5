"""JSON with the model's own white space: what is admitted, and for which schemas."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache, lru_cache
from typing import Any

import pytest
from casekit import each_of
from chatkit import validate
from hypothesis import given
from hypothesis import strategies as st
from llguidance import LLMatcher, LLTokenizer

from causerie.chat.answer import AnswerPlan, SchemaCache, answer_plan
from causerie.chat.constraint import CallPlan, compose
from causerie.chat.formats.registry import by_name
from causerie.chat.grammar_text import Manner
from causerie.chat.schema import WhiteSpace
from causerie.protocol.request import JsonObject, JsonSchema, OutputFormat

Schema = Mapping[str, object]
_BYTES = LLTokenizer("byte")
_FORM = by_name("generic")


async def planned(output: OutputFormat, space: WhiteSpace = WhiteSpace.PRETTY) -> AnswerPlan:
    return await answer_plan(output, (), SchemaCache(), white_space=space)


async def grammar_of(output: OutputFormat) -> str:
    plan = await planned(output)
    text = compose(_FORM, {}, reasoning="none", calls=None, answer=plan)
    assert text is not None
    return text


@lru_cache(16)
def _compiled(grammar: str) -> LLMatcher:
    matcher = LLMatcher(_BYTES, grammar, log_level=0)
    assert not matcher.is_error(), matcher.get_error()
    return matcher


def admits(grammar: str, text: str) -> bool:
    matcher = _compiled(grammar).deep_copy()
    raw = text.encode("utf-8", "surrogatepass")
    return matcher.try_consume_tokens(list(raw)) == len(raw) and matcher.is_accepting()


def of(**properties: object) -> Schema:
    return {"type": "object", "properties": properties, "required": list(properties)}


PLACE = of(a={"type": "integer"}, b={"type": "array", "items": {"type": "integer"}})


@each_of(
    ("text", "admitted"),
    [
        ('{"a": 1, "b": [1, 2]}', True),
        ('{"a":1,"b":[1,2]}', True),
        ('{\n  "a": 1,\n\n\t"b": [\n    1,\n    2\n  ]\n}', True),
        ('{ "a" : 1 , "b" : [ 1 ] }', True),
        ('{"a":\n' + 32 * " " + '1, "b": []}', True),
        ('{"a":\n' + 33 * " " + '1, "b": []}', False),
        ('{"a":\n\n\n1, "b": []}', False),
        ('{"a":  1, "b": []}', False),
        ('{"a":\t1, "b": []}', False),
        ('{"a":\r\n1, "b": []}', False),
        ('\n{"a": 1, "b": []}', False),
        ('{"a": 1, "b": []}\n', False),
        ('{"b": [], "a": 1}', False),
        ('{"a": 1.5, "b": []}', False),
        ('{"a": 1, "b": [], "c": 1}', False),
    ],
)
async def test_white_space_is_what_a_pretty_printer_writes(text: str, admitted: bool) -> None:
    assert admits(await grammar_of(JsonSchema(PLACE)), text) is admitted


async def test_alternatives_of_the_only_part_are_those_of_that_part() -> None:
    """Options of a oneOf that overlap are named by their places, which are below the part."""
    text, number = {"type": "string"}, {"type": "integer"}
    grammar = await grammar_of(JsonSchema({"allOf": [{"oneOf": [text, text, number]}]}))
    assert admits(grammar, "1")
    assert not admits(grammar, "false")


TEXTS = ["", "a", "ä", "🗼", 'a"b', "a\\b", "a/b", "\n", "\x7f", "\x00", "  x", "<|im_end|>"]


@each_of("text", TEXTS)
@each_of("ensure_ascii", [False, True])
async def test_strings_are_written_in_any_spelling(text: str, ensure_ascii: bool) -> None:
    written = json.dumps([text], ensure_ascii=ensure_ascii).replace("\x7f", "\\u007f")
    schema = {"type": "array", "items": {"type": "string"}}
    assert admits(await grammar_of(JsonSchema(schema)), written)


@each_of("text", ['"\n"', '"\\ud800"', '"\\udc00\\ud800"', '"\\x"', '"\\u12"', '"'])
async def test_strings_that_are_none(text: str) -> None:
    assert not admits(await grammar_of(JsonSchema({"type": "string"})), text)


SCHEMAS: dict[str, Schema] = {
    "optional": {**PLACE, "required": []},
    "lengths": of(a={"type": "string", "minLength": 2, "maxLength": 3}),
    "pattern": of(a={"type": "string", "pattern": "^a+$"}, b={"format": "date"}),
    "constants": of(a={"const": "x y"}, b={"enum": [1, "ü", None, [1, 2], {"k": 'v"'}]}),
    "alternatives": of(a={"anyOf": [{"type": "integer", "minimum": 3}, {"type": "null"}]}),
    "types": of(a={"type": ["boolean", "number"]}),
    "tagged": {
        "oneOf": [of(kind={"const": "a"}, x={"type": "null"}), of(kind={"const": "b"})],
    },
    "map": {"type": "object", "additionalProperties": {"type": "integer"}},
    "names": {
        "type": "object",
        "patternProperties": {"^[ab]": {"type": "integer"}},
        "additionalProperties": False,
        "minProperties": 1,
    },
    "tuple": {"type": "array", "prefixItems": [{"const": 1}, {"type": "string"}], "items": False},
    "counts": {"type": "array", "items": {"type": "boolean"}, "minItems": 1, "maxItems": 3},
    "references": {
        **of(node={"$ref": "#/$defs/Node"}),
        "$defs": {
            "Node": {
                "type": "object",
                "properties": {"v": {"type": "integer"}, "next": {"$ref": "#/$defs/Node"}},
                "required": ["v"],
            }
        },
    },
    "together": {"allOf": [of(a={"type": "integer"}), of(b={"type": "null"})]},
    "anything": of(a={}),
    "number": {"type": "number", "multipleOf": 0.5, "exclusiveMinimum": 1},
}
VALUES: tuple[object, ...] = (
    *(None, True, 1, 1.5, 3, -1, "", "a", "aa", "ab", "x y", "2024-02-29", "2024-13-01"),
    *([], [1], [1, "s"], [True], [True] * 4, {}, {"k": 1}, {"k": "v"}),
)


@cache  # to look at a strategy takes longer than to draw from it
def documents() -> st.SearchStrategy[object]:
    names = st.sampled_from(["a", "b", "kind", "x", "node", "v", "next", "k"])
    leaves = st.sampled_from(VALUES)
    return st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
        max_leaves=5,
    )


@each_of("name", SCHEMAS)
async def test_a_schema_is_written_with_white_space(name: str) -> None:
    plan = await planned(JsonSchema(SCHEMAS[name]))
    assert plan.expression.startswith("answer_")


_INDENTS = st.sampled_from([None, 0, 2, "\t"])


@each_of("name", SCHEMAS)
@given(data=st.data())
async def test_what_is_admitted_is_valid_and_what_is_valid_is_admitted(
    name: str, data: st.DataObject
) -> None:
    """Where properties come in the order of the schema, and are named by it."""
    output = JsonSchema(SCHEMAS[name])
    known = _GRAMMARS.get(name) or _GRAMMARS.setdefault(name, await grammar_of(output))
    likely = data.draw(st.booleans())
    document = data.draw(valid_for(name) if likely else documents())
    indent = data.draw(_INDENTS)
    text = json.dumps(document, ensure_ascii=False, indent=indent)
    fine = validate(text, output) is None
    admitted = admits(known, text)
    assert fine or not admitted
    if fine and likely:
        assert admitted


_GRAMMARS: dict[str, str] = {}


@cache
def valid_for(name: str) -> st.SearchStrategy[object]:
    return valid(SCHEMAS[name], SCHEMAS[name])


def valid(schema: Any, root: Any, depth: int = 0) -> st.SearchStrategy[object]:
    """Documents that may well follow a schema."""
    if "$ref" in schema:
        return valid(root["$defs"]["Node"], root, depth + 1) if depth < 3 else st.just({"v": 1})
    if "const" in schema:
        return st.just(schema["const"])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    for key in ("anyOf", "oneOf"):
        if key in schema:
            return st.one_of([valid(one, root, depth) for one in schema[key]])
    if "properties" in schema:
        return _objects(schema, root, depth)
    if schema.get("type") == "array" and isinstance(schema.get("items"), dict):
        return st.lists(valid(schema["items"], root, depth), max_size=4)
    if schema.get("type") == "object" and "additionalProperties" in schema:
        names = ["a", 'b"', "aü"] if "patternProperties" in schema else ["a", "k l", 'ü"']
        return st.dictionaries(st.sampled_from(names), st.integers(-3, 3), max_size=3)
    return st.sampled_from(VALUES)


def _objects(schema: Any, root: Any, depth: int) -> st.SearchStrategy[object]:
    required = schema.get("required", [])
    parts = []
    for name, of in schema["properties"].items():
        value = valid(of, root, depth)
        parts.append(st.tuples(st.just(name), value if name in required else _maybe(value)))
    return st.tuples(*parts).map(lambda pairs: {n: v for n, v in pairs if v is not _ABSENT})


_ABSENT = object()


def _maybe(strategy: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    return st.one_of(st.just(_ABSENT), strategy)


@pytest.mark.parametrize("space", [WhiteSpace.FIXED, WhiteSpace.PRETTY])
async def test_options_that_overlap_leave_room_for_a_schema_that_holds_too(
    space: WhiteSpace,
) -> None:
    number = {"type": "integer"}
    options = [of(a=number), of(a={"type": ["integer", "null"]}, b=number)]
    plan = await planned(JsonSchema({"allOf": [{"oneOf": options}, of(c=number)]}), space)
    grammar = compose(_FORM, {}, reasoning="none", calls=None, answer=plan)
    assert grammar is not None
    assert admits(grammar, '{"a": 1, "c": 2}')
    assert not admits(grammar, '{"a": 1}')


@pytest.mark.parametrize(
    ("low", "high", "written"),
    [
        ({"minLength": 1}, {"maxLength": 0}, '"a"'),
        ({"minItems": 3}, {"maxItems": 2}, "[1, 2, 3]"),
        ({"minimum": 2}, {"maximum": 1}, "2"),
    ],
)
async def test_a_part_whose_bounds_contradict_each_other_is_left_out(
    low: Schema, high: Schema, written: str
) -> None:
    kind = {'"': "string", "[": "array"}.get(written[0], "integer")
    never = {"allOf": [{"type": kind, **low}, high]}
    schema = {**of(a={"anyOf": [never, {"type": "null"}]}, b=never), "required": ["a"]}
    grammar = await grammar_of(JsonSchema(schema))
    assert "answer_" in grammar
    assert admits(grammar, '{"a": null}')
    assert not admits(grammar, f'{{"a": {written}}}')
    assert not admits(grammar, f'{{"a": null, "b": {written}}}')


# Each schema, documents that follow it, and documents that do not.
EXCLUSIONS: list[tuple[Any, list[Any], list[Any]]] = [
    (
        {"type": "object", "not": {"required": ["a", "b"]}},
        [{}, {"a": 1}, {"b": 1, "c": 2}],
        [{"a": 1, "b": 2}, {"c": 0, "a": 1, "b": 2}],
    ),
    ({"type": "object", "properties": {"a": False}}, [{}, {"b": 1}], [{"a": 1}]),
    (
        {"type": "object", "if": {"required": ["a"]}, "then": {"required": ["b"]}},
        [{}, {"c": 1}, {"a": 1, "b": 2}],
        [{"a": 1}],
    ),
    (
        {"oneOf": [{}, {"type": "string"}, {"type": "array", "items": {"type": "integer"}}]},
        [1, ["a"], {"a": 1}],
        ["a", [1]],
    ),
    ({"enum": [2.0, 3, 0.5]}, [2.0, 2, 3, 0.5], [5]),
]


@each_of(("schema", "valid", "invalid"), EXCLUSIONS)
async def test_what_is_excluded_leaves_the_rest(
    schema: Any, valid: list[Any], invalid: list[Any]
) -> None:
    grammar = await grammar_of(JsonSchema(schema, "s"))
    assert [each for each in valid if not admits(grammar, json.dumps(each))] == []
    assert [each for each in invalid if admits(grammar, json.dumps(each))] == []


@pytest.mark.parametrize("name", ["^a", "a$", "a"])
async def test_names_that_a_pattern_excludes_are_not_written(name: str) -> None:
    others = {"type": "object", "additionalProperties": {"type": "integer"}}
    grammar = await grammar_of(JsonSchema({**others, "patternProperties": {name: False}}))
    assert admits(grammar, '{"b":1}') or admits(grammar, '{"b": 1}')
    assert not admits(grammar, '{"a": 1}')
    assert not admits(grammar, '{"a":1}')


async def test_any_object_has_white_space_too() -> None:
    grammar = await grammar_of(JsonObject())
    assert admits(grammar, '{\n  "a": {"b": [1.5, "x", null, true]},\n  "ü": {}\n}')
    assert admits(grammar, "{}")
    assert not admits(grammar, "[]")
    assert not admits(grammar, '{"a":   1}')


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": {"type": "null"}}, "additionalProperties": {"type": "integer"}},
        {"patternProperties": {"^a": {"type": "null"}, "^b": {"type": "integer"}}},
        True,
    ],
)
async def test_what_only_the_engine_can_say_is_written_in_one_line(schema: Any) -> None:
    plan = await planned(JsonSchema(schema))
    assert plan.expression == "answer"
    assert '"whitespace_flexible":false' in plan.rules


PRETTY = Manner(white_space=WhiteSpace.PRETTY)


def call_grammar(tools: Mapping[str, Schema], manner: Manner = PRETTY) -> str:
    calls = CallPlan(tools, required=True, parallel=False)
    grammar = compose(
        by_name("hermes"), {}, reasoning="none", calls=calls, answer=None, manner=manner
    )
    assert grammar is not None
    return grammar


def hermes_call(arguments: str) -> str:
    return f'<tool_call>\n{{"name": "f", "arguments": {arguments}}}\n</tool_call>'


@each_of(
    ("arguments", "admitted"),
    [
        ('{"a": 1, "b": [1, 2]}', True),
        ('{"a":1,"b":[1,2]}', True),
        ('{\n  "a": 1,\n\n\t"b": [\n    1,\n    2\n  ]\n}', True),
        ('{"a":  1, "b": []}', False),
        ('{"a":\n\n\n1, "b": []}', False),
        ('{"a": 1.5, "b": []}', False),
        ('{"a": 1, "b": [], "c": 1}', False),
    ],
)
def test_arguments_have_the_white_space_of_a_pretty_printer(arguments: str, admitted: bool) -> None:
    grammar = call_grammar({"f": {**PLACE, "additionalProperties": False}})
    assert admits(grammar, hermes_call(arguments)) is admitted


def test_each_function_has_arguments_of_its_own() -> None:
    grammar = call_grammar({"f": of(a={"type": "integer"}), "g": of(b={"type": "null"})})
    assert admits(grammar, hermes_call('{\n "a": 1\n}'))
    assert admits(grammar, hermes_call('{\n "b": null\n}').replace('"f"', '"g"'))
    assert not admits(grammar, hermes_call('{\n "b": null\n}'))


def test_arguments_that_only_the_engine_can_say_are_written_in_one_line() -> None:
    mixed = {**PLACE, "additionalProperties": {"type": "integer"}}
    grammar = call_grammar({"f": mixed})
    assert admits(grammar, hermes_call('{"a": 1, "b": [], "c": 3}'))
    assert not admits(grammar, hermes_call('{\n"a": 1, "b": [], "c": 3}'))


def test_arguments_are_written_in_one_line_once_the_grammar_is_long() -> None:
    wide = of(**{f"a{at}": {"type": "null"} for at in range(700)})
    grammar = call_grammar({"a": wide, "f": wide, "g": of(a={"type": "null"})})
    assert "arguments0_" in grammar
    assert "arguments1_" not in grammar
    assert admits(grammar, hermes_call('{\n"a": null}').replace('"f"', '"g"'))


def test_unmarked_calls_share_the_rules_of_marked_ones() -> None:
    schema = of(place={"type": "string"}, other={"type": "string"})

    def written(*, unmarked: bool) -> str:
        calls = CallPlan({"f": schema}, required=False, parallel=False, unmarked=unmarked)
        text = compose(by_name("hermes"), {}, reasoning="none", calls=calls, answer=None,
                       manner=PRETTY)  # fmt: skip
        assert text is not None
        return text

    both = written(unmarked=True)
    assert "```" in both
    assert both.count("place") == written(unmarked=False).count("place")
    reply = '```json\n{"name": "f", "arguments": {\n  "place": "a",\n  "other": "b"\n}}\n```'
    assert admits(both, reply)
