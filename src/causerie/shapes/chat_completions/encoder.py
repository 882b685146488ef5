"""Chat completions on the wire: types of chunks and completions, and their encoder."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain, groupby
from operator import attrgetter
from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from causerie.errors import ErrorDetails, InternalError
from causerie.protocol import sse
from causerie.protocol.events import (
    Batch,
    ContentEvent,
    Event,
    Finished,
    FinishReason,
    PassedBytes,
    ReasoningDelta,
    TextDelta,
    TokenLogprob,
    ToolCallDelta,
    ToolCallStarted,
    Usage,
)
from causerie.protocol.reasoning import Block, block_of, joined
from causerie.protocol.response import ResponseContext

# Field order is the order on the wire. `UNSET` fields are left out, `None` ones are `null`.


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


class CalledFunction(msgspec.Struct, kw_only=True, gc=False):
    name: str
    arguments: str


class ToolCallBody(msgspec.Struct, kw_only=True, gc=False):
    id: str
    type: Literal["function"] = "function"
    function: CalledFunction
    extra_content: Mapping[str, Any] | UnsetType = UNSET


class TopLogprob(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    token: str
    logprob: float
    bytes: list[int]


class TokenLogprobBody(TopLogprob, frozen=True, kw_only=True, gc=False):
    top_logprobs: list[TopLogprob]


class Logprobs(msgspec.Struct, kw_only=True, gc=False):
    content: list[TokenLogprobBody]


class Delta(msgspec.Struct, kw_only=True, gc=False):
    """A piece of a message; ``reasoning`` and ``reasoning_details`` only at doors of routers."""

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
    """Token counts of a reply, and its ``cost`` in money at the doors of routers."""

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


_encode_json = msgspec.json.Encoder().encode
_EVENT_END = sse.BEHIND
_GOES_ON = b'},"finish_reason":null}]}' + _EVENT_END
_choice_of = attrgetter("choice")
_NONE_CACHED = PromptDetails(0)
_NO_REASONING = CompletionDetails(0)


def completion(context: ResponseContext, events: Sequence[Event]) -> Completion:
    """Return the completion for all events of a reply that is not streamed."""
    if not events or not isinstance(usage := events[-1], Usage):
        raise InternalError("The answer ended before it was complete; please try again.")
    text, end = events[0], events[-2] if len(events) == 3 else None  # as most are
    if text.__class__ is TextDelta and end.__class__ is Finished and not text.logprobs:
        message = MessageBody(content=text.text)
        choice = CompletionChoice(index=text.choice, message=message, finish_reason=end.reason)
        if not end.verified:
            choice.verified = False
        choices = [choice]
    else:
        by_choice = groupby(sorted(events[:-1], key=_choice_of), key=_choice_of)
        choices = [_build_completion_choice(context, index, group) for index, group in by_choice]
    identity = context.identity
    return Completion(
        id=identity.id,
        created=identity.created,
        model=context.model,
        system_fingerprint=context.fingerprint,
        provider=context.provider,
        choices=choices,
        usage=usage_body(usage, context.cost),
    )


def _build_completion_choice(
    context: ResponseContext, index: int, events: Iterable[Event]
) -> CompletionChoice:
    texts: list[str] = []
    thoughts: list[ReasoningDelta] = []
    logprobs: list[TokenLogprob] = []
    calls: dict[int, ToolCallBody] = {}
    arguments: dict[int, list[str]] = {}
    finish: FinishReason = "stop"
    verified: bool | UnsetType = UNSET
    for event in events:
        if isinstance(event, TextDelta):
            texts.append(event.text)
            logprobs += event.logprobs
        elif isinstance(event, Finished):
            finish = event.reason
            verified = UNSET if event.verified else False
        elif isinstance(event, ReasoningDelta):
            thoughts.append(event)
        elif isinstance(event, ToolCallStarted):
            function = CalledFunction(name=context.function_name(event.name), arguments="")
            call = ToolCallBody(id=event.id, function=function, extra_content=event.extra or UNSET)
            calls[event.index], arguments[event.index] = call, []
        elif isinstance(event, ToolCallDelta):
            arguments[event.index].append(event.arguments)
    text = "".join(texts)
    message = MessageBody(content=text if text or not calls else None)
    if thoughts and context.reasoning_visible:
        reasoning = "".join([event.text for event in thoughts])
        message.reasoning_content = reasoning or UNSET
        if context.router_names:
            message.reasoning = reasoning or UNSET
            message.reasoning_details = joined(
                chain.from_iterable(map(_build_reasoning_blocks, thoughts))
            )
    for place, call in calls.items():
        call.function.arguments = "".join(arguments[place])
    message.tool_calls = [calls[place] for place in sorted(calls)] or UNSET
    return CompletionChoice(
        index=index,
        message=message,
        logprobs=Logprobs(content=list(map(logprob_body, logprobs))) if logprobs else None,
        finish_reason=finish,
        verified=verified,
    )


def _build_chunk(context: ResponseContext, choices: list[ChunkChoice]) -> Chunk:
    return Chunk(
        id=context.identity.id,
        created=context.identity.created,
        model=context.model,
        system_fingerprint=context.fingerprint,
        provider=context.provider,
        choices=choices,
    )


class ChunkEncoder:
    """Encodes events of a stream; each choice begins with a chunk that carries the role."""

    __slots__ = (
        "_context", "_delta_heads", "_ended_choices", "_prefix", "_reasoning_heads", "_shows_usage",
        "_text_heads",
    )  # fmt: skip

    def __init__(self, context: ResponseContext, *, usage: bool = True) -> None:
        self._context = context
        self._shows_usage = usage
        # Common part of all events: a chunk up to its first choice.
        self._prefix = sse.BEFORE + _encode_json(_build_chunk(context, [])).removesuffix(b"]}")
        # By choice that has started: what its chunks have in common, up to what their delta holds.
        self._delta_heads: dict[int, bytes] = {}
        # The same, up to the text, or to the reasoning where that is shown under one name.
        self._text_heads: dict[int, bytes] = {}
        self._reasoning_heads: dict[int, bytes] = {}
        self._ended_choices: set[int] = set()

    def feed(self, batch: Batch) -> bytes:
        texts = self._text_heads
        pieces: list[bytes] = []
        for event in batch:
            if event.__class__ is TextDelta and event.choice in texts and not event.logprobs:
                pieces += (texts[event.choice], _encode_json(event.text), _GOES_ON)
            elif (
                event.__class__ is ReasoningDelta
                and event.choice in self._reasoning_heads
                and event.text
            ):
                pieces += (self._reasoning_heads[event.choice], _encode_json(event.text), _GOES_ON)
            elif isinstance(event, Usage):
                if self._shows_usage:
                    usage = usage_body(event, self._context.cost)
                    pieces += (self._prefix, b'],"usage":', _encode_json(usage), b"}", _EVENT_END)
            elif not isinstance(event, PassedBytes):
                if event.choice not in self._delta_heads:
                    pieces += self._encode_choice_start(event.choice)
                pieces += self._encode_event(event, self._delta_heads[event.choice])
        return b"".join(pieces)

    def broken(self, error: ErrorDetails) -> bytes:
        """Return the last chunk of a broken stream: the error, and the end of each open choice."""
        prefixes = self._delta_heads.keys() or {0}
        choices = [
            ChunkChoice(index=index, delta=Delta(), finish_reason="error")
            for index in sorted(prefixes - self._ended_choices)
        ]
        chunk = _build_chunk(self._context, choices)
        chunk.error = error
        return sse.encode(_encode_json(chunk))

    def end(self) -> bytes:
        return sse.DONE

    def _encode_choice_start(self, index: int) -> Sequence[bytes]:
        before = b"".join((self._prefix, b'{"index":', _encode_json(index), b',"delta":{'))
        self._delta_heads[index], self._text_heads[index] = before, before + b'"content":'
        if self._context.reasoning_visible and not self._context.router_names:
            self._reasoning_heads[index] = before + b'"reasoning_content":'
        return (before, b'"role":"assistant","content":""', _GOES_ON)

    def _encode_event(self, event: ContentEvent | Finished, delta_head: bytes) -> Sequence[bytes]:
        if isinstance(event, Finished):
            self._ended_choices.add(event.choice)
            end = b"}]}" if event.verified else b',"verified":false}]}'
            return (delta_head, b'},"finish_reason":', _encode_json(event.reason), end, _EVENT_END)
        if not isinstance(event, ReasoningDelta):
            if isinstance(event, TextDelta) and not event.logprobs:
                return (self._text_heads[event.choice], _encode_json(event.text), _GOES_ON)
            return (self._prefix, _encode_json(self._build_choice(event)), b"]}", _EVENT_END)
        context = self._context
        if context.reasoning_visible and context.router_names:
            delta = Delta(reasoning_details=_build_reasoning_blocks(event))
            if event.text:
                delta.reasoning_content = delta.reasoning = event.text
            choice = ChunkChoice(index=event.choice, delta=delta)
            return (self._prefix, _encode_json(choice), b"]}", _EVENT_END)
        if event.choice in self._reasoning_heads and event.text:
            return (self._reasoning_heads[event.choice], _encode_json(event.text), _GOES_ON)
        return ()

    def _build_choice(self, event: TextDelta | ToolCallStarted | ToolCallDelta) -> ChunkChoice:
        match event:
            case TextDelta(text, logprobs):
                told = Logprobs(content=list(map(logprob_body, logprobs))) if logprobs else UNSET
                return ChunkChoice(index=event.choice, delta=Delta(content=text), logprobs=told)
            case ToolCallStarted(index, identifier, name):
                name = self._context.function_name(name)
                piece = ToolCallPiece(
                    index=index,
                    id=identifier,
                    type="function",
                    function=FunctionPiece(name=name, arguments=""),
                    extra_content=event.extra or UNSET,
                )
                return ChunkChoice(index=event.choice, delta=Delta(tool_calls=[piece]))
            case ToolCallDelta(index, arguments):
                piece = ToolCallPiece(index=index, function=FunctionPiece(arguments=arguments))
                return ChunkChoice(index=event.choice, delta=Delta(tool_calls=[piece]))


def usage_body(usage: Usage, cost: Callable[[Usage], float] | None = None) -> UsageBody:
    return UsageBody(
        usage.prompt,
        usage.completion,
        usage.prompt + usage.completion,
        PromptDetails(usage.cached) if usage.cached else _NONE_CACHED,
        CompletionDetails(usage.reasoning) if usage.reasoning else _NO_REASONING,
        None if cost is None else cost(usage),
    )


def _build_reasoning_blocks(event: ReasoningDelta) -> Sequence[Block]:
    return event.blocks or (block_of(event.text),)


def logprob_body(token: TokenLogprob) -> TokenLogprobBody:
    return TokenLogprobBody(
        token=token.text,
        logprob=token.logprob,
        bytes=list(token.raw),
        top_logprobs=[
            TopLogprob(token=other.text, logprob=other.logprob, bytes=list(other.raw))
            for other in token.top
        ],
    )
