"""What a conversation carries, put into a request of each API and sent to each kind of target.

The page about it and the test of it ask the same: each thing is put into a request with a value
that nothing else has, and what a target gets is compared with the same request without it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from typing import Any

import msgspec
from msgspec import structs

from causerie.chat.chat import TextChat
from causerie.chat.compiler import Compiler, Vocabulary
from causerie.engines.registry import FAKE_TEMPLATE, FakeEngine, FakeScript
from causerie.errors import InvalidRequest
from causerie.protocol.events import (
    Event,
    Finished,
    ReasoningDelta,
    ToolCallDelta,
    ToolCallStarted,
    Usage,
)
from causerie.protocol.parameters import ParsingRules
from causerie.protocol.reasoning import MESSAGES_FORMAT, seal_of
from causerie.protocol.response import CompletionIdentity, ResponseContext
from causerie.providers.dialects import DIALECTS
from causerie.providers.outgoing import outgoing
from causerie.shapes.chat_completions.reader import CHAT_COMPLETIONS
from causerie.shapes.messages.reader import MESSAGES
from causerie.shapes.responses.reader import RESPONSES
from causerie.shapes.sealed_reasoning import Digest, SealedReasoning, seal
from causerie.shapes.shape import CHANGES, ParsedRequest

Body = dict[str, Any]
Put = Callable[[Body, Any], object]
OWN = "own model"
TARGETS = (OWN, "generic", "openai", "causerie", "openrouter", "anthropic")
CLIENTS = ("chat completions", "responses", "messages")
_SHAPES = dict(zip(CLIENTS, (CHAT_COMPLETIONS, RESPONSES, MESSAGES), strict=True))
_RULES = ParsingRules(reasoning_object=True)
_SAID = "(message.content or '') }}"
_TEMPLATE = FAKE_TEMPLATE.replace(
    _SAID, f"('<think>' + (message.reasoning_content or '') + '</think>') + {_SAID}"
)
_SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}


@dataclass(frozen=True)
class Thing:
    """A thing that a request may carry, and how each API says it; an API without a word has none.

    ``values`` are examples, or what makes one of a text that occurs nowhere else.
    """

    name: str
    puts: Mapping[str, Put]
    values: Sequence[Any] | Callable[[str], Any] = str
    hint: bool = False
    """Nothing in the reply depends on it, so that an own model does not say that it goes without.
    """
    words: bool = False
    """Its text may have any letters."""

    def example(self, text: str = "zqabcdef") -> Any:
        return self.values(text) if callable(self.values) else self.values[0]


@dataclass(frozen=True)
class Outcome:
    """What becomes of a thing at a target."""

    refused: str = ""
    """The field that an error names."""
    kept: tuple[str, ...] = ()
    """Where the very value arrives."""
    moved: tuple[str, ...] = ()
    """What is sent else."""
    told: tuple[str, ...] = ()
    """Changes that the header reports on its account."""

    @property
    def silent(self) -> bool:
        """Return whether it is lost and nobody says so."""
        return not (self.refused or self.kept or self.moved or self.told)


# A request of each API: instructions, a call with its result, and a question.


def _chat() -> Body:
    call = {"id": "call_a", "type": "function", "function": {"name": "add", "arguments": "{}"}}
    function = {"name": "add", "parameters": _SCHEMA}
    return {
        "model": "m",
        "messages": [
            {"role": "system", "content": [{"type": "text", "text": "Be brief."}]},
            {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
            {"role": "assistant", "content": "I look.", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "call_a", "content": "3"},
            {"role": "user", "content": "Go on."},
        ],
        "tools": [{"type": "function", "function": function}],
        "max_tokens": 6000,
    }


def _responses() -> Body:
    part = {"type": "input_text", "text": "Hi"}
    return {
        "model": "m",
        "instructions": "Be brief.",
        "input": [
            {"type": "message", "role": "user", "content": [part]},
            {"type": "message", "role": "assistant", "content": "I look."},
            {"type": "function_call", "call_id": "call_a", "name": "add", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "call_a", "output": "3"},
            {"type": "message", "role": "user", "content": "Go on."},
        ],
        "tools": [{"type": "function", "name": "add", "parameters": _SCHEMA}],
        "max_output_tokens": 6000,
    }


def _messages() -> Body:
    call = {"type": "tool_use", "id": "call_a", "name": "add", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "call_a", "content": "3"}
    return {
        "model": "m",
        "system": [{"type": "text", "text": "Be brief."}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
            {"role": "assistant", "content": [{"type": "text", "text": "I look."}, call]},
            {"role": "user", "content": [result]},
            {"role": "user", "content": "Go on."},
        ],
        "tools": [{"name": "add", "input_schema": _SCHEMA}],
        "max_tokens": 6000,
    }


_PLAIN = {"chat completions": _chat, "responses": _responses, "messages": _messages}


def at(*path: str | int, value: Callable[[Any], Any] = lambda given: given) -> Put:
    """Return what sets a field; for a number at the end, what inserts an element there."""

    def put(body: Body, given: Any) -> None:
        holder: Any = body
        for step in path[:-1]:
            holder = holder.setdefault(step, {}) if isinstance(holder, dict) else holder[step]
        last = path[-1]
        if isinstance(holder, list):
            holder.insert(len(holder) if last == -1 else int(last), value(given))
        else:
            holder[last] = value(given)

    return put


def everywhere(*path: str | int) -> Mapping[str, Put]:
    """Return the same field of all APIs."""
    return dict.fromkeys(CLIENTS, at(*path))


def _sealed(**block: Any) -> Callable[[Any], Any]:
    def item(given: Any) -> Any:
        filled = {name: given if each is ... else each for name, each in block.items()}
        data = seal(SealedReasoning("", [filled]))
        return {"type": "reasoning", "summary": [], "encrypted_content": data}

    return item


def _details(**block: Any) -> Put:
    return at(
        "messages", 2, "reasoning_details",
        value=lambda given: [
            {name: given if each is ... else each for name, each in block.items()}
        ],
    )  # fmt: skip


def _thinking(given: Any) -> Any:
    digest = Digest()
    digest.add(given)
    return {"type": "thinking", "thinking": given, "signature": digest.signature()}


_TURN = ("messages", 1, "content")
_SIGNED = {"type": "reasoning.text", "text": "So.", "signature": ..., "format": MESSAGES_FORMAT}
_REDACTED = {"type": "reasoning.encrypted", "data": ..., "format": MESSAGES_FORMAT}
_OF_OPENAI = {"type": "reasoning.encrypted", "data": ..., "format": "openai-responses-v1"}
_URL = "data:image/png;base64,"
_MARK = ({"type": "ephemeral"},)


def _extra(given: Any) -> Any:
    return {"google": {"thought_signature": given}}


def _extra_block(given: Any) -> Any:
    return seal(SealedReasoning("", [seal_of("call_a", _extra(given))]))


def _schema_of(given: Any) -> Any:
    return {
        "type": "object", "properties": {given: {"type": "string"}}, "required": [given],
        "additionalProperties": False,
    }  # fmt: skip


def _named(holder: str) -> Put:
    """Rename the function in its definition and its call."""

    def put(body: Body, given: Any) -> None:
        tool = body["tools"][0]
        (tool.get("function") or tool)["name"] = given
        match holder:
            case "chat completions":
                body["messages"][2]["tool_calls"][0]["function"]["name"] = given
            case "responses":
                body["input"][2]["name"] = given
            case _:
                body["messages"][1]["content"][1]["name"] = given

    return put


def _image_of(given: Any) -> Any:
    source = {"type": "base64", "media_type": "image/png", "data": given}
    return {"type": "image", "source": source}


def _tool(kind: str) -> Callable[[Any], Any]:
    return lambda given: {"type": kind, "name": given}


THINGS: Sequence[Thing] = (
    Thing("reasoning, as text", {
        "chat completions": at("messages", 2, "reasoning_content"),
        "responses": at("input", 2, value=lambda given: {
            "type": "reasoning", "summary": [],
            "content": [{"type": "reasoning_text", "text": given}],
        }),
        "messages": at(*_TURN, 0, value=_thinking),
    }, words=True),
    Thing("signature of reasoning", {
        "chat completions": _details(**_SIGNED),
        "responses": at("input", 2, value=_sealed(**_SIGNED)),
        "messages": at(*_TURN, 0, value=lambda given: {
            "type": "thinking", "thinking": "So.", "signature": given,
        }),
    }),
    Thing("redacted reasoning of Anthropic", {
        "chat completions": _details(**_REDACTED),
        "responses": at("input", 2, value=_sealed(**_REDACTED)),
        "messages": at(*_TURN, 0, value=lambda given: {
            "type": "redacted_thinking", "data": given,
        }),
    }),
    Thing("encrypted reasoning of other providers", {
        "chat completions": _details(**_OF_OPENAI),
        "responses": at("input", 2, value=_sealed(**_OF_OPENAI)),
        "messages": at(*_TURN, 0, value=lambda given: {
            "type": "redacted_thinking",
            "data": seal(SealedReasoning("", [{**_OF_OPENAI, "data": given}])),
        }),
    }),
    Thing("encrypted reasoning that was not sealed here", {
        "responses": at("input", 2, value=lambda given: {
            "type": "reasoning", "summary": [], "encrypted_content": given,
        }),
    }),
    Thing("data of a provider beside a call", {
        "chat completions": at("messages", 2, "tool_calls", 0, "extra_content", value=_extra),
        "responses": at("input", 2, value=lambda given: {
            "type": "reasoning", "summary": [], "encrypted_content": _extra_block(given),
        }),
        "messages": at(*_TURN, 0, value=lambda given: {
            "type": "redacted_thinking", "data": _extra_block(given),
        }),
    }),
    Thing("cache mark of the instructions", {
        "chat completions": at("messages", 0, "content", 0, "cache_control"),
        "messages": at("system", 0, "cache_control"),
    }, _MARK),
    Thing("cache mark of a text", {
        "chat completions": at("messages", 1, "content", 0, "cache_control"),
        "responses": at("input", 0, "content", 0, "cache_control"),
        "messages": at("messages", 0, "content", 0, "cache_control"),
    }, _MARK),
    Thing("cache mark of a result", {
        "chat completions": at("messages", 3, "cache_control"),
        "responses": at("input", 3, "cache_control"),
        "messages": at("messages", 2, "content", 0, "cache_control"),
    }, _MARK),
    Thing("cache mark of a tool", everywhere("tools", 0, "cache_control"), _MARK),
    Thing("cache mark of the request", everywhere("cache_control"), _MARK),
    Thing("error of a result", {
        "chat completions": at("messages", 3, "is_error"),
        "responses": at("input", 3, "is_error"),
        "messages": at("messages", 2, "content", 0, "is_error"),
    }, (True,)),
    Thing("image in a message", {
        "chat completions": at("messages", 1, "content", -1, value=lambda given: {
            "type": "image_url", "image_url": {"url": _URL + given},
        }),
        "responses": at("input", 0, "content", -1, value=lambda given: {
            "type": "input_image", "image_url": _URL + given,
        }),
        "messages": at("messages", 0, "content", -1, value=_image_of),
    }),
    Thing("image in a result", {
        "chat completions": at("messages", 3, "content", value=lambda given: [
            {"type": "text", "text": "3"},
            {"type": "image_url", "image_url": {"url": _URL + given}},
        ]),
        "responses": at("input", 3, "output", value=lambda given: [
            {"type": "input_text", "text": "3"},
            {"type": "input_image", "image_url": _URL + given},
        ]),
        "messages": at("messages", 2, "content", 0, "content", value=lambda given: [
            {"type": "text", "text": "3"}, _image_of(given),
        ]),
    }),
    Thing("document of text", {
        "messages": at("messages", 0, "content", -1, value=lambda given: {
            "type": "document",
            "source": {"type": "text", "media_type": "text/plain", "data": given},
        }),
    }, words=True),
    Thing("name of a function", {each: _named(each) for each in CLIENTS}),
    Thing("name of a function with other characters", {
        each: _named(each) for each in CLIENTS
    }, lambda text: f"{text}.get"),
    Thing("tool with plain input", {
        "chat completions": at("tools", -1, value=lambda given: {
            "type": "custom", "custom": {"name": given},
        }),
        "responses": at("tools", -1, value=_tool("custom")),
    }),
    Thing("namespace of a tool", {
        "responses": at("tools", -1, value=lambda given: {
            "type": "namespace", "name": given,
            "tools": [{"type": "function", "name": "get", "parameters": _SCHEMA}],
        }),
    }),
    Thing("tool that a vendor runs", {
        "chat completions": at("tools", -1, value=_tool("web_search")),
        "responses": at("tools", -1, value=_tool("web_search")),
        "messages": at("tools", -1, value=_tool("web_search_20250305")),
    }),
    Thing("a call demanded", {
        **dict.fromkeys(CLIENTS[:2], at("tool_choice")),
        "messages": at("tool_choice", value=lambda _: {"type": "any"}),
    }, ("required",)),
    Thing("one call at most", {
        **dict.fromkeys(CLIENTS[:2], at("parallel_tool_calls", value=lambda _: False)),
        "messages": at("tool_choice", value=lambda _: {
            "type": "auto", "disable_parallel_tool_use": True,
        }),
    }, (False,)),
    Thing("answer by a schema", {
        "chat completions": at("response_format", value=lambda given: {
            "type": "json_schema", "json_schema": {"name": "n", "schema": _schema_of(given)},
        }),
        "responses": at("text", value=lambda given: {
            "format": {"type": "json_schema", "name": "n", "schema": _schema_of(given)},
        }),
        "messages": at("output_config", value=lambda given: {
            "format": {"type": "json_schema", "schema": _schema_of(given)},
        }),
    }),
    Thing("effort", {
        "chat completions": at("reasoning_effort"),
        "responses": at("reasoning", "effort"),
        "messages": at("output_config", "effort"),
    }, ("low", "medium", "high")),
    Thing("budget of thinking", {
        **dict.fromkeys(CLIENTS[:2], at("reasoning", "max_tokens")),
        "messages": at("thinking", value=lambda given: {
            "type": "enabled", "budget_tokens": given,
        }),
    }, (1234, 2345)),
    Thing("no thinking", {
        "chat completions": at("reasoning_effort", value=lambda _: "none"),
        "responses": at("reasoning", "effort", value=lambda _: "none"),
        "messages": at("thinking", value=lambda _: {"type": "disabled"}),
    }, ("none",)),
    Thing("stop sequences", {
        **dict.fromkeys(CLIENTS[:2], at("stop", value=lambda given: [given])),
        "messages": at("stop_sequences", value=lambda given: [given]),
    }, words=True),
    Thing("temperature", everywhere("temperature"), (0.25, 0.75)),
    Thing("top_k", everywhere("top_k"), (3, 17)),
    Thing("seed", everywhere("seed"), (11, 4321)),
    Thing("log-probabilities", {
        "chat completions": lambda body, given: body.update(logprobs=True, top_logprobs=given),
        "responses": at("top_logprobs"),
        "messages": lambda body, given: body.update(logprobs=True, top_logprobs=given),
    }, (2, 4)),
    Thing("user", {
        **dict.fromkeys(CLIENTS[:2], at("user")),
        "messages": at("metadata", "user_id"),
    }, hint=True),
    Thing("metadata", everywhere("metadata", "topic"), hint=True),
    Thing("prompt_cache_key", everywhere("prompt_cache_key"), hint=True),
    Thing("safety_identifier", everywhere("safety_identifier"), hint=True),
    Thing("service_tier", everywhere("service_tier"), ("flex", "priority"), hint=True),
    Thing("verbosity", {
        "chat completions": at("verbosity"), "responses": at("text", "verbosity"),
    }, ("low", "high"), hint=True),
    Thing("a field that nobody knows", everywhere("invented")),
)  # fmt: skip


def parsed(client: str, body: Body) -> ParsedRequest:
    """Return a request of an API, as a door with the object ``reasoning`` reads it."""
    return _SHAPES[client].parse(msgspec.json.encode(body), _RULES, {})


def body_with(thing: Thing, client: str, value: Any) -> Body:
    """Return a request that carries a thing with this value."""
    body = deepcopy(_PLAIN[client]())
    thing.puts[client](body, value)
    return body


def outcome(thing: Thing, client: str, target: str, value: Any) -> Outcome:
    """Return what becomes of a thing with this value."""
    body = body_with(thing, client, value)
    plain, plain_told = _without(client, target)
    try:
        sent, told = arrives(client, target, body)
    except InvalidRequest as refusal:
        return Outcome(refused=refusal.param or "the request")
    added = [leaf for leaf in leaves(sent) if leaf not in plain]
    kept = [path for path, found in added if _holds(found, value)]
    return Outcome(
        "",
        tuple(dict.fromkeys(kept)),
        tuple(dict.fromkeys(path for path, _ in added if path not in kept)),
        tuple(change for change in told if change not in plain_told),
    )


@cache
def _without(client: str, target: str) -> tuple[Sequence[tuple[str, Any]], Sequence[str]]:
    sent, told = arrives(client, target, _PLAIN[client]())
    return list(leaves(sent)), told


def _holds(found: Any, value: Any) -> bool:
    [wanted] = [value] if not isinstance(value, dict) else value.values()
    return found == wanted or (
        isinstance(found, str) and isinstance(wanted, str) and wanted in found
    )


def is_native(client: str, target: str) -> bool:
    """Return whether nothing is translated."""
    return target != OWN and _SHAPES[client].name in DIALECTS[target].native


def arrives(client: str, target: str, body: Body) -> tuple[Any, Sequence[str]]:
    """Return what a target gets of a request, and the reported changes."""
    read = parsed(client, body)
    if target == OWN:
        sent, told = asyncio.run(_generated(read))
    else:
        out = outgoing(read.request, DIALECTS[target], "m")
        sent, told = msgspec.json.decode(out.body), out.changes
    native = is_native(client, target)
    changes = told if native else (*read.request.changes, *told)
    if changes and not native:
        changes = read.places.renamed({CHANGES: ", ".join(changes)})[CHANGES].split(", ")
    return sent, changes


class _Unchecked(Compiler):
    def __init__(self) -> None:
        super().__init__(workers=0)

    async def check(self, grammar: str, vocabulary: Vocabulary, *, param: str) -> None:
        del grammar, vocabulary, param


async def _generated(read: ParsedRequest) -> tuple[Any, Sequence[str]]:
    # What the engine is asked, and what is decided beside it.
    engine = FakeEngine("m", FakeScript(["Ok."]), template=_TEMPLATE)
    async with TextChat(engine, _Unchecked()).generate(read.request) as answer:
        async for _ in answer.events:
            pass
    asked, request = engine.requests[-1], read.request
    sent = {
        "prompt": bytes(id for id in asked.prompt if id < 256).decode().split("\n"),
        "grammar": asked.grammar,
        "sampling": msgspec.to_builtins(asked.sampling),
        "logprobs": asked.logprobs,
        "stop": request.stop,
        "thinking": msgspec.to_builtins(request.thinking),
    }
    return sent, answer.changes


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the plain values with their paths, without indexes."""
    if isinstance(value, dict):
        if path.endswith("properties"):  # whose names are the client's
            yield from ((path, name) for name in value)
            yield from leaves(list(value.values()), path)
            return
        for name, each in value.items():
            yield from leaves(each, f"{path}.{name}" if path else name)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from leaves(each, path)
    else:
        yield path, value


# What a provider's reply has that it needs back: through a reply of an API, and the next request.

CARRIED: Mapping[str, Callable[[str], Sequence[Event]]] = {
    "reasoning, as text": lambda given: [ReasoningDelta(given)],
    "signature of reasoning": lambda given: [
        ReasoningDelta("So.", blocks=({**_SIGNED, "signature": given, "index": 0},))
    ],
    "redacted reasoning of Anthropic": lambda given: [
        ReasoningDelta("", blocks=({**_REDACTED, "data": given, "index": 0},))
    ],
    "encrypted reasoning of other providers": lambda given: [
        ReasoningDelta("", blocks=({**_OF_OPENAI, "data": given, "index": 0},))
    ],
    "data of a provider beside a call": lambda given: [
        ReasoningDelta("", blocks=(seal_of("call_a", _extra(given)),)),
        ToolCallStarted(0, "call_a", "add", extra=_extra(given)),
    ],
}
"""The beginnings of replies that have these things, which are texts."""
_CONTEXT = ResponseContext(CompletionIdentity("id_1", 1, "r"), "m", "f", router_names=True)


def returns(thing: str, client: str, target: str, text: str) -> bool:
    """Return whether a target gets back what it said, when a client sends the reply back."""
    events: list[Event] = list(CARRIED[thing](text))
    if not isinstance(events[-1], ToolCallStarted):
        events.append(ToolCallStarted(0, "call_a", "add"))
    events += [ToolCallDelta(0, '{"a": 1}'), Finished("tool_calls"), Usage(9, 5)]
    body = _PLAIN[client]()
    if client == "responses":
        body["include"] = ["reasoning.encrypted_content"]
    reply: Any = msgspec.json.decode(
        msgspec.json.encode(parsed(client, body).reply.completion(_CONTEXT, events))
    )
    match client:
        case "chat completions":
            body["messages"][2] = reply["choices"][0]["message"]
        case "responses":
            body["input"][1:3] = reply["output"]
        case _:
            body["messages"][1]["content"] = reply["content"]
    read = parsed(client, body)
    if target == OWN:
        sent, _ = asyncio.run(_generated(read))
    else:
        # A reply passes through whole where both ends speak the API; this one was translated.
        request = structs.replace(read.request, native=None)
        sent = msgspec.json.decode(outgoing(request, DIALECTS[target], "m").body)
    return any(_holds(found, text) for _, found in leaves(sent))
