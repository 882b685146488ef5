"""Requests and replies of a provider that speaks the API of the client: nothing is translated.

The body passes with the fields that are listed here, under the provider's name of the model. Every
event of the reply passes with the name of the model that the client asked for. Events are read as
well, so that tokens are counted and a reply that breaks off is known. The replies of operations
other than chat pass through :class:`PassedReader`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import quote

import msgspec
from msgspec import Meta, Raw, Struct
from msgspec.structs import replace

from causerie.errors import UpstreamFailed
from causerie.protocol import sse
from causerie.protocol.events import (
    Batch,
    Event,
    Finished,
    FinishReason,
    PassedBytes,
    PassedReply,
    TextDelta,
    Usage,
)
from causerie.protocol.operations import PRICES, members
from causerie.protocol.parameters import HINTS, PARAMETERS
from causerie.protocol.request import ChatRequest, NativeRequest, Unread
from causerie.protocol.sse import EventDecoder, NamedEvent
from causerie.providers.answer import AnswerState
from causerie.providers.dialect import Dialect
from causerie.providers.incoming import (
    BELIEVED_PROMPT,
    UNSHOWN,
    Incoming,
    PlainRead,
    estimated_tokens,
    most_of_prompt,
    unreadable_reply,
)
from causerie.providers.other_replies import LAST_OF_RESPONSES, MessagesReader, ResponsesReader
from causerie.providers.refusal import failure_in_reply
from causerie.providers.request_body import Outgoing, check_addresses
from causerie.providers.wire import (
    ProviderChoice,
    ProviderCompletionDetails,
    ProviderPromptDetails,
    ProviderUsage,
    Tokens,
    finish_reason,
    is_nothing,
    later,
    merged,
)


class NativeApi(Struct, frozen=True):
    """Fields that an API passes, its output limit, and how it counts the tokens of a prompt."""

    fields: frozenset[str]
    limit: str  # name of the output limit
    counted_at: str
    counted: frozenset[str]
    demanded_limit: int | None = None  # sent where a request has none, if the API demands one
    writes: Mapping[str, object] = {}  # fields that every request has, whatever the client sent


NATIVE_APIS = msgspec.toml.decode(
    Path(__file__).with_name("native.toml").read_bytes(), type=dict[str, NativeApi]
)
_NOT_EXTENDED = frozenset({"service_tier", "chat_template_kwargs"})  # these are the operator's
_EXTENDED = [each for each in {**PARAMETERS, **HINTS}.values() if each.name not in _NOT_EXTENDED]
_OF_A_PEER = {
    "messages": frozenset(each.name for each in _EXTENDED if each.facts.messages == ""),
    "responses": frozenset(each.name for each in _EXTENDED if each.facts.responses == ""),
}
"""Parameters of chat completions that have their names in these APIs at a service like this one."""
_encode = msgspec.json.Encoder().encode
_UNREADABLE = (ValueError, RecursionError)  # msgspec's errors are among them


def native_of(request: ChatRequest, dialect: Dialect) -> NativeRequest | None:
    """Return the request as sent if the provider speaks the API of the client, else ``None``."""
    native = request.native
    return native if native is not None and native.shape in dialect.native else None


def native_request(
    request: ChatRequest, native: NativeRequest, dialect: Dialect, model: str
) -> Outgoing:
    """Return the request for a provider of the client's API, with a report of its changes."""
    api, sent = NATIVE_APIS[native.shape], native.sent
    # The limit is lowered where the model writes less.
    own = {"model": model, api.limit: request.max_tokens, **api.writes}
    if isinstance(sent, Unread):  # of whose fields all are listed
        return Outgoing(_encode(replace(sent, **own)), (), request.stream, native)
    body, changes = _filter_native_fields_and_list_changes(request, native, dialect)
    if api.limit not in body or request.max_tokens is None:
        del own[api.limit]
    return Outgoing(_encode({**body, **own}), tuple(changes), request.stream, native)


def _filter_native_fields_and_list_changes(
    request: ChatRequest, native: NativeRequest, dialect: Dialect
) -> tuple[Mapping[str, Any], Sequence[str]]:
    api, sent = NATIVE_APIS[native.shape], native.body
    check_addresses(request, {} if request.unread is None else request.unread.addresses, dialect)
    listed = api.fields | dialect.knows | dialect.privileged
    if dialect.extends:
        listed |= _OF_A_PEER[native.shape]
    changes: list[str] = []
    if native.unsealed is not None and not dialect.extends:
        sent = native.unsealed
        changes += native.left_out
    own = {"model", *api.writes}
    kept = {name: value for name, value in sent.items() if name in listed}
    changes += [
        f"{quote(name[:64], safe='[]$@:')} dropped"
        for name, value in sent.items()
        if value is not None and name not in listed and name not in own
    ]
    body = _copy_without_mcp_tools_and_models(kept, "", changes)
    if "input" in body:
        body["input"] = _copy_without_mcp_tools_and_models(body["input"], "input", changes)
    if body.get(api.limit) == -1:  # which says that there is none
        body[api.limit] = api.demanded_limit
        changes.append(f"{api.limit} -1 dropped")
    changes += [f"{name} true->false" for name in api.writes if sent.get(name)]
    return body, changes


def _copy_without_mcp_tools_and_models(holder: Any, path: str, changes: list[str]) -> Any:
    """Return the body, items or tool without MCP tools, and with no ``model`` in other tools."""
    if isinstance(holder, list):
        return [
            _copy_without_mcp_tools_and_models(each, f"{path}[{at}].", changes)
            for at, each in enumerate(holder)
        ]
    tools = holder.get("tools") if isinstance(holder, dict) else None
    if not isinstance(tools, list):
        return holder
    kept = []
    for at, tool in enumerate(tools):
        here = f"{path}tools[{at}]"
        if isinstance(tool, dict) and tool.get("type") == "mcp":
            changes.append(f"{here} dropped")
            continue
        if isinstance(tool, dict) and "model" in tool:
            changes.append(f"{here}.model dropped")
            tool = {name: value for name, value in tool.items() if name != "model"}
        kept.append(_copy_without_mcp_tools_and_models(tool, f"{here}.", changes))
    return {**holder, "tools": kept}


def only(body: bytes, fields: Collection[str]) -> bytes:
    document: dict[str, msgspec.Raw] = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    return _encode({name: document[name] for name in document if name in fields})


# Replies, passed on as they come.

_ENDS = LAST_OF_RESPONSES | {"message_delta", "message_stop"}
_EDITED_EVENTS = {
    "message_start": "message",
    "message_delta": "",
    "message_stop": "",
    **dict.fromkeys(
        ("response.created", "response.in_progress", "response.queued", *LAST_OF_RESPONSES),
        "response",
    ),
}
"""Events that name the model or may have a price, and their member that holds them."""


_EDITED = re.compile(rb'"(?:model|%b)"' % "|".join(sorted(PRICES)).encode())
_ONLY_MODEL = [b'"model"']
_MODEL = re.compile(rb'"model"\s*:\s*("(?:[^"\\]|\\.)*+")')


_READERS: Mapping[str, type[MessagesReader] | type[ResponsesReader]] = {
    "messages": MessagesReader,
    "responses": ResponsesReader,
}


class _Type(Struct, gc=False):
    type: str = ""


_decode_type = msgspec.json.Decoder(_Type).decode


@dataclass(eq=False)
class NativeIncoming(Incoming):
    """Reads a reply; passes its native events on, along with their parsed equivalents."""

    _called_function_names: set[str] = field(default_factory=set)
    _text_event_prefix: bytes = b""  # of the lines of an event that only goes on with a text

    def __post_init__(self) -> None:
        assert self.request.native is not None
        reader = self._other_api_reader = _READERS[self.request.native.shape]()
        self._text_event_prefix = b"event: %b\ndata: " % reader.text_event

    def feed(self, stream: Iterable[bytes], events: list[Event]) -> None:
        """Add the events of a stream, joining the texts, and their bytes, that came together."""
        passed: list[bytes] = []
        texts: list[str] = []
        for data in stream:
            lines, text = self._read_event_lines_and_text_or_empty(data)
            if text:
                passed.append(lines)
                texts.append(text)
                continue
            if texts:
                events += self._build_text_events(passed, texts)
                passed, texts = [], []
            if self.ended:
                return
            self._read_full_event(data, events)
        if texts:
            events += self._build_text_events(passed, texts)

    def goes_on(self, piece: bytes, decoder: EventDecoder) -> Batch:
        if (data := decoder.only(piece)) is None:
            return ()
        lines, text = self._read_event_lines_and_text_or_empty(data)
        return self._build_text_events([lines], [text]) if text else ()

    def _read_event_lines_and_text_or_empty(self, event_data: bytes) -> tuple[bytes, str]:
        # The lines and the text of an event that only goes on with one.
        answer, reader, head = self._answers.get(0), self._other_api_reader, self._text_event_prefix
        if answer is None or reader is None or not answer.takes_text:
            return event_data, ""
        if event_data.startswith(head):
            return event_data, reader.text(event_data[len(head) :])
        other = event_data.__class__ is NamedEvent and event_data.name != reader.text_event
        if other or event_data.find(b"\n") >= 0:
            return event_data, ""
        return head + event_data, reader.text(event_data)

    def _build_text_events(self, event_lines: list[bytes], texts: list[str]) -> Batch:
        self._content_piece_count += len(texts)
        text = self._answers[0].more_text("".join(texts))
        return PassedBytes(b"%b\n\n" % b"\n\n".join(event_lines)), text

    def _read_full_event(self, event_data: bytes, events: list[Event]) -> None:
        before = len(events)
        if event_data.startswith(b"event: "):
            event_data = NamedEvent.of(event_data)
        self._read_event(event_data, events)
        if any(isinstance(event, PassedBytes) for event in events[before:]):
            return  # it was several, which were read one by one
        ended = len(events) > before and isinstance(events[-1], Usage)
        events.insert(len(events) - 1 if ended else before, self._build_passed_event(event_data))

    def whole(self, body: bytes) -> list[Event]:
        events: list[Event] = []
        self._read_event(body, events)
        if not self._answers:
            raise unreadable_reply("no reply of this API")
        self.finish(events)
        *said, finished, usage = events
        passed = PassedReply(_hide_model_and_prices(body, "", self.request.model))
        return [*said, passed, finished, usage]

    def _read_choices(
        self, choices: Sequence[ProviderChoice], events: list[Event], *, mended: bool
    ) -> None:
        # Which functions there are is between the client and the provider.
        for choice in choices:
            for said in (choice.delta, choice.message):
                for call in said.calls if said is not None else ():
                    if call.function is not None and call.function.name:
                        self._called_function_names.add(call.function.name.strip())
        super()._read_choices(choices, events, mended=mended)

    def _add_answer_state(self, choice_index: int) -> AnswerState:
        answer = super()._add_answer_state(choice_index)
        answer.functions = self._called_function_names
        return answer

    def _build_passed_event(self, data: bytes) -> PassedBytes:
        kind = data.name.decode("latin-1") if isinstance(data, NamedEvent) else _read_type(data)
        if (holder := _EDITED_EVENTS.get(kind)) is not None:
            data = _hide_model_and_prices(data, holder, self.request.model)
        lines, name = data.replace(b"\n", b"\ndata: "), kind.encode("latin-1", "replace")
        named = b"event: %b\n" % name if name and kind.isprintable() else b""
        return PassedBytes(named + sse.encode(lines), last=kind in _ENDS)


def _read_type(event_json: bytes) -> str:
    try:
        return _decode_type(event_json).type
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return ""


def _hide_model_and_prices(body: bytes, holder_field: str, our_model: str) -> bytes:
    """Return a reply or event with our name of the model, and without the provider's prices.

    ``holder_field`` is the member that holds both; empty: the reply itself.
    """
    if _EDITED.findall(body) == _ONLY_MODEL and (named := _MODEL.search(body)) is not None:
        start, end = named.span(1)
        return body[:start] + _encode(our_model) + body[end:]
    event = _decode_or_none(body, Any) if _EDITED.search(body) else None
    held = event.get(holder_field, event) if isinstance(event, dict) else None
    if not isinstance(held, dict):
        return body
    if "model" in held:
        held["model"] = our_model
    if isinstance(usage := held.get("usage"), dict):
        held["usage"] = {name: value for name, value in usage.items() if name not in PRICES}
    return _encode(event)


# Whole replies as most are: one text, why it ended, its tokens. Judged in one pass of native code;
# others are read as all replies are.

_Some = Annotated[int, Meta(ge=1)]
_Text = Annotated[str, Meta(min_length=1)]
_REASONS: Mapping[str, FinishReason] = {
    "end_turn": "stop", "stop_sequence": "stop", "max_tokens": "length",
}  # fmt: skip


class _TextBlock(Struct, tag_field="type", tag="text", gc=False):
    text: _Text


class _MessageUsage(Struct, gc=False):
    output_tokens: _Some
    input_tokens: Tokens = 0
    cache_read_input_tokens: Tokens | None = None
    cache_creation_input_tokens: Tokens | None = None
    output_tokens_details: None = None


class _PlainMessage(Struct, tag_field="type", tag="message", gc=False):
    content: Annotated[list[_TextBlock], Meta(min_length=1, max_length=1)]
    stop_reason: Literal["end_turn", "stop_sequence", "max_tokens"]
    usage: _MessageUsage
    stop_sequence: str | None = None
    error: None = None


class _TextPart(Struct, gc=False):
    text: _Text


class _TextItem(Struct, tag_field="type", tag="message", gc=False):
    content: Annotated[list[_TextPart], Meta(min_length=1, max_length=1)]


class _ResponseUsage(Struct, gc=False):
    input_tokens: Annotated[int, Meta(ge=1, le=BELIEVED_PROMPT)]
    output_tokens: _Some
    input_tokens_details: ProviderPromptDetails = ProviderPromptDetails()
    output_tokens_details: ProviderCompletionDetails = ProviderCompletionDetails()


class _PlainResponse(Struct, tag_field="object", tag="response", gc=False):
    output: Annotated[list[_TextItem], Meta(min_length=1, max_length=1)]
    status: Literal["completed"]
    usage: _ResponseUsage
    error: None = None
    incomplete_details: None = None


_STOPPED = Finished("stop")
_decode_message = msgspec.json.Decoder(_PlainMessage).decode
_decode_response = msgspec.json.Decoder(_PlainResponse).decode


def read_plain(body: bytes, native: NativeRequest, request: ChatRequest) -> PlainRead | None:
    """Return the events of a reply that is one text; ``None`` for other kinds of replies."""
    try:
        text, finished, usage = _PLAIN_READERS[native.shape](body)
    except _UNREADABLE:
        return None
    made, most = usage.completion, request.max_tokens
    if made > len(text) + UNSHOWN or (most is not None and made > most):
        return None
    whole = _hide_model_and_prices(body, "", request.model)
    return (TextDelta(text), PassedReply(whole), finished, usage), None


def _read_text_message_or_fail(body: bytes) -> tuple[str, Finished, Usage]:
    reply = _decode_message(body)
    told = reply.usage
    cached, written = told.cache_read_input_tokens or 0, told.cache_creation_input_tokens or 0
    prompt = told.input_tokens + cached + written
    if not 0 < prompt <= BELIEVED_PROMPT:
        raise ValueError("no numbers of tokens that are believed at once")
    finished = Finished(_REASONS[reply.stop_reason], stop_sequence=reply.stop_sequence)
    usage = Usage(prompt, told.output_tokens, cached, written=written)
    return reply.content[0].text, finished, usage


def _read_text_response_or_fail(body: bytes) -> tuple[str, Finished, Usage]:
    reply = _decode_response(body)
    told = reply.usage
    details, reasoned = told.input_tokens_details, told.output_tokens_details.reasoning_tokens or 0
    cached, written = details.cached_tokens or 0, details.cache_write_tokens or 0
    if cached + written > told.input_tokens or reasoned > told.output_tokens:
        raise ValueError("no numbers of tokens that are believed at once")
    usage = Usage(told.input_tokens, told.output_tokens, cached, reasoned, written=written)
    return reply.output[0].content[0].text, _STOPPED, usage


_PLAIN_READERS = {"messages": _read_text_message_or_fail, "responses": _read_text_response_or_fail}


# Replies of other operations, which pass through.

_CONTENT: Mapping[str, tuple[str, ...]] = {
    "embeddings": ("data", "embeddings"),
    "rerank": ("results", "data"),
    "completions": ("choices",),
}
"""Members of which a reply has one."""


class _Choice(Struct, gc=False):
    text: str | None = None
    index: int = 0
    finish_reason: str | None = None


_UNITS_BELIEVED = 100  # times as many as estimated: long documents are split by who ranks them
_BYTES_OF_CHARACTER = 4
_Count = Annotated[float, Meta(ge=0, le=1_000_000)]  # some servers write whole numbers with ".0"


class _Units(Struct, gc=False):
    search_units: _Count | None = None
    input_tokens: _Count | None = None


class _Meta(Struct, gc=False):
    billed_units: _Units | None = None
    tokens: _Units | None = None


_decode_choices = msgspec.json.Decoder(list[_Choice]).decode


class PassedReader(Struct, eq=False):
    """Reads one reply of an operation other than chat; its methods are those of ``Incoming``."""

    request: ChatRequest
    ended: bool = False
    fingerprint: str | None = None
    _end_reasons: dict[int, str | None] = {}  # by choice; None until it has ended
    _text_piece_count: int = 0  # with text
    _text_length: int = 0  # of the text, in characters
    _reported_usage: ProviderUsage | None = None
    _rerank_units: int = 0

    @property
    def complete(self) -> bool:
        return len(self._end_reasons) >= self.request.n and None not in self._end_reasons.values()

    @property
    def usage(self) -> Usage:
        request, told = self.request, self._reported_usage or ProviderUsage()
        completion = told.completion_tokens or told.output_tokens or 0
        prompt = told.prompt_tokens or told.input_tokens
        prompt = prompt or max((told.total_tokens or 0) - completion, 0)
        impossible = prompt > most_of_prompt(request)
        unsure = impossible or not prompt
        if unsure and request.passed is not None:
            prompt = request.passed.tokens
        units, most = self._rerank_units, 0
        if request.operation == "completions":
            # A token makes a byte or more, but for a few that show nowhere.
            most = _BYTES_OF_CHARACTER * self._text_length + UNSHOWN
            if request.max_tokens is not None:
                most = min(request.max_tokens * request.n, most)
        impossible = impossible or completion > most
        if not 0 < completion <= most:
            completion = estimated_tokens(self._text_piece_count, self._text_length)
            unsure = unsure or bool(self._text_length)
        if request.passed is not None and units > _UNITS_BELIEVED * (request.passed.units + 1):
            impossible, units = True, request.passed.units
        unsure = unsure or impossible
        details = told.prompt_tokens_details
        cached = 0 if details is None else min(details.cached_tokens or 0, prompt)
        return Usage(prompt, completion, cached, 0, unsure, impossible=impossible, units=units)

    def feed(self, stream: Iterable[bytes], events: list[Event]) -> None:
        for data in stream:
            if self.ended:
                return
            if data.strip() == b"[DONE]":
                self._end_reply(events)
                return
            events += self._read_chunk_into_passed_events(data)

    def goes_on(self, piece: bytes, decoder: EventDecoder) -> Batch:
        """Return nothing: every chunk is read by :meth:`feed`."""
        return ()

    def whole(self, body: bytes) -> list[Event]:
        operation = self.request.operation
        if body.lstrip()[:1] == b"[" and operation != "completions":
            events: list[Event] = [PassedBytes(body)]  # which reports nothing
        else:
            fields = self._decode_raw_members_or_raise(body)
            if not any(name in fields for name in _CONTENT[operation]):
                raise unreadable_reply(f"no {operation}")
            text, _ = self._read_text_and_choice_count(fields)
            self._record_usage(fields)
            events = _build_passthrough_events(text, body)
        if operation != "completions":
            self._rerank_units = self._rerank_units or 1
            self._end_reasons = {0: "stop"}
        self._end_reply(events)
        return events

    def finish(self, events: list[Event]) -> None:
        if self.ended:
            return
        if not self.complete:
            raise UpstreamFailed("The provider ended its reply before it was complete.")
        self._end_reply(events)

    def _read_chunk_into_passed_events(self, chunk_json: bytes) -> Sequence[Event]:
        fields = self._decode_raw_members_or_raise(chunk_json)
        text, listed = self._read_text_and_choice_count(fields)
        self._record_usage(fields)
        # A chunk without choices only reports.
        return _build_passthrough_events(text, chunk_json) if listed else ()

    def _decode_raw_members_or_raise(self, reply_json: bytes) -> dict[str, Raw]:
        try:
            fields = members(reply_json)
            error = msgspec.json.decode(fields["error"]) if "error" in fields else None
        except _UNREADABLE as failure:
            raise unreadable_reply("no JSON object") from failure
        if not is_nothing(error):
            raise failure_in_reply(error, started=self._text_piece_count > 0)
        return fields

    def _read_text_and_choice_count(self, reply_fields: Mapping[str, Raw]) -> tuple[str, int]:
        if self.request.operation != "completions" or "choices" not in reply_fields:
            return "", 0
        try:
            choices = _decode_choices(reply_fields["choices"])
        except _UNREADABLE as failure:
            raise unreadable_reply("no choices of a completion") from failure
        for choice in choices:
            before = self._end_reasons.setdefault(choice.index, None)
            if choice.finish_reason:
                self._end_reasons[choice.index] = later(before, choice.finish_reason)
        text = "".join([choice.text or "" for choice in choices])
        self._text_piece_count += bool(text)
        self._text_length += len(text)
        return text, len(choices)

    def _record_usage(self, reply_fields: Mapping[str, Raw]) -> None:
        told = _decode_or_none(reply_fields.get("usage"), ProviderUsage)
        if told is not None:
            before = self._reported_usage
            self._reported_usage = told if before is None else merged(before, told)
        if self.request.operation != "rerank":
            return
        meta = _decode_or_none(reply_fields.get("meta"), _Meta)
        units = _decode_or_none(reply_fields.get("usage"), _Units)
        billed = None if meta is None else meta.billed_units
        for each in (units, billed):
            self._rerank_units = int((each and each.search_units) or self._rerank_units)
        tokens = meta and meta.tokens and meta.tokens.input_tokens
        if tokens and self._reported_usage is None:
            self._reported_usage = ProviderUsage(prompt_tokens=int(tokens))

    def _end_reply(self, events: list[Event]) -> None:
        self.ended = True
        if not self._end_reasons:
            raise UpstreamFailed("The provider ended its reply before it began.")
        for index, word in sorted(self._end_reasons.items()):
            events.append(Finished(finish_reason(word, calls=False, said=True), index))
        events.append(self.usage)


def _build_passthrough_events(text: str, body: bytes) -> list[Event]:
    return [TextDelta(text), PassedBytes(body)] if text else [PassedBytes(body)]


def _decode_or_none(member_json: Raw | bytes | None, member_type: Any) -> Any:
    if member_json is None:
        return None
    try:
        return msgspec.json.decode(member_json, type=member_type)
    except _UNREADABLE:
        return None
