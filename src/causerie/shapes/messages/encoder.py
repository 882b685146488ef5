"""Replies of the Messages API: blocks of content, whole or as a stream of events."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType, field

from causerie.errors import ErrorDetails, InternalError
from causerie.protocol import sse
from causerie.protocol.events import (
    Batch,
    Event,
    Finished,
    FinishReason,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    ToolCallStarted,
    Usage,
    joined_events,
)
from causerie.protocol.reasoning import MESSAGES_FORMAT, READABLE, Block, seal_of
from causerie.protocol.response import ResponseContext
from causerie.protocol.sse import Brackets
from causerie.shapes.sealed_reasoning import Digest, SealedReasoning, seal

StopReason = Literal["end_turn", "max_tokens", "stop_sequence", "tool_use", "refusal"]
_REASONS: Mapping[FinishReason, StopReason] = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "content_filter": "refusal",
}

# Field order is the order on the wire.


class TextBlock(Struct, kw_only=True, tag_field="type", tag="text", gc=False):
    text: str = ""


class ThinkingBlock(Struct, kw_only=True, tag_field="type", tag="thinking", gc=False):
    thinking: str = ""
    signature: str = ""


class RedactedThinkingBlock(
    Struct, kw_only=True, tag_field="type", tag="redacted_thinking", gc=False
):
    data: str


class ToolUseBlock(Struct, kw_only=True, tag_field="type", tag="tool_use", gc=False):
    id: str
    name: str
    input: Mapping[str, Any] = {}


ContentBlock = TextBlock | ThinkingBlock | RedactedThinkingBlock | ToolUseBlock


class OutputDetails(Struct, frozen=True, gc=False):
    thinking_tokens: int = 0


class MessageUsage(Struct, frozen=True, gc=False):
    """Token counts of a reply; the three kinds of input tokens add up to the prompt."""

    input_tokens: int = 0
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int = 0
    output_tokens: int = 0
    output_tokens_details: OutputDetails = OutputDetails()


class MessageObject(Struct, kw_only=True, gc=False):
    """A whole reply; at the start of a stream it has no content yet."""

    id: str
    type: Literal["message"] = "message"
    role: Literal["assistant"] = "assistant"
    model: str
    content: list[ContentBlock] = []
    stop_reason: StopReason | None = None
    stop_sequence: str | None = None
    usage: MessageUsage = MessageUsage()


class TextPiece(Struct, tag_field="type", tag="text_delta", gc=False):
    text: str


class ThinkingPiece(Struct, tag_field="type", tag="thinking_delta", gc=False):
    thinking: str


class SignaturePiece(Struct, tag_field="type", tag="signature_delta", gc=False):
    signature: str


class InputPiece(Struct, tag_field="type", tag="input_json_delta", gc=False):
    partial_json: str


Piece = TextPiece | ThinkingPiece | SignaturePiece | InputPiece


class MessageStart(Struct, tag_field="type", tag="message_start", gc=False):
    message: MessageObject


class BlockStart(Struct, tag_field="type", tag="content_block_start", gc=False):
    index: int
    content_block: ContentBlock


class BlockDelta(Struct, tag_field="type", tag="content_block_delta", gc=False):
    index: int
    delta: Piece


class BlockStop(Struct, tag_field="type", tag="content_block_stop", gc=False):
    index: int


class Ending(Struct, gc=False):
    stop_reason: StopReason
    stop_sequence: str | None = None


class MessageDelta(Struct, tag_field="type", tag="message_delta", gc=False):
    delta: Ending
    usage: MessageUsage


class MessageStop(Struct, tag_field="type", tag="message_stop", gc=False):
    pass


class Ping(Struct, tag_field="type", tag="ping", gc=False):
    pass


class ErrorObject(Struct, frozen=True, gc=False):
    type: str
    message: str
    details: Mapping[str, Any] | UnsetType = UNSET


class ErrorBody(Struct, frozen=True, tag_field="type", tag="error", gc=False):
    """The JSON body of an error, which is also the event of an error within a stream."""

    error: ErrorObject
    request_id: str


BlockEvent = BlockStart | BlockDelta | BlockStop
EVENTS: tuple[type[Struct], ...] = (
    MessageStart, BlockStart, BlockDelta, BlockStop, MessageDelta, MessageStop, Ping, ErrorBody,
)  # fmt: skip
"""Events of a stream, in their usual order."""
StreamEvent = MessageStart | BlockEvent | MessageDelta | MessageStop | Ping | ErrorBody

_encode_json = msgspec.json.Encoder().encode
_TEXT_GOES_ON = b"}}" + sse.BEHIND


def encoded(event: StreamEvent) -> bytes:
    name = type(event).__struct_config__.tag
    return b"event: %b\n%b" % (str(name).encode(), sse.encode(_encode_json(event)))


PING = encoded(Ping())


class _Blocks(Struct, eq=False):
    """Turns events of a reply into events of content blocks, for streams and whole replies.

    Text and thinking are one block at a time. Calls may overlap; each ends with its arguments.
    """

    _context: ResponseContext
    _reply: MessagesReply
    _next_block_index: int = 0  # index of the next block
    _last_begun_block_index: int = 0
    _block_kind: str = ""  # of the open block
    _open_calls: dict[int, tuple[int, Brackets]] = {}  # blocks of those that are not complete
    _thinking_block_key: object = None  # the provider's index of the open block of thinking
    _thinking_digest: Digest = field(default_factory=Digest)
    _is_signed: bool = False
    _withheld_thinking: list[str] = []  # text that is kept back
    finish: Finished = Finished("stop")
    usage: Usage | None = None

    def blocks_of(self, event: Event) -> Iterator[BlockEvent]:
        match event:
            case TextDelta(text) if text:
                if self._block_kind != "text":
                    yield from self._yield_block_start("text", TextBlock())
                yield BlockDelta(self._last_begun_block_index, TextPiece(text))
            case ReasoningDelta() if self._context.reasoning_visible:
                yield from self._yield_reasoning(event)
            case ToolCallStarted():
                yield from self._yield_call_start(event)
            case ToolCallDelta(index, arguments) if index in self._open_calls and arguments:
                place, brackets = self._open_calls[index]
                yield BlockDelta(place, InputPiece(arguments))
                brackets.read(arguments)
                if brackets.closed:
                    del self._open_calls[index]
                    yield BlockStop(place)
            case Finished():
                self.finish = event
                yield from self._yield_block_stop()
                for place, _ in self._open_calls.values():
                    yield BlockStop(place)
                self._open_calls.clear()
            case Usage():
                self.usage = event

    def _yield_block_start(self, kind: str, block: ContentBlock) -> Iterator[BlockEvent]:
        yield from self._yield_block_stop()
        self._last_begun_block_index, self._block_kind = self._next_block_index, kind
        self._next_block_index += 1
        yield BlockStart(self._last_begun_block_index, block)

    def _yield_block_stop(self) -> Iterator[BlockEvent]:
        if self._block_kind == "thinking" and not self._is_signed:
            text = "".join(self._withheld_thinking)
            signature = (
                seal(SealedReasoning(text))
                if self._reply.omits_thinking
                else self._thinking_digest.signature()
            )
            yield BlockDelta(self._last_begun_block_index, SignaturePiece(signature))
        if self._block_kind:
            yield BlockStop(self._last_begun_block_index)
        self._block_kind = ""

    def _yield_call_start(self, event: ToolCallStarted) -> Iterator[BlockEvent]:
        if event.extra and not self._context.reasoning_visible:  # else it was said as reasoning
            yield from self._yield_redacted(seal_of(event.id, event.extra))
        name = self._context.function_name(event.name)
        yield from self._yield_block_start("call", ToolUseBlock(id=event.id, name=name))
        self._open_calls[event.index] = self._last_begun_block_index, Brackets()
        self._block_kind = ""

    def _yield_reasoning(self, event: ReasoningDelta) -> Iterator[BlockEvent]:
        if event.text and not any(_block_text(block) for block in event.blocks):
            yield from self._yield_thinking(event.text, self._thinking_block_key, "")
        for block in event.blocks:
            if block["type"] in READABLE:
                signature = block.get("signature") or ""
                yield from self._yield_thinking(_block_text(block), block.get("index"), signature)
            else:
                yield from self._yield_redacted(block)

    def _yield_thinking(self, text: str, key: object, signature: str) -> Iterator[BlockEvent]:
        if (
            self._block_kind != "thinking"
            or self._is_signed
            or (key != self._thinking_block_key and self._thinking_block_key is not None)
        ):
            yield from self._yield_block_stop()  # by what is kept of that block
            self._thinking_digest, self._withheld_thinking, self._is_signed = Digest(), [], False
            yield from self._yield_block_start("thinking", ThinkingBlock())
        self._thinking_block_key = key
        if text and self._reply.omits_thinking:
            self._withheld_thinking.append(text)
        elif text:
            self._thinking_digest.add(text)
            yield BlockDelta(self._last_begun_block_index, ThinkingPiece(text))
        if signature:
            self._is_signed = True
            if self._reply.omits_thinking:
                said = {"text": "".join(self._withheld_thinking), "signature": signature}
                sealed = {"type": "reasoning.text", **said, "format": MESSAGES_FORMAT}
                signature = seal(SealedReasoning("", [sealed]))
            yield BlockDelta(self._last_begun_block_index, SignaturePiece(signature))

    def _yield_redacted(self, block: Block) -> Iterator[BlockEvent]:
        data = block.get("data")
        if block.get("format") != MESSAGES_FORMAT or not isinstance(data, str):
            data = seal(SealedReasoning("", [block]))
        yield from self._yield_block_start("redacted", RedactedThinkingBlock(data=data))
        yield from self._yield_block_stop()

    def ending(self) -> Ending:
        stopped = self.finish.stop_sequence
        if self.finish.reason == "stop" and stopped in self._reply.stop_sequences:
            return Ending("stop_sequence", stopped)
        return Ending(_REASONS.get(self.finish.reason, "end_turn"))


def _block_text(block: Block) -> str:
    field = READABLE.get(block["type"])
    text = block.get(field) if field else None
    return text if isinstance(text, str) else ""


def _build_message_usage(usage: Usage) -> MessageUsage:
    return MessageUsage(
        usage.prompt - usage.cached - usage.written,
        usage.written,
        usage.cached,
        usage.completion,
        OutputDetails(usage.reasoning),
    )


class MessagesReply(Struct, frozen=True):
    """Encoder of replies; with ``omits_thinking`` thinking is sent only within its signature."""

    omits_thinking: bool = False
    stop_sequences: tuple[str, ...] = ()

    def completion(self, context: ResponseContext, events: Sequence[Event]) -> MessageObject:
        """Return the message for all events of a reply that is not streamed."""
        blocks = _Blocks(context, self)
        content: list[ContentBlock] = []
        pieces: dict[int, list[str]] = {}
        for event in joined_events(events):
            for made in blocks.blocks_of(event):
                if isinstance(made, BlockStart):
                    content.append(made.content_block)
                elif isinstance(made, BlockDelta):
                    match made.delta:
                        case TextPiece(text) | ThinkingPiece(text) | InputPiece(text):
                            pieces.setdefault(made.index, []).append(text)
                        case SignaturePiece(signature):
                            block = content[made.index]
                            assert isinstance(block, ThinkingBlock)
                            block.signature = signature
        if blocks.usage is None:
            raise InternalError("The answer ended before it was complete; please try again.")
        for index, texts in pieces.items():
            _set_block_text_or_input(content[index], "".join(texts))
        ending = blocks.ending()
        return MessageObject(
            id=context.identity.id,
            model=context.model,
            content=content,
            stop_reason=ending.stop_reason,
            stop_sequence=ending.stop_sequence,
            usage=_build_message_usage(blocks.usage),
        )

    def encoder(self, context: ResponseContext) -> MessagesEncoder:
        return MessagesEncoder(context, self)


def _set_block_text_or_input(block: ContentBlock, text: str) -> None:
    match block:
        case TextBlock():
            block.text = text
        case ThinkingBlock():
            block.thinking = text
        case ToolUseBlock():
            try:
                block.input = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
            except (msgspec.DecodeError, UnicodeError, RecursionError):  # it was cut
                block.input = {"malformed": text}


class MessagesEncoder(_Blocks, eq=False):
    """Encodes the events of a reply as a stream; the last events come from :meth:`end`."""

    _has_started: bool = False
    _has_failed: bool = False
    _prefix_block_index: int = -1
    _text_delta_prefix: bytes = b""  # beginning of a piece of text in that block

    def feed(self, batch: Batch) -> bytes:
        pieces = [] if self._has_started else [self._encode_message_start()]
        for event in batch:
            if isinstance(event, TextDelta) and self._block_kind == "text" and event.text:
                if self._last_begun_block_index != self._prefix_block_index:
                    empty = encoded(BlockDelta(self._last_begun_block_index, TextPiece("")))
                    self._text_delta_prefix = empty.removesuffix(b'""' + _TEXT_GOES_ON)
                    self._prefix_block_index = self._last_begun_block_index
                pieces += (self._text_delta_prefix, _encode_json(event.text), _TEXT_GOES_ON)
            else:
                pieces += map(encoded, self.blocks_of(event))
        return b"".join(pieces)

    def broken(self, error: ErrorDetails) -> bytes:
        self._has_failed = True
        request_id = self._context.identity.request_id
        return encoded(error_body(error, request_id))

    def end(self) -> bytes:
        usage = self.usage
        if self._has_failed or usage is None:
            return b""
        last = MessageDelta(self.ending(), _build_message_usage(usage))
        return encoded(last) + encoded(MessageStop())

    def _encode_message_start(self) -> bytes:
        self._has_started = True
        context = self._context
        message = MessageObject(id=context.identity.id, model=context.model)
        used = None if context.used is None else context.used()
        if used is not None and not used.estimated:
            message.usage = msgspec.structs.replace(_build_message_usage(used), output_tokens=0)
        return encoded(MessageStart(message))


_TYPES: Mapping[str, str] = {"server_error": "api_error", "upstream_error": "api_error"}
_LATE = ("upstream_timeout", "request_timeout")


def error_body(error: ErrorDetails, request_id: str) -> ErrorBody:
    kind, message = _TYPES.get(error.type, error.type), error.message
    if error.code in _LATE:
        kind = "timeout_error"
    details: dict[str, Any] = {"error_code": error.code}
    if error.param is not None:
        details["param"] = error.param
    if error.metadata is not UNSET:
        details |= error.metadata
    if error.code == "context_length_exceeded" and "context_length" in details:
        # Agents know by these words that they must shorten the conversation.
        length, limit = details.get("prompt_tokens"), details["context_length"]
        message = f"prompt is too long: {length} tokens > {limit} maximum. {message}"
    return ErrorBody(ErrorObject(kind, message, details), request_id)
