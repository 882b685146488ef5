"""Every combination of the fields about thinking, for every dialect, against a reading of its own.

What a server is sent is read the way that server reads it, and must mean what
was asked; what cannot be meant together, or cannot be said there, is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import msgspec
from casekit import each_of

from causerie.errors import InvalidRequest
from causerie.protocol.parameters import ParsingRules
from causerie.providers.dialects import DIALECTS
from causerie.providers.outgoing import outgoing
from causerie.shapes.chat_completions.reader import parse

LIMIT = 1000
LEAST_BUDGET = 1024
BUDGET = 250  # a quarter of the limit: within `low`, not within `medium`
EFFORTS = ("minimal", "low", "medium", "high", "xhigh", "max")
SAME = dict(zip(EFFORTS, EFFORTS, strict=True))
WORDS: Mapping[str, Mapping[str, str]] = {
    "generic": SAME,
    "causerie": SAME,
    "openai": SAME | {"max": "xhigh"},
    "vllm": SAME,
    "sglang": SAME,
    "llama-server": SAME,
    "ollama": {**SAME, "minimal": "low", "xhigh": "high", "max": "high"},
    "lmstudio": {**SAME, "minimal": "low", "max": "xhigh"},
    "openrouter": SAME,
    "deepseek": {**SAME, "minimal": "low", "medium": "high", "xhigh": "high"},
    "mistral": dict.fromkeys(EFFORTS, "high"),
    "anthropic": SAME | {"minimal": "low"},
    "azure": SAME | {"max": "xhigh"},
    "azure-deployments": SAME | {"max": "xhigh"},
    "bedrock": SAME | {"max": "xhigh"},
}
AZURE = ("azure", "azure-deployments", "bedrock")
ONLY_WORDS = ("openai", "ollama", "lmstudio", "deepseek", *AZURE)
NO_BUDGET = ("sglang", "mistral")


@dataclass(frozen=True)
class Meant:
    """On or off or up to the model; an effort in the server's word; a budget in tokens."""

    on: bool | None = None
    effort: str | None = None
    budget: int | None = None


def combinations() -> Iterator[dict[str, Any]]:
    objects: list[dict[str, Any] | None] = [None]
    for enabled, inside, exclude in product(
        (None, True, False),
        ({}, {"effort": "none"}, {"effort": "low"}, {"effort": "max"}, {"max_tokens": 0},
         {"max_tokens": BUDGET}, {"effort": "low", "max_tokens": BUDGET}),
        (None, True),
    ):  # fmt: skip
        objects.append({"enabled": enabled, **inside, "exclude": exclude})
    for enable, effort, budget, thought in product(
        (None, True, False), (None, "none", "low", "max"), (None, 0, BUDGET), objects
    ):
        kwargs = None if enable is None else {"enable_thinking": enable}
        yield {
            "chat_template_kwargs": kwargs,
            "reasoning_effort": effort,
            "thinking_token_budget": budget,
            "reasoning": thought,
        }


COMBINATIONS = tuple(combinations())


def meant(asked: Mapping[str, Any]) -> Meant | None:
    """Return the meaning of the fields together, ``None`` if they contradict."""
    inside = asked["reasoning"] or {}
    efforts = {asked["reasoning_effort"], inside.get("effort")} - {None}
    budgets = {asked["thinking_token_budget"], inside.get("max_tokens")} - {None}
    switches = {(asked["chat_template_kwargs"] or {}).get("enable_thinking"), inside.get("enabled")}
    switches |= {effort != "none" for effort in efforts}
    switches |= {False for budget in budgets if budget == 0}
    switches |= {True} if inside.get("max_tokens") else set()
    switches -= {None}
    if max(len(efforts), len(budgets), len(switches)) > 1:
        return None
    if {"effort", "max_tokens"} <= inside.keys() or (switches == {False} and budgets - {0}):
        return None
    on = next(iter(switches), None)
    if on is False:
        return Meant(False)
    return Meant(on, next(iter(efforts), None), next(iter(budgets), None))


def expected(dialect: str, asked: Mapping[str, Any]) -> Meant | None:
    """Return the meaning for a server of that dialect, ``None`` for a refusal."""
    wish = meant(asked)
    if wish is None or wish.on is False:
        return wish
    words = WORDS[dialect]
    effort, budget = wish.effort, wish.budget
    if budget is not None and dialect in (*NO_BUDGET, *ONLY_WORDS):
        if dialect in NO_BUDGET or effort or asked["thinking_token_budget"]:
            return None
        effort, budget = "low", None
    if dialect == "openrouter" and budget:  # where a budget turns thinking on
        return None if effort else Meant(True, None, budget)
    if dialect == "anthropic":  # where a budget turns thinking on, and is of some size
        on = True if effort or budget else wish.on
        return Meant(on, words[effort] if effort else None, budget and LEAST_BUDGET)
    if dialect in ("openai", "ollama", "lmstudio", "mistral", *AZURE) and wish.on and not effort:
        effort = "medium"  # on can only be said by a word
    return Meant(wish.on, words[effort] if effort else None, budget)


def heard(dialect: str, body: Mapping[str, Any]) -> Meant:
    """Return the meaning that a server of that dialect reads, by its own documentation."""
    kwargs = body.get("chat_template_kwargs", {})
    effort = body.get("reasoning_effort")
    match dialect:
        case (
            "openai" | "ollama" | "lmstudio" | "mistral" | "azure" | "azure-deployments" | "bedrock"
        ):
            on = None if effort is None else effort != "none"
            return Meant(on, effort if on else None)
        case "deepseek":
            switch = {"enabled": True, "disabled": False, None: None}
            return Meant(switch[body.get("thinking", {}).get("type")], effort)
        case "anthropic":
            thinking = body.get("thinking", {})
            on = {"adaptive": True, "enabled": True, "disabled": False, None: None}
            effort = body.get("output_config", {}).get("effort")
            return Meant(on[thinking.get("type")], effort, thinking.get("budget_tokens"))
        case "openrouter":
            inside = body.get("reasoning", {})
            effort = inside.get("effort")
            if effort == "none":
                return Meant(False)
            on = True if effort or inside.get("max_tokens") else inside.get("enabled")
            return Meant(on, effort, inside.get("max_tokens"))
        case "vllm" | "sglang" | "llama-server":
            name = (
                "thinking_budget_tokens" if dialect == "llama-server" else "thinking_token_budget"
            )
            if dialect == "llama-server":
                effort = kwargs.get("reasoning_effort")
            return Meant(kwargs.get("enable_thinking"), effort, body.get(name))
    budget = body.get("thinking_token_budget")
    on = kwargs.get("enable_thinking")
    if effort == "none" or budget == 0 or on is False:
        return Meant(False)
    return Meant(True if effort else on, effort, budget)


def told(dialect: str, asked: Mapping[str, Any]) -> Meant | None:
    """Return the meaning that the server is really sent."""
    body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": LIMIT}
    try:
        request = parse(msgspec.json.encode(body | asked), ParsingRules(reasoning_object=True))
        out = outgoing(request, DIALECTS[dialect], "m")
    except InvalidRequest:
        return None
    inside = asked["reasoning"] or {}
    assert request.thinking.visible is not inside.get("exclude", False) or not inside
    sent = msgspec.json.decode(out.body)
    assert b"exclude" not in out.body
    assert "reasoning" not in sent or dialect == "openrouter"  # rule G of the interface
    return heard(dialect, sent)


@each_of("dialect", DIALECTS)
def test_every_combination(dialect: str) -> None:
    wrong = [
        (asked, told(dialect, asked), expected(dialect, asked))
        for asked in COMBINATIONS
        if told(dialect, asked) != expected(dialect, asked)
    ]
    assert wrong == []


@each_of("dialect", DIALECTS)
def test_what_is_said_otherwise_is_named(dialect: str) -> None:
    """A field that does not go out as it was sent is named in the changes."""
    for asked in COMBINATIONS:
        given = [name for name, value in asked.items() if value is not None]
        if len(given) != 1 or expected(dialect, asked) in (None, Meant()):
            continue
        [name] = given
        body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], **asked}
        request = parse(msgspec.json.encode(body), ParsingRules(reasoning_object=True))
        out = outgoing(request, DIALECTS[dialect], "m")
        sent = msgspec.json.decode(out.body).get(name)
        if (name != "reasoning" and sent != asked[name]) or (
            name == "reasoning" and dialect != "openrouter"
        ):
            assert any(change.startswith(name) for change in out.changes), asked


def test_most_combinations_contradict_and_enough_do_not() -> None:
    sound = sum(meant(asked) is not None for asked in COMBINATIONS)
    assert (len(COMBINATIONS), sound > 150) == (1548, True)
