"""Request to a provider: the client's fields, changed only where necessary.

Three answers for what a server does not know, as everywhere: a hint is dropped, a parameter
whose effect is relied on is refused, a field that neither the dialect nor the operator lists is
dropped, or refused where the request is strict. Dropped and rewritten fields are listed in
``changes``; the model's name, and how the reply travels (``stream``, ``stream_options``), are
not, nor what the service does itself (``session_id``, hiding the reasoning).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from causerie.errors import InvalidRequest
from causerie.protocol import parameters
from causerie.protocol.events import Partial
from causerie.protocol.known_fields import refusal, sift
from causerie.protocol.operations import FIELDS
from causerie.protocol.parameters import HINT_NAMES, HONOURED
from causerie.protocol.request import ChatRequest, FastFields, FastStreamOptions, Unlisted
from causerie.providers import request_body, thinking
from causerie.providers.dialect import Dialect
from causerie.providers.history import check_references, in_strict_order, write_messages
from causerie.providers.messages_api import messages_fields
from causerie.providers.native import native_request
from causerie.providers.request_body import Outgoing, RequestDraft, write_shape, write_tools
from causerie.providers.thinking import write_thinking

_LIMITS = ("max_completion_tokens", "max_tokens")
_LOWERED = (*_LIMITS, "min_tokens")
_EITHER_LIMIT = frozenset(_LIMITS)
WRITTEN = (
    request_body.FORMAT_PARAMETERS
    | thinking.PARAMETERS
    | request_body.TOOL_PARAMETERS
    | {
        "model", "messages", "stream", "stream_options", "max_tokens", "max_completion_tokens",
        "continue_final_message", "add_generation_prompt",
    }
)  # fmt: skip
"""Parameters that are written by steps of their own, each from what was parsed."""
# Hints are taken whatever they hold, but not by every server.
_HINT_TYPES: Mapping[str, Any] = {name: each.type for name, each in parameters.HINTS.items()}
_DEMANDING = frozenset(
    {"response_format", "structured_outputs", "logprobs", "logit_bias", "seed"}
    | parameters.EXTENDED_SAMPLING
)
_UNTOLD = frozenset(
    {"model", "messages", "stream", "stream_options", "session_id", "include_reasoning"}
)
_USAGE = FastStreamOptions(include_usage=True)
_NAME = re.compile(r"(?:^|->)(\w+)")  # of the fields that a change tells of
_encode = msgspec.json.Encoder().encode


def outgoing(
    request: ChatRequest, dialect: Dialect, model: str, partial: Partial | None = None
) -> Outgoing:
    """Return the body of a request for ``model``, whose reply goes on after ``partial``.

    Raises :class:`InvalidRequest` for parameters that the provider does not support.
    """
    native = request.native
    if native is not None and partial is None and native.shape in dialect.native:
        if request.unlisted is not None:
            _split_unlisted(request, dialect)  # which raises for unknown fields of a strict request
        return native_request(request, native, dialect, model)
    streamed = request.stream or dialect.streams
    sent, params = request.sent, request.params
    if (
        sent.__class__ is FastFields
        and params <= dialect.plain
        and partial is None
        and (dialect.history.lenient or in_strict_order(request.messages))
        and not params >= _EITHER_LIMIT
    ):
        asks = _USAGE if streamed and dialect.tells_usage else None
        body = _encode(replace(sent, model=model, stream=streamed or None, stream_options=asks))
        if request.cache_scope:
            body = _add_cache_salt(body, request, dialect)
        return Outgoing(body, (), streamed)
    if request.passed is not None:
        return _build_non_chat_request(request, dialect, model)
    if request.unread is not None:
        request.check_translated()
    draft = drafted(request, dialect, model, partial, streamed=streamed)
    fields = draft.fields if dialect.api.bodies == "chat" else messages_fields(draft)
    body = _add_cache_salt(_encode(fields), request, dialect)
    if request.params & {"tools", "response_format", "structured_outputs"}:
        check_references(draft.fields)
    return Outgoing(body, tuple(draft.changes), streamed)


def _build_non_chat_request(request: ChatRequest, dialect: Dialect, model: str) -> Outgoing:
    if not dialect.api.path_of(request.operation):
        raise InvalidRequest(
            f"The provider that serves this model offers no {request.operation}.",
            code="unsupported_operation",
            param="model",
        )
    document, unlisted = _split_unlisted(request, dialect)
    fields = {**document, "model": model}
    if request.max_tokens:
        fields["max_tokens"] = request.max_tokens
    if request.stream and dialect.tells_usage:
        fields["stream_options"] = _USAGE
    body = _encode(fields)
    if request.operation == "completions":
        body = _add_cache_salt(body, request, dialect)
    return Outgoing(body, () if unlisted is None else tuple(unlisted.changes), request.stream)


def _add_cache_salt(body: bytes, request: ChatRequest, dialect: Dialect) -> bytes:
    if not (request.cache_scope and dialect.cache_salt):
        return body
    return b'%b,"%b":"%b"}' % (body[:-1], dialect.cache_salt.encode(), request.cache_scope.encode())


def drafted(
    request: ChatRequest,
    dialect: Dialect,
    model: str,
    partial: Partial | None = None,
    *,
    streamed: bool,
) -> RequestDraft:
    """Return a draft of the provider's request: chat-completions fields that it supports."""
    document, unlisted = _split_unlisted(request, dialect)
    draft = RequestDraft(request, dialect, document)
    draft.fields["model"] = model
    write_messages(draft, partial)
    _copy_client_fields(draft)
    _write_limits_and_generation_prompt(draft, partial)
    if thinking.PARAMETERS & request.params:
        write_thinking(draft)
        name = draft.dialect.thinking.budget
        budget = draft.fields.get(name or "")
        if partial is not None and name is not None and isinstance(budget, int):
            draft.fields[name] = max(budget - partial.reasoning_tokens, 0)
    if request_body.TOOL_PARAMETERS & request.params:
        write_tools(draft)
    if request_body.FORMAT_PARAMETERS & request.params:
        write_shape(draft)
    _report_ineffective_fields(draft)
    _write_require_parameters(draft)
    if partial is None:
        _report_changed_fields(draft)
    if streamed:
        draft.fields["stream"] = True
        if draft.dialect.tells_usage:
            options = draft.document.get("stream_options") or {}
            draft.fields["stream_options"] = {**options, "include_usage": True}
    if unlisted is not None:
        draft.changes += unlisted.changes
    return draft


def _split_unlisted(
    request: ChatRequest, dialect: Dialect
) -> tuple[Mapping[str, object], Unlisted | None]:
    document, unlisted = request.document, request.unlisted
    if unlisted is None:
        return document, unlisted
    passed = request.passed
    lists = dialect.lists if passed is None else dialect.growing(FIELDS[passed.operation])
    if dialect.adds_to(unlisted):
        document, unlisted = sift(unlisted.body, lists)
    if unlisted is not None and unlisted.names and request.strict:
        refused = refusal(unlisted.body, lists)
        if refused is not None:
            raise refused
    return document, unlisted


def _copy_client_fields(draft: RequestDraft) -> None:
    accepts, fields = draft.dialect.accepts, draft.fields
    for name, value in draft.document.items():
        if value is None or name in WRITTEN:
            continue
        if name in accepts and _is_no_hint_of_wrong_type(name, value):
            fields[name] = value
        elif name in HINT_NAMES or name in HONOURED:
            other = draft.dialect.renames.get(name)
            if other is not None:
                draft.fields[other] = value
                draft.moved(name, other)
            elif name == "session_id":
                pass  # routing keeps a session together
            elif name in HINT_NAMES or parameters.asks_for_nothing(name, value):
                draft.dropped(name)
            else:
                raise draft.unsupported(name)
        else:
            fields[name] = value
    least, asked = draft.dialect.least_top_logprobs, draft.request.top_logprobs
    if asked is not None and asked < least:
        fields["top_logprobs"] = least  # what was not asked for is left out of the reply


def _is_no_hint_of_wrong_type(parameter: str, sent_value: object) -> bool:
    if parameter not in HINT_NAMES:
        return True
    try:
        msgspec.convert(sent_value, _HINT_TYPES[parameter])
    except msgspec.ValidationError:
        return False
    return True


def _write_limits_and_generation_prompt(draft: RequestDraft, partial: Partial | None) -> None:
    request = draft.request
    there = partial.completion if partial is not None else 0
    if request.max_tokens is not None:
        sent = next(name for name in _LIMITS if draft.given(name))
        name = draft.dialect.limit or sent
        draft.fields[name] = max(request.max_tokens - there, 1)
        if not draft.given(name):
            draft.moved(sent, name)
    if "min_tokens" in draft.fields:
        draft.fields["min_tokens"] = max(request.min_tokens - there, 0)
    if draft.given("add_generation_prompt") and not request.continue_final_message and not there:
        if draft.dialect.continuing.way in ("flag", "as_sent"):
            draft.fields["add_generation_prompt"] = request.add_generation_prompt
        elif not request.add_generation_prompt:
            raise draft.unsupported("add_generation_prompt")


def _report_ineffective_fields(draft: RequestDraft) -> None:
    unheeded = draft.dialect.unheeded
    if unheeded and draft.request.thinking.enabled is not False:
        for name in sorted(unheeded & draft.fields.keys()):
            draft.changes.append(f"{name} has no effect while thinking")


def _report_changed_fields(draft: RequestDraft) -> None:
    fields, document = draft.fields, draft.document
    told = {each for change in draft.changes for each in _NAME.findall(change)} | _UNTOLD
    for name, value in document.items():
        if name == "reasoning" and isinstance(value, Mapping):
            value = {key: each for key, each in value.items() if key != "exclude"}
        if name in told or value in (None, {}):
            continue
        if name not in fields:
            draft.dropped(name)
        elif fields[name] != value and name not in _LOWERED:  # lowered before, and told then
            draft.changes.append(f"{name} rewritten")


def _write_require_parameters(draft: RequestDraft) -> None:
    if not draft.dialect.demands or not draft.request.params & _DEMANDING:
        return
    sent = draft.document.get("provider")
    provider = sent if isinstance(sent, Mapping) else {}
    if "require_parameters" not in provider:
        draft.fields["provider"] = {**provider, "require_parameters": True}
        draft.changes.append("provider.require_parameters added")
