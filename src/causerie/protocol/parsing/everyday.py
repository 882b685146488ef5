"""Requests as most are: a model, messages of plain text, a limit and a temperature.

Types and ranges are checked in one pass of native code. Whatever is not of
this kind, or wrong, is not judged here but read field by field, which gives
the same request and says what is wrong.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from causerie.protocol.parsing.rules import Rules
from causerie.protocol.request import ChatRequest, Draw, Message, Role

_MAX_TOKENS = 2**31 - 1
_ROLES: dict[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
}


class _Said(Struct, forbid_unknown_fields=True):
    role: Literal["system", "developer", "user", "assistant"]
    content: str


class _StreamOptions(Struct, forbid_unknown_fields=True):
    include_usage: bool | None = None


class _Everyday(Struct, forbid_unknown_fields=True):
    model: Annotated[str, Meta(min_length=1, max_length=256)]
    messages: Annotated[list[_Said], Meta(min_length=1)]
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    max_tokens: Annotated[int, Meta(ge=1, le=_MAX_TOKENS)] | None = None
    max_completion_tokens: Annotated[int, Meta(ge=1, le=_MAX_TOKENS)] | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None


def read_everyday(document: dict[str, object], rules: Rules) -> ChatRequest | None:
    """The request, or ``None`` where it is of another kind or not right."""
    try:
        body = msgspec.convert(document, _Everyday)
    except msgspec.ValidationError:
        return None
    if len(body.messages) > rules.max_messages:
        return None
    limit = body.max_tokens if body.max_completion_tokens is None else body.max_completion_tokens
    if body.max_tokens is not None and limit != body.max_tokens:
        return None
    options = body.stream_options
    return ChatRequest(
        model=body.model,
        messages=tuple([Message(_ROLES[said.role], said.content) for said in body.messages]),
        stream=body.stream or False,
        include_usage=bool(options is not None and options.include_usage),
        max_tokens=limit,
        draw=Draw(body.temperature, body.top_p),
        params=frozenset([name for name, value in document.items() if value is not None]),
        document=document,
    )
