"""A reply that comes as a stream of events: pieces of the body to batches, as they arrive."""

from __future__ import annotations

from contextlib import suppress
from typing import Self

from causerie.errors import ServiceError, UpstreamFailed
from causerie.protocol.events import Batch, Event
from causerie.protocol.sse import Decoder, LineTooLong
from causerie.transport.errors import TransportFailed
from causerie.upstreams.endpoint import failed, too_late
from causerie.upstreams.incoming import Incoming
from causerie.upstreams.patience import Patience

_MAX_EVENT_BYTES = 16 * 1024 * 1024
_TAIL_SECONDS = 2.0  # for usage, once every choice has ended
_CLOSING_SECONDS = 0.1  # for the end of the body after the end of the stream


class Held:
    """A body that is there already, read as one that arrives."""

    __slots__ = ("_body", "passed")

    def __init__(self, body: bytes) -> None:
        self._body = body
        self.passed = False  # what is there cannot be late

    async def piece(self) -> bytes:
        """The body, then ``b""``."""
        body, self._body = self._body, b""
        return body

    def within(self, seconds: float) -> None:
        """Nothing is waited for."""

    def close(self) -> None:
        """Nothing is to come."""


class Stream:
    """Iterate once; ``between`` is how many seconds content may take after content."""

    __slots__ = ("_between", "_decoder", "_failure", "_incoming", "_patience")

    def __init__(self, incoming: Incoming, patience: Patience | Held, between: float) -> None:
        self._incoming = incoming
        self._patience = patience
        self._between = between
        self._decoder = Decoder(_MAX_EVENT_BYTES)
        self._failure: ServiceError | None = None

    async def leave(self) -> None:
        """Free the connection: for others where the reply has ended, else at once."""
        patience = self._patience
        try:
            if self._incoming.ended:
                patience.within(_CLOSING_SECONDS)
                while await patience.piece():
                    pass
        except TransportFailed:
            pass  # the reply is complete; only the connection is lost
        finally:
            patience.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Batch:
        """The events that arrived together; raises :class:`ServiceError` where the reply breaks.

        Failures are kept for the next call, where events came before them.
        """
        patience, incoming, decoder = self._patience, self._incoming, self._decoder
        while True:
            if self._failure is not None:
                raise self._failure
            if incoming.ended:
                raise StopAsyncIteration
            events: list[Event] = []
            try:
                piece = await patience.piece()
                incoming.feed(decoder.feed(piece) if piece else decoder.close(), events)
                if not piece:
                    incoming.finish(events)
            except TransportFailed as failure:
                self._broken(failure, events)
            except LineTooLong:
                self._failure = UpstreamFailed("The endpoint sent an event that is too long.")
            except ServiceError as failure:
                self._failure = failure
            if events:
                patience.within(_TAIL_SECONDS if incoming.complete else self._between)
                return events

    def _broken(self, failure: TransportFailed, events: list[Event]) -> None:
        """The body broke off: a failure, unless the reply is complete but for its usage."""
        if self._incoming.complete:
            with suppress(ServiceError):  # of half an event
                self._incoming.feed(self._decoder.close(), events)
            self._incoming.finish(events)
            return
        self._failure = too_late() if self._patience.passed else failed(failure)
        self._failure.__cause__ = failure
