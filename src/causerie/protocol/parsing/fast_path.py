"""Requests as most are: a model, messages of plain text, a limit and a temperature.

Types and ranges are checked in one pass of native code over the bytes. Requests that are not of
this kind, or wrong, are not judged here but read field by field, which gives the same request and
reports the error.
"""

from __future__ import annotations

import msgspec

from causerie.protocol.parameters import SamplingParams
from causerie.protocol.parsing.rules import ParsingRules
from causerie.protocol.request import ChatRequest, FastFields

_decode = msgspec.json.Decoder(FastFields).decode
_AS_USUAL = SamplingParams()
_Given = tuple[bool, bool, bool, bool, bool, bool]
_OPTIONAL = FastFields.__struct_fields__[2:]
_params: dict[_Given, frozenset[str]] = {}


def read_fast_path(body: bytes, rules: ParsingRules) -> ChatRequest | None:
    """The request, or ``None`` where it is of another kind or not right."""
    try:
        fields = _decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    messages = fields.messages
    if len(messages) > rules.max_messages:
        return None
    limit, most = fields.max_tokens, fields.max_completion_tokens
    if limit is not None and most is not None and limit != most:
        return None
    stream, options = fields.stream, fields.stream_options
    temperature, top_p = fields.temperature, fields.top_p
    given = (
        stream is not None,
        options is not None,
        limit is not None,
        most is not None,
        temperature is not None,
        top_p is not None,
    )
    characters, ascii = 0, True
    for one in messages:
        content = one.content
        characters += len(content)
        ascii = ascii and content.isascii()
    return ChatRequest(
        fields.model,
        messages,
        characters if ascii else None,
        stream or False,
        options is not None and bool(options.include_usage),
        limit if most is None else most,
        sampling=_AS_USUAL
        if temperature is None and top_p is None
        else SamplingParams(temperature)
        if top_p is None
        else SamplingParams(temperature, top_p=top_p),
        params=_params.get(given) or _named(given),
        keeps_output_limit=rules.reject_long_output,
        sent=fields,
    )


def _named(given: _Given) -> frozenset[str]:
    """The names of the fields that were sent; there are few such sets."""
    sent = [name for name, there in zip(_OPTIONAL, given, strict=True) if there]
    names = _params[given] = frozenset(["model", "messages", *sent])
    return names
