"""A provider's model as a target of routing, and its running reply, whole or streamed."""

from __future__ import annotations

import asyncio
from codecs import BOM_UTF8
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from time import monotonic
from typing import Annotated, ClassVar, Literal, Self

import msgspec
from msgspec import Meta, Struct

from causerie.errors import InvalidRequest, Overloaded, ServiceError, UpstreamFailed
from causerie.http.client_connection import HttpResponse, Stale, TransportFailed
from causerie.http.decoding import TEXTS, DecodedResponse, decoded
from causerie.http.event_loop import LARGE, offload
from causerie.protocol.events import (
    ArrivalSink,
    Batch,
    Event,
    Finished,
    Partial,
    TextDelta,
    Trail,
    Usage,
    in_portions,
)
from causerie.protocol.request import ChatRequest, NativeRequest, output_estimate, prompt_estimate
from causerie.protocol.sse import EventDecoder, LineTooLong
from causerie.providers import wire
from causerie.providers.answer import Separators
from causerie.providers.incoming import (
    BELIEVED_PROMPT,
    MAX_EVENT_BYTES,
    UNSHOWN,
    Incoming,
    PlainRead,
)
from causerie.providers.native import (
    NATIVE_APIS,
    NativeIncoming,
    PassedReader,
    native_of,
    only,
    read_plain,
)
from causerie.providers.outgoing import outgoing
from causerie.providers.provider import MAX_REPLY_BYTES, Provider, failed
from causerie.providers.request_body import Outgoing

_NEVER = float("inf")

_AT_ONCE = 16 * 1024  # bytes: what is read of a body before others have their turn
_TAIL_SECONDS = 2.0  # for usage, once every choice has ended
_CLOSING_SECONDS = 0.1  # for the end of the body after the end of the stream


@dataclass(eq=False, slots=True)  # a Struct is made for less, but writes its fields for more
class BodyStream:
    """Reads the batches of a streamed reply; iterate it once.

    The first content must be there when ``body`` is due. From then on content may take ``between``
    seconds after content, and the whole until ``end`` (on the monotonic clock). It may have
    ``room`` bytes, decoded.
    """

    _reply_reader: Incoming | PassedReader
    _response_body: HttpResponse | DecodedResponse
    _chunk_seconds: float
    _reply_deadline: float
    _remaining_reply_bytes: int = MAX_REPLY_BYTES
    _decoder: EventDecoder = field(
        default_factory=partial(EventDecoder, MAX_EVENT_BYTES, values=True)
    )
    _content_timeout: float = _NEVER  # that the next content may take
    _next_content_due: float = _NEVER  # when it has taken too long
    _text_continuation_sink: ArrivalSink | None = None
    _unread: memoryview | bytes = b""  # what has come and was not read yet
    _pending_batches: deque[Batch] = field(default_factory=deque)  # read and not handed on yet
    _failure: ServiceError | None = None

    async def leave(self) -> None:
        """Return the connection to its pool if the reply has ended, else close it."""
        self._text_continuation_sink = self._response_body.taker = None
        if self._reply_reader.ended:
            await self._response_body.finish(_CLOSING_SECONDS)
        else:
            self._response_body.close()

    def on_arrival(self, sink: ArrivalSink) -> None:
        """Pass batches that only continue a text to ``sink`` while the next batch is awaited."""
        self._text_continuation_sink = sink
        self._response_body.taker = self._try_emit_text_continuation

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Batch:
        """Return the events that arrived together; raise a failure after the events before it."""
        if self._pending_batches:
            await asyncio.sleep(0)  # others have their turn
            return self._pending_batches.popleft()
        body, incoming, decoder = self._response_body, self._reply_reader, self._decoder
        self._next_content_due = monotonic() + self._content_timeout  # whatever else comes
        while True:
            if self._failure is not None:
                raise self._failure
            if incoming.ended:
                raise StopAsyncIteration
            events: list[Event] = []
            large = decoder.held > LARGE
            try:
                piece = (
                    b""
                    if self._unread
                    else self._check_size(await body.piece(self._next_content_due))
                )
                if self._unread or len(piece) > _AT_ONCE:
                    piece = await self._take_next_slice(piece)
                if piece and not large:
                    incoming.feed(decoder.feed(piece), events)
                else:
                    await self._decode_or_offload_piece(piece, events)
            except (TransportFailed, LineTooLong, ServiceError) as failure:
                await self._finish_complete_reply_or_store_failure(failure, events)
            if events:
                body.due = self._reply_deadline
                self._content_timeout = _TAIL_SECONDS if incoming.complete else self._chunk_seconds
                return self._queue_portions_after_first(events) if large else events
            if incoming.complete:
                self._next_content_due = min(self._next_content_due, monotonic() + _TAIL_SECONDS)

    def _try_emit_text_continuation(self, body_piece: bytes) -> bool:
        sink, body = self._text_continuation_sink, self._response_body
        left = self._remaining_reply_bytes - len(body_piece)
        if sink is None or left < 0:
            return False
        batch = self._reply_reader.goes_on(body_piece, self._decoder)
        if not batch:
            return False
        self._remaining_reply_bytes = left
        self._next_content_due = body.late = monotonic() + self._chunk_seconds
        if not sink(batch):
            self._text_continuation_sink = body.taker = None
        return True

    def _check_size(self, piece: bytes) -> bytes:
        self._remaining_reply_bytes -= len(piece)
        if self._remaining_reply_bytes < 0:
            raise UpstreamFailed("The provider sent a longer reply than `max_reply_bytes` allows.")
        return piece

    async def _take_next_slice(self, piece: bytes) -> bytes:
        if self._unread:
            await asyncio.sleep(0)  # others have their turn
        else:
            self._unread = memoryview(piece)
        part, self._unread = bytes(self._unread[:_AT_ONCE]), self._unread[_AT_ONCE:]
        return part

    async def _decode_or_offload_piece(self, piece: bytes, events: list[Event]) -> None:
        if self._decoder.held > LARGE and (not piece or b"\n" in piece):
            await offload(self._decode_piece_or_end, piece, events)
        else:
            self._decode_piece_or_end(piece, events)

    def _decode_piece_or_end(self, piece: bytes, events: list[Event]) -> None:
        incoming, decoder = self._reply_reader, self._decoder
        if piece:
            incoming.feed(decoder.feed(piece), events)
        else:
            incoming.feed(decoder.close(), events)
            incoming.finish(events)

    def _queue_portions_after_first(self, events: list[Event]) -> Batch:
        first, *others = in_portions(events)
        self._pending_batches.extend(others)
        return first

    async def _finish_complete_reply_or_store_failure(
        self, failure: TransportFailed | LineTooLong | ServiceError, events: list[Event]
    ) -> None:
        # A reply that lacks only its usage is complete.
        incoming = self._reply_reader
        if not incoming.ended and incoming.complete:
            with suppress(ServiceError, LineTooLong):  # of half an event
                await self._decode_or_offload_piece(b"", events)
            incoming.finish(events)
        elif isinstance(failure, ServiceError):
            self._failure = failure
        else:
            too_long = UpstreamFailed("The provider sent an event that is too long.")
            self._failure = failed(failure) if isinstance(failure, TransportFailed) else too_long
            self._failure.__cause__ = failure


# Replies as most are: one choice, its text, why it ended, its tokens.
#
# Judged in one pass of native code over the bytes. Chunks that are not of this kind are not read
# here but by ``incoming``, which gives the same events. None of these is ever part of a circle, so
# nobody looks for one in them (``gc=False``).

_Nothing = Literal[""] | None
_Some = Annotated[int, Meta(ge=1, le=wire.MOST_TOKENS)]
_None = tuple[()] | None  # whose elements, where it has some, are not read


class FastDelta(Struct, gc=False):
    """The text-only message of a whole reply that :func:`read_fast_path` can parse."""

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
    stop_reason: str | None = None
    index: Literal[0] = 0
    delta: None = None


class FastUsage(Struct, gc=False):
    """Token counts of a whole reply that :func:`read_fast_path` can parse."""

    prompt_tokens: Annotated[int, Meta(ge=1, le=BELIEVED_PROMPT)]
    completion_tokens: _Some
    total_tokens: wire.Tokens | None = None
    prompt_tokens_details: wire.ProviderPromptDetails | None = None
    completion_tokens_details: wire.ProviderCompletionDetails | None = None
    prompt_cache_hit_tokens: None = None
    cached_tokens: None = None
    reasoning_tokens: None = None
    input_tokens: None = None
    output_tokens: None = None


class FastChunk(Struct, gc=False):
    """A whole reply with one choice that :func:`read_fast_path` can parse."""

    choices: Annotated[list[FastChoice], Meta(min_length=1, max_length=1)]
    usage: FastUsage
    system_fingerprint: str | None = None
    error: None = None


_decode = msgspec.json.Decoder(FastChunk).decode


def read_fast_path(
    body: bytes, separators: Separators | None, max_tokens: int | None = None
) -> PlainRead | None:
    """Parse a whole reply with one text choice to events and fingerprint; ``None`` for others."""
    try:
        reply = _decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    choice, told = reply.choices[0], reply.usage
    text, prompt, made = choice.message.content, told.prompt_tokens, told.completion_tokens
    if separators is not None and separators.may_open_reasoning(text):
        return None
    if made > len(text) + UNSHOWN or (max_tokens is not None and made > max_tokens):
        return None
    cached = reasoned = 0
    if (asked := told.prompt_tokens_details) is not None:
        cached = asked.cached_tokens or 0
        if cached > prompt or asked.cache_write_tokens:  # which have a price of their own
            return None
    if (thought := told.completion_tokens_details) is not None:
        reasoned = min(thought.reasoning_tokens or 0, made)
        if reasoned and (told.total_tokens or 0) > prompt + made:  # which leave it out
            return None
    finished = Finished(choice.finish_reason, stop_sequence=choice.stop_reason)
    usage = Usage(prompt, made, cached, reasoned)
    return (TextDelta(text), finished, usage), reply.system_fingerprint


_NOTHING = Usage(0, 0)
_VALUES = tuple(start for start in TEXTS if start[:1] in (b"{", b"["))  # of uncompressed JSON
_MOST_BLANKS = 1024  # bytes before a reply, until it is read as a stream


class ProviderReply(Struct, eq=False):
    """Context manager of a provider's reply; iterate its ``events`` once after entering."""

    cache_report: ClassVar[None] = None  # other servers report their cache at the end only
    _target: ProviderTarget
    _request: ChatRequest
    _model: str
    _partial: Partial | None
    _native_request: NativeRequest | None = None  # the request as it came, where that is passed on
    changes: Sequence[str] = ()
    _unsent_request: Outgoing | None = None  # until it is
    _is_stream_requested: bool = False  # whether it was asked for as a stream
    _http_response: HttpResponse | None = None  # once the request is on its way
    # Once something is there, unless ``_fast_path_events_and_fingerprint``.
    _reply_reader: Incoming | PassedReader | None = None
    _fast_path_events_and_fingerprint: PlainRead | None = None
    _batch_stream: BodyStream | None = None
    _first_batch: Batch = ()  # all of it, where it is no stream
    _reversed_batches: list[Batch] = []  # what follows the batch, last first, where it is large

    @property
    def events(self) -> AsyncIterator[Batch]:
        return self._batch_stream or self

    @property
    def on_arrival(self) -> Callable[[ArrivalSink], None] | None:
        return None if self._batch_stream is None else self._batch_stream.on_arrival

    @property
    def fingerprint(self) -> str:
        if self._fast_path_events_and_fingerprint is not None:
            named = self._fast_path_events_and_fingerprint[1]
        else:
            named = None if self._reply_reader is None else self._reply_reader.fingerprint
        return named or self._target.provider.fingerprint

    def usage(self) -> Usage:
        """Return the usage so far: zero before the server has the request, then the whole prompt.

        A reply that is not streamed is made whole, whoever leaves: while nothing of it is there,
        it is as long as it may be.
        """
        if self._fast_path_events_and_fingerprint is not None:
            return self._fast_path_events_and_fingerprint[0][-1]
        if self._reply_reader is not None:
            return self._reply_reader.usage
        if self._http_response is None or self._http_response.unsent:
            return _NOTHING
        made = 0 if self._is_stream_requested else output_estimate(self._request)
        return Usage(prompt_estimate(self._request), made, estimated=True)

    def trail(self) -> Trail | None:
        return None

    async def __aenter__(self) -> Self:
        build = self._build_outgoing
        sent = await offload(build) if self._request.large else build()
        self._unsent_request = sent
        self.changes, self._is_stream_requested = sent.changes, sent.streamed
        self._native_request = sent.native
        if not self._target.provider.slots.take():
            raise Overloaded("The provider has no room now; please try again later.")
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            if self._batch_stream is not None:
                await self._batch_stream.leave()
        finally:
            self._target.provider.slots.give_back()

    def __aiter__(self) -> Self:
        return self

    def __anext__(self) -> Awaitable[Batch]:
        """Return the next batch of the reply; the first call sends the request."""
        if self._unsent_request is not None:
            return self._send_and_read_first_batch()
        return self._read_next_batch()

    def _build_outgoing(self) -> Outgoing:
        dialect = self._target.provider.dialect
        return outgoing(self._request, dialect, self._model, self._partial)

    async def _send_and_read_first_batch(self) -> Batch:
        sent, self._unsent_request = self._unsent_request, None
        assert sent is not None
        provider = self._target.provider
        began = monotonic()
        due = end = began + provider.deadlines.total
        if self._request.stream:  # else the client sees no content before the end, anyway
            due = min(began + provider.deadlines.first_token, end)
        key = provider.credential
        asking = self._post_body(sent.body, due)
        del sent  # so that its body is not kept until there is an answer
        try:
            try:
                response = await asking
            except Stale:
                response = await self._rebuild_and_resend(due, anew=True)
            if response.status == 401 and await provider.renews(key):
                response.close()
                response = await self._rebuild_and_resend(due)
            at_hand = response.at_hand()
            usual = response.status == 200 and at_hand.startswith(_VALUES)
            whole = at_hand if usual else await self._read_body_or_start_stream(response, end)
            if whole is not None:
                if len(whole) <= LARGE:
                    self._parse_whole_body_into_first_batch(whole)
                else:
                    await offload(self._parse_whole_body_into_first_batch, whole)
                    self._first_batch, *others = in_portions(self._first_batch)
                    self._reversed_batches = others[::-1]
        except TransportFailed as failure:
            raise failed(failure) from failure
        except InvalidRequest as failure:
            provider.private(failure)
            raise
        return self._first_batch or await self._read_next_batch()

    async def _rebuild_and_resend(self, due: float, *, anew: bool = False) -> HttpResponse:
        self._http_response = None
        return await self._post_body((await offload(self._build_outgoing)).body, due, anew=anew)

    def _post_body(
        self, body: bytes, deadline: float, *, anew: bool = False
    ) -> Coroutine[None, None, HttpResponse]:
        provider, request, asked = self._target.provider, self._request, self._set_http_response
        native = self._native_request if request.passed is None else request.operation
        return provider.post(self._model, body, deadline, anew=anew, asked=asked, native=native)

    async def _read_next_batch(self) -> Batch:
        if self._batch_stream is not None:
            return await self._batch_stream.__anext__()
        if not self._reversed_batches:
            raise StopAsyncIteration
        await asyncio.sleep(0)  # others have their turn
        return self._reversed_batches.pop()

    def _set_http_response(self, response: HttpResponse) -> None:
        self._http_response = response

    async def _read_body_or_start_stream(self, response: HttpResponse, end: float) -> bytes | None:
        try:
            if not 200 <= response.status < 300:
                self._http_response = None  # which costs nothing
                raise await self._target.provider.refused(response)
            body = await decoded(response)
            start = (await body.beginning(_can_tell_body_kind)).removeprefix(BOM_UTF8).lstrip()
            if start[:1] in (b"{", b"[") and response.media_type != b"text/event-stream":
                passed = self._request.passed is not None
                most = self._target.provider.max_reply_bytes if passed else MAX_EVENT_BYTES
                return (await body.read(most)).removeprefix(BOM_UTF8)
            self._start_stream(body, end)
            return None
        except BaseException:
            response.close()
            raise

    def _parse_whole_body_into_first_batch(self, body: bytes) -> None:
        asked, request = self._target, self._request
        read: PlainRead | None = None
        if self._native_request is not None:
            read = read_plain(body, self._native_request, request)
        elif (
            self._partial is None
            and request.top_logprobs is None
            and request.passed is None
            and not request.continue_final_message
        ):
            read = read_fast_path(body, asked.separators, request.max_tokens)
        if read is not None:
            if request.cache_scope:
                (*said, used), named = read
                used = asked.provider.dialect.reported(used, request.cache_scope)
                read = (*said, used), named
            self._first_batch, self._fast_path_events_and_fingerprint = read[0], read
            return
        incoming = self._reply_reader = self._new_reply_reader()
        self._first_batch = incoming.whole(body)

    def _start_stream(self, body: HttpResponse | DecodedResponse, reply_deadline: float) -> None:
        incoming, provider = self._new_reply_reader(), self._target.provider
        self._reply_reader = incoming
        lines = isinstance(incoming, NativeIncoming)
        self._batch_stream = BodyStream(
            incoming,
            body,
            provider.deadlines.between_chunks,
            reply_deadline,
            provider.max_reply_bytes,
            EventDecoder(MAX_EVENT_BYTES, values=True, lines=lines),
        )

    def _new_reply_reader(self) -> Incoming | PassedReader:
        asked = self._target
        if self._request.passed is not None:
            return PassedReader(self._request)
        if self._native_request is not None:
            return NativeIncoming(self._request, asked.provider.dialect)
        return Incoming(self._request, asked.provider.dialect, asked.separators, self._partial)

    @property
    def verbatim(self) -> bool:
        return self._native_request is not None


def _can_tell_body_kind(body_start: bytes) -> bool:
    return bool(body_start.removeprefix(BOM_UTF8).strip()) or len(body_start) > _MOST_BLANKS


class ProviderTarget:
    """Target that asks ``provider`` for ``model``; its ``*`` is replaced by the request's wildcard.

    ``separators`` tell reasoning apart that is left inside the content. ``continues`` is what a
    probe has found; ``None`` trusts the dialect.
    """

    def __init__(
        self,
        provider: Provider,
        model: str,
        *,
        separators: Separators | None = None,
        continues: bool | None = None,
    ) -> None:
        self.provider = provider
        self.model = model
        self.separators = separators if provider.dialect.tags else None
        self.probed_continues = continues

    @property
    def retries(self) -> int:
        return self.provider.retries

    def model_for(self, request: ChatRequest) -> str:
        """Return the provider's name of the model that answers the request."""
        return self.model.replace("*", request.wildcard, 1) if "*" in self.model else self.model

    def generate(self, request: ChatRequest, partial: Partial | None = None) -> ProviderReply:
        return ProviderReply(self, request, self.model_for(request), partial)

    def continues(self, request: ChatRequest, partial: Partial) -> bool:
        """Return true if the provider can continue ``partial``; false for calls or a set format."""
        if request.passed is not None:
            return False
        if not (partial.text or partial.reasoning or partial.calls):
            return True
        way = self.provider.dialect.continuing
        if way.way == "none" or self.probed_continues is False:
            return False
        if way.way == "as_sent" and not self.probed_continues:
            return False
        if partial.calls or request.n > 1 or request.output is not None:
            return False
        if request.tools and request.tool_choice.mode == "required":
            return False
        if not partial.text:
            return way.in_reasoning
        return way.after_reasoning or not partial.reasoning

    async def count_tokens(self, request: ChatRequest) -> int | None:
        dialect = self.provider.dialect
        native = native_of(request, dialect)
        if native is None:
            request.check_translated()
        spoken = dialect.api.bodies if native is None else native.shape
        if spoken not in NATIVE_APIS:
            return None
        api = NATIVE_APIS[spoken]

        def body() -> bytes:
            return only(outgoing(request, dialect, self.model_for(request)).body, api.counted)

        written = await offload(body) if request.large else body()
        return await self.provider.count(
            api.counted_at, written, {} if native is None else native.headers
        )
