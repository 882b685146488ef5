"""A model of a provider as a target of routing, and its running reply."""

from __future__ import annotations

import asyncio
from codecs import BOM_UTF8
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from time import monotonic
from typing import Annotated, Any, ClassVar, Literal, Self

import msgspec
from msgspec import Meta, Struct

from causerie.errors import InvalidRequest, Overloaded
from causerie.http.client_connection import HttpResponse, Stale, TransportFailed
from causerie.http.decoding import TEXTS, DecodedResponse, decoded
from causerie.http.event_loop import LARGE, offload
from causerie.protocol.events import (
    ArrivalSink,
    Batch,
    Finished,
    Partial,
    TextDelta,
    Trail,
    Usage,
    in_portions,
)
from causerie.protocol.request import (
    ChatRequest,
    NativeRequest,
    output_estimate,
    prompt_estimate,
)
from causerie.providers.answer import Separators
from causerie.providers.incoming import BELIEVED_PROMPT, MAX_EVENT_BYTES, UNSHOWN, Incoming
from causerie.providers.native import COUNTED, NativeIncoming, native_of, only
from causerie.providers.outgoing import Outgoing, outgoing
from causerie.providers.passed_through import PassedReader
from causerie.providers.provider import Provider, failed
from causerie.providers.stream import BodyStream, BufferedBody
from causerie.providers.wire import (
    MOST_TOKENS,
    ProviderCompletionDetails,
    ProviderPromptDetails,
    Tokens,
)

# Replies as most are: one choice, its text, why it ended, its tokens.
#
# Judged in one pass of native code over the bytes. Chunks that are not of this kind are not read
# here but by ``incoming``, which gives the same events. None of these is ever part of a circle, so
# nobody looks for one in them (``gc=False``).

Read = tuple[tuple[TextDelta, Finished, Usage], str | None]
_Nothing = Literal[""] | None
_Some = Annotated[int, Meta(ge=1, le=MOST_TOKENS)]
_None = tuple[()] | None  # whose elements, where it has some, are not read


class FastDelta(Struct, gc=False):
    """A message that is all text."""

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
    stop_reason: Any = None
    index: Literal[0] = 0
    delta: None = None


class FastUsage(Struct, gc=False):
    """Tokens, told by their usual names."""

    prompt_tokens: _Some
    completion_tokens: _Some
    total_tokens: Tokens | None = None
    prompt_tokens_details: ProviderPromptDetails | None = None
    completion_tokens_details: ProviderCompletionDetails | None = None
    prompt_cache_hit_tokens: None = None
    cached_tokens: None = None
    reasoning_tokens: None = None
    input_tokens: None = None
    output_tokens: None = None


class FastChunk(Struct, gc=False):
    """``choices`` is the only one."""

    choices: Annotated[list[FastChoice], Meta(min_length=1, max_length=1)]
    usage: FastUsage
    system_fingerprint: str | None = None
    error: None = None


_decode = msgspec.json.Decoder(FastChunk).decode


def read_fast_path(
    body: bytes, separators: Separators | None, max_tokens: int | None = None
) -> Read | None:
    """Return the events and the server's fingerprint; ``None`` for other kinds of replies."""
    try:
        reply = _decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    choice, told = reply.choices[0], reply.usage
    text = choice.message.content
    if separators is not None and separators.may_begin(text):
        return None
    made = told.completion_tokens
    if made > len(text) + UNSHOWN or (max_tokens is not None and made > max_tokens):
        return None
    if told.prompt_tokens > BELIEVED_PROMPT:
        return None
    asked, thought = told.prompt_tokens_details, told.completion_tokens_details
    if asked is not None and asked.cache_write_tokens:  # which have a price of their own
        return None
    cached = 0 if asked is None else asked.cached_tokens or 0
    reasoned = 0 if thought is None else thought.reasoning_tokens or 0
    if cached > told.prompt_tokens:
        return None
    if reasoned and (told.total_tokens or 0) > told.prompt_tokens + made:  # which leave it out
        return None
    usage = Usage(told.prompt_tokens, made, cached, min(reasoned, made))
    finished = Finished(choice.finish_reason)
    if isinstance(choice.stop_reason, str):
        finished = Finished(choice.finish_reason, stop_sequence=choice.stop_reason)
    return (TextDelta(text), finished, usage), reply.system_fingerprint


_NEVER = float("inf")
_NOTHING = Usage(0, 0)
_MOST_BLANKS = 1024  # bytes before a reply, until it is read as a stream


class ProviderReply(Struct, eq=False):
    """To be entered; ``events`` are iterated once, ``changes`` were made to the request."""

    cache_report: ClassVar[None] = None
    """Other servers report their cache at the end only."""
    _target: ProviderTarget
    _request: ChatRequest
    _partial: Partial | None
    _native: NativeRequest | None  # the request as it came, where that is passed on
    changes: Sequence[str] = ()
    _sent: Outgoing | None = None  # until it is
    _streamed: bool = False  # whether it was asked for as a stream
    _response: HttpResponse | None = None  # once the request is on its way
    # Once something is there, unless ``_fast_read``.
    _incoming: Incoming | PassedReader | None = None
    _fast_read: Read | None = None
    _stream: BodyStream | None = None
    _batch: Batch = ()  # all of it, where it is no stream
    _portions: list[Batch] = []  # what follows the batch, last first, where it is large

    @property
    def events(self) -> AsyncIterator[Batch]:
        return self._stream or self

    @property
    def on_arrival(self) -> Callable[[ArrivalSink], None] | None:
        return None if self._stream is None else self._stream.on_arrival

    @property
    def fingerprint(self) -> str:
        if self._fast_read is not None:
            named = self._fast_read[1]
        else:
            named = None if self._incoming is None else self._incoming.fingerprint
        return named or self._target.provider.fingerprint

    def usage(self) -> Usage:
        """The tokens so far: none before the server has the request, the whole prompt from then on.

        A reply that is not streamed is made whole, whoever leaves: while nothing of it is there,
        it is as long as it may be.
        """
        if self._fast_read is not None:
            return self._fast_read[0][2]
        if self._incoming is not None:
            return self._incoming.usage
        if self._response is None or self._response.unsent:
            return _NOTHING
        made = 0 if self._streamed else output_estimate(self._request)
        return Usage(prompt_estimate(self._request), made, estimated=True)

    def trail(self) -> Trail | None:
        return None

    async def __aenter__(self) -> Self:
        sent = await offload(self._outgoing) if self._request.large else self._outgoing()
        self._sent = sent
        self.changes, self._streamed = sent.changes, sent.streamed
        if not self._target.provider.slots.take():
            raise Overloaded("The provider has no room now; please try again later.")
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            if self._stream is not None:
                await self._stream.leave()
        finally:
            self._target.provider.slots.give_back()

    def __aiter__(self) -> Self:
        return self

    def __anext__(self) -> Awaitable[Batch]:
        """Return the first batch, which sends the request, or the next one of a stream."""
        if self._sent is not None:
            return self._send_and_read()
        return self._next_batch()

    def _outgoing(self) -> Outgoing:
        asked = self._target
        model = asked.model_for(self._request)
        return outgoing(self._request, asked.provider.dialect, model, self._partial)

    async def _send_and_read(self) -> Batch:
        sent, self._sent = self._sent, None
        assert sent is not None
        provider = self._target.provider
        began = monotonic()
        due = end = began + provider.deadlines.total
        if self._request.stream:  # else the client sees no content before the end, anyway
            due = min(began + provider.deadlines.first_token, end)
        key = provider.credential
        asking = self._post(sent.body, due)
        del sent  # so that its body is not kept until there is an answer
        try:
            try:
                response = await asking
            except Stale:
                response = await self._send_again(due, anew=True)
            if response.status == 401 and await provider.renews(key):
                response.close()
                response = await self._send_again(due)
            at_hand = response.at_hand()
            usual = response.status == 200 and at_hand.startswith(TEXTS)
            whole = at_hand if usual else await self._whole_body(response, end)
            if whole is not None:
                if len(whole) <= LARGE:
                    self._read_body(whole)
                else:
                    await offload(self._read_body, whole)
                    if self._stream is None:
                        self._batch, *others = in_portions(self._batch)
                        self._portions = others[::-1]
        except TransportFailed as failure:
            raise failed(failure) from failure
        except InvalidRequest as failure:
            provider.private(failure)
            raise
        return self._batch or await self._next_batch()

    async def _send_again(self, due: float, *, anew: bool = False) -> HttpResponse:
        self._response = None
        return await self._post((await offload(self._outgoing)).body, due, anew=anew)

    def _post(
        self, body: bytes, due: float, *, anew: bool = False
    ) -> Coroutine[None, None, HttpResponse]:
        target, request, asked = self._target, self._request, self._record_response
        native = self._native if request.passed is None else request.operation
        model = target.model_for(request)
        return target.provider.post(model, body, due, anew=anew, asked=asked, native=native)

    async def _next_batch(self) -> Batch:
        if self._stream is not None:
            return await self._stream.__anext__()
        if not self._portions:
            raise StopAsyncIteration
        await asyncio.sleep(0)  # others have their turn
        return self._portions.pop()

    def _record_response(self, response: HttpResponse) -> None:
        self._response = response

    async def _whole_body(self, response: HttpResponse, end: float) -> bytes | None:
        try:
            if not 200 <= response.status < 300:
                self._response = None  # which costs nothing
                raise await self._target.provider.refused(response)
            body = await decoded(response)
            is_value = _begins_value(await body.beginning(_shows_kind))
            if is_value and response.media_type != b"text/event-stream":
                passed = self._request.passed is not None
                most = self._target.provider.max_reply_bytes if passed else MAX_EVENT_BYTES
                return await body.read(most)
            self._start_stream(body, end)
            return None
        except BaseException:
            response.close()
            raise

    def _read_body(self, body: bytes) -> None:
        asked, request, body = self._target, self._request, body.removeprefix(BOM_UTF8)
        if (
            self._partial is None
            and self._native is None
            and request.passed is None
            and request.top_logprobs is None
            and not request.continue_final_message
            and len(body) <= LARGE
        ):
            read = read_fast_path(body, asked.separators, request.max_tokens)
            if read is not None:
                (text, end, used), named = read
                used = asked.provider.dialect.reported(used, request.cache_scope)
                self._batch = batch = (text, end, used)
                self._fast_read = batch, named
                return
        if _begins_value(body):
            incoming = self._incoming = self._reader()
            self._batch = incoming.whole(body)
        else:
            self._start_stream(BufferedBody(body), _NEVER)

    def _start_stream(
        self, body: HttpResponse | DecodedResponse | BufferedBody, end: float
    ) -> None:
        incoming, provider = self._reader(), self._target.provider
        self._incoming = incoming
        self._stream = BodyStream(
            incoming, body, provider.deadlines.between_chunks, end, provider.max_reply_bytes
        )

    def _reader(self) -> Incoming | PassedReader:
        asked = self._target
        if self._request.passed is not None:
            return PassedReader(self._request)
        if self._native is not None:
            return NativeIncoming(self._request, asked.provider.dialect)
        return Incoming(self._request, asked.provider.dialect, asked.separators, self._partial)

    @property
    def verbatim(self) -> bool:
        return self._native is not None


def _shows_kind(start: bytes) -> bool:
    return bool(start.removeprefix(BOM_UTF8).strip()) or len(start) > _MOST_BLANKS


def _begins_value(start: bytes) -> bool:
    return start.removeprefix(BOM_UTF8).lstrip()[:1] in (b"{", b"[")


class ProviderTarget:
    """Answers by asking ``provider`` for ``model``, in which ``*`` stands for what was asked for.

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
        self._continues = continues

    @property
    def name(self) -> str:
        """``PROVIDER/MODEL``, as the configuration names it."""
        return f"{self.provider.name}/{self.model}"

    @property
    def retries(self) -> int:
        return self.provider.retries

    def model_for(self, request: ChatRequest) -> str:
        """Return the provider's name of the model that answers the request."""
        return self.model.replace("*", request.model, 1) if "*" in self.model else self.model

    def generate(self, request: ChatRequest, partial: Partial | None = None) -> ProviderReply:
        native = None
        if request.native is not None and partial is None:
            native = native_of(request, self.provider.dialect)
        return ProviderReply(self, request, partial, native)

    def continues(self, request: ChatRequest, partial: Partial) -> bool:
        """Servers begin calls and structured output anew, so neither is continued."""
        if request.passed is not None:
            return False
        if not (partial.text or partial.reasoning or partial.calls):
            return True
        way = self.provider.dialect.continuing
        if way.way == "none" or self._continues is False:
            return False
        if way.way == "as_sent" and not self._continues:
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
        spoken = dialect.api.bodies if native is None else native.shape
        if spoken not in COUNTED:
            return None
        path, fields = COUNTED[spoken]

        def body() -> bytes:
            return only(outgoing(request, dialect, self.model_for(request)).body, fields)

        written = await offload(body) if request.large else body()
        return await self.provider.count(path, written, {} if native is None else native.headers)

    async def check(self) -> None:
        await self.provider.check()
