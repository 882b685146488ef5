"""Replies of Responses: the response as a whole, and the events of its stream.

Both come from one builder, so that a stream put together is the whole response. Items follow each
other: one ends before the next one begins, except calls whose arguments arrive mixed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from time import time_ns
from typing import Any

import msgspec
from msgspec import UNSET, Struct

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
from causerie.shapes.responses.body import (
    CallItem,
    CustomCallItem,
    Echo,
    Failure,
    FunctionCallItem,
    IncompleteDetails,
    Item,
    ItemStatus,
    MessageItem,
    OutputText,
    ReasoningItem,
    ReasoningText,
    ResponseBody,
    SearchCallItem,
    Status,
    SummaryText,
    usage_of,
)
from causerie.shapes.responses.custom_input import InputReader
from causerie.shapes.responses.tools import ToolForm
from causerie.shapes.sealed_reasoning import SealedReasoning, seal

_encode = msgspec.json.Encoder().encode
_DONE = b"data: [DONE]\n\n"
_INCOMPLETE: Mapping[str, IncompleteDetails] = {
    "length": IncompleteDetails("max_output_tokens"),
    "content_filter": IncompleteDetails("content_filter"),
}
_CODES = {"rate_limit_error": "rate_limit_exceeded"}
"""Codes of a failed response by the types of errors; all others are the server's."""


class ResponseReply(Struct, frozen=True):
    """How the reply to one request looks."""

    echo: Echo
    forms: Mapping[str, ToolForm] = {}
    """The client's tools by the names of their functions; plain functions are not in it."""
    encrypted: bool = False
    """Reasoning comes back in ``encrypted_content``."""
    summarized: bool = False
    """Reasoning is the summary of its item, and streamed; else it is its content."""
    most_calls: int | None = None

    def completion(self, context: ResponseContext, events: Sequence[Event]) -> ResponseBody:
        """Return the whole response; raise :class:`InternalError` if events are missing."""
        if not events or not isinstance(events[-1], Usage):
            raise InternalError("The answer ended before it was complete; please try again.")
        encoder = ResponseEncoder(self, context, silent=True)
        encoder.feed(events)
        return encoder.response()

    def encoder(self, context: ResponseContext) -> ResponseEncoder:
        return ResponseEncoder(self, context)


class _OpenCall:
    """A call under way; ``reader`` decodes the input of a custom tool."""

    __slots__ = ("arguments", "at", "index", "item", "reader")

    def __init__(self, at: int, index: int, item: CallItem) -> None:
        self.at = at  # among the items
        self.index = index  # of its events
        self.item = item
        self.arguments: list[str] = []
        self.reader = InputReader() if isinstance(item, CustomCallItem) else None


class ResponseEncoder:
    """Builds the response from events, and encodes each step as an event unless ``silent``."""

    def __init__(
        self, reply: ResponseReply, context: ResponseContext, *, silent: bool = False
    ) -> None:
        self._reply = reply
        self._context = context
        self._silent = silent
        identity = context.identity
        self._id_end = identity.id.partition("_")[2] or identity.id
        self._sequence = 0
        self._out: list[bytes] = []
        self._started = False
        self._items: list[Item] = []
        self._message: MessageItem | None = None
        self._texts: list[str] = []
        self._logprobs: list[TokenLogprobBody] = []
        self._text_prefix = b""
        self._reasoning: ReasoningItem | None = None
        self._thoughts: list[str] = []
        self._blocks: list[Block] = []
        self._calls: dict[int, _OpenCall] = {}  # by the index of their events
        self._call_count = 0
        self._ignored: set[int] = set()  # calls beyond the limit
        self._status: Status = "in_progress"
        self._incomplete: IncompleteDetails | None = None
        self._verified = True
        self._usage: Usage | None = None
        self._failure: Failure | None = None

    def feed(self, batch: Batch) -> bytes:
        """Return the events of a batch."""
        if not self._started:
            self._start()
        for event in batch:
            if isinstance(event, TextDelta):
                self._text(event)
            elif isinstance(event, ToolCallDelta):
                self._arguments(event)
            elif isinstance(event, ReasoningDelta):
                self._reason(event)
            elif isinstance(event, ToolCallStarted):
                self._call(event)
            elif isinstance(event, Finished):
                self._finish(event)
            elif isinstance(event, Usage):
                self._usage = event
        return self._taken()

    def end(self) -> bytes:
        """Return the last event; ``b""`` behind that of a broken stream."""
        if self._status == "failed":
            return b""
        self._send(f"response.{self._status}", {"response": self.response()})
        return self._taken() + _DONE

    def broken(self, error: ErrorDetails) -> bytes:
        """Return the error, and the end of the response as failed."""
        if not self._started:
            self._start()
        self._close_all("incomplete")
        self._status = "failed"
        code = str(error.code) if error.type == "invalid_request_error" else _CODES.get(error.type)
        self._failure = Failure(code or "server_error", error.message)
        told = {
            **{"type": error.type, "code": str(error.code)},
            **{"message": error.message, "param": error.param},
        }
        self._send("error", {"error": told})
        self._send("response.failed", {"response": self.response()})
        return self._taken() + _DONE

    def response(self) -> ResponseBody:
        """Return the response as it is now."""
        context, identity = self._context, self._context.identity
        ended = self._status != "in_progress"
        fields = {name: getattr(self._reply.echo, name) for name in Echo.__struct_fields__}
        return ResponseBody(
            **fields,
            id=identity.id,
            created_at=identity.created,
            completed_at=time_ns() // 1_000_000_000 if self._status == "completed" else None,
            status=self._status,
            error=self._failure,
            incomplete_details=self._incomplete,
            model=context.model,
            output=list(self._items) if ended else [],
            usage=None if self._usage is None else usage_of(self._usage, context.cost),
            verified=UNSET if self._verified else False,
        )

    def _taken(self) -> bytes:
        data = b"".join(self._out)
        self._out.clear()
        return data

    def _send(self, type: str, fields: Mapping[str, Any]) -> None:
        if not self._silent:
            event = {"type": type, "sequence_number": self._sequence, **fields}
            self._out += (b"event: ", type.encode(), b"\ndata: ", _encode(event), b"\n\n")
            self._sequence += 1

    def _start(self) -> None:
        self._started = True
        response = None if self._silent else self.response()
        self._send("response.created", {"response": response})
        self._send("response.in_progress", {"response": response})

    def _new_id(self, prefix: str) -> str:
        return f"{prefix}_{self._id_end}_{len(self._items)}"

    def _add(self, item: Item) -> None:
        self._send("response.output_item.added", {"output_index": len(self._items), "item": item})
        self._items.append(item)

    def _done(self, at: int, item: Item, status: ItemStatus) -> None:
        item.status = status
        self._send("response.output_item.done", {"output_index": at, "item": item})

    def _part(self, item: Item, at: int, **more: object) -> dict[str, object]:
        return {"item_id": item.id, "output_index": at, **more}

    # The text of the answer.

    def _text(self, event: TextDelta) -> None:
        if self._message is None:
            if not event.text and not event.logprobs:
                return
            self._close_all("completed")
            self._begin_message()
        self._texts.append(event.text)
        if self._silent:
            self._logprobs += map(logprob_body, event.logprobs)
            return
        if event.logprobs:
            logprobs = list(map(logprob_body, event.logprobs))
            self._logprobs += logprobs
            told = _encode(logprobs)
        else:
            told = b"[]"
        self._out += (
            self._text_prefix, _encode(event.text), b',"logprobs":', told,
            b',"sequence_number":%d}\n\n' % self._sequence,
        )  # fmt: skip
        self._sequence += 1

    def _begin_message(self) -> None:
        self._message = item = MessageItem(id=self._new_id("msg"))
        self._add(item)
        place = self._part(item, len(self._items) - 1, content_index=0)
        self._send("response.content_part.added", {**place, "part": OutputText()})
        delta = {"type": "response.output_text.delta", **place}
        start = _encode(delta).removesuffix(b"}")
        self._text_prefix = b"event: response.output_text.delta\ndata: " + start + b',"delta":'

    def _close_message(self, status: ItemStatus) -> None:
        item, self._message = self._message, None
        if item is None:
            return
        part = OutputText(text="".join(self._texts), logprobs=self._logprobs)
        self._texts, self._logprobs = [], []
        at = self._items.index(item)
        place = self._part(item, at, content_index=0)
        told = {"text": part.text, "logprobs": part.logprobs}
        self._send("response.output_text.done", {**place, **told})
        self._send("response.content_part.done", {**place, "part": part})
        item.content = [part]
        self._done(at, item, status)

    # Reasoning: a summary that is streamed, or content that comes with the finished item.

    def _reason(self, event: ReasoningDelta) -> None:
        if not self._context.reasoning_visible:
            return
        if self._reasoning is None:
            if not event.text and not (event.blocks and self._reply.encrypted):
                return
            self._close_all("completed")
            self._begin_reasoning()
        assert self._reasoning is not None
        self._blocks += event.blocks
        if event.text:
            if self._reply.summarized:
                self._summarize(event.text)
            self._thoughts.append(event.text)

    def _begin_reasoning(self) -> None:
        self._reasoning = item = ReasoningItem(id=self._new_id("rs"))
        self._thoughts, self._blocks = [], []
        self._add(item)

    def _summarize(self, text: str) -> None:
        item = self._reasoning
        assert item is not None
        place = self._part(item, self._items.index(item), summary_index=0)
        if not self._thoughts:
            part = {**place, "part": SummaryText("")}
            self._send("response.reasoning_summary_part.added", part)
        self._send("response.reasoning_summary_text.delta", {**place, "delta": text})

    def _close_reasoning(self, status: ItemStatus) -> None:
        item, self._reasoning = self._reasoning, None
        if item is None:
            return
        text, at = "".join(self._thoughts), self._items.index(item)
        if text and self._reply.summarized:
            place = self._part(item, at, summary_index=0)
            self._send("response.reasoning_summary_text.done", {**place, "text": text})
            part = SummaryText(text)
            self._send("response.reasoning_summary_part.done", {**place, "part": part})
            item.summary = [part]
        elif text:
            item.content = [ReasoningText(text)]
        if self._reply.encrypted:
            blocks = [] if are_plain(self._blocks) else joined(self._blocks)
            item.encrypted_content = seal(SealedReasoning(text, blocks))
        self._done(at, item, status)

    # Calls.

    def _call(self, event: ToolCallStarted) -> None:
        most = self._reply.most_calls
        if most is not None and self._call_count >= most:
            self._ignored.add(event.index)
            return
        self._call_count += 1
        self._close_message("completed")
        self._close_reasoning("completed")
        self._close_calls(complete_only=True)
        item = self._call_item(event)
        self._add(item)
        self._calls[event.index] = _OpenCall(len(self._items) - 1, event.index, item)

    def _call_item(self, event: ToolCallStarted) -> CallItem:
        name = self._context.function_name(event.name)
        form = self._reply.forms.get(name) or ToolForm("function", name)
        namespace = form.namespace or UNSET
        if form.kind == "tool_search":
            return SearchCallItem(id=self._new_id("tsc"), call_id=event.id)
        if form.kind == "custom":
            return CustomCallItem(
                id=self._new_id("ctc"), call_id=event.id, name=form.name, namespace=namespace
            )
        return FunctionCallItem(
            id=self._new_id("fc"), call_id=event.id, name=form.name, namespace=namespace
        )

    def _arguments(self, event: ToolCallDelta) -> None:
        call = self._calls.get(event.index)
        if call is None or not event.arguments:
            return
        call.arguments.append(event.arguments)
        self._tell_arguments(
            call, event.arguments if call.reader is None else call.reader.feed(event.arguments)
        )

    def _tell_arguments(self, call: _OpenCall, delta: str) -> None:
        if not delta or isinstance(call.item, SearchCallItem):
            return
        name = "custom_tool_call_input" if call.reader else "function_call_arguments"
        self._send(f"response.{name}.delta", {**self._part(call.item, call.at), "delta": delta})
        if isinstance(call.item, CustomCallItem):
            call.item.input += delta

    def _close_calls(self, *, complete_only: bool = False) -> None:
        for call in list(self._calls.values()):
            arguments = "".join(call.arguments)
            if not complete_only or is_object(arguments):
                self._close_call(call, arguments, "completed")

    def _close_call(self, call: _OpenCall, arguments: str, status: ItemStatus) -> None:
        del self._calls[call.index]
        item, place = call.item, self._part(call.item, call.at)
        if isinstance(item, FunctionCallItem):
            item.arguments = arguments
            told = {"name": item.name, "arguments": arguments}
            self._send("response.function_call_arguments.done", {**place, **told})
        elif isinstance(item, CustomCallItem):
            assert call.reader is not None
            self._tell_arguments(call, call.reader.finish())
            self._send("response.custom_tool_call_input.done", {**place, "input": item.input})
        elif is_object(arguments):
            item.arguments = msgspec.json.decode(arguments)
        self._done(call.at, item, status)

    # The end.

    def _finish(self, event: Finished) -> None:
        self._verified = event.verified
        self._incomplete = _INCOMPLETE.get(event.reason)
        self._close_all("completed" if self._incomplete is None else "incomplete")
        self._status = "completed" if self._incomplete is None else "incomplete"

    def _close_all(self, last: ItemStatus) -> None:
        """End the items that are under way; the last one of all gets this status."""
        newest = self._items[-1] if self._items else None

        def status(item: Item | None) -> ItemStatus:
            return last if item is newest else "completed"

        self._close_message(status(self._message))
        self._close_reasoning(status(self._reasoning))
        for call in list(self._calls.values()):
            self._close_call(call, "".join(call.arguments), status(call.item))
