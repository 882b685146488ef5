"""Convert replies of the Messages and Responses APIs into chunks of chat completions."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Annotated, Any, ClassVar, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct, field

from causerie.protocol.bounded_json import SMALL
from causerie.protocol.reasoning import MESSAGES_FORMAT
from causerie.providers.wire import (
    ProviderCall,
    ProviderChoice,
    ProviderChunk,
    ProviderCompletionDetails,
    ProviderDelta,
    ProviderFunction,
    ProviderPromptDetails,
    ProviderUsage,
    Tokens,
    decode_bounded,
    is_nothing,
)

T = TypeVar("T")

_MOST_ITEMS = 4096  # of a reply, or of the content of one


class ReplyReader(Struct, eq=False):
    """Base of readers of one reply; ``ended`` is set at the end that the server declares."""

    text_event: ClassVar[bytes]
    """Name of the events that only go on with a text; all of them have the ``text_mark``."""
    text_mark: ClassVar[bytes]
    decode_text: ClassVar[Any]
    text_of: ClassVar[attrgetter[str]]  # what was decoded
    ended: bool = False
    _calls: dict[int, int] = {}  # our index of a call by that of its block or item
    _merged_usage: ProviderUsage = field(default_factory=ProviderUsage)

    def text(self, data: bytes) -> str:
        """Return the text of an event that only continues a text; empty for other events."""
        if len(data) > SMALL or data.find(self.text_mark) < 0:
            return ""
        try:
            return self.text_of(self.decode_text(data))
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return ""

    def _call_delta(
        self, item_index: int, function: ProviderFunction, id: str | None = None
    ) -> ProviderDelta:
        place = self._calls.setdefault(item_index, len(self._calls))
        return ProviderDelta(tool_calls=[ProviderCall(index=place, id=id, function=function)])


def _decode_event(event_json: bytes, decode: Callable[[bytes], T], api_name: str) -> T:
    try:
        return decode_bounded(event_json, decode)
    except msgspec.ValidationError as error:
        raise ValueError(f"no event of the {api_name} API") from error


def _build_delta_chunk(delta: ProviderDelta) -> ProviderChunk:
    return ProviderChunk(choices=[ProviderChoice(delta=delta)])


# The Messages API.


class ThoughtDetails(Struct, gc=False):
    thinking_tokens: Tokens | None = None


class MessagesUsage(Struct, gc=False):
    input_tokens: Tokens | None = None
    cache_creation_input_tokens: Tokens | None = None
    cache_read_input_tokens: Tokens | None = None
    output_tokens: Tokens | None = None
    output_tokens_details: ThoughtDetails | None = None


class ContentBlock(Struct, gc=False):
    """A content block of the Messages API, a piece of a block, or the end of a message."""

    type: str = ""
    text: str = ""
    thinking: str = ""
    signature: str = ""
    data: str = ""
    id: str = ""
    name: str = ""
    input: msgspec.Raw = msgspec.Raw(b"{}")
    partial_json: str = ""
    stop_reason: str | None = None
    stop_sequence: str | None = None


class ReplyMessage(Struct, gc=False):
    content: Annotated[list[ContentBlock], Meta(max_length=_MOST_ITEMS)] = []
    stop_reason: str | None = None
    stop_sequence: str | None = None
    usage: MessagesUsage | None = None


class MessagesEvent(ReplyMessage, gc=False):
    """A stream event, or a whole reply, of the Messages API."""

    type: str = ""
    index: int = 0
    message: ReplyMessage | None = None
    content_block: ContentBlock | None = None
    delta: ContentBlock | None = None
    error: Any = None


decode_messages = msgspec.json.Decoder(MessagesEvent).decode


class MessagesText(Struct, gc=False):
    type: Literal["text_delta"]
    text: str


class MessagesTextEvent(Struct, gc=False):
    """An event of the Messages API that only continues a text."""

    type: Literal["content_block_delta"]
    delta: MessagesText


class MessagesReader(ReplyReader, eq=False):
    text_event: ClassVar = b"content_block_delta"
    text_mark: ClassVar = b'"text_delta"'
    decode_text: ClassVar = msgspec.json.Decoder(MessagesTextEvent).decode
    text_of: ClassVar = attrgetter("delta.text")

    def read(self, data: bytes) -> ProviderChunk:
        """Return the chat chunk for an event or a whole reply, or raise :class:`ValueError`."""
        event = _decode_event(data, decode_messages, "Messages")
        match event.type:
            case "message":
                return self._convert_whole_reply(event)
            case "message_start" if event.message is not None:
                return self._merge_usage_into_chunk(event.message.usage, started=True)
            case "content_block_start" if event.content_block is not None:
                return _build_delta_chunk(self._convert_block(event.index, event.content_block))
            case "content_block_delta" if event.delta is not None:
                return _build_delta_chunk(self._convert_block(event.index, event.delta))
            case "message_delta":
                chunk = self._merge_usage_into_chunk(event.usage)
                if event.delta is not None and event.delta.stop_reason:
                    chunk.choices = [_build_finish_choice(event.delta)]
                return chunk
            case "message_stop":
                self.ended = True
            case "error":
                return ProviderChunk(error=event.error or {"type": "api_error"})
            case "" if not is_nothing(event.error):
                return ProviderChunk(error=event.error)
        return ProviderChunk()

    def _convert_whole_reply(self, message: ReplyMessage) -> ProviderChunk:
        pieces = [self._convert_block(index, block) for index, block in enumerate(message.content)]
        delta = ProviderDelta(
            content="".join(piece.content for piece in pieces if isinstance(piece.content, str)),
            reasoning_details=[one for piece in pieces for one in piece.reasoning_details or ()],
            tool_calls=[one for piece in pieces for one in piece.tool_calls or ()],
        )
        chunk = self._merge_usage_into_chunk(message.usage)
        chunk.choices = [_build_finish_choice(message)]
        chunk.choices[0].message = delta
        return chunk

    def _convert_block(self, index: int, block: ContentBlock) -> ProviderDelta:
        match block.type:
            case "text_delta" | "text":
                return ProviderDelta(content=block.text)
            case "thinking_delta" | "signature_delta":
                return _build_reasoning_delta(index, block.thinking, block.signature)
            case "input_json_delta" if index in self._calls:
                return self._call_delta(index, ProviderFunction(arguments=block.partial_json))
            case "thinking" if block.thinking or block.signature:
                return _build_reasoning_delta(index, block.thinking, block.signature)
            case "redacted_thinking":
                encrypted = {"type": "reasoning.encrypted", "data": block.data, "index": index}
                return _build_reasoning_block_delta(encrypted)
            case "tool_use":
                given = bytes(block.input).decode()
                arguments = given if given.strip("{} \t\r\n") else ""
                return self._call_delta(index, ProviderFunction(block.name, arguments), block.id)
        return ProviderDelta()

    def _merge_usage_into_chunk(
        self, usage: MessagesUsage | None, *, started: bool = False
    ) -> ProviderChunk:
        # Prompt tokens come first, and may come only once.
        if usage is None:
            return ProviderChunk()
        told = self._merged_usage
        cached, written = usage.cache_read_input_tokens, usage.cache_creation_input_tokens
        if usage.input_tokens is not None:
            told.prompt_tokens = usage.input_tokens + (cached or 0) + (written or 0)
            told.prompt_tokens_details = ProviderPromptDetails(cached or 0, written or 0)
        if not started:  # what is told at the start is a placeholder
            told.completion_tokens = usage.output_tokens
        if usage.output_tokens_details is not None:
            thought = usage.output_tokens_details.thinking_tokens
            told.completion_tokens_details = ProviderCompletionDetails(reasoning_tokens=thought)
        return ProviderChunk(usage=msgspec.structs.replace(told))


def _build_finish_choice(ending: ContentBlock | ReplyMessage) -> ProviderChoice:
    return ProviderChoice(finish_reason=ending.stop_reason, stop_reason=ending.stop_sequence)


def _build_reasoning_delta(block_index: int, reasoning: str, signature: str) -> ProviderDelta:
    block: dict[str, Any] = {"type": "reasoning.text", "text": reasoning, "index": block_index}
    if signature:
        block["signature"] = signature
    return _build_reasoning_block_delta(block)


def _build_reasoning_block_delta(block: dict[str, Any]) -> ProviderDelta:
    return ProviderDelta(reasoning_details=[block | {"format": MESSAGES_FORMAT}])


# The Responses API.

LAST_OF_RESPONSES = frozenset({"response.completed", "response.incomplete", "response.failed"})
_TEXTS = frozenset({"response.output_text.delta", "response.refusal.delta"})
_THOUGHTS = frozenset(
    {
        "response.reasoning_summary_text.delta",
        "response.reasoning_text.delta",
        "response.reasoning.delta",
    }
)


class ResponsesUsage(Struct, gc=False):
    input_tokens: Tokens | None = None
    output_tokens: Tokens | None = None
    input_tokens_details: ProviderPromptDetails | None = None
    output_tokens_details: ProviderCompletionDetails | None = None


class ContentPart(Struct, gc=False):
    text: str | None = None
    refusal: str | None = None


class OutputItem(Struct, gc=False):
    type: str = ""
    content: Annotated[list[ContentPart], Meta(max_length=_MOST_ITEMS)] | None = None
    call_id: str = ""
    name: str = ""
    arguments: str = ""


class IncompleteReason(Struct, gc=False):
    reason: str | None = None


class ResponseObject(Struct, gc=False):
    status: str | None = None
    output: Annotated[list[OutputItem], Meta(max_length=_MOST_ITEMS)] | None = None
    usage: ResponsesUsage | None = None
    error: Any = None
    incomplete_details: IncompleteReason | None = None


class ResponsesEvent(ResponseObject, gc=False):
    """A stream event, or a whole reply, of the Responses API."""

    type: str = ""
    object: str = ""
    delta: Any = None
    output_index: int = 0
    item: OutputItem | None = None
    response: ResponseObject | None = None


decode_responses = msgspec.json.Decoder(ResponsesEvent).decode


class ResponsesTextEvent(Struct, gc=False):
    """An event of the Responses API that only continues a text."""

    type: Literal["response.output_text.delta"]
    text: str = field(name="delta")
    object: Literal[""] = ""


class ResponsesReader(ReplyReader, eq=False):
    text_event: ClassVar = b"response.output_text.delta"
    text_mark: ClassVar = b'"response.output_text.delta"'
    decode_text: ClassVar = msgspec.json.Decoder(ResponsesTextEvent).decode
    text_of: ClassVar = attrgetter("text")

    def read(self, data: bytes) -> ProviderChunk:
        event = _decode_event(data, decode_responses, "Responses")
        kind = event.type
        if event.object == "response":
            return self._convert_whole_reply(event)
        if kind in _TEXTS and isinstance(event.delta, str):
            return _build_delta_chunk(ProviderDelta(content=event.delta))
        if kind in _THOUGHTS and isinstance(event.delta, str):
            return _build_delta_chunk(ProviderDelta(reasoning_content=event.delta))
        if kind == "response.output_item.added" and event.item is not None:
            return _build_delta_chunk(self._convert_call_item(event.output_index, event.item))
        if kind == "response.function_call_arguments.delta" and event.output_index in self._calls:
            function = ProviderFunction(arguments=str(event.delta or ""))
            return _build_delta_chunk(self._call_delta(event.output_index, function))
        if kind in LAST_OF_RESPONSES and event.response is not None:
            self.ended = True
            return _build_final_chunk(event.response, ProviderDelta())
        if kind == "error" or (not kind and not is_nothing(event.error)):
            return ProviderChunk(error=event.error or msgspec.json.decode(data))
        return ProviderChunk()

    def _convert_whole_reply(self, reply: ResponseObject) -> ProviderChunk:
        texts: list[str] = []
        calls: list[ProviderCall] = []
        for index, item in enumerate(reply.output or ()):
            if item.type == "message":
                texts += [part.text or part.refusal or "" for part in item.content or ()]
            elif item.type == "function_call":
                calls += self._convert_call_item(index, item).tool_calls or ()
        delta = ProviderDelta(content="".join(texts), tool_calls=calls)
        return _build_final_chunk(reply, delta, whole=True)

    def _convert_call_item(self, index: int, item: OutputItem) -> ProviderDelta:
        if item.type != "function_call":
            return ProviderDelta()
        return self._call_delta(index, ProviderFunction(item.name, item.arguments), item.call_id)


def _build_final_chunk(
    response: ResponseObject, delta: ProviderDelta, *, whole: bool = False
) -> ProviderChunk:
    if response.status == "failed" or not is_nothing(response.error):
        return ProviderChunk(error=response.error or {"message": "The response failed."})
    reason = response.incomplete_details and response.incomplete_details.reason
    choice = ProviderChoice(finish_reason=reason or response.status or "completed")
    if whole:
        choice.message = delta
    else:
        choice.delta = delta
    told, usage = response.usage, None
    if told is not None:
        usage = ProviderUsage(
            prompt_tokens=told.input_tokens,
            completion_tokens=told.output_tokens,
            prompt_tokens_details=told.input_tokens_details,
            completion_tokens_details=told.output_tokens_details,
        )
    return ProviderChunk(choices=[choice], usage=usage)
