"""Requests as most are: a model, messages of plain text, a limit and a temperature.

Types and ranges are checked in one pass of native code over the bytes. Whatever
is not of this kind, or wrong, is not judged here but read field by field, which
gives the same request and says what is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from causerie.protocol.parsing.rules import Rules
from causerie.protocol.request import ChatRequest, Draw, Message

_MAX_TOKENS = 2**31 - 1


class Said(Struct, forbid_unknown_fields=True):
    role: Literal["system", "user", "assistant"]
    content: str


class StreamOptions(Struct, forbid_unknown_fields=True, omit_defaults=True):
    include_usage: bool | None = None


class Fields(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The fields, which may be encoded again."""

    model: Annotated[str, Meta(min_length=1, max_length=256)]
    messages: Annotated[list[Said], Meta(min_length=1)]
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: Annotated[int, Meta(ge=1, le=_MAX_TOKENS)] | None = None
    max_completion_tokens: Annotated[int, Meta(ge=1, le=_MAX_TOKENS)] | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None


class Everyday(Mapping[str, object]):
    """The body of such a request: ``fields`` as they were read, and a mapping if somebody looks."""

    __slots__ = ("_body", "_values", "fields")

    def __init__(self, body: bytes, fields: Fields) -> None:
        self.fields = fields
        self._body = body
        self._values: dict[str, object] | None = None

    @property
    def _document(self) -> dict[str, object]:
        if self._values is None:
            self._values = msgspec.json.decode(self._body, type=dict[str, object])
        return self._values

    def __getitem__(self, name: str) -> object:
        return self._document[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._document)

    def __len__(self) -> int:
        return len(self._document)


_decode = msgspec.json.Decoder(Fields).decode
_Given = tuple[bool, bool, bool, bool, bool, bool]
_OPTIONAL = Fields.__struct_fields__[2:]
_params: dict[_Given, frozenset[str]] = {}


def read_everyday(body: bytes, rules: Rules) -> ChatRequest | None:
    """The request, or ``None`` where it is of another kind or not right."""
    try:
        fields = _decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    messages = fields.messages
    if len(messages) > rules.max_messages:
        return None
    limit = fields.max_tokens
    if fields.max_completion_tokens is not None:
        if limit is not None and limit != fields.max_completion_tokens:
            return None
        limit = fields.max_completion_tokens
    options = fields.stream_options
    said: list[Message] = []
    characters, ascii = 0, True
    for one in messages:
        content = one.content
        said.append(Message(one.role, content))
        characters += len(content)
        ascii = ascii and content.isascii()
    return ChatRequest(
        fields.model,
        tuple(said),
        characters if ascii else None,
        fields.stream or False,
        options is not None and bool(options.include_usage),
        limit,
        draw=Draw(fields.temperature, fields.top_p),
        params=_given(fields),
        document=Everyday(body, fields),
    )


def _given(fields: Fields) -> frozenset[str]:
    """The names of the fields that were sent; there are few such sets."""
    given = (
        fields.stream is not None,
        fields.stream_options is not None,
        fields.max_tokens is not None,
        fields.max_completion_tokens is not None,
        fields.temperature is not None,
        fields.top_p is not None,
    )
    names = _params.get(given)
    if names is None:
        sent = [name for name, there in zip(_OPTIONAL, given, strict=True) if there]
        names = _params[given] = frozenset(["model", "messages", *sent])
    return names
