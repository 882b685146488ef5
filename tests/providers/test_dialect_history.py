"""Earlier messages as each kind of server reads them, and replies to be continued."""

from __future__ import annotations

from typing import Any

import pytest
from casekit import each_of
from providerkit import F, sent

from causerie.errors import InvalidRequest
from causerie.protocol.events import Partial
from causerie.providers.dialects import DIALECTS

KIN_OF_OPENAI = ("azure", "azure-deployments", "bedrock")
NAMELESS = ("mistral", "anthropic")
USER = {"role": "user", "content": "q"}
CALL = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}


def history(dialect: str, *messages: dict[str, Any], **fields: Any) -> tuple[Any, list[str]]:
    body, changes = sent(dialect, messages=list(messages), **fields)
    return body["messages"], changes


REASONING: dict[str, dict[str, Any]] = {
    "generic": {"reasoning_content": "r", "content": "a"},
    "causerie": {"reasoning_content": "r", "content": "a"},
    "openai": {"content": "a"},
    "azure": {"content": "a"},
    "azure-deployments": {"content": "a"},
    "bedrock": {"content": "a"},
    "anthropic": {"content": "a"},  # which takes none without its own signature
    "vllm": {"reasoning_content": "r", "reasoning": "r", "content": "a"},
    "sglang": {"reasoning_content": "r", "content": "a"},
    "llama-server": {"reasoning_content": "r", "content": "a"},
    "ollama": {"reasoning": "r", "content": "a"},
    "lmstudio": {"reasoning_content": "r", "content": "a"},
    "openrouter": {"reasoning": "r", "content": "a"},
    "deepseek": {"reasoning_content": "r", "content": "a"},
    "mistral": {
        "content": [
            {"type": "thinking", "thinking": [{"type": "text", "text": "r"}]},
            {"type": "text", "text": "a"},
        ]
    },
}


@each_of("dialect", DIALECTS)
@each_of("name", ["reasoning_content", "reasoning"])
def test_earlier_reasoning(dialect: str, name: str) -> None:
    told = {"role": "assistant", "content": "a", name: "r"}
    messages, changes = history(dialect, USER, told, USER)
    assert messages == [USER, {"role": "assistant", **REASONING[dialect]}, USER]
    if REASONING[dialect] == {"content": "a"}:
        assert changes == [f"messages.{name} dropped"]
    elif dialect == "mistral":
        assert changes == [f"messages.{name}->messages.content"]
    elif name in REASONING[dialect]:
        added = REASONING[dialect].keys() - {name, "content"}
        assert changes == [f"messages.{other} added" for other in added]
    else:
        there = next(key for key in REASONING[dialect] if key != "content")
        assert changes == [f"messages.{name}->messages.{there}"]


@each_of("dialect", DIALECTS)
def test_calls_without_their_reasoning(dialect: str) -> None:
    told = {"role": "assistant", "content": "", "tool_calls": [CALL]}
    result = {"role": "tool", "tool_call_id": "call_1", "content": "2"}
    messages, changes = history(dialect, USER, told, result, tools=[F])
    assert messages[1].get("reasoning_content") == (" " if dialect == "deepseek" else None)
    added = "messages.reasoning_content added"
    assert (added in changes) == (dialect == "deepseek")
    messages, _ = history(dialect, USER, told, result, tools=[F], reasoning_effort="none")
    assert "reasoning_content" not in messages[1]


@each_of("dialect", DIALECTS)
@each_of("calls", [[], None])
def test_no_calls_are_not_told(dialect: str, calls: object) -> None:
    """Several servers refuse a list without calls, which some clients send back."""
    told = {"role": "assistant", "content": "a", "tool_calls": calls}
    messages, changes = history(dialect, USER, told, USER)
    assert messages == [USER, {"role": "assistant", "content": "a"}, USER]
    assert changes == []


@each_of("dialect", DIALECTS)
def test_ids_of_calls(dialect: str) -> None:
    kept = {**CALL, "id": "Ab3456789"}
    told = {"role": "assistant", "content": "", "tool_calls": [CALL, kept]}
    results = [
        {"role": "tool", "tool_call_id": identifier, "content": "2", "name": "f"}
        for identifier in ("call_1", "Ab3456789")
    ]
    messages, changes = history(dialect, USER, told, *results)
    ids = [call["id"] for call in messages[1]["tool_calls"]]
    assert [message["tool_call_id"] for message in messages[2:]] == ids
    assert [message["name"] for message in messages[2:]] == ["f", "f"]
    if dialect == "mistral":
        assert all(len(identifier) == 9 and identifier.isalnum() for identifier in ids)
        assert ids[1] == "Ab3456789"
        assert changes == ["messages[1].tool_calls[0].id rewritten"]
    else:
        assert ids == ["call_1", "Ab3456789"]


@each_of("dialect", DIALECTS)
@each_of(
    ("arguments", "there"),
    [
        ("", "{}"),
        ("{bad", '{"malformed":"{bad"}'),
        ("[1]", '{"malformed":"[1]"}'),
        pytest.param("[" * 9999, '{"malformed":"' + "[" * 9999 + '"}', id="deep"),
        ('{"a": 1}', '{"a": 1}'),
    ],
)
def test_arguments_of_earlier_calls_are_objects(dialect: str, arguments: str, there: str) -> None:
    call = {**CALL, "function": {"name": "f", "arguments": arguments}}
    told = {"role": "assistant", "content": None, "tool_calls": [call]}
    result = {"role": "tool", "tool_call_id": "call_1", "content": "2"}
    messages, changes = history(dialect, USER, told, result)
    assert messages[1]["tool_calls"][0]["function"]["arguments"] == there
    repaired = "messages[1].tool_calls[0].function.arguments repaired" in changes
    assert repaired == (arguments != there)


@each_of("dialect", DIALECTS)
def test_roles_and_names(dialect: str) -> None:
    messages, changes = history(
        dialect, {"role": "developer", "content": "d"}, {**USER, "name": "bob"}
    )
    knows = dialect in ("generic", "causerie", "openai", "openrouter", *KIN_OF_OPENAI)
    assert messages[0]["role"] == ("developer" if knows else "system")
    assert ("name" in messages[1]) == (dialect not in NAMELESS)
    assert ("messages.role.developer->system" in changes) == (not knows)
    assert ("messages.name dropped" in changes) == (dialect in NAMELESS)


def test_parts_of_a_content_and_reasoning() -> None:
    part = {"type": "text", "text": "a"}
    told = {"role": "assistant", "content": [part], "reasoning_content": "r"}
    messages, _ = history("mistral", USER, told, USER)
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "r"}]}
    assert messages[1]["content"] == [thinking, part]


WAYS = {
    "generic": "flag",
    "causerie": "flag",
    "vllm": "flag",
    "sglang": "flag",
    "llama-server": "flag",
    "deepseek": "prefix",
    "mistral": "prefix",
    "anthropic": "flag",  # which its own form leaves out: the last message is continued
}


@each_of("dialect", DIALECTS)
def test_continuing_a_reply(dialect: str) -> None:
    partial = Partial(text="One, ", completion=3)
    way = WAYS.get(dialect)
    if way is None:
        with pytest.raises(InvalidRequest, match="continue_final_message"):
            sent(dialect, partial)
        return
    body, changes = sent(dialect, partial, max_tokens=10)
    last = {"role": "assistant", "content": "One, "}
    if way == "prefix":
        assert body["messages"][1:] == [{**last, "prefix": True}]
        assert "continue_final_message" not in body
    else:
        assert body["messages"][1:] == [last]
        assert (body["continue_final_message"], body["add_generation_prompt"]) == (True, False)
    assert body[next(name for name in body if name.startswith("max_"))] == 7
    assert changes == []


def test_continuing_lowers_the_limits() -> None:
    partial = Partial(text="One, ", completion=30)
    body, _ = sent("vllm", partial, max_tokens=10, min_tokens=8)
    assert (body["max_tokens"], body["min_tokens"]) == (1, 0)
    body, _ = sent("mistral", partial, max_completion_tokens=40)
    assert body["max_tokens"] == 10


def test_continuing_after_reasoning_and_after_a_client_s_own_message() -> None:
    partial = Partial(reasoning="r", text=" and more", completion=3)
    body, _ = sent("vllm", partial)
    assert body["messages"][-1] == {
        "role": "assistant", "content": " and more", "reasoning_content": "r", "reasoning": "r",
    }  # fmt: skip
    begun = [USER, {"role": "assistant", "content": [{"type": "text", "text": "so far"}]}]
    body, _ = sent("vllm", Partial(text=" and more"), messages=begun, continue_final_message=True)
    assert body["messages"] == [USER, {"role": "assistant", "content": "so far and more"}]


@each_of("dialect", DIALECTS)
def test_a_client_continues_its_own_message(dialect: str) -> None:
    begun = [USER, {"role": "assistant", "content": "One, "}]
    way = WAYS.get(dialect)
    if way is None:
        with pytest.raises(InvalidRequest) as refused:
            sent(dialect, messages=begun, continue_final_message=True)
        assert refused.value.param == "continue_final_message"
        return
    body, changes = sent(dialect, messages=begun, continue_final_message=True)
    if way == "prefix":
        assert body["messages"] == [USER, {**begun[1], "prefix": True}]
        assert changes == ["continue_final_message->messages.prefix"]
    else:
        assert body["messages"] == begun
        assert body["continue_final_message"] is True
        assert changes == []


def test_reasoning_that_goes_on_has_the_rest_of_its_budget() -> None:
    for thought, rest in ((30, 70), (120, 0)):
        partial = Partial(reasoning="Hm", completion=thought, reasoning_tokens=thought)
        body, _ = sent("llama-server", partial, thinking_token_budget=100)
        assert body["thinking_budget_tokens"] == rest
    assert sent("llama-server", thinking_token_budget=100)[0]["thinking_budget_tokens"] == 100
