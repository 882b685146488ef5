"""Answers on their way to a client: whole or as a stream of events, compressed or cached, or a
file that is made while it is sent.

A stream begins with its first content-bearing event, or with a comment where that is late.
Later silence is broken by comments, so that nobody between us and the client gives up. Writing
waits only where the client reads too slowly.
"""

from __future__ import annotations

import asyncio
import csv
import gzip
import io
from collections.abc import AsyncGenerator, Awaitable, Generator, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from itertools import takewhile
from time import monotonic

import msgspec

from causerie.catalog.page_cache import CachedPage
from causerie.errors import ErrorDetails
from causerie.http.event_loop import offload
from causerie.http.exchange import Exchange
from causerie.protocol import sse
from causerie.protocol.events import Batch, BatchSink, Event, is_large_batch, joined_events
from causerie.protocol.request import ChatRequest
from causerie.shapes.chat_completions.encoder import (
    ChunkEncoder,
    CompletionIdentity,
    ResponseContext,
)

# One timer that reports the end of each period to all of its listeners.


class KeepAlive:
    """Reports the end of each period of ``seconds`` to each listener, from its entry on."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._ends: dict[StreamedAnswer, float] = {}  # of periods; the next one is the first
        self._timer: asyncio.TimerHandle | None = None

    def enter(self, listener: StreamedAnswer) -> None:
        """Report the ends of periods to this one from now on."""
        self._ends[listener] = monotonic() + self._seconds
        if self._timer is None:
            self._wait(self._seconds)

    def leave(self, listener: StreamedAnswer) -> None:
        """Stop reporting to this one, if it listens."""
        self._ends.pop(listener, None)

    def _wait(self, seconds: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, self._over)

    def _over(self) -> None:
        self._timer = None
        now, ends = monotonic(), self._ends
        over = list(takewhile(lambda listener: ends[listener] <= now, ends))
        for listener in over:
            del ends[listener]
            ends[listener] = now + self._seconds
            listener.period_over()
        if ends:
            self._wait(next(iter(ends.values())) - now)


# Answers on their way to a client: whole, or as a stream of events.
#
# A stream begins with its first content-bearing event, or with a comment where that
# is late. Later silence is broken by comments, so that nobody between us and the
# client gives up. Writing waits only where the client reads too slowly.

_MOST_UNJOINED = 4096  # events that are kept as they came; pieces of texts are joined then
_STREAM_HEADERS = {"cache-control": "no-cache", "x-accel-buffering": "no"}
_encode_json = msgspec.json.Encoder().encode


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
        if len(events) > self._joined + _MOST_UNJOINED:
            events[self._joined :] = joined_events(events[self._joined :])
            self._joined = len(events) - 1  # the last one may go on

    async def finish(self, exchange: Exchange) -> None:
        """Send it; raises :class:`~causerie.errors.InternalError` where it has no end."""
        events, completion = self._events, self._context.completion
        if is_large_batch(events):
            body = await offload(lambda: _encode_json(completion(events)))
        else:
            body = _encode_json(completion(events))
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
        self._exchange.start(
            200, "text/event-stream; charset=utf-8", {**_STREAM_HEADERS, **headers}
        )
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


# Answers that are compressed where that is accepted; of those that clients cache, one a change.

_GZIP_LEVEL = 6


async def send_cached(
    exchange: Exchange,
    page: CachedPage,
    headers: Mapping[str, str],
    *,
    content_type: str = "application/json",
    status: int = 200,
) -> None:
    """Answer with the page, or instead of 200 with 304 if the client has it already."""
    headers = {"vary": "accept-encoding", **headers, "etag": page.etag}
    body = page.body
    if exchange.headers.take_gzip:
        body, headers["content-encoding"] = await page.small(), "gzip"
    known = exchange.headers.get("if-none-match", "") if status == 200 else ""
    if known and (known.strip() == "*" or page.etag.removeprefix("W/") in known):
        exchange.start(304, content_type, headers, len(body))  # the length of the whole answer
        exchange.end()
    else:
        exchange.respond(status, body, content_type=content_type, headers=headers)


async def send_compressed(
    exchange: Exchange,
    body: bytes,
    headers: Mapping[str, str],
    *,
    content_type: str = "application/json",
) -> None:
    """Answer with status 200 and a body of this moment, which nobody caches."""
    headers = {"vary": "accept-encoding", **headers}
    if exchange.headers.take_gzip:
        body = await offload(gzip.compress, body, _GZIP_LEVEL, mtime=0)
        headers["content-encoding"] = "gzip"
    exchange.respond(200, body, content_type=content_type, headers=headers)


# Files that are made while they are sent, and CSV (RFC 4180) as their content.

_FORMULA = ("=", "+", "-", "@", "\t", "\r")


@dataclass(frozen=True, slots=True)
class Export:
    """A file that clients save. ``pieces`` has at least one."""

    content_type: str
    filename: str
    pieces: AsyncGenerator[bytes]

    async def send(self, exchange: Exchange, headers: Mapping[str, str]) -> None:
        """Send the file no faster than the client reads it; stop when the client leaves.

        The first piece is made before the response starts: its errors can still be reported.
        """
        disposition = {"content-disposition": f'attachment; filename="{self.filename}"'}
        async with aclosing(self.pieces):
            first = await anext(self.pieces)
            exchange.start(200, self.content_type, {**headers, **disposition})
            exchange.write(first)
            async for piece in self.pieces:
                if exchange.gone:
                    return
                exchange.write(piece)
                if exchange.blocked:
                    await exchange.drained()
        exchange.end()


def csv_lines(rows: Iterable[Sequence[str]]) -> bytes:
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    return text.getvalue().encode("utf-8", "replace")


def csv_text(text: str) -> str:
    """Return a cell that spreadsheets do not take for a formula: an apostrophe marks it as text."""
    return f"'{text}" if text.startswith(_FORMULA) else text
