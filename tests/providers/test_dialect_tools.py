"""Forced calls and shaped answers, said the way each kind of server understands, or refused."""

from __future__ import annotations

import re
from typing import Any

import pytest
from casekit import each_of
from hypothesis import example, given, settings
from hypothesis import strategies as st
from providerkit import F, G, sent

from causerie.errors import InvalidRequest
from causerie.providers.dialects import DIALECTS

NAMED = {"type": "function", "function": {"name": "g"}}
ALLOWED = {
    "type": "allowed_tools",
    "allowed_tools": {
        "mode": "required",
        "tools": [{"type": "function", "function": {"name": "g"}}],
    },
}
MAY = {**ALLOWED, "allowed_tools": {**ALLOWED["allowed_tools"], "mode": "auto"}}  # type: ignore[dict-item]  # a dict
# none auto required named allowed(required) allowed(auto); s: as sent, 1: only the function
# and `required`, o: only the function, r: refused, x: without functions, d: dropped
CHOICES = {
    "generic":      "s s s s 1 o",
    "causerie":     "s s s s s s",
    "openai":       "s s s s s s",
    "azure":        "s s s s s s",
    "azure-deployments": "s s s s s s",
    "bedrock":      "s s s s s s",
    "anthropic":    "s s s s 1 o",
    "vllm":         "s s s s 1 o",
    "sglang":       "s s s s 1 o",
    "llama-server": "s s s 1 1 o",
    "ollama":       "x d r r r o",
    "lmstudio":     "s s s 1 1 o",
    "openrouter":   "s s s s 1 o",
    "deepseek":     "s s s s 1 o",
    "mistral":      "s s s s 1 o",
}  # fmt: skip
CASES = [
    (dialect, choice, what)
    for dialect, row in CHOICES.items()
    for choice, what in zip(
        ("none", "auto", "required", NAMED, ALLOWED, MAY), row.split(), strict=True
    )
]


@each_of(("dialect", "choice", "what"), CASES)
def test_choice(dialect: str, choice: Any, what: str) -> None:
    if what == "r":
        with pytest.raises(InvalidRequest) as refused:
            sent(dialect, tools=[F, G], tool_choice=choice)
        assert refused.value.param == "tool_choice"
        return
    body, changes = sent(dialect, tools=[F, G], tool_choice=choice)
    match what:
        case "s":
            assert (body["tools"], body["tool_choice"], changes) == ([F, G], choice, [])
        case "1":
            assert (body["tools"], body["tool_choice"]) == ([G], "required")
            assert changes == ["tools 2->1", "tool_choice->required"]
        case "o":
            assert (body["tools"], body.get("tool_choice")) == (
                [G],
                None if dialect == "ollama" else "auto",
            )
            assert changes == ["tools 2->1", "tool_choice->auto"]
        case "x":
            assert not body.keys() & {"tools", "tool_choice", "parallel_tool_calls"}
            assert changes == ["tools dropped", "tool_choice dropped"]
        case "d":
            assert (body["tools"], "tool_choice" in body) == ([F, G], False)
            assert changes == ["tool_choice dropped"]


@each_of("dialect", DIALECTS)
def test_one_call_at_a_time(dialect: str) -> None:
    if dialect in ("ollama", "lmstudio", "deepseek"):
        with pytest.raises(InvalidRequest, match="parallel_tool_calls"):
            sent(dialect, tools=[F], parallel_tool_calls=False)
        assert sent(dialect, tools=[F], parallel_tool_calls=True)[1] == [
            "parallel_tool_calls dropped"
        ]
        return
    assert sent(dialect, tools=[F], parallel_tool_calls=False)[0]["parallel_tool_calls"] is False
    default = True if dialect == "llama-server" else None  # which makes one call unless told
    assert sent(dialect, tools=[F])[0].get("parallel_tool_calls") is default


@each_of("dialect", DIALECTS)
def test_settings_of_calls_without_functions(dialect: str) -> None:
    body, changes = sent(dialect, tool_choice="none", parallel_tool_calls=False)
    assert not body.keys() & {"tool_choice", "parallel_tool_calls"}
    assert changes == ["tool_choice dropped", "parallel_tool_calls dropped"]


SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
FORMAT = {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA, "strict": True}}
MADE = {
    "type": "json_schema",
    "json_schema": {"name": "response", "schema": SCHEMA, "strict": True},
}
OBJECT = {"type": "json_object"}
STRUCTURED: dict[str, dict[str, Any]] = {
    "generic": {
        "regex": {"structured_outputs": {"regex": "a+"}},
        "choice": {"structured_outputs": {"choice": ["a", "b."]}},
        "grammar": {"structured_outputs": {"grammar": "root ::= x"}},
    },
    "causerie": {
        "regex": {"structured_outputs": {"regex": "a+"}},
        "choice": {"structured_outputs": {"choice": ["a", "b."]}},
        "grammar": {"structured_outputs": {"grammar": "root ::= x"}},
    },
    "vllm": {
        "regex": {"structured_outputs": {"regex": "a+"}},
        "choice": {"structured_outputs": {"choice": ["a", "b."]}},
        "grammar": {"structured_outputs": {"grammar": "root ::= x"}},
    },
    "sglang": {
        "regex": {"regex": "a+"},
        "choice": {"regex": r"(a|b\.)"},
        "grammar": {"ebnf": "root ::= x"},
    },
    "llama-server": {
        "choice": {"grammar": 'root ::= "a" | "b."'},
        "grammar": {"grammar": "root ::= x"},
    },
}


def shaped(dialect: str, **fields: Any) -> tuple[dict[str, Any], list[str]]:
    body, changes = sent(dialect, **fields)
    ours = ("stream", "stream_options", "provider")
    return {key: value for key, value in body.items() if key not in ours}, [
        change for change in changes if not change.startswith("provider")
    ]


@each_of("dialect", DIALECTS)
@each_of("kind", ["regex", "choice", "grammar"])
def test_structured_outputs(dialect: str, kind: str) -> None:
    values = {"regex": "a+", "choice": ["a", "b."], "grammar": "root ::= x"}
    structured = {kind: values[kind]}
    expected = STRUCTURED.get(dialect, {}).get(kind)
    if expected is None:
        with pytest.raises(InvalidRequest) as refused:
            sent(dialect, structured_outputs=structured)
        assert refused.value.param == f"structured_outputs.{kind}"
        assert refused.value.code == "unsupported_parameter"
        return
    body, changes = shaped(dialect, structured_outputs=structured)
    assert body == expected
    there = next(iter(expected))
    said = [] if there == "structured_outputs" else [f"structured_outputs.{kind}->{there}"]
    assert changes == said


@each_of("dialect", DIALECTS)
def test_schemas(dialect: str) -> None:
    if dialect == "deepseek":
        for fields in ({"response_format": FORMAT}, {"structured_outputs": {"json": SCHEMA}}):
            with pytest.raises(InvalidRequest, match="hold an answer"):
                sent(dialect, **fields)
        return
    assert shaped(dialect, response_format=FORMAT) == ({"response_format": FORMAT}, [])
    assert shaped(dialect, structured_outputs={"json": SCHEMA}) == (
        {"response_format": MADE},
        ["structured_outputs.json->response_format"],
    )


@each_of("dialect", DIALECTS)
def test_a_schema_is_enforced_though_it_does_not_say_strict(dialect: str) -> None:
    loose = {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA, "strict": False}}
    if dialect == "deepseek":
        return
    body, changes = shaped(dialect, response_format=loose)
    if dialect in ("openai", "openrouter", "mistral", "azure", "azure-deployments", "bedrock"):
        assert body == {"response_format": FORMAT}
        assert changes == ["response_format.json_schema.strict->true"]
    else:
        assert (body, changes) == ({"response_format": loose}, [])


@each_of("dialect", DIALECTS)
def test_any_object(dialect: str) -> None:
    if dialect == "anthropic":  # which knows objects of listed members only
        with pytest.raises(InvalidRequest, match="hold an answer"):
            sent(dialect, response_format=OBJECT)
        return
    body, changes = shaped(dialect, response_format=OBJECT)
    if dialect == "lmstudio":
        schema = {"name": "object", "schema": {"type": "object"}, "strict": True}
        assert body == {"response_format": {"type": "json_schema", "json_schema": schema}}
        assert changes == ["response_format.json_object->response_format.json_schema"]
    else:
        assert (body, changes) == ({"response_format": OBJECT}, [])


@each_of("dialect", DIALECTS)
def test_a_schema_beside_the_type_is_one_to_follow(dialect: str) -> None:
    """As clients of llama.cpp's server and of several hosts write it."""
    alongside = {"type": "json_object", "schema": SCHEMA}
    if dialect == "deepseek":
        with pytest.raises(InvalidRequest, match="response_format"):
            sent(dialect, response_format=alongside)
        return
    made = {"name": "response", "schema": {"type": "object", **SCHEMA}, "strict": True}
    assert shaped(dialect, response_format=alongside) == (
        {"response_format": {"type": "json_schema", "json_schema": made}},
        ["response_format.schema->response_format.json_schema"],
    )


@each_of("dialect", DIALECTS)
def test_plain_text_beside_a_structured_output_takes_nothing_away(dialect: str) -> None:
    fields = {"structured_outputs": {"json": SCHEMA}}
    if dialect != "deepseek":
        assert shaped(dialect, response_format={"type": "text"}, **fields) == shaped(
            dialect, **fields
        )


def test_a_schema_that_is_true_or_false() -> None:
    cases: list[tuple[bool, dict[str, Any]]] = [(True, {}), (False, {"not": {}})]
    for given_schema, schema in cases:
        body, _ = sent("mistral", structured_outputs={"json": given_schema})
        assert body["response_format"]["json_schema"]["schema"] == schema


@given(st.lists(st.text(min_size=1), min_size=1, max_size=4, unique=True))
@settings(deadline=None)
def test_options_as_a_regular_expression_match_themselves_only(options: list[str]) -> None:
    body, _ = sent("sglang", structured_outputs={"choice": options})
    pattern = re.compile(body["regex"])
    for option in options:
        assert pattern.fullmatch(option)
        assert not pattern.fullmatch(option + "x") or option + "x" in options


GBNF = re.compile(r'"((?:[^"\\]|\\["\\nrt]|\\x[0-9a-f]{2})*)"')


@example(["\\u0000", "\\\x01"])
@given(st.lists(st.text(min_size=1), min_size=1, max_size=4, unique=True))
@settings(deadline=None)
def test_options_as_a_grammar_are_read_back(options: list[str]) -> None:
    """By the escapes that GBNF knows: backslash, quote, n, r, t, and x with two digits."""
    body, _ = sent("llama-server", structured_outputs={"choice": options})
    text = body["grammar"].removeprefix("root ::= ")
    found = GBNF.findall(text)
    assert " | ".join(f'"{one}"' for one in found) == text
    plain = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\", '"': '"'}

    def character(escape: re.Match[str]) -> str:
        code = escape.group(1)
        return chr(int(code[1:], 16)) if code[0] == "x" else plain[code]

    read = [re.sub(r"\\(x[0-9a-f]{2}|.)", character, one) for one in found]
    assert read == options
