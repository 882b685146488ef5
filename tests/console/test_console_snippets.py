"""Code to copy: the packages take what it says, whatever the names in it."""

from __future__ import annotations

import ast
import inspect
import json
import shlex
import tomllib
from collections.abc import Callable
from typing import Any

import openai
import pytest
from laterkit import later

from causerie.http.pages.snippets import APIS, request_snippets

CALLS: dict[str, Callable[..., Any]] = {
    "chat": lambda: openai.OpenAI(api_key="x").chat.completions.create,
    "responses": lambda: openai.OpenAI(api_key="x").responses.create,
    "messages": lambda: later("anthropic").Anthropic(api_key="x").messages.create,
}
HOSTILE = 'it\'s "a" 🙂/$(id) <key> \\ model'


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.id)
def test_the_python_package_has_these_arguments(api: Any) -> None:
    assert set(api.arguments) <= inspect.signature(CALLS[api.id]()).parameters.keys()


def test_names_stay_what_they_are_in_each_language() -> None:
    groups = {each.id: each for each in request_snippets("http://h/v1", "ck_1", HOSTILE)}
    code = {(id, each.id): each.text for id, group in groups.items() for each in group.snippets}
    for (_, language), text in code.items():
        if language == "python":
            named = {
                keyword.arg: keyword.value
                for call in ast.walk(ast.parse(text))
                if isinstance(call, ast.Call)
                for keyword in call.keywords
            }
            assert ast.literal_eval(named["model"]) == HOSTILE
        elif language == "curl":
            assert json.loads(shlex.split(text)[-1])["model"] == HOSTILE
    assert shlex.split(code["claude", "environment"])[-1] == (
        f"ANTHROPIC_DEFAULT_HAIKU_MODEL={HOSTILE}"
    )
    assert tomllib.loads(code["codex", "file"])["model"] == HOSTILE


def test_a_door_that_clients_of_messages_do_not_reach_says_so() -> None:
    groups = {each.id: each for each in request_snippets("http://h/team", "ck_1", "m")}
    curl, *others = (each.text for each in groups["messages"].snippets)
    assert "http://h/team/messages" in curl
    for text in (*others, groups["claude"].snippets[0].text):
        assert "does not end in /v1" in text
        assert "ck_1" not in text
