"""Replies as most are: one choice, its text, why it ended, its tokens.

Judged in one pass of native code over the bytes. Chunks that are not of this kind are not read here
but by ``incoming``, which gives the same events. None of these is ever part of a circle, so nobody
looks for one in them (``gc=False``).
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from causerie.protocol.events import Finished, TextDelta, Usage
from causerie.providers.counts import BELIEVED_PROMPT, UNSHOWN
from causerie.providers.separator import Separators
from causerie.providers.wire import MOST_TOKENS, Tokens

Read = tuple[tuple[TextDelta, Finished, Usage], str | None]
_Nothing = Literal[""] | None
_Some = Annotated[int, Meta(ge=1, le=MOST_TOKENS)]
_None = tuple[()] | None  # whose elements, where it has some, are not read


class FastDelta(Struct, gc=False):
    """A message that is all text."""

    content: Annotated[str, Meta(min_length=1)]
    reasoning_content: _Nothing = None
    reasoning: _Nothing = None
    refusal: _Nothing = None
    tool_calls: _None = None
    reasoning_details: _None = None
    function_call: None = None


class FastChoice(Struct, gc=False):
    message: FastDelta
    finish_reason: Literal["stop", "length", "content_filter"]
    index: Literal[0] = 0
    delta: None = None


class FastPromptDetails(Struct, gc=False):
    cached_tokens: Tokens


class FastCompletionDetails(Struct, gc=False):
    reasoning_tokens: Tokens


class FastUsage(Struct, gc=False):
    """Tokens, told by their usual names."""

    prompt_tokens: _Some
    completion_tokens: _Some
    total_tokens: Tokens | None = None
    prompt_tokens_details: FastPromptDetails | None = None
    completion_tokens_details: FastCompletionDetails | None = None
    prompt_cache_hit_tokens: None = None
    cached_tokens: None = None
    reasoning_tokens: None = None
    input_tokens: None = None
    output_tokens: None = None


class FastChunk(Struct, gc=False):
    """``choices`` is the only one."""

    choices: Annotated[list[FastChoice], Meta(min_length=1, max_length=1)]
    usage: FastUsage
    system_fingerprint: str | None = None
    error: None = None


_decode = msgspec.json.Decoder(FastChunk).decode


def read_fast_path(
    body: bytes, separators: Separators | None, max_tokens: int | None = None
) -> Read | None:
    """The events and the server's fingerprint; ``None`` where the reply is of another kind.

    It is, too, where its text may begin with reasoning, by ``separators``, and where its usage may
    be impossible.
    """
    try:
        reply = _decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    choice, told = reply.choices[0], reply.usage
    text = choice.message.content
    if separators is not None and separators.may_begin(text):
        return None
    made = told.completion_tokens
    if made > len(text) + UNSHOWN or (max_tokens is not None and made > max_tokens):
        return None
    if told.prompt_tokens > BELIEVED_PROMPT:
        return None
    asked, thought = told.prompt_tokens_details, told.completion_tokens_details
    if asked is not None and asked.cached_tokens > told.prompt_tokens:
        return None
    if thought is not None and thought.reasoning_tokens and _has_more(told):
        return None
    usage = Usage(
        told.prompt_tokens,
        made,
        0 if asked is None else asked.cached_tokens,
        0 if thought is None else min(thought.reasoning_tokens, made),
    )
    return (TextDelta(text), Finished(choice.finish_reason), usage), reply.system_fingerprint


def _has_more(told: FastUsage) -> bool:
    """Return true if the total counts more than prompt and completion."""
    return (told.total_tokens or 0) > told.prompt_tokens + told.completion_tokens
