"""Parse the body of an operation that passes through."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from causerie.errors import InvalidRequest
from causerie.protocol import operations
from causerie.protocol.body import ObjectReader, check_work, decode_object, wrong_value
from causerie.protocol.known_fields import sift
from causerie.protocol.parameters import ParsingRules
from causerie.protocol.request import ChatRequest, Operation, PassedBody, text_tokens
from causerie.protocol.targets import NO_PREFERENCES
from causerie.shapes.chat_completions.reader import (
    ROUTER_FIELDS,
    read_models,
    read_preferences,
    unknown_preferences,
)
from causerie.shapes.passed_through.encoder import PassedReply
from causerie.shapes.shape import AT_ONCE, ParsedRequest, Shape

_DOCUMENTS_OF_UNIT = 100
_KEY_CHARACTERS = 256
_PLACE = re.compile(r"^(.*?)(?: - at `\$\.?(.*)`)?$", re.DOTALL)
_MISSING = re.compile(r"missing required field `(\w+)`")


def _shape(operation: Operation, id_prefix: str) -> Shape:
    def read(body: bytes, rules: ParsingRules, _: Mapping[str, str]) -> ParsedRequest:
        request = parse(operation, body, rules)
        return ParsedRequest(request, PassedReply(request.include_usage))

    return Shape(operation, f"/{operation}", id_prefix, read)


def parse(operation: Operation, body: bytes, rules: ParsingRules) -> ChatRequest:
    check_work(body, rules)
    values = {name: each for name, each in decode_object(body).items() if each is not None}
    params = frozenset({"model"} & values.keys())
    changes: Sequence[str] = ()
    preferences, fallbacks = NO_PREFERENCES, tuple[str, ...]()
    if rules.router:
        fields = ObjectReader(values)
        changes, preferences = unknown_preferences(fields, rules), read_preferences(fields)
        values = {name: each for name, each in values.items() if name not in ROUTER_FIELDS}
        values["model"], fallbacks = read_models(fields, rules)
    try:
        asked: Any = msgspec.convert(values, operations.BODIES[operation], str_keys=True)
    except msgspec.ValidationError as error:
        raise _wrong_field(str(error)) from error
    known, unlisted = sift(values, operations.FIELDS[operation])
    facts = _facts(asked)
    return ChatRequest(
        model=asked.model,
        messages=(),
        **facts,
        cache_key=_key(asked),
        large=len(body) > AT_ONCE,
        fallbacks=fallbacks,
        preferences=preferences,
        unlisted=unlisted,
        changes=changes,
        strict=rules.reject_unknown,
        params=params,
        sent=known,
    )


def _facts(asked: Any) -> Mapping[str, Any]:
    match asked:
        case operations.EmbeddingsRequest():
            body = PassedBody("embeddings", _input_tokens(asked.input, "input"))
        case operations.RerankRequest():
            query, documents = text_tokens(asked.query), asked.documents
            texts = [one if isinstance(one, str) else one.text for one in documents]
            tokens = sum(query + text_tokens(text) for text in texts)
            body = PassedBody("rerank", tokens, -(-len(documents) // _DOCUMENTS_OF_UNIT))
        case operations.CompletionsRequest():
            tokens = _input_tokens(asked.prompt, "prompt") + text_tokens(asked.suffix)
            options = asked.stream_options
            return {
                "passed": PassedBody("completions", tokens),
                "stream": asked.stream or False,
                "include_usage": options is not None and bool(options.include_usage),
                "max_tokens": asked.max_tokens,
                "n": (asked.n or 1) * _prompts(asked.prompt),
            }
    return {"passed": body, "max_tokens": 0}


def _input_tokens(value: Any, name: str) -> int:
    if isinstance(value, str):
        return text_tokens(value)
    kinds = {type(one) for one in value}
    if len(kinds) > 1:
        raise wrong_value(name, "mixes texts and tokens; send an array of one kind.")
    if int in kinds:
        return len(value)
    return sum(text_tokens(one) if isinstance(one, str) else len(one) for one in value)


def _prompts(value: Any) -> int:
    return 1 if isinstance(value, str) or isinstance(value[0], int) else len(value)


def _key(asked: Any) -> str:
    # Requests that begin alike go to the same target, all others are spread.
    value = getattr(asked, "query", None) or getattr(asked, "prompt", None) or asked.input
    first = value if isinstance(value, str) or isinstance(value[0], int) else value[0]
    return str(first[:_KEY_CHARACTERS])


def _wrong_field(words: str) -> InvalidRequest:
    if missing := _MISSING.search(words):
        name = missing[1]
        return InvalidRequest(f"`{name}` is missing.", code="missing_parameter", param=name)
    found = _PLACE.match(words)
    message, param = found.groups() if found else (words, None)
    code = "invalid_type" if "got `" in message else "invalid_value"
    place = f"`{param}`" if param else "The body"
    return InvalidRequest(f"{place} is wrong: {message}.", code=code, param=param or None)


PASSED_THROUGH = (
    _shape("embeddings", "embd-"),
    _shape("rerank", "rerank-"),
    _shape("completions", "cmpl-"),
)
"""The operations that pass through."""
