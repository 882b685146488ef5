"""Types of the responses on the wire: chunks of a stream, a whole completion, usage.

Field order is the order on the wire. ``UNSET`` fields are left out, ``None``
ones are written as ``null``. None of these is ever part of a reference cycle, so
the garbage collector skips them (``gc=False``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from causerie.errors import ErrorDetails
from causerie.protocol.events import FinishReason
from causerie.protocol.reasoning import Block


class FunctionPiece(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    name: str | UnsetType = UNSET
    arguments: str = ""


class ToolCallPiece(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A piece of a call: the first has ``id``, ``type`` and the name, the others arguments only."""

    index: int
    id: str | UnsetType = UNSET
    type: Literal["function"] | UnsetType = UNSET
    function: FunctionPiece
    extra_content: Mapping[str, Any] | UnsetType = UNSET


class Function(msgspec.Struct, kw_only=True, gc=False):
    name: str
    arguments: str


class ToolCallBody(msgspec.Struct, kw_only=True, gc=False):
    id: str
    type: Literal["function"] = "function"
    function: Function
    extra_content: Mapping[str, Any] | UnsetType = UNSET


class TopLogprob(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    token: str
    logprob: float
    bytes: list[int]


class TokenLogprobBody(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    token: str
    logprob: float
    bytes: list[int]
    top_logprobs: list[TopLogprob]


class Logprobs(msgspec.Struct, kw_only=True, gc=False):
    content: list[TokenLogprobBody]


class Delta(msgspec.Struct, kw_only=True, gc=False):
    """``reasoning`` and ``reasoning_details`` say the reasoning again, as routers name it."""

    role: Literal["assistant"] | UnsetType = UNSET
    content: str | UnsetType = UNSET
    reasoning_content: str | UnsetType = UNSET
    tool_calls: list[ToolCallPiece] | UnsetType = UNSET
    reasoning: str | UnsetType = UNSET
    reasoning_details: Sequence[Block] | UnsetType = UNSET


class ChunkChoice(msgspec.Struct, kw_only=True, gc=False):
    index: int
    delta: Delta
    logprobs: Logprobs | UnsetType = UNSET
    finish_reason: FinishReason | None = None
    verified: bool | UnsetType = UNSET
    """False if checking the reply against its response format took too much work."""


class PromptDetails(msgspec.Struct, frozen=True, gc=False):
    cached_tokens: int


class CompletionDetails(msgspec.Struct, frozen=True, gc=False):
    reasoning_tokens: int


class UsageBody(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """``cost`` is there at the doors of routers, in money of the service."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails
    completion_tokens_details: CompletionDetails
    cost: float | None = None


class Chunk(msgspec.Struct, kw_only=True, gc=False):
    """One ``data:`` line of a stream; ``error`` only where the stream broke.

    ``provider`` is there at the doors of routers, as in a whole completion.
    """

    id: str
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    created: int
    model: str
    system_fingerprint: str
    provider: str | UnsetType = UNSET
    choices: list[ChunkChoice]
    usage: UsageBody | UnsetType = UNSET
    error: ErrorDetails | UnsetType = UNSET


class MessageBody(msgspec.Struct, kw_only=True, gc=False):
    role: Literal["assistant"] = "assistant"
    content: str | None = None
    reasoning_content: str | UnsetType = UNSET
    tool_calls: list[ToolCallBody] | UnsetType = UNSET
    reasoning: str | UnsetType = UNSET
    reasoning_details: Sequence[Block] | UnsetType = UNSET


class CompletionChoice(msgspec.Struct, kw_only=True, gc=False):
    index: int
    message: MessageBody
    logprobs: Logprobs | None = None
    finish_reason: FinishReason
    verified: bool | UnsetType = UNSET
    """False if checking the reply against its response format took too much work."""


class Completion(msgspec.Struct, kw_only=True, gc=False):
    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    system_fingerprint: str
    provider: str | UnsetType = UNSET
    choices: list[CompletionChoice]
    usage: UsageBody
