"""Replies of Responses: the response as a whole, and the events of its stream.

Both come from one builder, so that a stream put together is the whole response. Items follow each
other: one ends before the next one begins, except calls whose arguments arrive mixed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from time import time_ns
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType, structs

from causerie.errors import ErrorDetails, InternalError
from causerie.protocol.body import is_object
from causerie.protocol.events import (
    Batch,
    Event,
    Finished,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    ToolCallStarted,
    Usage,
)
from causerie.protocol.reasoning import Block, are_plain, joined
from causerie.protocol.response import ResponseContext
from causerie.shapes.chat_completions.encoder import TokenLogprobBody, logprob_body
from causerie.shapes.responses.tools import InputReader, ToolForm
from causerie.shapes.sealed_reasoning import SealedReasoning, seal

# Field order is the order on the wire. `UNSET` fields are left out, `None` ones are `null`.

Status = Literal["in_progress", "completed", "incomplete", "failed"]
ItemStatus = Literal["in_progress", "completed", "incomplete"]


class OutputText(Struct, tag_field="type", tag="output_text", kw_only=True):
    text: str = ""
    annotations: tuple[()] = ()
    logprobs: Sequence[TokenLogprobBody] = ()


class SummaryText(Struct, tag_field="type", tag="summary_text"):
    text: str


class ReasoningText(Struct, tag_field="type", tag="reasoning_text"):
    text: str


class MessageItem(Struct, tag_field="type", tag="message", kw_only=True):
    id: str
    status: ItemStatus = "in_progress"
    role: Literal["assistant"] = "assistant"
    content: Sequence[OutputText] = ()


class ReasoningItem(Struct, tag_field="type", tag="reasoning", kw_only=True):
    id: str
    status: ItemStatus = "in_progress"
    summary: Sequence[SummaryText] = ()
    content: Sequence[ReasoningText] | UnsetType = UNSET
    encrypted_content: str | UnsetType = UNSET


class FunctionCallItem(Struct, tag_field="type", tag="function_call", kw_only=True):
    id: str
    status: ItemStatus = "in_progress"
    call_id: str
    name: str
    arguments: str = ""
    namespace: str | UnsetType = UNSET


class CustomCallItem(Struct, tag_field="type", tag="custom_tool_call", kw_only=True):
    id: str
    status: ItemStatus = "in_progress"
    call_id: str
    name: str
    input: str = ""
    namespace: str | UnsetType = UNSET


class SearchCallItem(Struct, tag_field="type", tag="tool_search_call", kw_only=True):
    id: str
    status: ItemStatus = "in_progress"
    call_id: str
    execution: Literal["client"] = "client"
    arguments: Any = {}


CallItem = FunctionCallItem | CustomCallItem | SearchCallItem
Item = MessageItem | ReasoningItem | CallItem


class InputTokenDetails(Struct, frozen=True, gc=False):
    cached_tokens: int
    cache_write_tokens: int = 0


class OutputTokenDetails(Struct, frozen=True, gc=False):
    reasoning_tokens: int


class ResponseUsage(Struct, frozen=True, gc=False, omit_defaults=True):
    """Token counts of a response, and its ``cost`` in money at the doors of routers."""

    input_tokens: int
    input_tokens_details: InputTokenDetails
    output_tokens: int
    output_tokens_details: OutputTokenDetails
    total_tokens: int
    cost: float | None = None


class IncompleteDetails(Struct, frozen=True):
    reason: Literal["max_output_tokens", "content_filter"]


class Failure(Struct, frozen=True):
    code: str
    message: str


class ResponseBody(Struct, frozen=True, kw_only=True):
    """A response, while it is made and when it is complete."""

    instructions: str | None = None
    max_output_tokens: int | None = None
    max_tool_calls: int | None = None
    metadata: Mapping[str, Any] = {}
    parallel_tool_calls: bool = True
    prompt_cache_key: str | None = None
    reasoning: Mapping[str, Any] | None = None
    safety_identifier: str | None = None
    temperature: float = 1.0
    text: Mapping[str, Any] = {}
    tool_choice: Any = "auto"
    tools: Sequence[Any] = ()
    top_logprobs: int = 0
    top_p: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    user: str | UnsetType = UNSET
    id: str
    object: Literal["response"] = "response"
    created_at: int
    completed_at: int | None = None
    status: Status = "in_progress"
    background: Literal[False] = False
    error: Failure | None = None
    incomplete_details: IncompleteDetails | None = None
    model: str
    output: Sequence[Item] = ()
    previous_response_id: None = None
    service_tier: str = "default"
    store: Literal[False] = False
    truncation: Literal["disabled"] = "disabled"
    usage: ResponseUsage | None = None
    verified: bool | UnsetType = UNSET
    """False if checking the reply against its format took too much work."""


class InputTokens(Struct, frozen=True):
    """Answer of ``input_tokens``: the number of tokens of a prompt."""

    input_tokens: int
    object: Literal["response.input_tokens"] = "response.input_tokens"


class ResponseEvent(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """An event of a stream, with the fields that its type has."""

    type: str
    sequence_number: int
    response: ResponseBody | None = None
    item: Item | None = None
    part: OutputText | SummaryText | None = None
    item_id: str | None = None
    output_index: int | None = None
    content_index: int | None = None
    summary_index: int | None = None
    delta: str | None = None
    text: str | None = None
    logprobs: Sequence[TokenLogprobBody] | None = None
    name: str | None = None
    arguments: str | None = None
    input: str | None = None
    error: Any = None


_encode = msgspec.json.Encoder().encode
_DONE = b"data: [DONE]\n\n"
_INCOMPLETE: Mapping[str, IncompleteDetails] = {
    "length": IncompleteDetails("max_output_tokens"),
    "content_filter": IncompleteDetails("content_filter"),
}
_RESPONSE_ID = re.compile(rb'"id"\s*:\s*"(resp_[\w-]{1,128})"')
_SEQUENCE_NUMBER = re.compile(rb'"sequence_number"\s*:\s*([0-9]{1,9})\b')
_CODES = {"rate_limit_error": "rate_limit_exceeded"}
"""Codes of a failed response by the types of errors; all others are the server's."""


def _build_usage(usage: Usage, context: ResponseContext) -> ResponseUsage:
    return ResponseUsage(
        usage.prompt,
        InputTokenDetails(usage.cached, usage.written),
        usage.completion,
        OutputTokenDetails(usage.reasoning),
        usage.prompt + usage.completion,
        None if context.cost is None else context.cost(usage),
    )


class ResponseReply(Struct, frozen=True):
    """Encoder of the reply to one request."""

    echo: Callable[[], Mapping[str, Any]]
    """Returns fields of a response that say again what the request set."""
    forms: Mapping[str, ToolForm] = {}
    """The client's tools by the names of their functions; plain functions are not in it."""
    encrypted: bool = False  # reasoning comes back in `encrypted_content`
    summarized: bool = False
    """Reasoning is the summary of its item, and streamed; else it is its content."""
    most_calls: int | None = None

    def completion(self, context: ResponseContext, events: Sequence[Event]) -> ResponseBody:
        """Return the whole response; raise :class:`InternalError` if events are missing."""
        if not events or not isinstance(events[-1], Usage):
            raise InternalError("The answer ended before it was complete; please try again.")
        encoder = ResponseEncoder(self, context, True)
        encoder.feed(events)
        return encoder.response()

    def encoder(self, context: ResponseContext) -> ResponseEncoder:
        return ResponseEncoder(self, context)


class _OpenCall(Struct, eq=False):
    """A call under way; ``reader`` decodes the input of a custom tool."""

    index: int  # of its events
    place: dict[str, Any]  # what its events say of the item
    item: CallItem
    reader: InputReader | None
    arguments: list[str] = []


class ResponseEncoder(Struct, eq=False):
    """Builds the response from events, and encodes each step as an event unless it is collecting.

    A message or a reasoning item is open, or neither: both keep their text in ``_item_texts``.
    """

    _reply: ResponseReply
    _context: ResponseContext
    _is_collecting: bool = False
    _sequence_number: int = 0
    _unsent_pieces: list[bytes] = []
    _has_started: bool = False
    _output_items: list[Item] = []
    _message_item: MessageItem | None = None
    _reasoning_item: ReasoningItem | None = None
    _place_dict: dict[str, Any] = {}  # what events say of the item that is open, and its only part
    _item_texts: list[str] = []
    _logprobs: list[TokenLogprobBody] = []
    _text_prefix: bytes = b""
    _reasoning_blocks: list[Block] = []
    _open_calls: dict[int, _OpenCall] = {}  # by the index of their events
    _call_count: int = 0
    _status: Status = "in_progress"
    _incompletion: IncompleteDetails | None = None
    _is_format_verified: bool = True
    _usage: Usage | None = None
    _failure: Failure | None = None
    _echoed_fields: Mapping[str, Any] = {}

    def feed(self, batch: Batch) -> bytes:
        if not self._has_started:
            self._start_response()
        for event in batch:
            if isinstance(event, TextDelta):
                self._add_text(event)
            elif isinstance(event, ToolCallDelta):
                self._add_call_arguments(event)
            elif isinstance(event, ReasoningDelta):
                self._add_reasoning(event)
            elif isinstance(event, ToolCallStarted):
                self._begin_call(event)
            elif isinstance(event, Finished):
                self._is_format_verified = event.verified
                self._incompletion = _INCOMPLETE.get(event.reason)
                status: ItemStatus = "completed" if self._incompletion is None else "incomplete"
                self._close_all(status)
                self._status = status
            elif isinstance(event, Usage):
                self._usage = event
        return self._take_output()

    def end(self) -> bytes:
        if self._status == "failed":
            return b""
        self._send_event(f"response.{self._status}", response=self.response())
        return self._take_output() + _DONE

    def broken(self, error: ErrorDetails) -> bytes:
        if not self._has_started:
            self._start_response()
        self._close_all("incomplete")
        self._status = "failed"
        code = str(error.code) if error.type == "invalid_request_error" else _CODES.get(error.type)
        self._failure = Failure(code or "server_error", error.message)
        shown = {"message": error.message, "param": error.param}
        self._send_event("error", error={"type": error.type, "code": str(error.code), **shown})
        self._send_event("response.failed", response=self.response())
        return self._take_output() + _DONE

    def resume(self, first: bytes, newest: bytes) -> None:
        """Continue a provider's stream by the id in its first and number in its newest event."""
        self._has_started, self._echoed_fields = True, self._reply.echo()
        if numbers := _SEQUENCE_NUMBER.findall(newest):
            self._sequence_number = int(numbers[-1]) + 1
        if named := _RESPONSE_ID.search(first):
            identity = structs.replace(self._context.identity, id=named[1].decode())
            self._context = structs.replace(self._context, identity=identity)

    def response(self) -> ResponseBody:
        context, identity = self._context, self._context.identity
        return ResponseBody(
            **self._echoed_fields,
            id=identity.id,
            created_at=identity.created,
            completed_at=time_ns() // 1_000_000_000 if self._status == "completed" else None,
            status=self._status,
            error=self._failure,
            incomplete_details=self._incompletion,
            model=context.model,
            output=list(self._output_items) if self._status != "in_progress" else [],
            usage=None if self._usage is None else _build_usage(self._usage, context),
            verified=UNSET if self._is_format_verified else False,
        )

    def _take_output(self) -> bytes:
        data = b"".join(self._unsent_pieces)
        self._unsent_pieces.clear()
        return data

    def _send_event(self, type: str, **fields: Any) -> None:
        if not self._is_collecting:
            event = {"type": type, "sequence_number": self._sequence_number, **fields}
            self._unsent_pieces += (b"event: ", type.encode(), b"\ndata: ", _encode(event), b"\n\n")
            self._sequence_number += 1

    def _start_response(self) -> None:
        self._has_started = True
        self._echoed_fields = self._reply.echo()
        response = None if self._is_collecting else self.response()
        self._send_event("response.created", response=response)
        self._send_event("response.in_progress", response=response)

    def _new_item_id(self, prefix: str) -> str:
        id = self._context.identity.id
        return f"{prefix}_{id.partition('_')[2] or id}_{len(self._output_items)}"

    def _add_item(self, item: Item) -> dict[str, Any]:
        at = len(self._output_items)
        self._send_event("response.output_item.added", output_index=at, item=item)
        self._output_items.append(item)
        return {"item_id": item.id, "output_index": at}

    def _end_output_item(self, item: Item, place: Mapping[str, Any], status: ItemStatus) -> None:
        item.status = status
        at = place["output_index"]
        self._send_event("response.output_item.done", output_index=at, item=item)

    # The text of the answer.

    def _add_text(self, event: TextDelta) -> None:
        if self._message_item is None:
            if not event.text and not event.logprobs:
                return
            self._close_all("completed")
            self._message_item = MessageItem(id=self._new_item_id("msg"))
            self._place_dict = {**self._add_item(self._message_item), "content_index": 0}
            self._item_texts, self._logprobs = [], []
            self._send_event("response.content_part.added", **self._place_dict, part=OutputText())
            delta = {"type": "response.output_text.delta", **self._place_dict}
            start = _encode(delta).removesuffix(b"}")
            self._text_prefix = b"event: response.output_text.delta\ndata: " + start + b',"delta":'
        self._item_texts.append(event.text)
        if self._is_collecting:
            self._logprobs += map(logprob_body, event.logprobs)
            return
        if event.logprobs:
            logprobs = list(map(logprob_body, event.logprobs))
            self._logprobs += logprobs
            told = _encode(logprobs)
        else:
            told = b"[]"
        self._unsent_pieces += (
            self._text_prefix, _encode(event.text), b',"logprobs":', told,
            b',"sequence_number":%d}\n\n' % self._sequence_number,
        )  # fmt: skip
        self._sequence_number += 1

    def _close_message(self, status: ItemStatus) -> None:
        item, self._message_item = self._message_item, None
        if item is None:
            return
        text, place = "".join(self._item_texts), self._place_dict
        part = OutputText(text=text, logprobs=self._logprobs)
        self._send_event("response.output_text.done", **place, text=text, logprobs=part.logprobs)
        self._send_event("response.content_part.done", **place, part=part)
        item.content = [part]
        self._end_output_item(item, place, status)

    # Reasoning: a summary that is streamed, or content that comes with the finished item.

    def _add_reasoning(self, event: ReasoningDelta) -> None:
        if not self._context.reasoning_visible:
            return
        if self._reasoning_item is None:
            if not event.text and not (event.blocks and self._reply.encrypted):
                return
            self._close_all("completed")
            self._reasoning_item = ReasoningItem(id=self._new_item_id("rs"))
            self._place_dict = {**self._add_item(self._reasoning_item), "summary_index": 0}
            self._item_texts, self._reasoning_blocks = [], []
        self._reasoning_blocks += event.blocks
        if event.text:
            if self._reply.summarized:
                self._send_summary_delta(event.text)
            self._item_texts.append(event.text)

    def _send_summary_delta(self, text: str) -> None:
        if not self._item_texts:
            part = SummaryText("")
            self._send_event("response.reasoning_summary_part.added", **self._place_dict, part=part)
        self._send_event("response.reasoning_summary_text.delta", **self._place_dict, delta=text)

    def _close_reasoning(self, status: ItemStatus) -> None:
        item, self._reasoning_item = self._reasoning_item, None
        if item is None:
            return
        text, place = "".join(self._item_texts), self._place_dict
        if text and self._reply.summarized:
            part = SummaryText(text)
            self._send_event("response.reasoning_summary_text.done", **place, text=text)
            self._send_event("response.reasoning_summary_part.done", **place, part=part)
            item.summary = [part]
        elif text:
            item.content = [ReasoningText(text)]
        if self._reply.encrypted:
            blocks = [] if are_plain(self._reasoning_blocks) else joined(self._reasoning_blocks)
            item.encrypted_content = seal(SealedReasoning(text, blocks))
        self._end_output_item(item, place, status)

    # Calls.

    def _begin_call(self, event: ToolCallStarted) -> None:
        most = self._reply.most_calls
        if most is not None and self._call_count >= most:
            return
        self._call_count += 1
        self._close_message("completed")
        self._close_reasoning("completed")
        for call in list(self._open_calls.values()):
            if is_object("".join(call.arguments)):
                self._close_call(call, "completed")
        item = self._build_call_item(event)
        reader = InputReader() if isinstance(item, CustomCallItem) else None
        self._open_calls[event.index] = _OpenCall(event.index, self._add_item(item), item, reader)

    def _build_call_item(self, event: ToolCallStarted) -> CallItem:
        name = self._context.function_name(event.name)
        form = self._reply.forms.get(name) or ToolForm("function", name)
        if form.kind == "tool_search":
            return SearchCallItem(id=self._new_item_id("tsc"), call_id=event.id)
        is_custom = form.kind == "custom"
        return (CustomCallItem if is_custom else FunctionCallItem)(
            id=self._new_item_id("ctc" if is_custom else "fc"),
            call_id=event.id,
            name=form.name,
            namespace=form.namespace or UNSET,
        )

    def _add_call_arguments(self, event: ToolCallDelta) -> None:
        call = self._open_calls.get(event.index)
        if call is None or not event.arguments:
            return
        arguments = event.arguments
        call.arguments.append(arguments)
        self._send_argument_delta(
            call, arguments if call.reader is None else call.reader.feed(arguments)
        )

    def _send_argument_delta(self, call: _OpenCall, delta: str) -> None:
        if not delta or isinstance(call.item, SearchCallItem):
            return
        name = "custom_tool_call_input" if call.reader else "function_call_arguments"
        self._send_event(f"response.{name}.delta", **call.place, delta=delta)
        if isinstance(call.item, CustomCallItem):
            call.item.input += delta

    def _close_call(self, call: _OpenCall, status: ItemStatus) -> None:
        del self._open_calls[call.index]
        arguments, item, place = "".join(call.arguments), call.item, call.place
        if isinstance(item, FunctionCallItem):
            item.arguments = arguments
            done = "response.function_call_arguments.done"
            self._send_event(done, **place, name=item.name, arguments=arguments)
        elif isinstance(item, CustomCallItem):
            assert call.reader is not None
            self._send_argument_delta(call, call.reader.finish())
            self._send_event("response.custom_tool_call_input.done", **place, input=item.input)
        elif is_object(arguments):
            item.arguments = msgspec.json.decode(arguments)
        self._end_output_item(item, place, status)

    # The end.

    def _close_all(self, last_status: ItemStatus) -> None:
        newest = self._output_items[-1] if self._output_items else None

        def status(item: Item | None) -> ItemStatus:
            return last_status if item is newest else "completed"

        self._close_message(status(self._message_item))
        self._close_reasoning(status(self._reasoning_item))
        for call in list(self._open_calls.values()):
            self._close_call(call, status(call.item))
