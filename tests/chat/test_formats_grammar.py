"""Every text that the constraint admits is understood by the parser, in every format."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache

import pytest
from casekit import each_of
from chatkit import validate
from deviationkit import headless_of, named_of
from formatkit import TOOLS, Call, Told, read, write_calls, write_reasoning
from grammarkit import Vocabulary, closers, vocabularies
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from causerie.chat.answer import AnswerPlan
from causerie.chat.call_syntax.choices import anchored, closed_schema
from causerie.chat.constraint import CallPlan, compose
from causerie.chat.formats.format import ModelFormat
from causerie.chat.formats.registry import FORMATS, by_name
from causerie.chat.parser import ReasoningEnd
from causerie.chat.schema import keywords
from causerie.chat.schema.keywords import SchemaRefused
from causerie.protocol.request import JsonSchema

CALLING = [form.name for form in FORMATS]
PARALLEL = [form.name for form in FORMATS if form.calls.parallel]
ARGUMENTS = {"city": "Paris é <b> 'x'", "days": 3, "hot": True, "tags": ["a", "]}"]}
NESTED: Mapping[str, Mapping[str, object]] = {
    "plan": closed_schema(
        {
            "properties": {
                "title": {"type": "string", "maxLength": 12},
                "unit": {"enum": ["c", "f"]},
                "code": {"type": "string", "pattern": "^[a-c]{2,4}$"},
                "ratio": {"type": ["number", "null"]},
                "sure": {"type": "boolean"},
                "stops": {
                    "type": "array",
                    "minItems": 1,
                    "maxItems": 3,
                    "items": {
                        "type": "object",
                        "properties": {"at": {"type": "string"}, "on": {"type": "boolean"}},
                        "required": ["at"],
                        "additionalProperties": False,
                    },
                },
            },
            "required": ["title", "unit", "stops"],
        }
    )
}


def made(form: ModelFormat) -> list[Call]:
    first = Call("get_weather", ARGUMENTS, "abcdefgh1")
    calls = [first, Call("now", {}, "abcdefgh2")] if form.calls.parallel else [first]
    if form.name == "solar-open":  # ids of ten
        calls = [Call(call.name, call.arguments, call.id + "0") for call in calls]
    return calls


def models(name: str) -> Iterator[tuple[Mapping[str, int], Vocabulary]]:
    yield from vocabularies(by_name(name))


def refusal(
    form: ModelFormat,
    model: tuple[Mapping[str, int], Vocabulary],
    text: str,
    *,
    reasoning: str = "possible",
    required: bool = False,
    parallel: bool = True,
) -> str | None:
    plan = CallPlan(TOOLS, required=required, parallel=parallel)
    grammar = compose(form, model[0], reasoning=reasoning, calls=plan, answer=None)
    assert grammar is not None
    return model[1].refused_at(grammar, text)


@each_of("name", CALLING, every=3)
def test_what_is_declared_is_admitted(name: str) -> None:
    form = by_name(name)
    section = form.calls.lead + write_calls(form.calls, made(form))
    for model in models(name):
        for required in (True, False):
            assert refusal(form, model, section, required=required) is None
            assert refusal(form, model, section, required=required, reasoning="none") is None


@each_of("name", CALLING, every=3)
def test_calls_come_behind_reasoning(name: str) -> None:
    form = by_name(name)
    thought = write_reasoning(form.reasoning, "Hm, <b> so.")
    opened = thought.removeprefix(form.reasoning.open + form.reasoning.after_open)
    section = form.calls.lead + write_calls(form.calls, made(form))
    for model in models(name):
        for required in (True, False):
            assert refusal(form, model, thought + section, required=required) is None
        whole = refusal(form, model, opened + section, required=True, reasoning="open")
        assert whole is None


@each_of("name", ["qwen-3", "kimi-k3", "glm-4.7", "deepseek-v3.1", "magistral"])
def test_a_forced_call_may_begin_inside_the_reasoning(name: str) -> None:
    """Where its marker is a control token; as plain text reasoning may speak of it."""
    form = by_name(name)
    opened = form.reasoning.open + form.reasoning.after_open
    section = write_calls(form.calls, made(form))
    wrong = write_calls(form.calls, [Call("get_weather", {"days": 3}, "abcdefgh1")])
    for control, vocabulary in models(name):
        model = (control, vocabulary)
        for state, begun in (("open", ""), ("possible", opened)):
            text = f"{begun}Hm, <b> so.\n{section}"
            refused = refusal(form, model, text, required=True, reasoning=state)
            assert (refused is None) == bool(control), (refused, state)
            broken = f"{begun}Hm.{wrong}"
            assert refusal(form, model, broken, required=True, reasoning=state) is not None
    for size in (0, 1):
        told = read(
            form,
            f"Hm.{section}",
            size=size,
            reasoning_open=True,
            reasoning_end=ReasoningEnd.OWN_OR_CALL,
        )
        calls = [(call.name, dict(call.arguments)) for call in made(form)]
        assert (told.reasoning, told.answer, told.calls) == ("Hm.", "", calls)


@each_of("name", CALLING, every=3)
def test_an_answer_stays_free(name: str) -> None:
    form = by_name(name)
    said = f"{form.answer_open}Hello <b>you</b> [1], {{x}}.{form.answer_close}"
    for model in models(name):
        assert refusal(form, model, said) is None
        assert refusal(form, model, write_reasoning(form.reasoning, "Hm.") + said) is None


@each_of("name", CALLING, every=3)
def test_a_call_that_has_begun_is_held_to_its_schema(name: str) -> None:
    form = by_name(name)
    call = made(form)[0]
    unknown = Call("get_wether", call.arguments, call.id)
    lacking = Call("get_weather", {"days": 3}, call.id)
    for model in models(name):
        for wrong in (unknown, lacking):
            section = form.calls.lead + write_calls(form.calls, [wrong])
            assert refusal(form, model, section) is not None
            assert refusal(form, model, section, required=True) is not None


@each_of("name", [form.name for form in FORMATS if headless_of(form)], every=3)
def test_a_section_without_its_first_marker_is_held_to_its_schema(name: str) -> None:
    form = by_name(name)
    section = headless_of(form)
    assert section
    call = made(form)[0]
    unknown = Call("get_wether", call.arguments, call.id)
    lacking = Call("get_weather", {"days": 3}, call.id)
    for model in models(name):
        for end in ("", section.end):
            written = write_calls(replace(section, end=end), made(form))
            assert refusal(form, model, written) is None
            assert refusal(form, model, f"I look.{written}") is None
        for wrong in (unknown, lacking):
            assert refusal(form, model, write_calls(section, [wrong])) is not None


@pytest.mark.parametrize("name", ["mistral", "mistral-small-3.2", "glm-4.7", "k2-horizon"])
def test_a_call_that_begins_with_its_name_is_held_to_its_schema(name: str) -> None:
    """Where a control token ends the name; else the reply is free text."""
    form = by_name(name)
    section = named_of(form)
    assert section
    lacking = Call("get_weather", {"days": 3}, "abcdefgh1")
    control = [model for model in models(name) if model[1].special]
    assert control
    for model in control:
        assert refusal(form, model, write_calls(section, made(form))) is None
        assert refusal(form, model, write_calls(section, [lacking])) is not None
        assert refusal(form, model, "get_weather is a function.") is None


def test_the_number_of_a_call_has_an_end() -> None:
    form = by_name("kimi-k2")
    section = form.calls.lead + write_calls(form.calls, made(form)[:1])
    assert "get_weather:0<" in section
    section = section.replace(":0<", f":{'0' * 400}<")  # longer than the parser waits for
    for model in models("kimi-k2"):
        assert refusal(form, model, section, required=True) is not None


@each_of("name", PARALLEL, every=3)
def test_one_call_where_only_one_is_allowed(name: str) -> None:
    form = by_name(name)
    one, two = made(form)[:1], made(form)
    for model in models(name):
        section = form.calls.lead + write_calls(form.calls, one)
        assert refusal(form, model, section, required=True, parallel=False) is None
        section = form.calls.lead + write_calls(form.calls, two)
        assert refusal(form, model, section, required=True, parallel=False) is not None


@each_of("name", [form.name for form in FORMATS], every=3)
def test_an_answer_by_schema_stands_where_answers_do(name: str) -> None:
    form = by_name(name)
    thought = write_reasoning(form.reasoning, "Hm.")
    answer = AnswerPlan("answer", 'answer: "yes" | "no"\n')
    for control, vocabulary in models(name):
        grammar = compose(form, control, reasoning="possible", calls=None, answer=answer)
        assert grammar is not None
        for said in ("yes", f"{form.answer_open}no{form.answer_close}"):
            assert vocabulary.refused_at(grammar, said) is None
            assert vocabulary.refused_at(grammar, thought + said) is None
        assert vocabulary.refused_at(grammar, "maybe") is not None


@each_of("name", CALLING, every=3)
@each_of("tools", [TOOLS, NESTED], ids=["flat", "nested"])
def test_what_is_admitted_is_understood(
    name: str, tools: Mapping[str, Mapping[str, object]]
) -> None:
    form = by_name(name)
    for control, vocabulary in models(name):
        plan = CallPlan(tools, required=True, parallel=True)
        grammar = compose(form, control, reasoning="none", calls=plan, answer=None)
        assert grammar is not None
        for seed in range(2):
            text = vocabulary.walk(grammar, closers(form), seed)
            understood(form, text, tools)


def understood(form: ModelFormat, text: str, tools: Mapping[str, Mapping[str, object]]) -> None:
    told = read(form, text, tools=tools)
    assert told.calls, text
    assert not told.open, text
    assert not told.answer.strip(), text
    assert told == read(form, text, tools=tools, size=1)
    for name, arguments in told.calls:
        parameters = JsonSchema({"type": "object", **tools[name]})
        wrong = validate(json.dumps(arguments), parameters)
        assert wrong is None, (wrong, text)


# As pydantic and zod write them: references to definitions and to other places, null alongside.
STOP: Mapping[str, object] = {
    "type": "object",
    "properties": {"at": {"type": "string"}},
    "required": ["at"],
}
WRITTEN: Mapping[str, object] = {
    "$defs": {"Unit": {"enum": ["c", "f"], "type": "string"}, "Stop": STOP},
    "properties": {
        "code": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "from-stop": {"$ref": "#/$defs/Stop"},
        "parts": {"type": "array", "items": {"$ref": "#"}},
        "third": {"type": "array", "items": {"$ref": "#/properties/to"}},
        "to": {"anyOf": [{"$ref": "#/$defs/Stop"}, {"type": "null"}]},
        "unit": {"$ref": "#/$defs/Unit"},
        "unless": {"allOf": [{"$ref": "#/$defs/Unit"}], "default": "c"},
        "until": {"anyOf": [{"$ref": "#/$defs/Unit"}, {"type": "null"}]},
    },
    "required": ["code", "unit"],
}
NOTATIONS = [
    "hermes", "qwen-3-coder", "glm-4.7", "deepseek-v3.2", "kimi-k3", "minicpm-5", "lfm-2",
    "gemma-4", "minimax-m3",
]  # fmt: skip


def offered(schema: Mapping[str, object]) -> Mapping[str, Mapping[str, object]]:
    return {"f": closed_schema(anchored(closed_schema(schema)))}


@each_of("name", NOTATIONS)
def test_parameters_as_clients_write_them_are_held_to(name: str) -> None:
    form, tools = by_name(name), offered(WRITTEN)
    control, vocabulary = vocabularies(form)[1]
    plan = CallPlan(tools, required=True, parallel=True)
    grammar = compose(form, control, reasoning="none", calls=plan, answer=None)
    assert grammar is not None
    least = {"code": "90210", "unit": "c"}
    stop = {"at": "x"}
    for right in (
        least,
        {**least, "code": "true"},
        {"code": "a", "from-stop": stop, "parts": [least], "third": [stop], "to": stop}
        | {"unit": "c", "unless": "f", "until": "c"},
    ):
        text = form.calls.lead + write_calls(form.calls, [Call("f", right)])
        assert vocabulary.refused_at(grammar, text) is None
        assert read(form, text, tools=tools).calls == [("f", right)]
    wrongs: list[dict[str, object]] = [
        {"unit": "k"}, {"unless": "k"}, {"until": "k"}, {"to": "k"}, {"to": {}}
    ]  # fmt: skip
    for wrong in wrongs:
        made: dict[str, object] = dict(sorted({**least, **wrong}.items()))
        text = form.calls.lead + write_calls(form.calls, [Call("f", made)])
        assert vocabulary.refused_at(grammar, text) is not None


@each_of("name", NOTATIONS)
def test_rules_that_say_nothing_are_passed_over(name: str) -> None:
    record = {
        "type": "object",
        "propertyNames": {"type": "string", "description": "A header."},
        "additionalProperties": {},
        "dependentRequired": {},
        "unevaluatedProperties": {},
    }
    form, tools = by_name(name), offered({"properties": {"headers": record}})
    plan = CallPlan(tools, required=True, parallel=True)
    assert compose(form, {}, reasoning="none", calls=plan, answer=None)


@each_of("name", NOTATIONS)
@each_of("nested", [True, False])
def test_names_that_are_listed_are_held_to(name: str, nested: bool) -> None:
    """As Pydantic writes a map whose keys are an enumeration, and Zod a record of one."""
    colours = {
        "type": "object",
        "propertyNames": {"$ref": "#/$defs/Colour"},
        "additionalProperties": {"type": "integer", "minimum": 0},
    }
    shared = {"Colour": {"type": "string", "enum": ["red", "green"]}}
    top = {"type": "object", "properties": {"colours": colours}, "required": ["colours"]}
    form, tools = by_name(name), offered({**(top if nested else colours), "$defs": shared})
    for control, vocabulary in models(name):
        plan = CallPlan(tools, required=True, parallel=True)
        grammar = compose(form, control, reasoning="none", calls=plan, answer=None)
        for made, right in (
            ({"red": 1, "green": 20}, True), ({"green": 3}, True),
            ({"blue": 1}, False), ({"red": 1, "blue": 1}, False), ({"red": -1}, False),
        ):  # fmt: skip
            given = {"colours": made} if nested else made
            text = form.calls.lead + write_calls(form.calls, [Call("f", given)])
            assert (vocabulary.refused_at(grammar, text) is None) == right, text


@each_of("name", NOTATIONS)
@each_of(
    ("schema", "good", "bad"),
    [
        ({"type": "object", "propertyNames": {"type": "string", "pattern": "^a"},
          "additionalProperties": {"type": "integer"}}, {"ab": 1}, {"b": 1}),
        ({"type": "object", "propertyNames": {"minLength": 2}}, {"ab": True}, {"a": True}),
        ({"type": "object", "properties": {"a": {"type": "null"}, "b": {"not": {}}}}, {}, {"b": 1}),
        ({"type": "array", "items": {"anyOf": [{"not": {}}, {"type": "integer"}]}}, [1], [True]),
        ({"type": "string", "format": "password", "maxLength": 2}, "ab", "abc"),
        ({"type": "string", "format": "uuid4"}, "9b2d4f6a-1c3e-4a5b-8c7d-0123456789ab",
         "9b2d4f6a-1c3e-1a5b-8c7d-0123456789ab"),
        ({"$id": "T", "type": "array", "items": {"$ref": "T"}}, [[[]], []], [[1]]),
    ],
)  # fmt: skip
def test_what_libraries_write_in_their_own_way_is_held_to(
    name: str, schema: dict[str, object], good: object, bad: object
) -> None:
    form = by_name(name)
    tools = offered({"properties": {"v": schema}, "required": ["v"]})
    for control, vocabulary in models(name):
        plan = CallPlan(tools, required=True, parallel=True)
        grammar = compose(form, control, reasoning="none", calls=plan, answer=None)
        for made, right in ((good, True), (bad, False)):
            text = form.calls.lead + write_calls(form.calls, [Call("f", {"v": made})])
            assert (vocabulary.refused_at(grammar, text) is None) == right, text


@each_of("name", ["lfm-2", "llama-4-pythonic", "qwen-3-coder", "seed-oss"])
@each_of(
    ("schema", "good", "bad"),
    [
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "None", "True"),
        ({"anyOf": [{"enum": [1, 2]}, {"type": "null"}]}, "None", "3"),
        ({"type": ["boolean", "integer"]}, "True", "None"),
        ({"type": ["array", "null"]}, "None", "1"),
    ],
)
def test_python_s_constants_stand_beside_other_values(
    name: str, schema: dict[str, object], good: str, bad: str
) -> None:
    form = by_name(name)
    tools = offered({"properties": {"v": schema}, "required": ["v"]})
    plan = CallPlan(tools, required=True, parallel=True)
    _, vocabulary = vocabularies(form)[0]
    grammar = compose(form, {}, reasoning="none", calls=plan, answer=None)
    for value, right in ((good, True), (bad, False)):
        written = write_calls(form.calls, [Call("f", {"v": 12345})]).replace("12345", value)
        assert (vocabulary.refused_at(grammar, form.calls.lead + written) is None) == right


@each_of("name", NOTATIONS)
def test_a_function_takes_what_only_a_list_of_names_says(name: str) -> None:
    form = by_name(name)
    tools = offered({"type": "object", "propertyNames": {"enum": ["red", "green"]}})
    for control, vocabulary in models(name):
        plan = CallPlan(tools, required=True, parallel=True)
        grammar = compose(form, control, reasoning="none", calls=plan, answer=None)
        for made, right in (({"red": 1}, True), ({"blue": 1}, False)):
            text = form.calls.lead + write_calls(form.calls, [Call("f", made)])
            assert (vocabulary.refused_at(grammar, text) is None) == right, text


@each_of("name", NOTATIONS)
@each_of(
    ("kind", "values"),
    [
        ({"anyOf": [{"type": "string", "enum": ["c"]}, {"type": "null"}]}, ["c", None]),
        ({"enum": ["None ", "True", None, True]}, ["True", None]),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, ["c", "None"]),
        ({"anyOf": [{"type": "number"}, {"enum": ["NaN", "-Infinity"]}]}, ["NaN", "-Infinity", 1]),
        ({}, ["NaN", "Infinity"]),
    ],
)
def test_words_mean_what_the_schema_has(
    name: str, kind: Mapping[str, object], values: list[object]
) -> None:
    """Also those that only Python has, and those that only Python's reader of JSON takes."""
    form, tools = by_name(name), offered({"properties": {"a": kind}, "required": ["a"]})
    for control, vocabulary in models(name):
        plan = CallPlan(tools, required=True, parallel=True)
        grammar = compose(form, control, reasoning="none", calls=plan, answer=None)
        for value in values:
            text = form.calls.lead + write_calls(form.calls, [Call("f", {"a": value})])
            if vocabulary.refused_at(grammar, text) is None:
                assert read(form, text, tools=tools).calls == [("f", {"a": value})], text


@each_of("name", NOTATIONS)
def test_one_item_or_key_at_most(name: str) -> None:
    one = {"type": "array", "items": {"type": "integer"}, "maxItems": 1}
    free = {"type": "object", "additionalProperties": {"type": "integer"}, "maxProperties": 1}
    tries: list[tuple[Mapping[str, object], dict[str, object], dict[str, object]]] = [
        ({"properties": {"a": one}}, {"a": [1]}, {"a": [1, 2]}),
        ({"properties": {"a": free}}, {"a": {"x": 1}}, {"a": {"x": 1, "y": 2}}),
        (free, {"x": 1}, {"x": 1, "y": 2}),
    ]
    form = by_name(name)
    for schema, right, wrong in tries:
        for control, vocabulary in models(name):
            plan = CallPlan(offered(schema), required=True, parallel=True)
            grammar = compose(form, control, reasoning="none", calls=plan, answer=None)
            for made in (right, wrong):
                text = form.calls.lead + write_calls(form.calls, [Call("f", made)])
                assert (vocabulary.refused_at(grammar, text) is None) == (made is right), text


@each_of("name", sorted({*NOTATIONS} - {"hermes", "lfm-2"}))
def test_what_a_definition_forbids_is_not_written(name: str) -> None:
    """Models of JSON get this schema refused by the compiler."""
    never = {"a": {"$ref": "#/$defs/never"}, "b": {"type": "integer"}}
    form, tools = by_name(name), offered({"properties": never, "$defs": {"never": False}})
    for control, vocabulary in models(name):
        plan = CallPlan(tools, required=True, parallel=True)
        grammar = compose(form, control, reasoning="none", calls=plan, answer=None)
        for made, right in (({"b": 1}, True), ({"a": "x", "b": 1}, False)):
            text = form.calls.lead + write_calls(form.calls, [Call("f", made)])
            assert (vocabulary.refused_at(grammar, text) is None) == right, text


def test_what_nobody_refers_to_costs_nothing() -> None:
    """Its names are not counted with those of the schema, and would be listed for each map."""
    map_ = {"propertyNames": {"$ref": "#/$defs/N"}, "additionalProperties": {}}
    alongside = {"x-note": map_, "$defs": {"M": map_}, "additionalItems": map_}
    names = {"enum": ["a", "b"]}
    (tool,) = offered({"properties": {"a": alongside}, "$defs": {"N": names, "M": map_}}).values()
    assert "$ref" not in re.sub(r"'propertyNames': {'\$ref'", "", repr(tool))


@each_of("name", sorted({*NOTATIONS} - {"hermes"}))
def test_references_that_lead_too_far_are_refused(name: str) -> None:
    chain = {str(at): {"$ref": f"#/$defs/{at + 1}"} for at in range(2000)}
    shared = {**chain, "2000": {"type": "integer"}}
    tools = offered({"properties": {"a": {"$ref": "#/$defs/0"}}, "$defs": shared})
    plan = CallPlan(tools, required=True, parallel=True)
    with pytest.raises(SchemaRefused, match=r"`f`.*references"):
        compose(by_name(name), {}, reasoning="none", calls=plan, answer=None)


STRINGS: list[tuple[Mapping[str, object], str, str]] = [
    ({"format": "date"}, "2024-02-29", "2024-02-30"),
    ({"format": "date-time"}, "2024-02-29T12:00:00.5+01:00", "2024-02-29"),
    ({"format": "time"}, "23:59:59Z", "24:00:00Z"),
    ({"format": "duration"}, "P1DT2H", "P1D2H"),
    ({"format": "email"}, "a.b+c@example.org", "a@"),
    ({"format": "hostname"}, "a-b.example.org", "-a.org"),
    ({"format": "ipv4"}, "192.0.2.255", "192.0.2.256"),
    ({"format": "ipv6"}, "2001:db8::1", "2001:db8::1::2"),
    ({"format": "uuid"}, "123e4567-e89b-12d3-a456-426614174000", "123e4567"),
    ({"format": "uri"}, "https://example.org/a?b=c", "no address"),
    ({"format": "date", "pattern": "^2024"}, "2024-01-31", "2023-01-31"),
    ({"pattern": "^\\d{2}$"}, "42", "\u0664\u0662"),
    ({"pattern": "\\.py$"}, "a.py", "a.txt"),
    ({"pattern": r"^(?!\s*$)(?=.*\d)[a-z\d ]+$"}, "a 1", "a b"),
    ({"pattern": r"^(?!\s*$)[a-z ]*$"}, "a b", "  "),
    ({"minLength": 1}, "Hello", ""),
    ({"maxLength": 12}, "Hello", "Hello, Hello!"),
]


@each_of("name", NOTATIONS)
@each_of(("what", "right", "wrong"), STRINGS, every=3)
def test_strings_are_held_to_format_and_pattern(
    name: str, what: Mapping[str, object], right: str, wrong: str
) -> None:
    form = by_name(name)
    tools = offered({"properties": {"a": {"type": "string", **what}}, "required": ["a"]})
    for control, vocabulary in models(name):
        plan = CallPlan(tools, required=True, parallel=True)
        grammar = compose(form, control, reasoning="none", calls=plan, answer=None)
        assert grammar is not None
        for value, admitted in ((right, True), (wrong, False)):
            text = form.calls.lead + write_calls(form.calls, [Call("f", {"a": value})])
            assert (vocabulary.refused_at(grammar, text) is None) is admitted


@cache  # to look at a strategy takes longer than to draw from it
def texts_of(format: str) -> st.SearchStrategy[str]:
    return st.from_regex(re.compile(keywords.FORMATS[format], re.ASCII), fullmatch=True)


@each_of("name", keywords.FORMATS, every=3)
@given(data=st.data())
def test_what_a_format_admits_in_other_notations_it_admits_in_json(
    name: str, data: st.DataObject
) -> None:
    """But for days that no calendar has: which years leap is no pattern."""
    text = data.draw(texts_of(name))
    wrong = validate(json.dumps(text), JsonSchema({"type": "string", "format": name}))
    assert wrong is None or "a day that does not exist" in wrong


@each_of("name", NOTATIONS)
@each_of(
    ("schema", "right", "wrong"),
    [
        ({"$defs": {"Stop": STOP}, "$ref": "#/$defs/Stop"}, [{"at": "x"}], [{}, {"to": "x"}]),
        (
            {
                "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
                "anyOf": [{"required": ["a"]}, {"required": ["b"]}],
            },
            [{"a": 1}, {"b": 1}],
            [{}],
        ),
    ],
)
def test_parameters_that_are_elsewhere_or_several(
    name: str,
    schema: Mapping[str, object],
    right: list[dict[str, object]],
    wrong: list[dict[str, object]],
) -> None:
    form = by_name(name)
    control, vocabulary = vocabularies(form)[1]
    plan = CallPlan(offered(schema), required=True, parallel=True)
    grammar = compose(form, control, reasoning="none", calls=plan, answer=None)
    assert grammar is not None
    for arguments in (*right, *wrong):
        text = form.calls.lead + write_calls(form.calls, [Call("f", arguments)])
        assert (vocabulary.refused_at(grammar, text) is None) == (arguments in right)


_AB = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}
ALONGSIDE: list[tuple[Mapping[str, object], list[object], list[object]]] = [
    (
        {"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}], "items": False}
        | {"minItems": 2},
        [["x", 1]],
        [["x"], [1, "x"], ["x", 1, 1]],
    ),
    (
        {"type": "array", "prefixItems": [{"type": "string"}], "items": {"type": "integer"}},
        [[], ["x"], ["x", 1, 2]],
        [["x", "y"]],
    ),
    (
        {"type": "object", "patternProperties": {"^x_": {"type": "integer"}}}
        | {"additionalProperties": False},
        [{}, {"x_1": 1}, {"x_1": 1, "x_2": 2}],
        [{"y": 1}, {"x_1": []}],
    ),
    ({"type": "object", "additionalProperties": {"type": "integer"}}, [{}, {"k": 1}], [{"k": []}]),
    ({**_AB, "additionalProperties": {"type": "string"}}, [{"a": 1, "k": "x"}], [{"a": "x"}]),
    (
        {"allOf": [{**_AB, "required": ["a"]}, {"properties": {"a": {"maximum": 7}}}]},
        [{"a": 7}, {"a": 7, "b": 8}],
        [{"a": 8}, {"b": 1}, {}],
    ),
    ({**_AB, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]}, [{"a": 1}, {"b": 1}], [{}]),
    (
        {"anyOf": [{"type": "number"}, {"type": "string", "pattern": r"^(?!^[-+.]*$)[-+]?\d*$"}]},
        [7, -7],
        ["", "-", "x"],
    ),
    ({**_AB, "required": ["c"], "additionalProperties": True}, [{"a": 1, "c": "x"}], [{"a": 1}]),
    ({"type": "integer", "allOf": [{"minimum": 5}, {"minimum": 1}]}, [5], [4, 1]),
    ({"type": "string", "allOf": [{"pattern": "^a"}, {"pattern": "b$"}]}, ["ab"], ["a", "b"]),
    ({"type": "string", "pattern": "^[A-Z]$|^/\\\\/$"}, ["A", "/\\/"], ["a", "//"]),
    ({"type": "string", "enum": ["x", 1, None]}, ["x"], ["1"]),
    ({"type": ["string", "integer"], "enum": ["x", "7", 1]}, ["x", "7", 1], ["y"]),
]


@each_of("name", NOTATIONS)
@each_of(("what", "right", "wrong"), ALONGSIDE)
def test_what_holds_at_once_holds_in_every_notation(
    name: str, what: Mapping[str, object], right: list[object], wrong: list[object]
) -> None:
    form = by_name(name)
    tools = offered({"properties": {"v": what}, "required": ["v"]})
    control, vocabulary = vocabularies(form)[1]
    plan = CallPlan(tools, required=True, parallel=True)
    grammar = compose(form, control, reasoning="none", calls=plan, answer=None)
    assert grammar is not None
    for value in (*right, *wrong):
        text = form.calls.lead + write_calls(form.calls, [Call("f", {"v": value})])
        assert (vocabulary.refused_at(grammar, text) is None) == (value in right), value
        if value in right:
            assert read(form, text, tools=tools).calls == [("f", {"v": value})]


@each_of("name", NOTATIONS)
def test_keys_of_the_model_s_own_where_the_function_takes_them(name: str) -> None:
    form = by_name(name)
    tools = offered({"properties": {"a": {"type": "integer"}}, "additionalProperties": True})
    control, vocabulary = vocabularies(form)[1]
    plan = CallPlan(tools, required=True, parallel=True)
    grammar = compose(form, control, reasoning="none", calls=plan, answer=None)
    assert grammar is not None
    for right in ({}, {"a": 1}, {"b": "x"}, {"a": 1, "b": "x", "c": "y"}):
        text = form.calls.lead + write_calls(form.calls, [Call("f", right)])
        assert vocabulary.refused_at(grammar, text) is None
        assert read(form, text, tools=tools, size=1).calls == [("f", right)]


ALTERNATIVES: list[tuple[dict[str, object], list[dict[str, object]], list[dict[str, object]]]] = [
    ({"minProperties": 1}, [{"a": 1}, {"b": 2}, {"a": 1, "b": 2}], [{}]),
    ({"maxProperties": 1}, [{"a": 1}, {"b": 2}, {}], [{"a": 1, "b": 2}]),
    ({"dependentRequired": {"a": ["b"]}}, [{}, {"b": 2}, {"a": 1, "b": 2}], [{"a": 1}]),
    ({"not": {"required": ["a", "b"]}}, [{}, {"a": 1}, {"b": 2}], [{"a": 1, "b": 2}]),
    (
        {"oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
        [{"a": 1}, {"b": 2}],
        [{}, {"a": 1, "b": 2}],
    ),
    (
        {"if": {"required": ["a"]}, "then": {"required": ["b"]}},
        [{}, {"b": 2}, {"a": 1, "b": 2}],
        [{"a": 1}],
    ),
]


@each_of("name", NOTATIONS)
@each_of(("rule", "right", "wrong"), ALTERNATIVES)
def test_rules_between_properties_hold_in_every_notation(
    name: str,
    rule: dict[str, object],
    right: list[dict[str, object]],
    wrong: list[dict[str, object]],
) -> None:
    form = by_name(name)
    whole = {"type": "integer"}
    tools = offered({"properties": {"a": whole, "b": whole}, **rule})
    control, vocabulary = vocabularies(form)[1]
    plan = CallPlan(tools, required=True, parallel=True)
    grammar = compose(form, control, reasoning="none", calls=plan, answer=None)
    assert grammar is not None
    for value in (*right, *wrong):
        text = form.calls.lead + write_calls(form.calls, [Call("f", value)])
        assert (vocabulary.refused_at(grammar, text) is None) == (value in right), value
        if value in right:
            assert read(form, text, tools=tools).calls == [("f", value)]


def test_a_constant_that_the_notation_cannot_hold_is_refused_where_it_stands() -> None:
    nested = {"o": {"type": "object", "properties": {"v": {"enum": ["x", '<|"|>']}}}}
    plan = CallPlan(offered({"properties": nested}), required=True, parallel=True)
    with pytest.raises(SchemaRefused) as refused:
        compose(by_name("gemma-4"), {}, reasoning="none", calls=plan, answer=None)
    assert refused.value.pointer == "#/properties/o/properties/v"


@pytest.mark.parametrize("name", ["gemma-4", "minimax-m3"])
def test_no_schema_is_too_deep_for_a_notation(name: str) -> None:
    def link(at: int) -> dict[str, object]:
        return {"type": "object", "properties": {"next": {"$ref": f"#/$defs/n{at + 1}"}}}

    chain = {f"n{at}": link(at) for at in range(500)} | {"n500": {"type": "integer"}}
    tools = offered({"$defs": chain, "properties": {"v": {"$ref": "#/$defs/n0"}}})
    plan = CallPlan(tools, required=True, parallel=True)
    assert compose(by_name(name), {}, reasoning="none", calls=plan, answer=None)


@pytest.mark.parametrize("name", ["qwen-3-coder", "kimi-k3", "lfm-2"])
def test_a_definition_repeated_for_every_parameter_has_its_bound(name: str) -> None:
    large = {"enum": [f"{number:0100}" for number in range(600)]}
    listed = {"type": "array", "items": {"$ref": "#/$defs/large"}}
    named = {f"p{number}": {**listed, "maxItems": number} for number in range(20)}
    named |= {f"q{number}": {"$ref": "#/$defs/large"} for number in range(20)}
    tools = offered({"$defs": {"large": large}, "properties": named})
    plan = CallPlan(tools, required=True, parallel=True)
    with pytest.raises(SchemaRefused, match="too much") as refused:
        compose(by_name(name), {}, reasoning="none", calls=plan, answer=None)
    assert refused.value.param == "tools"


_LEAVES = st.sampled_from(
    [
        {"type": "string"},
        {"type": "string", "minLength": 1, "maxLength": 5},
        {"type": "integer", "minimum": 0},
        {"type": "number"},
        {"type": "boolean"},
        {"enum": ["on", "off", "it's"]},
        {"const": "fixed"},
        {"type": "array", "items": {"type": "integer"}, "maxItems": 2},
        {"type": ["string", "null"]},
        {"anyOf": [{"type": "integer"}, {"type": "boolean"}]},
    ]
)


def _object(values: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    named = st.dictionaries(st.sampled_from(["a", "b2", "c_d", "E"]), values, max_size=3)
    return named.flatmap(
        lambda declared: st.lists(st.sampled_from(sorted(declared) or ["a"]), unique=True).map(
            lambda required: {
                "type": "object",
                "properties": declared,
                "required": [name for name in required if name in declared],
                "additionalProperties": False,
            }
        )
    )


@given(name=st.sampled_from(CALLING), schema=_object(_LEAVES | _object(_LEAVES)), data=st.data())
def test_any_function_s_calls_are_understood(
    name: str, schema: Mapping[str, object], data: st.DataObject
) -> None:
    form = by_name(name)
    tools = {"do_it": schema}
    control, vocabulary = data.draw(st.sampled_from(vocabularies(form)))
    plan = CallPlan(tools, required=True, parallel=True)
    grammar = compose(form, control, reasoning="none", calls=plan, answer=None)
    assert grammar is not None
    text = vocabulary.walk(grammar, closers(form), data.draw(st.integers(0, 2**16)))
    understood(form, text, tools)


def test_a_reply_that_nothing_constrains_has_no_grammar() -> None:
    assert compose(by_name("hermes"), {}, reasoning="possible", calls=None, answer=None) is None


def test_the_words_that_are_told_are_no_calls() -> None:
    told = read(by_name("hermes"), "<tool_call>\nnone\n</tool_call>")
    assert told == Told(answer="<tool_call>\nnone\n</tool_call>")
