"""Every dialect and every parameter: sent, renamed, dropped or refused, as the table says."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from casekit import each_of
from providerkit import F, request, sent

from causerie.errors import InvalidRequest
from causerie.protocol.parameters import HINT_NAMES, HONOURED
from causerie.providers import dialects
from causerie.providers.dialect import Dialect
from causerie.providers.dialects import DIALECTS
from causerie.providers.outgoing import outgoing

VALUES: dict[str, Any] = {
    "temperature": 0.5,
    "top_p": 0.5,
    "top_k": 5,
    "min_p": 0.1,
    "repetition_penalty": 1.1,
    "frequency_penalty": 0.5,
    "presence_penalty": 0.5,
    "seed": 7,
    "logit_bias": {"5": 1},
    "n": 2,
    "stop": ["x"],
    "stop_token_ids": [3],
    "min_tokens": 2,
    "ignore_eos": True,
    "documents": [{"text": "t"}],
    "user": "u",
    "metadata": {"a": "b"},
    "store": True,
    "service_tier": "auto",
    "prompt_cache_key": "k",
    "prediction": {"type": "content", "content": "x"},
    "verbosity": "low",
    "safety_identifier": "s",
    "modalities": ["text"],
    "session_id": "s",
}
# s: sent as it is, d: dropped and said, r: refused, q: dropped quietly, a name: sent under it.
# generic causerie openai vllm sglang llama-server ollama lmstudio openrouter deepseek mistral
# anthropic azure azure-deployments bedrock
TABLE = {
    "temperature":        "s s s s s s s s s s s s s s s",
    "top_p":              "s s s s s s s s s s s s s s s",
    "stop":               "s s s s s s s s s s s s s s s",
    "frequency_penalty":  "s s s s s s s s s s s r s s s",
    "presence_penalty":   "s s s s s s s s s s s r s s s",
    "top_k":              "s s r s s s r s s r r s r r r",
    "min_p":              "s s r s s s r r s r r r r r r",
    "repetition_penalty": "s s r s s repeat_penalty r repeat_penalty s r r r r r r",
    "seed":               "s s s s s s s s s r random_seed r s s s",
    "logit_bias":         "s s s s s s r s s r r r s s s",
    "n":                  "s s s s s s r r r r s r s s r",
    "stop_token_ids":     "s s r s s r r r r r r r r r r",
    "min_tokens":         "s s r s s r r r r r r r r r r",
    "ignore_eos":         "s s r s s s r r r r r r r r r",
    "documents":          "s s r s r r r r r r r r r r r",
    "user":               "s s s s s d d d s d d s s s s",
    "metadata":           "s s s d d d d d d d s d s d s",
    "store":              "s s s d d d d d d d d d s d s",
    "service_tier":       "d d d d d d d d d d d d d d d",
    "prompt_cache_key":   "s s s d d d d d s d d d s d d",
    "prediction":         "s s s d d d d d d d s d s d s",
    "verbosity":          "s s s d d d d d s d d d s d d",
    "safety_identifier":  "s s s d d d d d d d d d s d d",
    "modalities":         "s s s d d d d d d d d d s d d",
    "session_id":         "s s q s q q q q s q q q q q q",
}  # fmt: skip
CASES = [
    (dialect, name, what)
    for name, row in TABLE.items()
    for dialect, what in zip(DIALECTS, row.split(), strict=True)
]
ELSEWHERE = {  # parameters with tests of their own, below or in other files
    "model", "messages", "stream", "stream_options", "max_tokens", "max_completion_tokens",
    "logprobs", "top_logprobs", "tools", "tool_choice", "parallel_tool_calls", "response_format",
    "structured_outputs", "reasoning_effort", "reasoning", "include_reasoning",
    "thinking_token_budget", "chat_template_kwargs", "continue_final_message",
    "add_generation_prompt",
}  # fmt: skip


def test_every_key_of_the_table_is_a_field() -> None:
    text = Path(dialects.__file__).with_name("dialects.toml").read_text("utf-8")
    tables = tomllib.loads(text)
    del tables["groups"]
    types = get_type_hints(Dialect) | {"like": str}
    for name, table in tables.items():
        for key, value in table.items():
            fields = getattr(types[key], "__dataclass_fields__", None)
            unknown = set(value) - set(fields) if fields is not None else ()
            assert not unknown, f"{name}.{key} has no {unknown}"


def test_no_parameter_is_forgotten() -> None:
    assert set(TABLE) | ELSEWHERE == HONOURED | HINT_NAMES
    assert set(VALUES) == set(TABLE)


@each_of(("dialect", "name", "what"), CASES)
def test_parameter(dialect: str, name: str, what: str) -> None:
    value = VALUES[name]
    if what == "r":
        with pytest.raises(InvalidRequest) as refused:
            sent(dialect, **{name: value})
        assert (refused.value.code, refused.value.param) == ("unsupported_parameter", name)
        return
    body, changes = sent(dialect, thinking_token_budget=0, **{name: value})
    changes = [change for change in changes if change.startswith(name)]
    if what in ("d", "q"):
        assert name not in body
        assert changes == ([f"{name} dropped"] if what == "d" else [])
    elif what == "s":
        assert body[name] == value
        assert changes == []
    else:
        assert body[what] == value
        assert name not in body
        assert changes == [f"{name}->{what}"]


@each_of("dialect", DIALECTS)
@each_of("name", sorted(HINT_NAMES))
def test_a_hint_that_no_server_would_take_is_dropped(dialect: str, name: str) -> None:
    body, changes = sent(dialect, **{name: 5})
    assert name not in body
    assert changes == [f"{name} dropped"]


@each_of("dialect", DIALECTS)
def test_what_asks_for_nothing_is_never_refused(dialect: str) -> None:
    nothing: dict[str, Any] = {
        "temperature": 1, "top_p": 1, "top_k": -1, "min_p": 0, "repetition_penalty": 1.0,
        "frequency_penalty": 0, "presence_penalty": 0, "min_tokens": 0, "n": 1,
        "ignore_eos": False, "logprobs": False, "logit_bias": {}, "stop": [],
        "stop_token_ids": [], "documents": [], "modalities": ["text"], "tools": [],
        "tool_choice": "auto", "parallel_tool_calls": True, "response_format": {"type": "text"},
        "include_reasoning": True, "continue_final_message": False, "add_generation_prompt": True,
        "chat_template_kwargs": {}, "stream": False, "seed": None, "user": None,
    }  # fmt: skip
    body, changes = sent(dialect, **nothing)
    assert set(body) <= nothing.keys() | {"repeat_penalty", "stream_options", "provider"}
    assert "tools" not in body
    assert None not in body.values()
    assert not [change for change in changes if change.startswith("max_")]


@each_of("dialect", DIALECTS)
def test_the_common_request_is_passed_on_as_it_is(dialect: str) -> None:
    assert sent(dialect, stop="x", top_p=0.9) == (
        {"stop": "x", "top_p": 0.9} | ({"stream": True} if DIALECTS[dialect].streams else {})
        | ({"stream_options": {"include_usage": True}}
           if DIALECTS[dialect].streams and DIALECTS[dialect].tells_usage else {}),
        [],
    )  # fmt: skip


@each_of("dialect", DIALECTS)
def test_what_nobody_knows_is_dropped_and_named(dialect: str) -> None:
    body, changes = sent(dialect, frobnicate={"a": [1]}, stream_options={"include_usage": False})
    assert "frobnicate" not in body
    assert changes == ["frobnicate dropped"]


LIMITS = {
    "generic": ("max_tokens", "max_completion_tokens"),
    "causerie": ("max_tokens", "max_completion_tokens"),
    "openai": ("max_completion_tokens", "max_completion_tokens"),
    "vllm": ("max_tokens", "max_completion_tokens"),
    "sglang": ("max_tokens", "max_completion_tokens"),
    "llama-server": ("max_tokens", "max_completion_tokens"),
    "ollama": ("max_tokens", "max_tokens"),
    "lmstudio": ("max_tokens", "max_tokens"),
    "openrouter": ("max_tokens", "max_completion_tokens"),
    "deepseek": ("max_tokens", "max_tokens"),
    "mistral": ("max_tokens", "max_tokens"),
    "anthropic": ("max_tokens", "max_tokens"),
    "azure": ("max_completion_tokens", "max_completion_tokens"),
    "azure-deployments": ("max_completion_tokens", "max_completion_tokens"),
    "bedrock": ("max_completion_tokens", "max_completion_tokens"),
}


@each_of("dialect", DIALECTS)
def test_output_limit(dialect: str) -> None:
    for name, there in zip(("max_tokens", "max_completion_tokens"), LIMITS[dialect], strict=True):
        body, changes = sent(dialect, **{name: 9})
        limits = {key: value for key, value in body.items() if key.startswith("max_")}
        assert limits == {there: 9}
        assert changes == ([] if name == there else [f"{name}->{there}"])
    body, _ = sent(dialect, max_tokens=9, max_completion_tokens=9)
    assert len([key for key in body if key.startswith("max_")]) == 1


@each_of("dialect", DIALECTS)
def test_streams_are_asked_for_their_usage(dialect: str) -> None:
    body, changes = sent(dialect, stream=True, stream_options={"include_obfuscation": False})
    assert body["stream"] is True
    options = {"include_obfuscation": False, "include_usage": True}
    assert body.get("stream_options") == (None if dialect in ("mistral", "anthropic") else options)
    assert changes == []
    assert ("stream" in sent(dialect)[0]) == (dialect in ("llama-server", "lmstudio", "anthropic"))


@each_of("dialect", DIALECTS)
def test_log_probabilities(dialect: str) -> None:
    if dialect in ("lmstudio", "mistral", "anthropic"):
        with pytest.raises(InvalidRequest, match="logprobs"):
            sent(dialect, logprobs=True)
        return
    body, changes = sent(dialect, logprobs=True)
    least = 1 if dialect == "llama-server" else None  # with none it gives none at all
    assert (body["logprobs"], body.get("top_logprobs")) == (True, least)
    body, _ = sent(dialect, logprobs=True, top_logprobs=3)
    assert body["top_logprobs"] == 3
    assert not [change for change in changes if "logprobs" in change]


def test_a_router_is_told_not_to_ignore_parameters() -> None:
    for more in ({}, {"provider": {"order": ["a"], "require_parameters": False}}):
        body, changes = sent("openrouter", seed=3, **more)
        assert body["provider"] == {"require_parameters": True}
        told = ["provider.require_parameters added", *(f"{name} dropped" for name in more)]
        assert changes == told
    assert "provider" not in sent("openrouter", temperature=0.5, tools=[F])[0]


def test_a_router_hears_a_clients_preferences_where_the_operator_allows_it() -> None:
    dialect = DIALECTS["openrouter"].passing((), ("provider",))
    for given, told in (
        ({"order": ["a"]}, ("provider.require_parameters added",)),
        ({"order": ["a"], "require_parameters": False}, ()),
    ):
        out = outgoing(request(seed=3, provider=given), dialect, "theirs")
        assert json.loads(out.body)["provider"] == {"require_parameters": True} | given
        assert out.changes == told


ELSEWHERE_SAID: list[dict[str, Any]] = [
    {"max_tokens": 9, "max_completion_tokens": 9},
    {"add_generation_prompt": True},
    {"logprobs": True, "top_logprobs": 0},
    {"reasoning": {"enabled": False}},
    {"reasoning": {"effort": "high", "exclude": True}},
    {"reasoning": {"effort": "high"}, "chat_template_kwargs": {"enable_thinking": True}},
    {"reasoning_effort": "none", "chat_template_kwargs": {"enable_thinking": False}},
    {"reasoning_effort": "high", "chat_template_kwargs": {"enable_thinking": True}},
    {
        "messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "He"}],
        "continue_final_message": True,
        "add_generation_prompt": False,
    },
]


@each_of("dialect", DIALECTS)
@each_of("fields", ELSEWHERE_SAID, ids=lambda fields: "+".join(fields))
def test_whatever_does_not_go_out_as_it_came_is_told_once(
    dialect: str, fields: dict[str, Any]
) -> None:
    try:
        body, changes = sent(dialect, **fields)
    except InvalidRequest:
        return  # which tells it too
    wanted = {"reasoning": {"effort": "high"}} if "exclude" in str(fields) else {}
    for name, value in (fields | wanted).items():
        told = any(change.startswith(name) or f"->{name}" in change for change in changes)
        assert told or name == "messages" or body.get(name) == value, changes
    assert len(set(changes)) == len(changes)
    assert not [change for change in changes if change == "reasoning->reasoning"]


def test_what_has_no_effect_is_said() -> None:
    assert sent("deepseek", temperature=0.5)[1] == ["temperature has no effect while thinking"]
    assert sent("deepseek", temperature=0.5, reasoning_effort="none")[1] == [
        "reasoning_effort->thinking.type"
    ]


def test_add_generation_prompt() -> None:
    assert sent("vllm", add_generation_prompt=False)[0] == {"add_generation_prompt": False}
    with pytest.raises(InvalidRequest, match="add_generation_prompt"):
        sent("openai", add_generation_prompt=False)


def test_the_request_is_left_alone() -> None:
    before = request(tools=[F], tool_choice={"type": "function", "function": {"name": "f"}})
    document = dict(before.document)
    for dialect in ("llama-server", "mistral", "openai"):
        sent(dialect, **{k: v for k, v in document.items() if k != "model"})
    assert before.document == document
