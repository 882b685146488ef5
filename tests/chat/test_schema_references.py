"""References to meta-schemas, to dynamic anchors, and to addresses below unknown keywords."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from casekit import each_of
from grammarkit import fault_in
from jsonschema import Draft7Validator, Draft202012Validator
from llguidance import LLMatcher, LLTokenizer

from causerie.chat.answer import SchemaCache, answer_plan, callable_functions
from causerie.chat.call_syntax.choices import choices
from causerie.chat.schema import WhiteSpace, prepare
from causerie.chat.schema.keywords import SchemaRefused
from causerie.protocol.request import ChatRequest, JsonSchema, Message, Tool

DRAFT = "https://json-schema.org/draft/2020-12/schema"


def verdict(schema: dict[str, object], document: object) -> bool:
    """Return whether a document is valid; the grammar and the check have to agree."""
    prepared = prepare(schema, param="p")
    grammar = "%llguidance {}\nstart: %json " + prepared.text
    matcher = LLMatcher(LLTokenizer("byte"), grammar, log_level=0)
    assert not matcher.is_error(), matcher.get_error()
    raw = json.dumps(document).encode()
    admitted = matcher.try_consume_tokens(list(raw)) == len(raw) and matcher.is_accepting()
    assert admitted is (fault_in(raw.decode(), prepared.rules) is None)
    return admitted


def test_a_dynamic_reference_that_several_anchors_could_answer_is_refused() -> None:
    dynamic = {
        "$id": "https://a.b/list",
        "items": {"$dynamicRef": "#item"},
        "$defs": {"any": {"$dynamicAnchor": "item"}},
    }
    words = {
        "$id": "https://a.b/words",
        "$ref": "list",
        "$defs": {"item": {"$dynamicAnchor": "item", "type": "string"}},
    }
    recursive = {
        "$id": "https://a.b/tree",
        "$recursiveAnchor": True,
        "properties": {"children": {"items": {"$recursiveRef": "#"}}},
    }
    strict = {"$id": "https://a.b/strict", "$recursiveAnchor": True, "allOf": [{"$ref": "tree"}]}
    for whole, part in ((words, dynamic), (strict, recursive)):
        with pytest.raises(SchemaRefused, match=r"Ref` is not supported"):
            prepare({"$ref": whole["$id"], "$defs": {"a": whole, "b": part}}, param="p")


def test_a_schema_may_refer_to_a_meta_schema_of_the_standard() -> None:
    old = {"$ref": "http://json-schema.org/draft-07/schema#"}
    assert verdict(old, {"not": {"minimum": 3}})
    assert not verdict(old, {"not": {"minimum": "3"}})
    with pytest.raises(SchemaRefused, match=r"`.dynamicRef` is not supported"):
        prepare({"$ref": DRAFT}, param="p")


SIBLINGS: dict[str, object] = {
    "type": "object",
    "properties": {
        "file": {
            "$ref": "#/definitions/file",
            "description": "A script.",
            "properties": {"cache": {"type": "boolean"}},
            "additionalProperties": False,
        },
        "$ref": {"type": "string", "maxLength": 1},
    },
    "definitions": {"file": {"properties": {"size": {"type": "integer"}}}},
}


@each_of("document", [{"file": {"size": 1}}, {"file": {"size": ""}},
                                      {"file": {}}, {"$ref": "ab"}])  # fmt: skip
@each_of("draft", ["http://json-schema.org/draft-07/schema#", DRAFT])
def test_rules_next_to_a_reference_hold_by_the_drafts_that_apply_them(
    draft: str, document: object
) -> None:
    schema = {"$schema": draft, **SIBLINGS}
    judge = Draft202012Validator if draft == DRAFT else Draft7Validator
    assert verdict(schema, document) is judge(schema).is_valid(document)
    ignored = prepare(schema, param="p").ignored
    named = ("p keyword properties next to $ref ignored",
             "p keyword additionalProperties next to $ref ignored")  # fmt: skip
    assert ignored == (() if draft == DRAFT else named)


async def test_drafts_hold_for_pretty_answers_and_for_functions() -> None:
    schema = {"$schema": "http://json-schema.org/draft-07/schema#", **SIBLINGS}
    cache = SchemaCache()
    plan = await answer_plan(JsonSchema(schema), (), cache, white_space=WhiteSpace.PRETTY)
    matcher = LLMatcher(
        LLTokenizer("byte"),
        f"%llguidance {{}}\nstart: {plan.expression}\n{plan.rules}",
        log_level=0,
    )
    raw = list(b'{\n  "file": {\n    "size": 1\n  }\n}')
    assert matcher.try_consume_tokens(raw) == len(raw)
    assert matcher.is_accepting()

    parameters = {**schema, "$ref": "#/definitions/file"}
    request = ChatRequest("m", (Message("user", "Go."),), tools=(Tool("f", parameters=parameters),))
    functions = await callable_functions(request, (), cache)
    assert functions.admits("f", '{"size": 1}')
    assert not functions.admits("f", "1")  # which the reference alone would admit
    assert functions.ignored == (
        "tools[0].function.parameters keyword type next to $ref ignored",
        "tools[0].function.parameters keyword properties next to $ref ignored",
    )


# Each level is two of the next one: 2^22 alternatives, where each is read anew.
@pytest.mark.parametrize(
    "level",
    [
        lambda below: {"allOf": [below, below]},
        lambda below: {"anyOf": [below, below]},
        lambda below: {"anyOf": [{"allOf": [below, {"minLength": 1}]}, below]},
    ],
)
async def test_references_that_double_are_read_once(
    level: Callable[[dict[str, str]], dict[str, object]],
) -> None:
    levels = {f"d{at}": level({"$ref": f"#/$defs/d{at + 1}"}) for at in range(22)}
    schema = {"$ref": "#/$defs/d0", "$defs": {**levels, "d22": {"type": "string"}}}
    plan = await answer_plan(JsonSchema(schema), (), SchemaCache(), white_space=WhiteSpace.PRETTY)
    assert len(plan.rules) < 100_000


def test_alternatives_of_alternatives_are_bounded() -> None:
    levels = {
        f"d{at}": {
            "anyOf": [
                {"allOf": [{"$ref": f"#/$defs/d{at + 1}"}, {"minLength": at}]},
                {"allOf": [{"$ref": f"#/$defs/d{at + 1}"}, {"maxLength": 100 - at}]},
            ]
        }
        for at in range(40)
    }
    definitions = {**levels, "d40": {"type": "string"}}
    with pytest.raises(SchemaRefused, match="too many alternatives"):
        choices({"$ref": "#/$defs/d0", "$defs": definitions})
    assert len(choices({"$ref": "#/$defs/d36", "$defs": definitions})) == 8  # that differ, of 16


def test_a_reference_at_the_top_of_an_older_schema_keeps_its_definitions() -> None:
    schema = {
        "$schema": "http://json-schema.org/draft-04/schema",
        "$ref": "#/definitions/word",
        "type": "null",
        "definitions": {"word": {"type": "string"}},
        "default": {"$ref": "#", "type": 1},
    }
    assert verdict(schema, "a")
    assert not verdict(schema, None)


def test_a_schema_below_an_unknown_keyword_gives_its_address_up() -> None:
    named = {"$id": "https://a.b/n", "type": "null"}
    schema = {
        "$ref": "https://a.b/n",
        "examplesOf": [named],
        "$defs": {"n": {"$id": "https://a.b/n", "type": "string"}},
    }
    assert verdict(schema, "a")
    assert not verdict(schema, None)
    assert verdict({"$ref": "https://a.b/n", "components": {"n": named}}, None)
