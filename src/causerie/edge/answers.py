"""Answers on their way to a client: whole, or as a stream of events.

A stream begins with its first content-bearing event, or with a comment where that
is late. Later silence is broken by comments, so that nobody between us and the
client gives up. Writing waits only where the client reads too slowly.
"""

from __future__ import annotations

from collections.abc import Awaitable, Generator, Mapping

import msgspec

from causerie.edge.exchange import Exchange
from causerie.edge.keep_alive import KeepAlive
from causerie.errors import ErrorDetails
from causerie.protocol import sse
from causerie.protocol.chunk_encoder import ChunkEncoder, CompletionIdentity, ResponseContext
from causerie.protocol.events import Batch, BatchSink, Event
from causerie.protocol.portions import is_large, joined
from causerie.protocol.request import ChatRequest
from causerie.runtime.offload import offload

_MANY = 4096  # events that are kept as they came; pieces of texts are joined then
_STREAM = {"cache-control": "no-cache", "x-accel-buffering": "no"}
_encode = msgspec.json.Encoder().encode


class PlainAnswer:
    """A whole answer; where it began anew, the last one is sent."""

    __slots__ = ("_context", "_events", "_headers", "_joined")

    early_start = False
    _headers: Mapping[str, str]
    _context: ResponseContext
    _events: list[Event]

    def begin(self, headers: Mapping[str, str], context: ResponseContext) -> BatchSink:
        self._headers = headers
        self._context = context
        self._events = []
        self._joined = 0  # events that were joined with those before
        return self._take

    def _take(self, batch: Batch) -> None:
        events = self._events
        events += batch
        if len(events) > self._joined + _MANY:
            events[self._joined :] = joined(events[self._joined :])
            self._joined = len(events) - 1  # the last one may go on

    async def finish(self, exchange: Exchange) -> None:
        """Send it; raises :class:`~causerie.errors.InternalError` where it has no end."""
        events, completion = self._events, self._context.completion
        if is_large(events):
            body = await offload(lambda: _encode(completion(events)))
        else:
            body = _encode(completion(events))
        exchange.respond(200, body, headers=self._headers)


class _Drained:
    """Awaited, or not: ends when there is room for more of a response, or the client has left."""

    __slots__ = ("_exchange",)

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    def __await__(self) -> Generator[object, None, None]:
        return self._exchange.drained().__await__()


class StreamedAnswer:
    """An answer that is sent as it comes, with a comment where a whole period was silent.

    The period of ``head_timer`` is the longest time that its head waits for the first event.
    """

    __slots__ = (
        "_encoder",
        "_exchange",
        "_head_timer",
        "_identity",
        "_pings",
        "_request",
        "_silent",
        "early_start",
    )

    def __init__(
        self,
        request: ChatRequest,
        exchange: Exchange,
        identity: CompletionIdentity,
        pings: KeepAlive,
        head_timer: KeepAlive | None,
    ) -> None:
        self._request = request
        self._exchange = exchange
        self._identity = identity
        self._pings = pings
        self._head_timer = head_timer
        self._encoder: ChunkEncoder | None = None
        self._silent = False
        self.early_start = False
        """The head was sent before the first content-bearing event."""
        if head_timer is not None:
            head_timer.enter(self)

    def begin(self, headers: Mapping[str, str], context: ResponseContext) -> BatchSink:
        """Start the response; return the sink that sends, no faster than the client reads.

        Where the head has been sent, ``headers`` come too late.
        """
        self._encoder = ChunkEncoder(context, usage=self._request.include_usage)
        if not self.early_start:
            self._start(headers)
        return self._send

    def leave(self) -> None:
        """Stop listening to the timers."""
        self._pings.leave(self)
        if self._head_timer is not None:
            self._head_timer.leave(self)

    def _start(self, headers: Mapping[str, str]) -> None:
        self._exchange.start(200, "text/event-stream; charset=utf-8", {**_STREAM, **headers})
        self._exchange.filler = sse.PING
        if self._head_timer is not None:
            self._head_timer.leave(self)
        self._pings.enter(self)

    def _send(self, batch: Batch) -> Awaitable[None] | None:
        assert self._encoder is not None
        told = self._encoder.feed(batch)
        if told:
            self._silent = False
            if not self._exchange.write(told):
                return _Drained(self._exchange)
        return None

    def break_off(self, error: ErrorDetails) -> None:
        """Tell what went wrong after the answer had started."""
        encoder = self._encoder or ChunkEncoder(
            ResponseContext(self._identity, self._request.model, "")
        )
        self._exchange.write(encoder.broken(error))

    async def finish(self, exchange: Exchange) -> None:
        """End it with ``[DONE]``."""
        exchange.end(sse.DONE)

    def period_over(self) -> None:
        """Send a comment if nothing was sent since the end of the last one, nor the head."""
        if self._exchange.status is None:
            self.early_start = self._silent = True
            self._start({})
        if self._silent and not self._exchange.blocked:
            self._exchange.write(sse.PING)
        self._silent = True
