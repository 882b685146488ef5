"""Running reply of a provider: requested, started, left.

Entered, the request is ready to be sent; the first batch that is asked for sends it. Left,
the connection is free again or closed at once, which ends the work on the other side. The
tokens that it costs are known at any time, also while nothing has come back.
"""

from __future__ import annotations

import asyncio
from codecs import BOM_UTF8
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from time import monotonic
from typing import TYPE_CHECKING, ClassVar, Self

from msgspec import Struct

from causerie.errors import InvalidRequest
from causerie.protocol.estimate import output_estimate, prompt_estimate
from causerie.protocol.events import ArrivalSink, Batch, Usage
from causerie.protocol.partial import Partial, Trail
from causerie.protocol.portions import in_portions
from causerie.protocol.request import ChatRequest
from causerie.providers.fast_path import Read, read_fast_path
from causerie.providers.incoming import MAX_EVENT_BYTES, Incoming
from causerie.providers.outgoing import Outgoing, outgoing
from causerie.providers.provider import failed
from causerie.providers.stream import BodyStream, BufferedBody
from causerie.runtime.offload import LARGE, offload
from causerie.transport.decoding import TEXTS, DecodedResponse, decoded
from causerie.transport.errors import Stale, TransportFailed
from causerie.transport.response import HttpResponse

if TYPE_CHECKING:
    from causerie.providers.target import ProviderTarget

_NEVER = float("inf")
_NOTHING = Usage(0, 0)
_MOST_BLANKS = 1024  # bytes before a reply, until it is read as a stream


class ProviderReply(Struct, eq=False):
    """Use as an async context manager; the rest is there once it is entered.

    ``events`` are iterated once; ``changes`` were made to the request.
    """

    cache_report: ClassVar[None] = None
    """Other servers report their cache at the end only."""
    _asked: ProviderTarget
    _request: ChatRequest
    _partial: Partial | None
    changes: Sequence[str] = ()
    _sent: Outgoing | None = None  # until it is
    _streamed: bool = False  # whether it was asked for as a stream
    _response: HttpResponse | None = None  # once the request is on its way
    _incoming: Incoming | None = None  # once something is there, unless ``_fast_path``
    _fast_path: Read | None = None
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
        """Return the server's name for its engine and weights, else the dialect's name."""
        named = None
        if self._fast_path is not None:
            named = self._fast_path[1]
        elif self._incoming is not None:
            named = self._incoming.fingerprint
        return named or self._asked.provider.fingerprint

    def usage(self) -> Usage:
        """The tokens so far: none before the server has the request, the whole prompt from then on.

        A reply that is not streamed is made whole, whoever leaves: while nothing of it is there,
        it is as long as it may be.
        """
        if self._fast_path is not None:
            return self._fast_path[0][2]
        if self._incoming is not None:
            return self._incoming.usage
        if self._response is None or self._response.unsent:
            return _NOTHING
        made = 0 if self._streamed else output_estimate(self._request)
        return Usage(prompt_estimate(self._request), made, estimated=True)

    def trail(self) -> Trail | None:
        """Other servers' tokens are not known."""
        return None

    async def __aenter__(self) -> Self:
        asked, request = self._asked, self._request
        provider = asked.provider
        if request.large:
            sent = await offload(self._outgoing)
        else:
            sent = self._outgoing()
        self._sent = sent
        self.changes, self._streamed = sent.changes, sent.streamed
        provider.enter()
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            if self._stream is not None:
                await self._stream.leave()
        finally:
            self._asked.provider.leave()

    def __aiter__(self) -> Self:
        return self

    def __anext__(self) -> Awaitable[Batch]:
        """The first batch, which is asked for; of a stream also the next one."""
        if self._sent is not None:
            return self._first()
        return self._rest()

    def _outgoing(self) -> Outgoing:
        asked = self._asked
        model = asked.model_for(self._request)
        return outgoing(self._request, asked.provider.dialect, model, self._partial)

    async def _first(self) -> Batch:
        """Send the request; returns the whole reply, or what of it comes first."""
        sent, self._sent = self._sent, None
        assert sent is not None
        provider, model = self._asked.provider, self._asked.model_for(self._request)
        began = monotonic()
        due = end = began + provider.deadlines.total
        if self._request.stream:  # else the client sees no content before the end, anyway
            due = min(began + provider.deadlines.first_token, end)
        asking = provider.post(model, sent.body, due, asked=self._on_its_way)
        del sent  # so that its body is not kept until there is an answer
        try:
            try:
                response = await asking
            except Stale:
                self._response = None
                body = (await offload(self._outgoing)).body
                response = await provider.post(model, body, due, anew=True, asked=self._on_its_way)
            at_hand = response.at_hand()
            usual = response.status == 200 and at_hand.startswith(TEXTS)
            whole = at_hand if usual else await self._arriving(response, end)
            if whole is not None:
                if len(whole) <= LARGE:
                    self._read(whole)
                else:
                    await self._read_large(whole)
        except TransportFailed as failure:
            raise failed(failure) from failure
        except InvalidRequest as failure:
            provider.private(failure)
            raise
        return self._batch or await self._rest()

    async def _rest(self) -> Batch:
        if self._stream is not None:
            return await self._stream.__anext__()
        if not self._portions:
            raise StopAsyncIteration
        await asyncio.sleep(0)  # others have their turn
        return self._portions.pop()

    def _on_its_way(self, response: HttpResponse) -> None:
        self._response = response

    async def _arriving(self, response: HttpResponse, end: float) -> bytes | None:
        """Return the body once it is there; of a stream, which has started then, ``None``."""
        try:
            if not 200 <= response.status < 300:
                self._response = None  # which costs nothing
                raise await self._asked.provider.refused(response)
            body = await decoded(response)
            is_value = _begins_value(await body.beginning(_is_telling))
            if is_value and response.media_type != b"text/event-stream":
                return await body.read(MAX_EVENT_BYTES)
            self._arrives(body, end)
            return None
        except BaseException:
            response.close()
            raise

    async def _read_large(self, body: bytes) -> None:
        await offload(self._read, body)
        if self._stream is None:
            self._batch, *others = in_portions(self._batch)
            self._portions = others[::-1]

    def _read(self, body: bytes) -> None:
        """A plain reply, or a stream that came as something else."""
        asked, request, body = self._asked, self._request, body.removeprefix(BOM_UTF8)
        new = self._partial is None and not request.continue_final_message
        if new and request.top_logprobs is None and len(body) <= LARGE:
            read = read_fast_path(body, asked.separators, request.max_tokens)
            if read is not None:
                (text, end, used), named = read
                used = asked.provider.dialect.reported(used, request.cache_scope)
                self._batch = batch = (text, end, used)
                self._fast_path = batch, named
                return
        if _begins_value(body):
            incoming = self._incoming = self._reader()
            self._batch = incoming.whole(body)
        else:
            self._arrives(BufferedBody(body), _NEVER)

    def _arrives(self, body: HttpResponse | DecodedResponse | BufferedBody, end: float) -> None:
        incoming, provider = self._reader(), self._asked.provider
        self._incoming = incoming
        self._stream = BodyStream(
            incoming, body, provider.deadlines.between_chunks, end, provider.max_reply_bytes
        )

    def _reader(self) -> Incoming:
        asked = self._asked
        return Incoming(self._request, asked.provider.dialect, asked.separators, self._partial)


def _is_telling(start: bytes) -> bool:
    """Return true if the first bytes of a body tell whether it is one JSON value or a stream."""
    return bool(start.removeprefix(BOM_UTF8).strip()) or len(start) > _MOST_BLANKS


def _begins_value(start: bytes) -> bool:
    return start.removeprefix(BOM_UTF8).lstrip()[:1] in (b"{", b"[")
