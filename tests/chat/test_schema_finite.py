"""Parts of a schema that require themselves: left out where optional, refused where required."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest
from casekit import each_of, examples
from hypothesis import given, settings
from hypothesis import strategies as st
from llguidance import LLMatcher, LLTokenizer

from causerie.chat.schema import prepare
from causerie.chat.schema.keywords import SchemaRefused

_BYTES = LLTokenizer("byte")
_NAMES = ("A", "B", "C")
_ENDLESS = {
    "type": "object",
    "properties": {"next": {"$ref": "#/$defs/X"}},
    "required": ["next"],
}


def matcher(schema: Mapping[str, object]) -> LLMatcher:
    return LLMatcher(_BYTES, "%llguidance {}\nstart: %json " + prepare(schema, param="p").text)


def admitted(schema: Mapping[str, object], document: object) -> bool:
    """Return true if the grammar takes the document byte by byte, by its mask, as engines do."""
    found = matcher(schema)
    for byte in json.dumps(document).encode():
        mask = found.compute_bitmask()
        if not mask[byte // 8] >> byte % 8 & 1 or not found.consume_token(byte):
            return False
        assert not found.is_error(), found.get_error()
    return found.is_accepting()


@each_of(
    ("schema", "good", "bad"),
    [
        (
            {
                "type": "object",
                "properties": {"value": {"type": "integer"}, "node": {"$ref": "#/$defs/X"}},
                "required": ["value"],
                "additionalProperties": False,
            },
            {"value": 1},
            {"value": 1, "node": {"next": {}}},
        ),
        ({"anyOf": [{"$ref": "#/$defs/X"}, {"type": "null"}]}, None, {"next": {}}),
        ({"type": "array", "items": {"$ref": "#/$defs/X"}}, [], [{}]),
        ({"type": "array", "prefixItems": [{}, {"$ref": "#/$defs/X"}]}, [1], [1, {}]),
        ({"type": "object", "additionalProperties": {"$ref": "#/$defs/X"}}, {}, {"a": {}}),
        ({"properties": {"x": {"$ref": "#/$defs/X"}}, "required": ["x"]}, "text", {"x": {}}),
        ({"type": ["array", "null"], "minItems": 1, "items": {"$ref": "#/$defs/X"}}, None, [{}]),
    ],
)
def test_an_endless_part_is_left_out(
    schema: Mapping[str, object], good: object, bad: object
) -> None:
    whole = {**schema, "$defs": {"X": _ENDLESS}}
    assert admitted(whole, good)
    assert not admitted(whole, bad)


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#/$defs/X"},
        {"allOf": [{"type": "object"}, {"$ref": "#/$defs/X"}]},
        {"type": "object", "properties": {"a": {"$ref": "#/$defs/X"}}, "required": ["a"]},
        {"type": "array", "items": {"$ref": "#/$defs/X"}, "minItems": 1},
    ],
)
def test_an_endless_schema_is_refused(schema: Mapping[str, object]) -> None:
    with pytest.raises(SchemaRefused, match="no finite document"):
        prepare({**schema, "$defs": {"X": _ENDLESS}}, param="p")


_REFERENCES = st.sampled_from(_NAMES).map(lambda name: {"$ref": f"#/$defs/{name}"})
_PARTS = st.one_of(_REFERENCES, st.just({"type": "integer"}))
_OBJECTS = st.builds(
    lambda named, required: {
        "type": "object",
        "properties": named,
        "required": sorted(required & named.keys()),
        "additionalProperties": False,
    },
    st.dictionaries(st.sampled_from("xyz"), _PARTS, max_size=3),
    st.sets(st.sampled_from("xyz")),
)
_LISTS = st.builds(
    lambda items, fewest: {"type": "array", "items": items, "minItems": fewest},
    _PARTS,
    st.integers(0, 2),
)
_DEFINITIONS = st.fixed_dictionaries(dict.fromkeys(_NAMES, _OBJECTS | _LISTS))


def smallest(schema: Mapping[str, object], shared: Mapping[str, object], depth: int) -> object:
    """A document of the schema with few levels; raises :class:`LookupError` where there is none."""
    if depth < 0:
        raise LookupError
    if "$ref" in schema:
        found = shared[str(schema["$ref"]).rpartition("/")[2]]
        assert isinstance(found, dict)
        return smallest(found, shared, depth - 1)
    match schema:
        case {"type": "object", "properties": dict(named), "required": list(required)}:
            return {
                name: smallest(of, shared, depth) for name, of in named.items() if name in required
            }
        case {"type": "array", "items": dict(items), "minItems": int(fewest)}:
            return [smallest(items, shared, depth) for _ in range(fewest)]
    return 7


@settings(max_examples=examples(300), deadline=None)
@given(_DEFINITIONS)
def test_what_ends_is_admitted_and_nothing_else_is_entered(
    shared: dict[str, dict[str, object]],
) -> None:
    top = {
        "type": "object",
        "properties": {name.lower(): {"$ref": f"#/$defs/{name}"} for name in _NAMES},
        "additionalProperties": False,
        "$defs": shared,
    }
    for name in _NAMES:
        try:
            document = {name.lower(): smallest(shared[name], shared, len(_NAMES))}
        except LookupError:
            found = matcher(top)
            begun = f'{{"{name.lower()}":'.encode()
            assert found.try_consume_tokens(list(begun)) < len(begun)
        else:
            assert admitted(top, document)


def _array(**keywords: object) -> dict[str, object]:
    return {"type": "array", **keywords}


def _different(least: int, items: object) -> dict[str, object]:
    return _array(minItems=least, uniqueItems=True, items=items)


@pytest.mark.parametrize(
    "schema",
    [
        _different(2, {"type": "string", "maxLength": 0}),
        _different(2, {"const": 1}),
        _different(3, {"enum": [1, 1.0, "a"]}),
        _different(3, {"type": "boolean"}),
        _different(4, {"type": ["boolean", "null"]}),
        _different(4, {"type": "integer", "minimum": 1, "maximum": 3}),
        _different(3, {"type": "integer", "exclusiveMinimum": 0, "maximum": 10, "multipleOf": 5}),
        _different(3, {"anyOf": [{"const": 1}, {"const": 2}]}),
        _different(2, {"allOf": [{"type": "string"}, {"const": "a"}]}),
        _array(minItems=3, uniqueItems=True, prefixItems=[{}], items={"const": 1}),
        _array(contains={"const": 1}, minContains=3, maxContains=2),
        _array(contains={"const": 1}, minContains=3, maxItems=2),
        {"type": "object", "minProperties": 3, "maxProperties": 2},
        {"type": "object", "minProperties": 2, "properties": {"a": {}},
         "additionalProperties": False},
        {"type": "object", "minProperties": 2, "propertyNames": {"enum": ["a"]}},
        {"type": "object", "required": ["a"], "propertyNames": {"enum": ["b"]}},
        {"type": "object", "required": ["a", "b"], "maxProperties": 1},
    ],
    ids=json.dumps,
)  # fmt: skip
def test_what_counting_refutes_is_refused_where_it_stands(schema: dict[str, object]) -> None:
    """It was found out by the last check, when all of the answer had been delivered."""
    around = {"type": "object", "properties": {"a": {"$ref": "#/$defs/x"}}, "required": ["a"]}
    for whole, pointer in (
        (schema, "#"),
        ({**around, "properties": {"a": schema}}, "#/properties/a"),
        ({**around, "$defs": {"x": schema}}, "#/$defs/x"),
    ):
        with pytest.raises(SchemaRefused, match="no finite document") as refused:
            prepare(whole, param="schema")
        assert refused.value.pointer == pointer
    optional = prepare({**around, "properties": {"a": schema}, "required": []}, param="schema")
    assert optional.rules["properties"] == {"a": False}
    assert json.loads(optional.text)["properties"] == {"a": False}


_SMALL = {"type": "integer", "maximum": 9}


@pytest.mark.parametrize(
    "options",
    [[{}] * 9, [_SMALL] * 9, [{}, _SMALL] * 5, [_SMALL, *[{}] * 8], [True] * 40],
    ids=json.dumps,
)
def test_options_that_are_never_alone_are_refused(options: list[object]) -> None:
    """Each was drawn again and again, until the work of the request was used up."""
    with pytest.raises(SchemaRefused, match="no finite document"):
        prepare({"oneOf": options}, param="schema")


def test_options_that_are_never_alone_still_exclude_others() -> None:
    options = [*[{"maximum": 9}] * 9, {"type": "integer", "minimum": 5}]
    schema = {"type": "integer", "oneOf": options}
    assert admitted(schema, 12)
    assert not admitted({"type": "integer", "oneOf": [*options[:-1], _SMALL]}, 12)
    prepared = prepare(schema, param="schema")
    assert ("#/oneOf", "oneOf") in prepared.left


@pytest.mark.parametrize(
    "schema",
    [
        _different(2, {"type": "string", "pattern": "x"}),
        _different(3, {"enum": [1, True, "a"]}),
        _different(2, {"type": "integer", "exclusiveMinimum": 0, "maximum": 10, "multipleOf": 5}),
        _different(2, {"pattern": "^x$"}),
        _array(contains={"const": 1}, minContains=2, maxContains=2),
        {"type": "object", "minProperties": 1, "propertyNames": {"enum": ["a"]}},
        {"minItems": 2, "uniqueItems": True, "items": {"const": 1}},
    ],
    ids=json.dumps,
)
def test_what_can_be_satisfied_is_not_refused(schema: dict[str, object]) -> None:
    prepare(schema, param="schema")


async def test_counting_is_bounded_where_alternatives_multiply() -> None:
    defined: dict[str, object] = {
        f"d{at}": {"anyOf": [{"$ref": f"#/$defs/d{at + 1}"}] * 20} for at in range(8)
    }
    prepare(
        {"$defs": {**defined, "d8": {"const": 1}}, **_different(2, {"$ref": "#/$defs/d0"})},
        param="x",
    )
