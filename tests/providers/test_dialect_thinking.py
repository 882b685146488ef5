"""Thinking, switched the way each kind of server understands."""

from __future__ import annotations

import json
from typing import Any

import pytest
from casekit import each_of
from msgspec import structs
from providerkit import request, sent

from causerie.errors import InvalidRequest
from causerie.providers.dialects import DIALECTS
from causerie.providers.outgoing import outgoing

KIN_OF_OPENAI = ("azure", "azure-deployments", "bedrock")
KIN = ("generic", "causerie")  # as sent
TEMPLATE = ("vllm", "sglang", "llama-server")
OFF = {"enable_thinking": False, "thinking": False}
ON = {"enable_thinking": True, "thinking": True}


def said(dialect: str, **fields: Any) -> tuple[dict[str, Any], list[str]]:
    body, changes = sent(dialect, **fields)
    names = (
        "reasoning_effort", "reasoning", "thinking", "chat_template_kwargs", "output_config"
    )  # fmt: skip
    budgets = ("thinking_token_budget", "thinking_budget_tokens", "include_reasoning")
    return {name: body[name] for name in (*names, *budgets) if name in body}, changes


ADAPTIVE = {"type": "adaptive", "display": "summarized"}
SWITCHED_OFF: dict[str, dict[str, Any]] = {
    "openai": {"reasoning_effort": "none"},
    "ollama": {"reasoning_effort": "none"},
    "lmstudio": {"reasoning_effort": "none"},
    "mistral": {"reasoning_effort": "none"},
    "deepseek": {"thinking": {"type": "disabled"}},
    "openrouter": {"reasoning": {"effort": "none"}},
    "anthropic": {"thinking": {"type": "disabled"}},
    **{key: {"reasoning_effort": "none"} for key in KIN_OF_OPENAI},
}


@each_of("dialect", DIALECTS)
@each_of("way", ["kwargs", "effort", "object", "enabled", "budget"])
def test_off(dialect: str, way: str) -> None:
    ways: dict[str, dict[str, Any]] = {
        "kwargs": {"chat_template_kwargs": {"enable_thinking": False}},
        "effort": {"reasoning_effort": "none"},
        "object": {"reasoning": {"effort": "none"}},
        "enabled": {"reasoning": {"enabled": False}},
        "budget": {"thinking_token_budget": 0},
    }
    found, changes = said(dialect, **ways[way])
    if dialect in KIN and way in ("kwargs", "effort", "budget"):
        assert (found, changes) == (ways[way], [])
    elif dialect in KIN:
        assert found["chat_template_kwargs"] == OFF
    elif dialect in TEMPLATE:
        kwargs = {"enable_thinking": False} if way == "kwargs" else OFF
        assert found == {"chat_template_kwargs": kwargs}
        assert (changes == []) == (way == "kwargs")
    else:
        assert found == SWITCHED_OFF[dialect]
        assert changes or (dialect, way) not in (("openai", "kwargs"), ("deepseek", "effort"))


@each_of("dialect", DIALECTS)
def test_on(dialect: str) -> None:
    found, changes = said(dialect, chat_template_kwargs={"enable_thinking": True})
    expected: dict[str, dict[str, Any]] = {
        "openai": {"reasoning_effort": "medium"},
        "ollama": {"reasoning_effort": "medium"},
        "lmstudio": {"reasoning_effort": "medium"},
        "mistral": {"reasoning_effort": "high"},
        "deepseek": {"thinking": {"type": "enabled"}},
        "openrouter": {"reasoning": {"enabled": True}},
        "anthropic": {"thinking": ADAPTIVE},
        **{key: {"reasoning_effort": "medium"} for key in KIN_OF_OPENAI},
    }
    unchanged = {"chat_template_kwargs": {"enable_thinking": True}}
    assert found == expected.get(dialect, unchanged)
    if dialect in expected:
        there = next(iter(found)).replace("thinking", "thinking.type")
        assert changes == [f"chat_template_kwargs.enable_thinking->{there}"]
    else:
        assert changes == []


EFFORTS = ("minimal", "low", "medium", "high", "xhigh", "max")
WORDS = {
    "generic": EFFORTS,
    "causerie": EFFORTS,
    "openai": ("minimal", "low", "medium", "high", "xhigh", "xhigh"),
    "vllm": EFFORTS,
    "sglang": EFFORTS,
    "llama-server": EFFORTS,
    "ollama": ("low", "low", "medium", "high", "high", "high"),
    "lmstudio": ("low", "low", "medium", "high", "xhigh", "xhigh"),
    "openrouter": EFFORTS,
    "deepseek": ("low", "low", "high", "high", "high", "max"),
    "mistral": ("high",) * 6,
    "anthropic": ("low", "low", "medium", "high", "xhigh", "max"),
    **dict.fromkeys(KIN_OF_OPENAI, ("minimal", "low", "medium", "high", "xhigh", "xhigh")),
}


@each_of("dialect", DIALECTS)
def test_effort(dialect: str) -> None:
    for effort, word in zip(EFFORTS, WORDS[dialect], strict=True):
        found, changes = said(dialect, reasoning_effort=effort)
        if dialect == "openrouter":
            assert found == {"reasoning": {"effort": word}}
            assert changes == ["reasoning_effort->reasoning"]
        elif dialect == "anthropic":
            assert found == {"thinking": ADAPTIVE, "output_config": {"effort": word}}
            assert (f"output_config.effort {effort}->{word}" in changes) == (effort != word)
        elif dialect == "llama-server":
            assert found == {"chat_template_kwargs": {**ON, "reasoning_effort": word}}
        else:
            assert found["reasoning_effort"] == word
            assert (f"reasoning_effort {effort}->{word}" in changes) == (effort != word)
        if dialect in ("vllm", "sglang"):
            assert found["chat_template_kwargs"] == ON
            assert changes == ["reasoning_effort->chat_template_kwargs.enable_thinking"]


BUDGETS: dict[str, dict[str, Any]] = {
    "generic": {"thinking_token_budget": 50},
    "causerie": {"thinking_token_budget": 50},
    "vllm": {"thinking_token_budget": 50},
    "llama-server": {"thinking_budget_tokens": 50},
    "openrouter": {"reasoning": {"max_tokens": 50}},
    "anthropic": {  # which takes no less
        "thinking": {"type": "enabled", "budget_tokens": 1024, "display": "summarized"}
    },
}


@each_of("dialect", DIALECTS)
def test_budget(dialect: str) -> None:
    if dialect not in BUDGETS:
        with pytest.raises(InvalidRequest) as refused:
            sent(dialect, thinking_token_budget=50)
        assert refused.value.param == "thinking_token_budget"
        if dialect in IN_WORDS:
            return
        with pytest.raises(InvalidRequest) as refused:
            sent(dialect, reasoning={"max_tokens": 50})
        assert refused.value.param == "reasoning.max_tokens"
        return
    found, changes = said(dialect, thinking_token_budget=50)
    assert found == BUDGETS[dialect]
    assert (changes == []) == (dialect in (*KIN, "vllm"))
    found, changes = said(dialect, reasoning={"max_tokens": 50})
    assert found.pop("chat_template_kwargs", ON) == ON
    assert found == BUDGETS[dialect]
    assert (changes == []) == (dialect == "openrouter")


IN_WORDS = ("openai", "ollama", "lmstudio", "deepseek", *KIN_OF_OPENAI)


@each_of("dialect", IN_WORDS)
@each_of(
    ("budget", "limit", "effort"),
    [
        (50, None, "minimal"),
        (8192, None, "medium"),
        (99, 1000, "minimal"),
        (200, 1000, "low"),
        (799, 1000, "medium"),
        (800, 1000, "high"),
        (5000, 1000, "xhigh"),
    ],
)
def test_a_router_s_budget_in_words(
    dialect: str, budget: int, limit: int | None, effort: str
) -> None:
    found, changes = said(dialect, reasoning={"max_tokens": budget}, max_tokens=limit)
    word = DIALECTS[dialect].thinking.efforts[effort]
    assert found["reasoning_effort"] == word
    assert f"reasoning.max_tokens->reasoning_effort {word}" in changes
    assert found.get("thinking") == ({"type": "enabled"} if dialect == "deepseek" else None)


@each_of("dialect", DIALECTS)
def test_how_reasoning_is_summed_up_is_a_hint(dialect: str) -> None:
    found, changes = said(dialect, reasoning={"summary": "auto"})
    if dialect == "openrouter":
        assert (found, changes) == ({"reasoning": {"summary": "auto"}}, [])
    else:
        assert (found, changes) == ({}, ["reasoning.summary dropped"])


@pytest.mark.parametrize("dialect", KIN)
def test_the_object_that_few_servers_know(dialect: str) -> None:
    assert said(dialect, reasoning={"effort": "high"}) == (
        {"chat_template_kwargs": ON, "reasoning_effort": "high"},
        ["reasoning->chat_template_kwargs.enable_thinking", "reasoning.effort->reasoning_effort"],
    )


def test_a_router_takes_an_effort_or_a_budget() -> None:
    with pytest.raises(InvalidRequest, match="an effort or a budget"):
        sent("openrouter", reasoning_effort="low", thinking_token_budget=5)
    assert said("openrouter", reasoning={"effort": "low"}) == (
        {"reasoning": {"effort": "low"}},
        [],
    )


@each_of("dialect", DIALECTS)
def test_upstreams_are_never_asked_to_hide_the_reasoning(dialect: str) -> None:
    assert said(dialect, include_reasoning=False) == ({}, [])
    assert said(dialect, reasoning={"exclude": True}) == ({}, [])


@each_of("dialect", DIALECTS)
def test_other_arguments_of_a_template(dialect: str) -> None:
    kwargs = {"documents_style": "short"}
    if dialect in (*TEMPLATE, *KIN):
        assert said(dialect, chat_template_kwargs=kwargs) == (
            {"chat_template_kwargs": kwargs},
            [],
        )
        return
    with pytest.raises(InvalidRequest) as refused:
        sent(dialect, chat_template_kwargs=kwargs)
    assert refused.value.param == "chat_template_kwargs.documents_style"


@pytest.mark.parametrize("dialect", TEMPLATE)
def test_a_template_that_was_told_is_told_nothing_more(dialect: str) -> None:
    kwargs = {"thinking": True, "x": 1}
    assert said(dialect, chat_template_kwargs=kwargs, reasoning={"enabled": True}) == (
        {"chat_template_kwargs": kwargs},
        ["reasoning dropped"],
    )


@each_of("dialect", DIALECTS)
@each_of("budget", [None, 50])
def test_thinking_turned_on_by_the_name_of_a_model(dialect: str, budget: int | None) -> None:
    asked = request(thinking_token_budget=budget)
    on = structs.replace(asked.thinking, enabled=True)
    asked = structs.replace(asked, thinking=on, params=asked.params | {"reasoning"})
    if budget and dialect not in BUDGETS:
        return
    out = outgoing(asked, DIALECTS[dialect], "theirs")
    body = json.loads(out.body)
    if dialect in (*KIN, *TEMPLATE):
        assert body["chat_template_kwargs"] == ON
    elif dialect == "openrouter":
        assert body["reasoning"] == ({"max_tokens": 50} if budget else {"enabled": True})
    elif dialect == "deepseek":
        assert body["thinking"] == {"type": "enabled"}
    elif dialect == "anthropic":
        assert body["thinking"] == (BUDGETS[dialect]["thinking"] if budget else ADAPTIVE)
    else:
        assert body["reasoning_effort"] == WORDS[dialect][2]  # medium
    assert all("chat_template_kwargs.enable_thinking->" not in change for change in out.changes)
