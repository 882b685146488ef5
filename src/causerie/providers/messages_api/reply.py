"""Replies of the Messages API, whole or as events of a stream, as chunks of chat completions.

Blocks of reasoning keep their signature and their place among the blocks: the API wants them back
unchanged.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from causerie.protocol.bounded_json import REPLY, SMALL, TooMuchWork, check
from causerie.providers.messages_api.history import FORMAT
from causerie.providers.wire import (
    NoJson,
    ProviderCall,
    ProviderChoice,
    ProviderChunk,
    ProviderCompletionDetails,
    ProviderDelta,
    ProviderFunction,
    ProviderPromptDetails,
    ProviderUsage,
    Tokens,
    is_nothing,
)

_MOST_BLOCKS = 4096


class OutputDetails(Struct, gc=False):
    thinking_tokens: Tokens | None = None


class MessagesUsage(Struct, gc=False):
    input_tokens: Tokens | None = None
    cache_creation_input_tokens: Tokens | None = None
    cache_read_input_tokens: Tokens | None = None
    output_tokens: Tokens | None = None
    output_tokens_details: OutputDetails | None = None


class ContentBlock(Struct, gc=False):
    type: str = ""
    text: str = ""
    thinking: str = ""
    signature: str = ""
    data: str = ""
    id: str = ""
    name: str = ""
    input: msgspec.Raw = msgspec.Raw(b"{}")


class EventDelta(Struct, gc=False):
    type: str = ""
    text: str = ""
    thinking: str = ""
    signature: str = ""
    partial_json: str = ""
    stop_reason: str | None = None


class ReplyMessage(Struct, gc=False):
    content: Annotated[list[ContentBlock], Meta(max_length=_MOST_BLOCKS)] = []
    stop_reason: str | None = None
    usage: MessagesUsage | None = None


class MessagesEvent(ReplyMessage, gc=False):
    """An event of a stream, or a whole reply."""

    type: str = ""
    index: int = 0
    message: ReplyMessage | None = None
    content_block: ContentBlock | None = None
    delta: EventDelta | None = None
    error: Any = None


_decode = msgspec.json.Decoder(MessagesEvent).decode


class MessagesReader:
    """Reads one reply. ``ended`` is set at the end that the server declares."""

    def __init__(self) -> None:
        self.ended = False
        self._calls: dict[int, int] = {}  # our index of a call by that of its block
        self._usage = ProviderUsage()

    def read(self, data: bytes) -> ProviderChunk:
        """Return the chunk in ``data``; raises :class:`ValueError` where there is none."""
        event = _read(data)
        match event.type:
            case "message":
                return self._whole(event)
            case "message_start" if event.message is not None:
                return self._told(event.message.usage, started=True)
            case "content_block_start" if event.content_block is not None:
                return _chunk(self._block(event.index, event.content_block))
            case "content_block_delta" if event.delta is not None:
                return _chunk(self._piece(event.index, event.delta))
            case "message_delta":
                told = self._told(event.usage)
                if event.delta is not None and event.delta.stop_reason:
                    told.choices = [ProviderChoice(finish_reason=event.delta.stop_reason)]
                return told
            case "message_stop":
                self.ended = True
            case "error":
                return ProviderChunk(error=event.error or {"type": "api_error"})
            case "" if not is_nothing(event.error):
                return ProviderChunk(error=event.error)
        return ProviderChunk()

    def _whole(self, message: ReplyMessage) -> ProviderChunk:
        pieces = [self._block(index, block) for index, block in enumerate(message.content)]
        delta = ProviderDelta(
            content="".join(piece.content for piece in pieces if isinstance(piece.content, str)),
            reasoning_details=[one for piece in pieces for one in piece.reasoning_details or ()],
            tool_calls=[one for piece in pieces for one in piece.tool_calls or ()],
        )
        chunk = self._told(message.usage)
        chunk.choices = [ProviderChoice(message=delta, finish_reason=message.stop_reason)]
        return chunk

    def _block(self, index: int, block: ContentBlock) -> ProviderDelta:
        """A block that begins, or a whole one."""
        match block.type:
            case "text":
                return ProviderDelta(content=block.text)
            case "thinking" if block.thinking or block.signature:
                return _thought(index, block.thinking, block.signature)
            case "redacted_thinking":
                return _details({"type": "reasoning.encrypted", "data": block.data, "index": index})
            case "tool_use":
                place = self._calls.setdefault(index, len(self._calls))
                given = bytes(block.input).decode()
                arguments = given if given.strip("{} \t\r\n") else ""
                function = ProviderFunction(name=block.name, arguments=arguments)
                call = ProviderCall(index=place, id=block.id, function=function)
                return ProviderDelta(tool_calls=[call])
        return ProviderDelta()

    def _piece(self, index: int, delta: EventDelta) -> ProviderDelta:
        match delta.type:
            case "text_delta":
                return ProviderDelta(content=delta.text)
            case "thinking_delta" | "signature_delta":
                return _thought(index, delta.thinking, delta.signature)
            case "input_json_delta" if index in self._calls:
                function = ProviderFunction(arguments=delta.partial_json)
                return ProviderDelta(
                    tool_calls=[ProviderCall(index=self._calls[index], function=function)]
                )
        return ProviderDelta()

    def _told(self, usage: MessagesUsage | None, *, started: bool = False) -> ProviderChunk:
        """Note the tokens; those of the prompt come first, and may be told once only."""
        if usage is None:
            return ProviderChunk()
        told = self._usage
        cached, written = usage.cache_read_input_tokens, usage.cache_creation_input_tokens
        if usage.input_tokens is not None:
            told.prompt_tokens = usage.input_tokens + (cached or 0) + (written or 0)
            told.prompt_tokens_details = ProviderPromptDetails(cached_tokens=cached or 0)
        if not started:  # what is told at the start is a placeholder
            told.completion_tokens = usage.output_tokens
        if usage.output_tokens_details is not None:
            thought = usage.output_tokens_details.thinking_tokens
            told.completion_tokens_details = ProviderCompletionDetails(reasoning_tokens=thought)
        return ProviderChunk(usage=msgspec.structs.replace(told))


def _read(data: bytes) -> MessagesEvent:
    try:
        if len(data) > SMALL:
            check(data, REPLY)
        return _decode(data)
    except TooMuchWork as error:
        raise ValueError(f"it takes too long to decode: {error}") from error
    except msgspec.ValidationError as error:
        raise ValueError("no event of the Messages API") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise NoJson("no JSON") from error


def _chunk(delta: ProviderDelta) -> ProviderChunk:
    return ProviderChunk(choices=[ProviderChoice(delta=delta)])


def _thought(index: int, text: str, signature: str) -> ProviderDelta:
    block: dict[str, Any] = {"type": "reasoning.text", "text": text, "index": index}
    if signature:
        block["signature"] = signature
    return _details(block)


def _details(block: dict[str, Any]) -> ProviderDelta:
    return ProviderDelta(reasoning_details=[block | {"format": FORMAT}])
