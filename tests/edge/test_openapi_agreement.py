"""The document and the server agree on every request, taken or refused.

Random requests seldom differ from a good one in a single place; here every place of a
request that uses everything is given every odd value, and the schema's word on the
outcome is held against the server's.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import pytest
from casekit import first_of
from edgekit import ScriptedPipeline, call, make_edge
from openapikit import judged

from causerie.http.openapi import document

Path = tuple[str | int, ...]

SMALL: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
MESSAGES: list[dict[str, Any]] = [
    {"role": "system", "content": "a"},
    {"role": "developer", "content": [{"type": "text", "text": "x"}]},
    {"role": "user", "content": "hi", "name": "bob"},
    {"role": "assistant", "content": "", "reasoning_content": "r", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": "ok"},
    {"role": "user", "content": [{"type": "text", "text": "x"}]},
]
WHOLE: dict[str, Any] = {
    "model": "m",
    "messages": MESSAGES,
    "tools": [
        {
            "type": "function",
            "function": {
                "name": "f",
                "description": "d",
                "parameters": {"type": "object", "properties": {"a": {"type": "string"}}},
                "strict": True,
            },
        }
    ],
    "tool_choice": "auto",
    "temperature": 1,
    "top_p": 0.9,
    "top_k": 4,
    "min_p": 0.1,
    "max_tokens": 20,
    "stop": ["a"],
    "seed": 1,
    "n": 1,
    "logprobs": True,
    "top_logprobs": 2,
    "logit_bias": {"5": 1},
    "presence_penalty": 0,
    "frequency_penalty": 0,
    "repetition_penalty": 1,
    "stream": False,
    "response_format": {
        "type": "json_schema",
        "json_schema": {"name": "n", "schema": {"type": "object"}, "strict": True},
    },
    "user": "u",
    "metadata": {"a": "b"},
    "parallel_tool_calls": True,
    "chat_template_kwargs": {"enable_thinking": True},
}
VALUES: tuple[object, ...] = (
    *(None, True, False, 0, 1, -1, 2, 2.5, 1e308, -0.0, 10**30, -(10**30), 1.0, 5.0),
    *("", "0", "a" * 70, "\x00", "auto", "none", "required", "x.y", "x y", "é", "-", "a-b"),
    *([], [None], [""], ["a"] * 5, [[]], [{}], [0], ["x", None]),
    *({}, {"": None}, {"0": 0}, {"a": 1}, {"x": 1}, {"5": 101}, {"5": -100}, {"5": None}),
    *({"type": "text"}, {"type": "text", "x": 1}, {"type": "json_object"}, {"format": "x"}),
    *({"type": "function"}, {"type": "function", "function": {}}, {"include_usage": None}),
    {"type": "function", "function": {"name": "f"}},
)

# What no schema says: two places that have to fit each other.
ACROSS = (
    "needs `logprobs: true`",
    "but `tools` defines no function",
    "which `tools` does not define",
    "needs an assistant message",
    "which no earlier assistant message has",
)


def places(value: object, here: Path = ()) -> Iterator[Path]:
    if here:
        yield here
    inner = value.items() if isinstance(value, dict) else ()
    inner = enumerate(value) if isinstance(value, list) else inner
    for name, below in inner:
        yield from places(below, (*here, name))


def changes(place: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The whole request with something else, nothing, or something more at a place."""
    for value in VALUES:
        body, holder = _reached(place)
        holder[place[-1]] = value
        yield f"{value!r}", body
    body, holder = _reached(place)
    del holder[place[-1]]
    yield "nothing", body
    body, holder = _reached(place)
    if isinstance(holder[place[-1]], dict):
        holder[place[-1]]["unheard_of"] = 1
        yield "something more", body


def _reached(place: Path) -> tuple[dict[str, Any], Any]:
    body = copy.deepcopy(WHOLE)
    holder: Any = body
    for step in place[:-1]:
        holder = holder[step]
    return body, holder


class Agreement:
    """One server and what its document says."""

    def __init__(self) -> None:
        components = document(4096)["components"]
        self._edge = make_edge(ScriptedPipeline(any_model=True))
        self._schema = jsonschema_rs.Draft202012Validator(
            {"$ref": "#/components/schemas/ChatRequest", "components": components}
        )

    async def hold(self, what: str, body: dict[str, Any]) -> None:
        answer = await call(self._edge, "/v1/chat/completions", body)
        promised = self._schema.is_valid(judged(body))
        if answer.status == 400 and promised:
            message = answer.json()["error"]["message"]
            assert any(words in message for words in ACROSS), f"{what}: {message}"
        else:
            assert answer.status == (200 if promised else 400), what


@pytest.fixture(scope="module")
def agreement() -> Agreement:
    return Agreement()


@pytest.mark.parametrize(
    "name", sorted(document(4096)["components"]["schemas"]["ChatRequest"]["properties"])
)
async def test_any_value_of_a_parameter(agreement: Agreement, name: str) -> None:
    for value in VALUES:
        await agreement.hold(f"{name}={value!r}", SMALL | {name: value})


@pytest.mark.parametrize(
    "place",
    first_of([(place,) for place in places(WHOLE)], every=3),
    ids=lambda p: ".".join(map(str, p)),
)
async def test_any_change_of_a_request(agreement: Agreement, place: Path) -> None:
    for change, body in changes(place):
        await agreement.hold(f"{place}: {change}", body)
