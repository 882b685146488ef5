"""Parts of a schema that require themselves: left out where optional, refused where required."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llguidance import LLMatcher, LLTokenizer

from causerie.chat.schema import prepare
from causerie.errors import InvalidRequest

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


@pytest.mark.parametrize(
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
    with pytest.raises(InvalidRequest, match="no finite document"):
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


@settings(max_examples=300, deadline=None)
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
