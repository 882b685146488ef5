"""No request, and no reply of a provider, holds the event loop for long.

A generator puts what is expensive in one way (many numbers, keys, texts, deep nesting, one long
text) into each place of a request where something of its kind may stand, near the bounds of its
size. The time is that of the loop's own thread on a processor, for each callback of the loop: a
busy machine makes it no longer, and a slow one has as much more.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from loopkit import HI, OPEN_DOORS, Client, Watch, answering, called
from servicekit import service_view

pytestmark = pytest.mark.timing

_MOST = 2 * 1024 * 1024  # bytes of a body, an eighth of what is read at most
_WHOLE = 16 * 1024 * 1024 - 4096  # bytes of an event of a provider, about all that is read
# The fake engine has a token for each byte, four times as many as others have.
_SIZES = {"far": _MOST, "near": _MOST // 2}
_SEED = 22
_DOORS = {"far": "gateway", "near": "endpoint"}
_CONFIG = (
    OPEN_DOORS
    + """
[[providers]]
name = "a"
base_url = "{url}"
[[aliases]]
id = "far"
targets = [{{ provider = "a", model = "m" }}]
[[models]]
id = "near"
engine = "fake"
"""
)


def _nested(value: object, depth: int) -> object:
    for _ in range(depth):
        value = [value]
    return value


# Values of about so many bytes, each expensive in another way.
_VALUES: Mapping[str, Callable[[int], Any]] = {
    "text": lambda size: "hello wor " * (size // 10),
    "escapes": lambda size: "\n" * (size // 2),
    "foreign text": lambda size: "日本" * (size // 12),
    "marks": lambda size: "<|im_end|>" * (size // 10),
    "half marks": lambda size: "<|" * (size // 2),
    "numbers": lambda size: [1] * (size // 2),
    "texts": lambda size: ["0123456789"] * (size // 13),
    "different texts": lambda size: [f"t{number}" for number in range(size // 10)],
    "arrays": lambda size: [[]] * (size // 3),
    "objects": lambda size: [{}] * (size // 3),
    "small objects": lambda size: [{"type": "text", "text": "x"}] * (size // 27),
    "keys": lambda size: {f"k{number}": 1 for number in range(size // 10)},
    "keys of texts": lambda size: {f"k{number}": "x" for number in range(size // 12)},
    "keys of numbers": lambda size: {str(number): 1.5 for number in range(size // 11)},
    "deep arrays": lambda size: [_nested(1, 20)] * (size // 42),
}
# Places of a request, given the value that stands there.
_PLACES: Mapping[str, Callable[[Any], Mapping[str, Any]]] = {
    "content": lambda value: {"messages": [{"role": "user", "content": value}]},
    "system": lambda value: {"messages": [{"role": "system", "content": value}, *HI]},
    "answers": lambda value: {"messages": [*HI, {"role": "assistant", "content": value}, *HI]},
    "reasoning": lambda value: {"messages": [_said("reasoning_content", value), *HI]},
    "details": lambda value: {"messages": [_said("reasoning_details", value), *HI]},
    "role": lambda value: {"messages": [{"role": value, "content": "x"}]},
    "messages": lambda value: {"messages": value},
    "arguments": lambda value: {"messages": called(json.dumps(value, separators=(",", ":")))},
    "calls": lambda value: {"messages": [_said("tool_calls", value), *HI]},
    "image": lambda value: {"messages": [_shown({"url": value})]},
    "model": lambda value: {"model": value},
    "models": lambda value: {"models": value},
    "provider": lambda value: {"provider": {"order": value}},
    "prices": lambda value: {"provider": {"max_price": value}},
    "metadata": lambda value: {"metadata": value},
    "user": lambda value: {"user": value},
    "session": lambda value: {"session_id": value},
    "stop": lambda value: {"stop": value},
    "stop ids": lambda value: {"stop_token_ids": value},
    "biases": lambda value: {"logit_bias": value},
    "kwargs": lambda value: {"chat_template_kwargs": value},
    "kwarg": lambda value: {"chat_template_kwargs": {"x": value}},
    "documents": lambda value: {"documents": value},
    "tools": lambda value: {"tools": value},
    "description": lambda value: {"tools": [_tool({"description": value})]},
    "properties": lambda value: {"tools": [_tool({"type": "object", "properties": value})]},
    "enum": lambda value: _schema({"enum": value}),
    "const": lambda value: _schema({"const": value}),
    "pattern": lambda value: _schema({"type": "string", "pattern": value}),
    "definitions": lambda value: _schema({"$defs": value, "type": "string"}),
    "any of": lambda value: _schema({"anyOf": value}),
    "required": lambda value: _schema({"type": "object", "required": value}),
    "options": lambda value: {"structured_outputs": {"choice": value}},
    "regex": lambda value: {"structured_outputs": {"regex": value}},
    "grammar": lambda value: {"structured_outputs": {"grammar": value}},
    "stream options": lambda value: {"stream": True, "stream_options": value},
    "prediction": lambda value: {"prediction": value},
    "unknown": lambda value: {"unknown": value},
    "unknown fields": lambda value: value if isinstance(value, dict) else {"x": value},
}


def _said(name: str, value: Any) -> Mapping[str, Any]:
    return {"role": "assistant", "content": "b", name: value}


def _shown(image: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"role": "user", "content": [{"type": "image_url", "image_url": image}]}


def _tool(parameters: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"type": "function", "function": {"name": "f", "parameters": parameters}}


def _schema(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    form = {"type": "json_schema", "json_schema": {"name": "s", "schema": schema}}
    return {"response_format": form}


# Requests that are as they should be, with as much as is taken.
_HONEST: Mapping[str, Callable[[], Mapping[str, Any]]] = {
    "messages": lambda: {"messages": [{"role": "user", "content": "x" * 450}] * 4095},
    "parts": lambda: {"messages": [_parts(400)] * 100},
    "turns": lambda: {"messages": called('{"a":1}') * 1300},
    "arguments": lambda: {"messages": called(json.dumps({f"k{n}": n for n in range(40_000)}))},
    "biases": lambda: {"logit_bias": {str(token): 1.5 for token in range(65_000)}},
    "stop ids": lambda: {"stop_token_ids": list(range(65_000))},
    "options": lambda: {"structured_outputs": {"choice": [f"{n} " * 20 for n in range(4_000)]}},
    "long options": lambda: {"structured_outputs": {"choice": ["x" * 100_000 for _ in range(5)]}},
    "one option": lambda: {"structured_outputs": {"choice": ["x" * _MOST]}},
    "grammar": lambda: {"structured_outputs": {"grammar": "start: " + '"a" ' * 24_000}},
    "regex": lambda: {"structured_outputs": {"regex": "(a|b)" * 20_000}},
    "properties": lambda: _schema(_object(1_900)),
    "enum": lambda: _schema({"enum": [f"v{number}" for number in range(20_000)]}),
    "tools": lambda: {"tools": [_named_tool(number) for number in range(128)]},
}


def _parts(count: int) -> Mapping[str, Any]:
    return {"role": "user", "content": [{"type": "text", "text": "x" * 10}] * count}


def _object(count: int) -> Mapping[str, Any]:
    properties = {f"p{number}": {"type": "string"} for number in range(count)}
    return {"type": "object", "properties": properties}


def _named_tool(number: int) -> Mapping[str, Any]:
    return {"type": "function", "function": {"name": f"f{number}", "parameters": _object(20)}}


def _drawn(count: int) -> list[tuple[str, str]]:
    """So many pairs of a place and a value; every place is in some, and every value."""
    draw = random.Random(_SEED)
    values = list(_VALUES)
    pairs = [(place, draw.choice(values)) for place in _PLACES]
    every = [(place, value) for place in _PLACES for value in values]
    return list(dict.fromkeys([*pairs, *draw.sample(every, count - len(pairs))]))


def _filled(model: str, place: str, value: str) -> Callable[[], Mapping[str, Any]]:
    return lambda: _PLACES[place](_VALUES[value](_SIZES[model]))


def _event(logprobs: Any = None, **delta: Any) -> bytes:
    choice = {"index": 0, "delta": delta, "logprobs": logprobs, "finish_reason": None}
    return b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n"


def _call(**function: Any) -> bytes:
    return _event(tool_calls=[{"index": 0, "function": function}])


def _logprobs(count: int) -> Mapping[str, Any]:
    token = {"token": "x", "logprob": -1.5, "bytes": [120], "top_logprobs": []}
    return {"content": [token] * count}


_END = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
_BEGUN = _event(tool_calls=[{"index": 0, "id": "c", "function": {"name": "f", "arguments": ""}}])
_STREAMS: Mapping[str, Callable[[], bytes]] = {
    "pieces": lambda: _event(content="x") * 20_000,
    "one piece": lambda: _event(content="x" * _MOST),
    "white space": lambda: _event(content=" \n" * 300) * 1_500,
    "arguments": lambda: _BEGUN + _call(arguments="1") * 20_000,
    "names": lambda: _BEGUN + _call(name="f", arguments="1") * 10_000,
    "calls without index": lambda: _event(tool_calls=[{"function": {"name": "f"}}]) * 10_000,
    "many calls": lambda: _event(tool_calls=[{"index": n, "id": f"c{n}"} for n in range(20_000)]),
    "many choices": lambda: b"data: " + json.dumps({"choices": [{}] * 200_000}).encode() + b"\n\n",
    "data lines": lambda: b"data: 1\n" * 100_000 + b"\n",
    "comments": lambda: b": x\n\n" * 200_000,
    "no line": lambda: b"x" * _MOST,
    "large text": lambda: _event(content="hello wor " * (_WHOLE // 10)),
    "large text of lines": lambda: _event(content="hello world\n" * (_WHOLE // 13)),
    "large reasoning": lambda: _event(reasoning_content="<think> " * (_WHOLE // 8)),
    "large arguments": lambda: _BEGUN + _call(arguments="1" * _WHOLE),
    "large parts": lambda: _event(content=[{"type": "text", "text": "t" * 4_000}] * 4_000),
    "most choices": lambda: b'data: {"choices":[' + b"{}," * (_WHOLE // 3) + b"{}]}\n\n",
    "large and cut off": lambda: _event(content="hello wor " * (_WHOLE // 10))[:-3],
    "log-probabilities": lambda: _event(content="x", logprobs=_logprobs(60_000)),
    "empty lines": lambda: b"\n" * _MOST,
    "reasoning": lambda: _event(reasoning_content="think ") * 15_000,
    "details": lambda: _event(reasoning_details=[{"type": "reasoning.text", "text": "t"}]) * 9_000,
}


@pytest.mark.parametrize("model", _DOORS)
async def test_no_request_holds_the_loop(tmp_path: Path, model: str) -> None:
    cases = {f"{place} of {value}": _filled(model, place, value) for place, value in _drawn(45)}
    cases |= {f"honest {name}": make for name, make in _HONEST.items()}
    slow: dict[str, str] = {}
    with answering() as provider:
        async with service_view(tmp_path, _CONFIG.format(url=provider.url)) as home:
            client = Client(home)
            assert await client.post(_DOORS[model], model, {}) == 200
            for name, make in cases.items():
                fields = make()
                watch = Watch()
                with watch.looking():
                    status = await client.post(_DOORS[model], model, fields)
                if watch.too_long or status >= 500:
                    slow[name] = f"{status}: {watch.longest:.3f} s in {watch.what}"
    assert not slow


def _names(count: int) -> list[str]:
    return [f"p{number}" for number in range(count)]


def _condition(number: int, names: Sequence[str]) -> Mapping[str, Any]:
    then, otherwise = names[(number + 1) % len(names)], names[(number + 2) % len(names)]
    known = {"properties": {names[number]: {"const": "a"}}, "required": [names[number]]}
    return {"if": known, "then": {"required": [then]}, "else": {"required": [otherwise]}}


def _inside(depth: int) -> Mapping[str, Any]:
    schema: Mapping[str, Any] = {"type": "string"}
    for _ in range(depth):
        schema = {
            "type": "object",
            "properties": {"a": schema, "b": {"type": "integer"}},
            "if": {"properties": {"b": {"const": 1}}},
            "then": {"required": ["a"]},
            "dependentRequired": {"a": ["b"]},
            "minProperties": 1,
        }
    return schema


# Rules whose grammars grow faster than they do, each of about as many parts as the number says.
_RULES: Mapping[str, Callable[[int], Mapping[str, Any]]] = {
    "patterns": lambda count: {
        "patternProperties": {f"^k{n}$": {"minLength": n} for n in range(count)}
    },
    "open patterns": lambda count: {
        "patternProperties": {f"p.*{n}": {"minLength": n} for n in range(count)}
    },
    "patterns and names": lambda count: {
        **_object(count),
        "patternProperties": {f"p.*{n}": {"minLength": n} for n in range(count)},
    },
    "conditions": lambda count: {
        **_object(count), "allOf": [_condition(n, _names(count)) for n in range(count)],
    },
    "conditions inside": lambda count: _inside(min(count // 4, 40)),
    "exclusions": lambda count: {
        "type": "string", "not": {"anyOf": [{"pattern": f"(a|b)*c{{{n}}}"} for n in range(count)]},
    },
    "one of": lambda count: {
        "oneOf": [{**_object(5), "required": [f"p{n % 5}"]} for n in range(count)]
    },
    "dependencies": lambda count: {
        **_object(count), "dependentSchemas": dict.fromkeys(_names(count), _object(9)),
    },
    "items": lambda count: {
        "allOf": [{"contains": {"const": n}, "minContains": 2} for n in range(count)]
    },
    "anchors": lambda count: {
        "$defs": {f"d{n}": {"$id": f"http://x/{n}", "$anchor": f"a{n}"} for n in range(count)},
        "allOf": [{"$ref": f"http://x/{n}#a{n}"} for n in range(count)],
    },
}  # fmt: skip


@pytest.mark.parametrize("count", [60, 160, 1_000])
async def test_no_rule_of_a_schema_holds_the_loop(tmp_path: Path, count: int) -> None:
    slow: dict[str, str] = {}
    config = '[[doors]]\nname = "endpoint"\nkeys = "off"\n[[models]]\nid = "m"\nengine = "fake"\n'
    async with service_view(tmp_path, config) as home:
        client = Client(home)
        assert await client.post("endpoint", "m", {}) == 200
        for name, rule in _RULES.items():
            watch = Watch()
            with watch.looking():
                await client.post("endpoint", "m", _schema(rule(count)))
            if watch.too_long:
                slow[name] = f"{watch.longest:.3f} s in {watch.what}"
    assert not slow


# Of 49,152 tokens of the real model.
_AT_THE_ENGINE: Mapping[str, Mapping[str, Any]] = {
    "biases": {"logit_bias": {str(token): 1.5 for token in range(49_000)}},
    "text for the template": {"chat_template_kwargs": {"x": "hello wor " * 200_000}},
    "keys for the template": {"chat_template_kwargs": {f"k{n}": 1 for n in range(70_000)}},
    "options": {"structured_outputs": {"choice": [f"{n} " * 20 for n in range(4_000)]}},
    "messages": {"messages": [{"role": "user", "content": "x" * 4_000}] * 4_094},
}


async def test_no_request_to_a_real_engine_holds_the_loop(tmp_path: Path, gguf: Path) -> None:
    slow: dict[str, str] = {}
    config = f'[[doors]]\nname = "endpoint"\nkeys = "off"\n[[models]]\nid = "m"\nref = "{gguf}"\n'
    async with service_view(tmp_path, config) as home:
        client = Client(home)
        assert await client.post("endpoint", "m", {}) == 200
        for name, fields in _AT_THE_ENGINE.items():
            watch = Watch()
            with watch.looking():
                status = await client.post("endpoint", "m", fields)
            if watch.too_long or status != (400 if name == "messages" else 200):
                slow[name] = f"{status}: {watch.longest:.3f} s in {watch.what}"
    assert not slow


@pytest.mark.parametrize("stream", [False, True])
async def test_no_reply_holds_the_loop(tmp_path: Path, stream: bool) -> None:
    slow: dict[str, str] = {}
    with answering() as provider:
        async with service_view(tmp_path, _CONFIG.format(url=provider.url)) as home:
            client = Client(home)
            assert await client.post("gateway", "far", {}) == 200
            for name, make in _STREAMS.items():
                provider.reply = ("text/event-stream", make() + _END)
                watch = Watch()
                with watch.looking():
                    told = name == "log-probabilities"
                    await client.post("gateway", "far", {"stream": stream, "logprobs": told})
                if watch.too_long:
                    slow[name] = f"{watch.longest:.3f} s in {watch.what}"
    assert not slow
