"""Operations that pass through: embeddings, rerank, and plain completions."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Raw, Struct

from causerie.errors import ErrorDetails, InvalidRequest
from causerie.protocol import operations, sse
from causerie.protocol.body import ObjectReader, check_work, decode_object, wrong_value
from causerie.protocol.events import Batch, Event, PassedBytes, TextDelta, Usage
from causerie.protocol.known_fields import sift
from causerie.protocol.operations import members
from causerie.protocol.parameters import ParsingRules
from causerie.protocol.request import ChatRequest, Operation, PassedBody, text_tokens
from causerie.protocol.response import ResponseContext
from causerie.protocol.targets import NO_PREFERENCES
from causerie.shapes.chat_completions.generation import without_unlimited
from causerie.shapes.chat_completions.reader import (
    read_models,
    read_preferences,
    unknown_preferences,
    without_router_fields,
)
from causerie.shapes.shape import AT_ONCE, ParsedRequest, Shape

_encode = msgspec.json.Encoder().encode
_IDENTITY = ("id", "object", "created", "model")
_DOCUMENTS_OF_UNIT = 100
_KEY_CHARACTERS = 256
_PLACE = re.compile(r"^(.*?)(?: - at `\$\.?(.*)`)?$", re.DOTALL)
_MISSING = re.compile(r"missing required field `(\w+)`")


class PassedThroughReply(Struct, frozen=True):
    """Encoder of passed-through replies; with ``usage`` a stream ends with its token counts."""

    usage: bool = False

    def completion(self, context: ResponseContext, events: Sequence[Event]) -> object:
        """Return the provider's JSON with our model name and cost, or else the text and usage."""
        usage = next((event for event in events if isinstance(event, Usage)), Usage(0, 0))
        raw = next((event.data for event in events if isinstance(event, PassedBytes)), None)
        if raw is None:
            text = "".join([event.text for event in events if isinstance(event, TextDelta)])
            shown = {"usage": _encode_usage(None, context, usage)}
            return {"choices": [{"text": text}], **shown} if text else shown
        if raw.lstrip()[:1] == b"[":
            return Raw(raw)
        fields = _replace_model_name(raw, context)
        if "usage" in fields or "results" not in fields:
            fields["usage"] = _encode_usage(fields.get("usage"), context, usage)
        return fields

    def encoder(self, context: ResponseContext) -> PassedEncoder:
        return PassedEncoder(context, self.usage)


def _replace_model_name(reply_json: bytes, context: ResponseContext) -> dict[str, Raw]:
    fields = members(reply_json)
    if "model" in fields:
        fields["model"] = Raw(_encode(context.model))
    return fields


def _encode_usage(provider_usage: Raw | None, context: ResponseContext, usage: Usage) -> Raw:
    found: object = None if provider_usage is None else msgspec.json.decode(provider_usage)
    if not isinstance(found, dict):
        found = {"prompt_tokens": usage.prompt, "total_tokens": usage.prompt + usage.completion}
        if usage.completion:
            found["completion_tokens"] = usage.completion
    kept = {name: value for name, value in found.items() if name not in operations.PRICES}
    if context.cost is not None:
        kept["cost"] = context.cost(usage)
    return Raw(_encode(kept))


class PassedEncoder(Struct, eq=False):
    """Encodes the chunks of a stream of plain completions."""

    _context: ResponseContext
    _shows_usage: bool
    _shared_fields: dict[str, Raw] = {}  # what all chunks have in common

    def feed(self, batch: Batch) -> bytes:
        pieces: list[bytes] = []
        for event in batch:
            if isinstance(event, PassedBytes):
                fields = _replace_model_name(event.data, self._context)
                fields.pop("usage", None)
                self._shared_fields = {name: fields[name] for name in _IDENTITY if name in fields}
                # Line breaks stand between members of the provider's JSON only, never in strings.
                line = _encode(fields).replace(b"\n", b" ").replace(b"\r", b" ")
                pieces.append(sse.encode(line))
            elif isinstance(event, Usage) and self._shows_usage:
                usage = _encode_usage(None, self._context, event)
                pieces.append(
                    sse.encode(_encode({**self._shared_fields, "choices": [], "usage": usage}))
                )
        return b"".join(pieces)

    def broken(self, error: ErrorDetails) -> bytes:
        return sse.encode(_encode({**self._shared_fields, "choices": [], "error": error}))

    def end(self) -> bytes:
        return sse.DONE


def _make_shape(operation: Operation, id_prefix: str) -> Shape:
    def read(body: bytes, rules: ParsingRules, _: Mapping[str, str]) -> ParsedRequest:
        request = parse(operation, body, rules)
        return ParsedRequest(request, PassedThroughReply(request.include_usage))

    return Shape(operation, f"/{operation}", id_prefix, read)


def parse(operation: Operation, body: bytes, rules: ParsingRules) -> ChatRequest:
    check_work(body, rules)
    values = {name: each for name, each in decode_object(body).items() if each is not None}
    params = frozenset({"model"} & values.keys())
    changes: Sequence[str] = ()
    preferences, fallbacks = NO_PREFERENCES, tuple[str, ...]()
    if operation == "completions":
        limited, changes = without_unlimited(ObjectReader(values))
        values = dict(limited.values)
    if rules.router:
        fields = ObjectReader(values)
        changes = (*changes, *unknown_preferences(fields, rules))
        preferences = read_preferences(fields)
        model, fallbacks = read_models(fields, rules)
        values = {**without_router_fields(values, rules), "model": model}
    try:
        asked: Any = msgspec.convert(values, operations.BODIES[operation], str_keys=True)
    except msgspec.ValidationError as error:
        raise _build_field_error(str(error)) from error
    known, unlisted = sift(values, operations.FIELDS[operation])
    facts = _build_chat_request_fields(asked)
    # Requests that begin alike go to the same target, all others are spread.
    value: Any = next(known[name] for name in ("query", "prompt", "input") if name in known)
    first = value if isinstance(value, str) or isinstance(value[0], int) else value[0]
    return ChatRequest(
        model=asked.model,
        messages=(),
        **facts,
        cache_key=str(first[:_KEY_CHARACTERS]),
        large=len(body) > AT_ONCE,
        fallbacks=fallbacks,
        preferences=preferences,
        unlisted=unlisted,
        changes=changes,
        strict=rules.reject_unknown,
        params=params,
        sent=known,
    )


def _build_chat_request_fields(parsed: Any) -> Mapping[str, Any]:
    match parsed:
        case operations.EmbeddingsRequest():
            body = PassedBody("embeddings", _estimate_input_tokens(parsed.input, "input"))
        case operations.RerankRequest():
            query, documents = text_tokens(parsed.query), parsed.documents
            texts = [one if isinstance(one, str) else one.text for one in documents]
            tokens = sum(query + text_tokens(text) for text in texts)
            body = PassedBody("rerank", tokens, -(-len(documents) // _DOCUMENTS_OF_UNIT))
        case operations.CompletionsRequest():
            tokens = _estimate_input_tokens(parsed.prompt, "prompt") + text_tokens(parsed.suffix)
            options = parsed.stream_options
            return {
                "passed": PassedBody("completions", tokens),
                "stream": parsed.stream or False,
                "include_usage": options is not None and bool(options.include_usage),
                "max_tokens": parsed.max_tokens,
                "n": (parsed.n or 1) * _count_prompts(parsed.prompt),
            }
    return {"passed": body, "max_tokens": 0}


def _estimate_input_tokens(input: Any, field: str) -> int:
    if isinstance(input, str):
        return text_tokens(input)
    kinds = {type(one) for one in input}
    if len(kinds) > 1:
        raise wrong_value(field, "mixes texts and tokens; send an array of one kind.")
    if int in kinds:
        return len(input)
    return sum(text_tokens(one) if isinstance(one, str) else len(one) for one in input)


def _count_prompts(prompt: Any) -> int:
    return 1 if isinstance(prompt, str) or isinstance(prompt[0], int) else len(prompt)


def _build_field_error(error_text: str) -> InvalidRequest:
    if missing := _MISSING.search(error_text):
        name = missing[1]
        return InvalidRequest(f"`{name}` is missing.", code="missing_parameter", param=name)
    found = _PLACE.match(error_text)
    message, param = found.groups() if found else (error_text, None)
    code = "invalid_type" if "got `" in message else "invalid_value"
    place = f"`{param}`" if param else "The body"
    return InvalidRequest(f"{place} is wrong: {message}.", code=code, param=param or None)


PASSED_THROUGH = (
    _make_shape("embeddings", "embd-"),
    _make_shape("rerank", "rerank-"),
    _make_shape("completions", "cmpl-"),
)
"""The operations that pass through."""
