"""A reply that comes as a stream of events: pieces of the body to batches, as they arrive."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from time import monotonic
from typing import Self

from causerie.errors import ServiceError, UpstreamFailed
from causerie.protocol.events import Batch, Event
from causerie.protocol.sse import EventDecoder, LineTooLong
from causerie.providers.incoming import Incoming
from causerie.providers.provider import failed
from causerie.transport.errors import TransportFailed
from causerie.transport.response import HttpResponse

_NEVER = float("inf")
_MAX_EVENT_BYTES = 16 * 1024 * 1024
_AT_ONCE = 64 * 1024  # bytes: what is read of a body before others have their turn
_TAIL_SECONDS = 2.0  # for usage, once every choice has ended
_CLOSING_SECONDS = 0.1  # for the end of the body after the end of the stream


class BufferedBody:
    """A body that is there already, read as one that arrives."""

    __slots__ = ("_body", "due")

    def __init__(self, body: bytes) -> None:
        self._body = body
        self.due = _NEVER  # what is there cannot be late

    async def piece(self, late: float = _NEVER) -> bytes:
        """The body, then ``b""``."""
        del late
        body, self._body = self._body, b""
        return body

    async def finish(self, seconds: float) -> None:
        """Nothing is to come."""

    def close(self) -> None:
        """The same."""


class BodyStream:
    """Iterate once. The first content must be there when ``body`` is due.

    From then on content may take ``between`` seconds after content, and the whole until
    ``end`` (on the monotonic clock).
    """

    __slots__ = (
        "_ahead", "_between", "_body", "_decoder", "_end", "_failure", "_incoming", "_seconds",
    )  # fmt: skip

    def __init__(
        self, incoming: Incoming, body: HttpResponse | BufferedBody, between: float, end: float
    ) -> None:
        self._incoming = incoming
        self._body = body
        self._between = between
        self._end = end
        self._seconds = _NEVER  # that the next content may take
        self._ahead = memoryview(b"")  # what has come and was not read yet
        self._decoder = EventDecoder(_MAX_EVENT_BYTES)
        self._failure: ServiceError | None = None

    async def leave(self) -> None:
        """Free the connection: for others where the reply has ended, else at once."""
        if self._incoming.ended:
            await self._body.finish(_CLOSING_SECONDS)
        else:
            self._body.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Batch:
        """The events that arrived together; raises :class:`ServiceError` where the reply breaks.

        Failures are kept for the next call, where events came before them.
        """
        body, incoming, decoder = self._body, self._incoming, self._decoder
        late = monotonic() + self._seconds  # whatever comes that is no content
        while True:
            if self._failure is not None:
                raise self._failure
            if incoming.ended:
                raise StopAsyncIteration
            events: list[Event] = []
            try:
                piece = b"" if self._ahead else await body.piece(late)
                if self._ahead or len(piece) > _AT_ONCE:
                    piece = await self._part(piece)
                incoming.feed(decoder.feed(piece) if piece else decoder.close(), events)
                if not piece:
                    incoming.finish(events)
            except (TransportFailed, LineTooLong, ServiceError) as failure:
                self._broken(_told(failure), events)
            if events:
                body.due = self._end
                self._seconds = _TAIL_SECONDS if incoming.complete else self._between
                return events
            if incoming.complete:
                late = min(late, monotonic() + _TAIL_SECONDS)

    async def _part(self, piece: bytes) -> bytes:
        """The next part of a large piece that has come, or of ``piece``, which comes now."""
        if self._ahead:
            await asyncio.sleep(0)  # others have their turn
        else:
            self._ahead = memoryview(piece)
        part, self._ahead = bytes(self._ahead[:_AT_ONCE]), self._ahead[_AT_ONCE:]
        return part

    def _broken(self, failure: ServiceError, events: list[Event]) -> None:
        """It cannot be read on: a failure, unless the reply is complete but for its usage."""
        incoming = self._incoming
        if incoming.ended or not incoming.complete:
            self._failure = failure
            return
        with suppress(ServiceError, LineTooLong):  # of half an event
            incoming.feed(self._decoder.close(), events)
        incoming.finish(events)


def _told(failure: TransportFailed | LineTooLong | ServiceError) -> ServiceError:
    """Our error for what ended the reading of a reply."""
    if isinstance(failure, ServiceError):
        return failure
    if isinstance(failure, LineTooLong):
        return UpstreamFailed("The provider sent an event that is too long.")
    told = failed(failure)
    told.__cause__ = failure
    return told
