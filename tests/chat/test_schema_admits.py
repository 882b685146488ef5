"""Documents that a prepared schema admits are valid: they are drawn from the grammar itself."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Iterator

import jsonschema
import pytest
from casekit import examples
from chatkit import validate
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from llguidance import LLMatcher, LLTokenizer

from causerie.chat.answer import SchemaCache, answer_plan
from causerie.chat.schema import WhiteSpace, prepare
from causerie.chat.schema.keywords import SchemaRefused
from causerie.errors import InvalidRequest
from causerie.protocol.request import JsonSchema

_BYTES = LLTokenizer("byte")
_STEPS = 200
_NAMES = ("a", "b", "c d", "x1")
_NUMBERS = st.sampled_from([-100, -3, 0, 1, 7, 1000, 2.5, -0.75, 99.99, 0.001])
_VALUES = st.recursive(
    st.sampled_from(["", "a", "b c", 'q"\\', "é\n", 0, 7, -2, 0.5, -1.25, True, False, None]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab"), inner),
    max_leaves=4,
)
# Python's jsonschema reckons 0.3 / 0.1 in binary; halves it gets right.
_MULTIPLES = st.sampled_from([1, 2, 5, 0.5, 0.25, 3])


_Strategy = st.SearchStrategy[object]


def _some(required: dict[str, _Strategy], optional: dict[str, _Strategy]) -> _Strategy:
    return st.fixed_dictionaries(required, optional=optional)


_PATTERNS = ["^a+$", "b", "^[a-z]{2,4}$", "x|y", r"^\d{3}-\d{2}$", "^[^a]*$"]
_STRINGS = _some(
    {"type": st.just("string")},
    {
        "pattern": st.sampled_from(_PATTERNS),
        "format": st.sampled_from(["date", "date-time", "email", "ipv4", "uuid", "uri"]),
        "minLength": st.integers(0, 4),
        "maxLength": st.integers(3, 7),
    },
)
_NUMERIC = _some(
    {"type": st.sampled_from(["integer", "number"])},
    {
        "minimum": _NUMBERS,
        "maximum": _NUMBERS,
        "exclusiveMinimum": _NUMBERS,
        "exclusiveMaximum": _NUMBERS,
        "multipleOf": _MULTIPLES,
    },
)
_LEAVES = (
    _STRINGS
    | _NUMERIC
    | _some({"const": _VALUES}, {})
    | _some({"enum": st.lists(_VALUES, min_size=1, max_size=3)}, {})
    | st.sampled_from([True, {"type": "null"}, {"type": ["boolean", "string"]}])
    | _some({"$ref": st.sampled_from(["#/$defs/A", "#/$defs/B"])}, {})
)


def _compound(inner: _Strategy) -> _Strategy:
    names = st.sampled_from(_NAMES)
    options = st.lists(inner, min_size=1, max_size=3)
    objects = _some(
        {"type": st.just("object")},
        {
            "properties": st.dictionaries(names, inner, max_size=3),
            "required": st.lists(names, max_size=2),
            "additionalProperties": inner | st.booleans(),
            "patternProperties": st.fixed_dictionaries({"^p": inner}),
            "propertyNames": st.fixed_dictionaries({"enum": st.lists(names, max_size=3)}),
            "minProperties": st.integers(0, 2),
            "maxProperties": st.integers(0, 3),
            "allOf": options,
            "anyOf": options,
            "oneOf": options,
            "not": inner,
            "if": inner,
            "then": inner,
            "else": inner,
            "dependentRequired": st.dictionaries(names, st.lists(names, max_size=2), max_size=2),
            "dependentSchemas": st.dictionaries(names, inner, max_size=2),
            "unevaluatedProperties": inner | st.just(False),
        },
    )
    arrays = _some(
        {"type": st.just("array")},
        {
            "items": inner,
            "prefixItems": options,
            "minItems": st.integers(0, 2),
            "maxItems": st.integers(1, 3),
            "contains": inner,
            "minContains": st.integers(0, 2),
            "maxContains": st.integers(1, 2),
            "uniqueItems": st.booleans(),
            "unevaluatedItems": inner | st.just(False),
        },
    )
    return (
        objects
        | arrays
        | _some({"anyOf": options}, {"minLength": st.just(1)})
        | _some({"oneOf": options}, {})
        | _some({"not": inner, "type": st.sampled_from(["string", "integer", "object"])}, {})
        | _some({"allOf": options}, {"enum": st.lists(_VALUES, min_size=1, max_size=2)})
    )


_SCHEMAS = st.recursive(_LEAVES, _compound, max_leaves=8)


def _drawn(grammar: str, draw: random.Random) -> Iterator[str]:
    """Up to three complete documents of the grammar."""
    for _ in range(3):
        matcher = LLMatcher(_BYTES, grammar, log_level=0)
        if matcher.is_error():
            return
        text = bytearray()
        while len(text) < _STEPS:
            if matcher.is_accepting() and (matcher.is_stopped() or draw.random() < 0.5):
                yield text.decode()
                break
            allowed = _allowed(matcher.compute_bitmask())
            assert allowed or matcher.is_accepting(), f"nothing can follow {bytes(text)!r}"
            if not allowed:
                yield text.decode()
                break
            byte = draw.choices(allowed, [_weight(one, len(text)) for one in allowed])[0]
            assert matcher.consume_token(byte)
            text.append(byte)


def _allowed(mask: bytes) -> list[int]:
    return [at for at in range(256) if mask[at // 8] >> at % 8 & 1]


def _weight(byte: int, length: int) -> float:
    """Closing characters are likely, and nearly certain in a long text."""
    if byte in b'"}]':
        return 10.0 if length < 100 else 1000.0
    return 2.0 if 32 <= byte < 127 else 0.2


def _check(schema: dict[str, object], grammar: str, seed: int, *, left: bool) -> None:
    validator = jsonschema.Draft202012Validator(schema)
    for document in _drawn(f"%llguidance {{}}\n{grammar}", random.Random(seed)):
        error = next(validator.iter_errors(json.loads(document)), None)
        assert error is None or left, f"{document}: {error.message}"
        wrong = validate(document, JsonSchema(schema))
        if '"format"' not in json.dumps(schema):  # which the other implementation ignores
            assert (wrong is None) is (error is None), f"{document}: {wrong}"


def _whole(top: object, a: object, b: object) -> dict[str, object]:
    return {"$defs": {"A": a, "B": b}, **(top if isinstance(top, dict) else {})}


@settings(max_examples=examples(150), deadline=None, suppress_health_check=list(HealthCheck))
@given(_SCHEMAS, _SCHEMAS, _SCHEMAS, st.integers(0, 2**32))
def test_what_is_admitted_is_valid(top: object, a: object, b: object, seed: int) -> None:
    schema = _whole(top, a, b)
    try:
        prepared = prepare(schema, param="p")
    except (InvalidRequest, SchemaRefused):
        return
    _check(schema, f"start: %json {prepared.text}", seed, left=bool(prepared.left))


@settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))
@given(_SCHEMAS, _SCHEMAS, _SCHEMAS, st.integers(0, 2**32))
def test_what_is_admitted_with_white_space_is_valid(
    top: object, a: object, b: object, seed: int
) -> None:
    schema = _whole(top, a, b)
    output = JsonSchema(schema)
    try:
        left = bool(prepare(schema, param="p").left)
        space = WhiteSpace.PRETTY
        plan = asyncio.run(answer_plan(output, (), SchemaCache(), white_space=space))
    except (InvalidRequest, SchemaRefused):
        return
    _check(schema, f"start: {plan.expression}\n{plan.rules}", seed, left=left)


def test_an_option_that_contradicts_itself_is_none_with_white_space() -> None:
    array = {"type": "array", "prefixItems": [{"type": "string"}], "maxItems": 1}
    schema: dict[str, object] = {
        "anyOf": [{"type": "string"}, {**array, "contains": {"type": "string"}, "minContains": 2}]
    }
    space = WhiteSpace.PRETTY
    plan = asyncio.run(answer_plan(JsonSchema(schema), (), SchemaCache(), white_space=space))
    for seed in range(10):
        _check(schema, f"start: {plan.expression}\n{plan.rules}", seed, left=False)


@pytest.mark.parametrize("kind", ["integer", "object"])
def test_a_type_beside_a_reference_holds_with_white_space(kind: str) -> None:
    """Where one option of ``oneOf`` is left, the schema is its type and a reference to that."""
    options = [{"type": "number", "minimum": 0}, {"type": "object"}, {"type": "object"}]
    schema: dict[str, object] = {"type": kind, "oneOf": options}
    space = WhiteSpace.PRETTY
    plan = asyncio.run(answer_plan(JsonSchema(schema), (), SchemaCache(), white_space=space))
    for seed in range(10):
        _check(schema, f"start: {plan.expression}\n{plan.rules}", seed, left=False)


def test_constants_of_two_rules_meet_where_they_are_equal_in_json() -> None:
    """In Python ``[True] == [1]``."""
    options = [{"enum": [[1], {"a": 1}, 2]}, {"enum": [[True], {"a": True}, 2.0]}]
    schema: dict[str, object] = {"allOf": options}
    space = WhiteSpace.PRETTY
    plan = asyncio.run(answer_plan(JsonSchema(schema), (), SchemaCache(), white_space=space))
    grammar = f"%llguidance {{}}\nstart: {plan.expression}\n{plan.rules}"
    assert {text for seed in range(10) for text in _drawn(grammar, random.Random(seed))} == {"2"}
