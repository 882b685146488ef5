"""The finished answer against what was asked for."""

from __future__ import annotations

import json
import random
import threading
from contextlib import suppress

import pytest
from casekit import each_of, examples
from chatkit import validate
from hypothesis import given, settings
from hypothesis import strategies as st
from llguidance import LLMatcher

from causerie.chat.schema import compiled
from causerie.chat.schema.compiled import Work, WorkExceeded, matcher_of
from causerie.chat.schema.normal import Rewriter
from causerie.chat.validation import AT_ONCE, MOST_STEPS, CheckedSchema, decided
from causerie.protocol.request import (
    Grammar,
    JsonObject,
    JsonSchema,
    OutputFormat,
    Regex,
    TextChoice,
)


def _schema(**keywords: object) -> JsonSchema:
    return JsonSchema(keywords)


@each_of(
    ("output", "good", "bad"),
    [
        (JsonObject(), ' {"a": [1]}\n', "[]"),
        (JsonObject(), "{}", '{"a": NaN}'),
        (JsonObject(), "{}", '{"a": '),
        (JsonSchema(True), "3", "x"),
        (TextChoice(("yes", "no")), "no", "no "),
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
    with pytest.raises(WorkExceeded):
        validate("[" * 60 + "]" * 60, JsonSchema(schema))


def test_a_part_that_is_named_twice_at_each_step_is_given_up() -> None:
    """What is evaluated is looked for in every part; 2 to the power of 40 here."""
    defined: dict[str, object] = {
        f"d{at}": {"allOf": [{"$ref": f"#/$defs/d{at + 1}"}] * 2} for at in range(40)
    }
    defined["d40"] = {"properties": {"a": True}}
    schema = _schema(**{"$ref": "#/$defs/d0", "$defs": defined, "unevaluatedProperties": False})
    with pytest.raises(WorkExceeded):
        validate('{"a": 1}', schema)


def _rules(**keywords: object) -> CheckedSchema:
    return CheckedSchema(Rewriter(keywords, "schema").rewrite())


def test_each_pattern_of_a_schema_is_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    compilations: list[str] = []

    def counted(grammar: str) -> LLMatcher:
        compilations.append(grammar)
        return matcher_of(grammar)

    monkeypatch.setattr(compiled, "matcher_of", counted)
    patterns = [f"^.*[a-z]{{1,{at}}}$" for at in range(1, 101)]
    schema = _rules(allOf=[{"pattern": pattern} for pattern in patterns])
    for text in ("one", "two", "three"):
        assert schema.fault(text, Work(MOST_STEPS)) is None
    assert len(compilations) == len(patterns)


def test_compiled_patterns_of_all_schemas_are_bounded() -> None:
    schemas = [_rules(pattern=f"^(a|b)*a(a|b){{{at}}}$") for at in range(20, 60)]
    for schema in schemas:
        schema.fault("ab" * 2_000, Work(MOST_STEPS))
    assert compiled.PATTERNS.size <= compiled.MOST_KEPT_BYTES
    assert schemas[0].fault("ab" * 40 + "a", Work(MOST_STEPS)) is None  # it is compiled again


def test_patterns_by_names_are_bounded() -> None:
    """What each comparison took is charged: 30 names and 200 patterns are no 200 steps."""
    schema = _rules(
        patternProperties={f"^(a|b)*a(a|b){{{at}}}c$": {"type": "null"} for at in range(20, 220)}
    )
    document = {f"{'ab' * 400}{at}": None for at in range(300)}
    work = Work(MOST_STEPS)
    with pytest.raises(WorkExceeded):
        schema.fault(document, work)
    assert work.left <= 0


def test_a_pattern_that_the_library_gives_up_is_no_fault() -> None:
    text = "".join(random.Random(1).choices("ab", k=3_000))
    schema = _rules(pattern="(a|b)*a(a|b){400}b(a|b){400}a")
    with pytest.raises(WorkExceeded):
        schema.fault(text, Work(MOST_STEPS * 100))


async def test_a_long_check_is_made_beside_the_loop() -> None:
    main, threads = threading.get_ident(), list[int]()

    def check(work: Work) -> str:
        threads.append(threading.get_ident())
        work.spend(AT_ONCE + 1)
        return "decided"

    assert await decided(check, 100) == "decided"
    assert threads[0] == main
    assert threads[1] != main
    with pytest.raises(WorkExceeded):
        await decided(lambda work: work.spend(MOST_STEPS + 1), 100)
    threads.clear()

    def long_check(_: Work) -> str:
        threads.append(threading.get_ident())
        return "decided"

    assert await decided(long_check, 1_000_000) == "decided"
    assert main not in threads  # a long text is not even read in the loop


_HOSTILE = st.sampled_from(
    [
        "^(a|b)*a(a|b){200}$",
        "(a+)+$",
        r"^(([ab]+[._-])*[ab]+@([ab]+\.)+[a-z]{2,})$",
        "^(a?){90}a{90}$",
        "^((a{1,20}){1,20}){1,20}$",
        r"\p{L}{1,200}[^\p{Lu}]{1,200}",
        "^(.*a.{1,20}b.*a.{1,30}b.*a.{1,40})$",
    ]
)


@settings(max_examples=examples(15), deadline=None)
@given(
    st.lists(_HOSTILE, min_size=1, max_size=6),
    st.text("ab", max_size=3_000),
    st.integers(0, 2_000),
)
def test_no_check_takes_more_than_it_is_allowed(
    patterns: list[str], text: str, allowed: int
) -> None:
    """Processor time is counted while the library works: one of its calls more at most."""
    schema = _rules(anyOf=[{"items": {"pattern": each}, "minItems": 99} for each in patterns])
    work = Work(allowed)
    with suppress(WorkExceeded):
        schema.fault([text + str(at) for at in range(40)], work)
    assert work.left > -2_500


def test_nesting_beyond_the_reader_is_no_json() -> None:
    wrong = validate("[" * 100_000, JsonObject())
    assert wrong is not None
    assert "not valid JSON" in wrong
