"""Replies as servers really send them: every field may be missing, null or of an older name.

None of these is ever part of a circle, so nobody looks for one in them (``gc=False``).
"""

from __future__ import annotations

import json
import re
from itertools import chain, repeat
from math import inf
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from causerie.protocol.bounded_json import REPLY, SMALL, TooMuchWork, check

MOST_TOKENS = 2**31 - 1
"""More than any reply has: who is told of more is told nonsense, which must not be charged."""
# Of one event or whole reply. More than any server sends; what is beyond them is no reply.
_MOST_CHOICES = 128
_MOST_CALLS = 1024
_MOST_PARTS = 4096
Tokens = Annotated[int, Meta(ge=0, le=MOST_TOKENS)]


class ProviderFunction(Struct, gc=False):
    name: str | None = None
    arguments: str | dict[str, Any] | None = None


class ProviderCall(Struct, gc=False):
    index: int | None = None
    id: str | None = None
    function: ProviderFunction | None = None
    extra_content: dict[str, Any] | None = None


class ProviderDelta(Struct, gc=False):
    """A piece of a message, or a whole one."""

    content: str | Annotated[list[Any], Meta(max_length=_MOST_PARTS)] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: Annotated[list[ProviderCall], Meta(max_length=_MOST_CALLS)] | None = None
    reasoning_details: Annotated[list[Any], Meta(max_length=_MOST_PARTS)] | None = None
    refusal: str | None = None


class ProviderAlternative(Struct, gc=False):
    """``logprob`` is null where it is minus infinity, for which JSON has no number."""

    token: str = ""
    logprob: float | None = 0.0
    bytes: list[int] | None = None


class ProviderLogprob(Struct, gc=False):
    token: str = ""
    logprob: float | None = 0.0
    bytes: list[int] | None = None
    top_logprobs: list[ProviderAlternative] | None = None


class ProviderLogprobs(Struct, gc=False):
    """Of chat completions (``content``), or as the older interface has them."""

    content: list[ProviderLogprob] | None = None
    tokens: list[str] | None = None
    token_logprobs: list[float | None] | None = None
    top_logprobs: list[dict[str, float | None] | None] | None = None

    @property
    def told(self) -> list[ProviderLogprob]:
        """Those of chat completions, whichever there are."""
        if self.content is not None or not (self.tokens and self.token_logprobs):
            return self.content or []
        tops = chain(self.top_logprobs or (), repeat(None))
        told = zip(self.tokens, self.token_logprobs, tops, strict=False)
        return [ProviderLogprob(token, logprob, None, _ranked(top)) for token, logprob, top in told]


def _ranked(top: dict[str, float | None] | None) -> list[ProviderAlternative]:
    """Alternatives as the older interface has them, the likeliest first."""
    found = [ProviderAlternative(token, logprob) for token, logprob in (top or {}).items()]
    return sorted(found, key=lambda each: -inf if each.logprob is None else each.logprob)[::-1]


class ProviderPromptDetails(Struct, gc=False):
    cached_tokens: Tokens | None = None


class ProviderCompletionDetails(Struct, gc=False):
    reasoning_tokens: Tokens | None = None


class ProviderUsage(Struct, gc=False):
    prompt_tokens: Tokens | None = None
    completion_tokens: Tokens | None = None
    total_tokens: Tokens | None = None
    prompt_tokens_details: ProviderPromptDetails | None = None
    completion_tokens_details: ProviderCompletionDetails | None = None
    prompt_cache_hit_tokens: Tokens | None = None
    cached_tokens: Tokens | None = None
    reasoning_tokens: Tokens | None = None


class ProviderChoice(Struct, gc=False):
    delta: ProviderDelta | None = None
    finish_reason: str | None = None
    index: int = 0
    message: ProviderDelta | None = None
    logprobs: ProviderLogprobs | None = None
    usage: ProviderUsage | None = None


class ProviderChunk(Struct, gc=False):
    """One event of a stream, or a whole reply."""

    choices: Annotated[list[ProviderChoice], Meta(max_length=_MOST_CHOICES)] | None = None
    usage: ProviderUsage | None = None
    error: Any = None
    system_fingerprint: str | None = None


_TEXTS = frozenset({"content", "reasoning_content", "reasoning", "refusal"})
_OF_A_PART = frozenset({"type", "text", "content", "annotations"})
_NUMBERS = int | float | str
_SIGNS_OF_LIFE = ("ping", "keepalive")
_strictly = msgspec.json.Decoder(ProviderChunk).decode
_STRING_OR_NAN = re.compile(rb'"(?:[^"\\]|\\.)*+"?|(-?Infinity|NaN)', re.DOTALL)


class NoJson(ValueError):
    """The text is no JSON."""


def read_chunk(data: bytes) -> ProviderChunk:
    """The chunk in ``data``; raises :class:`ValueError` where there is none.

    Numbers that were sent as strings are read as well, ids that were sent as numbers, and texts
    that were sent as objects; log-probabilities of no known form are left out; what cannot be a
    number of tokens is as if it had not been told, an error that is empty as if there were none.
    JSON that is no chunk but tells of an error comes back as one with that error.
    """
    try:
        if len(data) > SMALL:
            check(data, REPLY)
        chunk = _strictly(data)
    except TooMuchWork as error:
        raise ValueError(f"it takes too long to decode: {error}") from error
    except msgspec.ValidationError:
        chunk = _leniently(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise NoJson("no JSON") from error
    chunk.error = chunk.error or None
    if chunk.choices is None and chunk.usage is None and chunk.error is None:
        chunk.error = _error(data)
    return chunk


def without_nan(data: bytes) -> bytes:
    """The same with null for what some languages write as a number and JSON does not know."""
    return _STRING_OR_NAN.sub(lambda found: b"null" if found[1] else found[0], data)


def _leniently(data: bytes) -> ProviderChunk:
    """Convert a chunk with wrong types to the right ones."""
    try:
        found = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise NoJson("no JSON") from error
    if isinstance(found, dict):
        if found.get("error"):
            return ProviderChunk(error=found["error"])
        _drop_empty(found)
        for choice in _objects(found.get("choices"), _MOST_CHOICES):
            _put_right(choice)
        _believe(found)
    try:
        return msgspec.convert(found, ProviderChunk, strict=False)
    except msgspec.ValidationError as error:
        raise ValueError("no chunk of a chat completion") from error


def _believe(found: dict[str, Any]) -> None:
    """Keep of its usage what can be one."""
    usage = found.pop("usage", None)
    if isinstance(usage, dict):
        found["usage"] = _believed(usage)


def _believed(told: dict[str, Any]) -> dict[str, Any]:
    """Numbers of tokens, without those that no reply can have."""
    return {
        name: _believed(value) if isinstance(value, dict) else value
        for name, value in told.items()
        if isinstance(value, dict if name.endswith("_details") else _NUMBERS)
        and not _nonsense(value)
    }


def _put_right(choice: dict[str, Any]) -> None:
    """Its place where none is told, texts that are none, and ids of calls that are numbers."""
    _drop_empty(choice)
    _believe(choice)
    if choice.get("index") is None:
        choice["index"] = 0
    for said in _objects([choice.get("delta"), choice.get("message")], 2):
        _drop_empty(said)
        for name in _TEXTS & said.keys():
            said[name] = _text(said[name], name)
        choice["logprobs"] = _logprobs(choice.get("logprobs"), said)
        for call in _objects(said.get("tool_calls"), _MOST_CALLS):
            _drop_empty(call)
            if isinstance(call.get("id"), int):
                call["id"] = str(call["id"])
            for function in _objects([call.get("function")], 1):
                _drop_empty(function)


def _text(value: object, name: str) -> object:
    """The text that an object holds; an answer as JSON that was read already, as JSON again."""
    if not isinstance(value, dict):
        return value
    text = value.get("text", value.get("content"))
    if isinstance(text, str) and value.keys() <= _OF_A_PART:
        return text
    return json.dumps(value, ensure_ascii=False) if name == "content" else None


def _logprobs(told: object, said: dict[str, Any]) -> object:
    """Log-probabilities of a form that is known; one alone is that of the only token."""
    if isinstance(told, int | float) and not isinstance(told, bool):
        told = {"tokens": [said.get("content")], "token_logprobs": [told]}
    try:
        return msgspec.convert(told, ProviderLogprobs | None, strict=False)
    except msgspec.ValidationError:
        return None


def _drop_empty(found: dict[str, Any]) -> None:
    """Nothing is in them: in some languages an empty object is written as an empty list is."""
    for name in [name for name, value in found.items() if value in ([], {})]:
        del found[name]


def _objects(found: object, most: int) -> list[dict[str, Any]]:
    """The objects in a list; raises :class:`ValueError` where there are more values than may be."""
    if isinstance(found, list) and len(found) > most:
        raise ValueError(f"{len(found)} values where at most {most} may be")
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def _nonsense(told: float | str | dict[str, Any]) -> bool:
    try:
        number = 0.0 if isinstance(told, dict) else float(told)
        return not 0 <= number <= MOST_TOKENS or not number.is_integer()
    except (OverflowError, ValueError):
        return True


def _error(data: bytes) -> object:
    """An error that stands at the top of an object without choices."""
    found = msgspec.json.decode(data)
    if found.get("object") == "error" or isinstance(found.get("detail"), str | list):
        return found
    if "choices" in found or "object" in found or "id" in found:
        return None
    if found.get("type") in _SIGNS_OF_LIFE:
        return None
    raise ValueError("no chunk of a chat completion")
