"""Requests and replies of a provider that speaks the API of the client: nothing is translated.

The body passes with the fields that are listed here, under the provider's name of the model. Every
event of the reply passes with the name of the model that the client asked for. Events are read as
well, so that tokens are counted and a reply that breaks off is known.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct, field

from causerie.http.addresses import host_refusal
from causerie.protocol import sse
from causerie.protocol.events import Event, Usage, Verbatim
from causerie.protocol.parameters import HINTS, PARAMETERS
from causerie.protocol.request import (
    ChatRequest,
    NativeRequest,
    image_inside_network,
    image_not_fetched,
    images,
)
from causerie.protocol.sse import NamedEvent
from causerie.providers.answer import AnswerState
from causerie.providers.dialect import Dialect
from causerie.providers.incoming import Incoming
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

_MESSAGES_FIELDS = frozenset(
    {
        "cache_control", "context_management", "max_tokens", "messages", "metadata",
        "output_config", "output_format", "stop_sequences", "stream", "system", "temperature",
        "thinking", "tool_choice", "tools", "top_k", "top_p",
    }
)  # fmt: skip
_RESPONSES_FIELDS = frozenset(
    {
        "include", "input", "instructions", "max_output_tokens", "max_tool_calls", "metadata",
        "parallel_tool_calls", "prompt_cache_key", "reasoning", "safety_identifier", "stream",
        "stream_options", "temperature", "text", "tool_choice", "tools", "top_logprobs", "top_p",
        "truncation", "user",
    }
)  # fmt: skip
_FIELDS = {"messages": _MESSAGES_FIELDS, "responses": _RESPONSES_FIELDS}
_NOT_EXTENDED = frozenset({"service_tier", "chat_template_kwargs"})  # these are the operator's
_EXTENDED = [each for each in {**PARAMETERS, **HINTS}.values() if each.name not in _NOT_EXTENDED]
_OF_A_PEER = {
    "messages": frozenset(each.name for each in _EXTENDED if each.facts.messages == ""),
    "responses": frozenset(each.name for each in _EXTENDED if each.facts.responses == ""),
}
"""Parameters of chat completions that have their names in these APIs at a service like this one."""
COUNTED = {
    "messages": (
        "/messages/count_tokens",
        frozenset(
            {
                "cache_control", "context_management", "messages", "model", "output_config",
                "system", "thinking", "tool_choice", "tools",
            }
        ),
    ),
    "responses": (
        "/responses/input_tokens",
        frozenset(
            {
                "input", "instructions", "model", "parallel_tool_calls", "reasoning", "text",
                "tool_choice", "tools", "truncation",
            }
        ),
    ),
}  # fmt: skip
"""Paths that count the tokens of a prompt, and the fields that they take."""
_OWN = frozenset({"model", "store"})  # written here
_LIMITS = {"messages": "max_tokens", "responses": "max_output_tokens"}
_WITH_ADDRESS = frozenset({"mcp"})  # tools that name a host and credentials


def native_of(request: ChatRequest, dialect: Dialect) -> NativeRequest | None:
    """Return the request as it was sent if the provider speaks the API that it came by."""
    native = request.native
    return native if native is not None and native.shape in dialect.native else None


def native_body(
    request: ChatRequest, native: NativeRequest, dialect: Dialect, model: str
) -> tuple[bytes, list[str]]:
    """Return the body for a provider, and the report of what was left out.

    Raises :class:`InvalidRequest` for an image at an address that may not be fetched.
    """
    _check_images(request, dialect)
    listed = _FIELDS[native.shape] | dialect.knows | dialect.privileged
    if dialect.extends:
        listed |= _OF_A_PEER[native.shape]
    body: dict[str, Any] = {"model": model}
    changes: list[str] = []
    sent = native.body
    if native.unsealed is not None and not dialect.extends:
        sent = native.unsealed
        changes += native.left_out
    for name, value in sent.items():
        if name in listed:
            body[name] = value
        elif value is not None and name not in _OWN:
            changes.append(f"{name[:64]} dropped")
    tools = body.get("tools")
    if isinstance(tools, list):
        body["tools"] = [tool for tool in tools if not _names_address(tool)]
        changes += [f"tools[{at}] dropped" for at, tool in enumerate(tools) if _names_address(tool)]
    limit = _LIMITS[native.shape]
    if limit in body and request.max_tokens is not None:
        body[limit] = request.max_tokens  # lowered where the model writes less
    if native.shape == "responses":
        body["store"] = False
    return msgspec.json.encode(body), changes


def only(body: bytes, fields: Collection[str]) -> bytes:
    """Return a body with these fields alone."""
    document: dict[str, msgspec.Raw] = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    return msgspec.json.encode({name: document[name] for name in document if name in fields})


def _check_images(request: ChatRequest, dialect: Dialect) -> None:
    for param, image in images(request.messages):
        if not image.enclosed:
            if not dialect.fetches:
                raise image_not_fetched(param)
            if (why := host_refusal(image.url, dialect.inside)) is not None:
                raise image_inside_network(param, why)


def _names_address(tool: object) -> bool:
    return isinstance(tool, dict) and tool.get("type") in _WITH_ADDRESS


# Replies, passed on as they come.

_LAST = frozenset({"message_delta", "message_stop"})
_LAST_OF_RESPONSES = frozenset({"response.completed", "response.incomplete", "response.failed"})
_ENDS = _LAST | _LAST_OF_RESPONSES
_NAMES_MODEL = {
    "message_start": "message",
    **dict.fromkeys(
        ("response.created", "response.in_progress", "response.queued", *_LAST_OF_RESPONSES),
        "response",
    ),
}
"""Events that name the model, and their field that holds it."""


class _Type(Struct, gc=False):
    type: str = ""


_decode_type = msgspec.json.Decoder(_Type).decode


class NativeIncoming(Incoming, eq=False):
    """One reply whose events are passed on, beside those that say what they say."""

    _called: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        super().__post_init__()
        native = self.request.native
        if native is not None and native.shape == "responses":
            self._messages = ResponsesReader()

    def feed(self, stream: Iterable[bytes], events: list[Event]) -> None:
        for data in stream:
            if self.ended:
                return
            before = len(events)
            super().feed((data,), events)
            verbatim = self._passed(data)
            ended = len(events) > before and isinstance(events[-1], Usage)
            events.insert(len(events) - 1 if ended else before, verbatim)

    def goes_on(self, data: bytes) -> None:
        """Return ``None``: each event is passed on whole."""

    def whole(self, body: bytes) -> list[Event]:
        """Return the events of a reply that is no stream; raises :class:`ServiceError`."""
        events: list[Event] = []
        super().feed((body,), events)
        if not self._answers:
            raise self._unreadable("no reply of this API")
        self.finish(events)
        events.insert(len(events) - 1, Verbatim(_with_model(body, "", self.request.model)))
        return events

    def _read(
        self, choices: Sequence[ProviderChoice], events: list[Event], *, mended: bool
    ) -> None:
        # Which functions there are is between the client and the provider.
        for choice in choices:
            for said in (choice.delta, choice.message):
                for call in said.calls if said is not None else ():
                    if call.function is not None and call.function.name:
                        self._called.add(call.function.name.strip())
        super()._read(choices, events, mended=mended)

    def _new_answer(self, index: int) -> AnswerState:
        answer = super()._new_answer(index)
        answer.functions = self._called
        return answer

    def _passed(self, data: bytes) -> Verbatim:
        kind = data.name.decode("latin-1") if isinstance(data, NamedEvent) else _type_of(data)
        if (field := _NAMES_MODEL.get(kind)) is not None:
            data = _with_model(data, field, self.request.model)
        event = sse.encode(data)
        if kind:
            event = b"event: %b\n%b" % (kind.encode("latin-1", "replace"), event)
        return Verbatim(event, last=kind in _ENDS)


def _type_of(data: bytes) -> str:
    try:
        return _decode_type(data).type
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return ""


def _with_model(data: bytes, field: str, model: str) -> bytes:
    try:
        event: Any = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return data
    holder = event.get(field) if field else event
    if not isinstance(holder, dict) or "model" not in holder:
        return data
    holder["model"] = model
    return msgspec.json.encode(event)


# Replies of the Responses API, as chunks of chat completions.

_MOST_ITEMS = 4096
_TEXTS = frozenset({"response.output_text.delta", "response.refusal.delta"})
_THOUGHTS = frozenset(
    {
        "response.reasoning_summary_text.delta",
        "response.reasoning_text.delta",
        "response.reasoning.delta",
    }
)


class InputDetails(Struct, gc=False):
    cached_tokens: Tokens | None = None


class OutputDetails(Struct, gc=False):
    reasoning_tokens: Tokens | None = None


class ResponsesUsage(Struct, gc=False):
    input_tokens: Tokens | None = None
    output_tokens: Tokens | None = None
    input_tokens_details: InputDetails | None = None
    output_tokens_details: OutputDetails | None = None


class ContentPart(Struct, gc=False):
    text: str | None = None
    refusal: str | None = None


class OutputItem(Struct, gc=False):
    type: str = ""
    content: Annotated[list[ContentPart], Meta(max_length=_MOST_ITEMS)] | None = None
    call_id: str = ""
    name: str = ""
    arguments: str = ""


class IncompleteDetails(Struct, gc=False):
    reason: str | None = None


class ResponseObject(Struct, gc=False):
    status: str | None = None
    output: Annotated[list[OutputItem], Meta(max_length=_MOST_ITEMS)] | None = None
    usage: ResponsesUsage | None = None
    error: Any = None
    incomplete_details: IncompleteDetails | None = None


class ResponsesEvent(ResponseObject, gc=False):
    """An event of a stream, or a whole reply."""

    type: str = ""
    object: str = ""
    delta: Any = None
    output_index: int = 0
    item: OutputItem | None = None
    response: ResponseObject | None = None


_decode_event = msgspec.json.Decoder(ResponsesEvent).decode


class ResponsesReader:
    """Reads one reply. ``ended`` is set at the end that the server declares."""

    def __init__(self) -> None:
        self.ended = False
        self._calls: dict[int, int] = {}  # our index of a call by that of its item

    def read(self, data: bytes) -> ProviderChunk:
        """Return the chunk in ``data``; raises :class:`ValueError` where there is none."""
        try:
            event = decode_bounded(data, _decode_event)
        except msgspec.ValidationError as error:
            raise ValueError("no event of the Responses API") from error
        kind = event.type
        if event.object == "response":
            return self._whole(event)
        if kind in _TEXTS and isinstance(event.delta, str):
            return _chunk(ProviderDelta(content=event.delta))
        if kind in _THOUGHTS and isinstance(event.delta, str):
            return _chunk(ProviderDelta(reasoning_content=event.delta))
        if kind == "response.output_item.added" and event.item is not None:
            return _chunk(self._call_delta(event.output_index, event.item))
        if kind == "response.function_call_arguments.delta" and event.output_index in self._calls:
            function = ProviderFunction(arguments=str(event.delta or ""))
            call = ProviderCall(index=self._calls[event.output_index], function=function)
            return _chunk(ProviderDelta(tool_calls=[call]))
        if kind in _LAST_OF_RESPONSES and event.response is not None:
            self.ended = True
            return _end(event.response, ProviderDelta())
        if kind == "error" or (not kind and not is_nothing(event.error)):
            return ProviderChunk(error=event.error or msgspec.json.decode(data))
        return ProviderChunk()

    def _whole(self, reply: ResponseObject) -> ProviderChunk:
        texts: list[str] = []
        calls: list[ProviderCall] = []
        for index, item in enumerate(reply.output or ()):
            if item.type == "message":
                texts += [part.text or part.refusal or "" for part in item.content or ()]
            elif item.type == "function_call":
                calls += self._call_delta(index, item).tool_calls or ()
        return _end(reply, ProviderDelta(content="".join(texts), tool_calls=calls), whole=True)

    def _call_delta(self, index: int, item: OutputItem) -> ProviderDelta:
        if item.type != "function_call":
            return ProviderDelta()
        place = self._calls.setdefault(index, len(self._calls))
        function = ProviderFunction(name=item.name, arguments=item.arguments)
        return ProviderDelta(
            tool_calls=[ProviderCall(index=place, id=item.call_id, function=function)]
        )


def _end(reply: ResponseObject, delta: ProviderDelta, *, whole: bool = False) -> ProviderChunk:
    if reply.status == "failed" or not is_nothing(reply.error):
        return ProviderChunk(error=reply.error or {"message": "The response failed."})
    reason = reply.incomplete_details and reply.incomplete_details.reason
    choice = ProviderChoice(finish_reason=reason or reply.status or "completed")
    if whole:
        choice.message = delta
    else:
        choice.delta = delta
    return ProviderChunk(choices=[choice], usage=_usage(reply.usage))


def _usage(told: ResponsesUsage | None) -> ProviderUsage | None:
    if told is None:
        return None
    cached, thought = told.input_tokens_details, told.output_tokens_details
    return ProviderUsage(
        prompt_tokens=told.input_tokens,
        completion_tokens=told.output_tokens,
        prompt_tokens_details=ProviderPromptDetails(
            None if cached is None else cached.cached_tokens
        ),
        completion_tokens_details=ProviderCompletionDetails(
            None if thought is None else thought.reasoning_tokens
        ),
    )


def _chunk(delta: ProviderDelta) -> ProviderChunk:
    return ProviderChunk(choices=[ProviderChoice(delta=delta)])
