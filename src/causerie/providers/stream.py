"""A reply that comes as a stream of events: pieces of the body to batches, as they arrive."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import Self

from msgspec import Struct, field

from causerie.errors import ServiceError, UpstreamFailed
from causerie.http.client_connection import HttpResponse, TransportFailed
from causerie.http.decoding import DecodedResponse
from causerie.http.event_loop import LARGE, offload
from causerie.protocol.events import ArrivalSink, Batch, Event, in_portions
from causerie.protocol.sse import EventDecoder, LineTooLong
from causerie.providers.incoming import MAX_EVENT_BYTES, Incoming
from causerie.providers.passed_through import PassedReader
from causerie.providers.provider import MAX_REPLY_BYTES, failed

_NEVER = float("inf")
_AT_ONCE = 16 * 1024  # bytes: what is read of a body before others have their turn
_TAIL_SECONDS = 2.0  # for usage, once every choice has ended
_CLOSING_SECONDS = 0.1  # for the end of the body after the end of the stream


class BufferedBody:
    """A complete body with the interface of one that is still arriving."""

    __slots__ = ("_body", "due", "late", "taker")

    def __init__(self, body: bytes) -> None:
        self._body = body
        self.due = self.late = _NEVER  # what is there cannot be late
        self.taker: Callable[[bytes], bool] | None = None  # nor does it arrive

    async def piece(self, late: float = _NEVER) -> bytes:
        body, self._body = self._body, b""
        return body

    async def finish(self, seconds: float) -> None:
        """Do nothing: the body is complete."""

    def close(self) -> None:
        """Do nothing: no connection is open."""


class BodyStream(Struct, eq=False):
    """Reads the batches of a streamed reply; iterate it once.

    The first content must be there when ``body`` is due. From then on content may take ``between``
    seconds after content, and the whole until ``end`` (on the monotonic clock). It may have
    ``room`` bytes, decoded.
    """

    _incoming: Incoming | PassedReader
    _body: HttpResponse | DecodedResponse | BufferedBody
    _between: float
    _end: float
    _room: int = MAX_REPLY_BYTES
    _seconds: float = _NEVER  # that the next content may take
    _late: float = _NEVER  # when it has taken too long
    _sink: ArrivalSink | None = None
    _ahead: memoryview = memoryview(b"")  # what has come and was not read yet
    _portions: deque[Batch] = field(default_factory=deque)  # read and not handed on yet
    _decoder: EventDecoder = field(
        default_factory=partial(EventDecoder, MAX_EVENT_BYTES, values=True)
    )
    _failure: ServiceError | None = None

    async def leave(self) -> None:
        """Free the connection: for others where the reply has ended, else at once."""
        self._sink = self._body.taker = None
        if self._incoming.ended:
            await self._body.finish(_CLOSING_SECONDS)
        else:
            self._body.close()

    def on_arrival(self, sink: ArrivalSink) -> None:
        """Hand to ``sink`` what only goes on with a text, while the next batch is awaited."""
        self._sink = sink
        self._body.taker = self._take_continuation

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Batch:
        """Return what arrived together; raise a failure only after the events before it."""
        if self._portions:
            await asyncio.sleep(0)  # others have their turn
            return self._portions.popleft()
        body, incoming, decoder = self._body, self._incoming, self._decoder
        self._late = monotonic() + self._seconds  # whatever comes that is no content
        while True:
            if self._failure is not None:
                raise self._failure
            if incoming.ended:
                raise StopAsyncIteration
            events: list[Event] = []
            large = decoder.held > LARGE
            try:
                piece = b"" if self._ahead else self._within_limit(await body.piece(self._late))
                if self._ahead or len(piece) > _AT_ONCE:
                    piece = await self._next_part(piece)
                if piece and not large:
                    incoming.feed(decoder.feed(piece), events)
                else:
                    await self._read_piece(piece, events)
            except (TransportFailed, LineTooLong, ServiceError) as failure:
                await self._record_failure(_service_error(failure), events)
            if events:
                body.due = self._end
                self._seconds = _TAIL_SECONDS if incoming.complete else self._between
                return self._first_portion(events) if large else events
            if incoming.complete:
                self._late = min(self._late, monotonic() + _TAIL_SECONDS)

    def _take_continuation(self, piece: bytes) -> bool:
        sink, body = self._sink, self._body
        data = self._decoder.only(piece)
        if sink is None or data is None or len(data) > LARGE or self._room < 0:
            return False
        batch = self._incoming.goes_on(data)
        if not batch:
            return False
        self._room -= len(piece)
        self._late = body.late = monotonic() + self._between
        if not sink(batch):
            self._sink = body.taker = None
        return True

    def _within_limit(self, piece: bytes) -> bytes:
        self._room -= len(piece)
        if self._room < 0:
            raise UpstreamFailed("The provider sent a longer reply than `max_reply_bytes` allows.")
        return piece

    async def _next_part(self, piece: bytes) -> bytes:
        if self._ahead:
            await asyncio.sleep(0)  # others have their turn
        else:
            self._ahead = memoryview(piece)
        part, self._ahead = bytes(self._ahead[:_AT_ONCE]), self._ahead[_AT_ONCE:]
        return part

    async def _read_piece(self, piece: bytes, events: list[Event]) -> None:
        if self._decoder.held > LARGE and (not piece or b"\n" in piece):
            await offload(self._feed, piece, events)
        else:
            self._feed(piece, events)

    def _feed(self, piece: bytes, events: list[Event]) -> None:
        incoming, decoder = self._incoming, self._decoder
        if piece:
            incoming.feed(decoder.feed(piece), events)
        else:
            incoming.feed(decoder.close(), events)
            incoming.finish(events)

    def _first_portion(self, events: list[Event]) -> Batch:
        first, *others = in_portions(events)
        self._portions.extend(others)
        return first

    async def _record_failure(self, failure: ServiceError, events: list[Event]) -> None:
        # A reply that lacks only its usage is complete.
        incoming = self._incoming
        if incoming.ended or not incoming.complete:
            self._failure = failure
            return
        with suppress(ServiceError, LineTooLong):  # of half an event
            await self._read_piece(b"", events)
        incoming.finish(events)


def _service_error(failure: TransportFailed | LineTooLong | ServiceError) -> ServiceError:
    if isinstance(failure, ServiceError):
        return failure
    if isinstance(failure, LineTooLong):
        return UpstreamFailed("The provider sent an event that is too long.")
    told = failed(failure)
    told.__cause__ = failure
    return told
