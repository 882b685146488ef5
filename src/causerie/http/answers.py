"""Send answers to clients: whole or as a stream of events, compressed, cached, or as a file."""

from __future__ import annotations

import asyncio
import csv
import io
import zlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from itertools import takewhile
from time import monotonic

import msgspec
import structlog
from msgspec import Struct

from causerie.catalog.page_cache import CachedPage
from causerie.errors import ServiceError, forget_frames
from causerie.http.decoding import zstd
from causerie.http.event_loop import offload
from causerie.http.exchange import Exchange, error_details_for, internal
from causerie.protocol.events import Batch, BatchSink, Event, is_large_batch, joined_events
from causerie.protocol.response import (
    CompletionIdentity,
    ReplyFormat,
    ResponseContext,
    StreamEncoder,
)
from causerie.shapes.shape import ParsedRequest

log = structlog.get_logger(__name__)


class KeepAlive(Struct):
    """One timer that calls ``period_over`` of each listener after every period since its entry."""

    _period_seconds: float
    _period_ends: dict[StreamedAnswer, float] = {}  # of periods; the next one is the first
    _period_timer: asyncio.TimerHandle | None = None

    def enter(self, listener: StreamedAnswer) -> None:
        self._period_ends[listener] = monotonic() + self._period_seconds
        if self._period_timer is None:
            self._start_timer(self._period_seconds)

    def leave(self, listener: StreamedAnswer) -> None:
        self._period_ends.pop(listener, None)

    def _start_timer(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        self._period_timer = loop.call_later(seconds, self._notify_of_ended_periods)

    def _notify_of_ended_periods(self) -> None:
        self._period_timer = None
        now, ends = monotonic(), self._period_ends
        over = list(takewhile(lambda listener: ends[listener] <= now, ends))
        for listener in over:
            del ends[listener]
            ends[listener] = now + self._period_seconds
            listener.period_over()
        if ends:
            self._start_timer(next(iter(ends.values())) - now)


_MOST_UNJOINED = 4096  # events that are kept as they came; pieces of texts are joined then
_encode_json = msgspec.json.Encoder().encode


class PlainAnswer:
    """Collects events and sends one JSON body; a restarted answer replaces the events before."""

    __slots__ = (
        "_collected_events",
        "_headers",
        "_joined_prefix_length",
        "_response_context",
        "completion",
        "parsed",
    )

    early_start = False

    def __init__(self, parsed: ParsedRequest) -> None:
        self.completion = parsed.reply.completion
        self.parsed = parsed

    def begin(self, headers: Mapping[str, str], context: ResponseContext) -> BatchSink:
        self._headers = headers
        self._response_context = context
        self._collected_events: list[Event] = []
        self._joined_prefix_length = 0  # events that were joined with those before
        return self._append_and_join_events

    def _append_and_join_events(self, batch: Batch) -> None:
        events = self._collected_events
        events += batch
        if len(events) > self._joined_prefix_length + _MOST_UNJOINED:
            events[self._joined_prefix_length :] = joined_events(
                events[self._joined_prefix_length :]
            )
            self._joined_prefix_length = len(events) - 1  # the last one may go on

    async def finish(self, exchange: Exchange) -> None:
        """Send the reply; raise :class:`~causerie.errors.InternalError` if it is incomplete."""
        events, context = self._collected_events, self._response_context
        completion = self.completion
        if is_large_batch(events):
            body = await offload(lambda: _encode_json(completion(context, events)))
        else:
            body = _encode_json(completion(context, events))
        headers = self.parsed.places.renamed(self._headers)
        if len(body) > _ONE_PACKET:
            await send_compressed(exchange, body, headers)
        else:
            exchange.respond(200, body, headers=headers)


class StreamedAnswer(Struct, eq=False):
    """Sends events as they come, and a comment after each period without an event."""

    parsed: ParsedRequest
    _exchange: Exchange
    _identity: CompletionIdentity
    _ping_comment: bytes
    _ping_timer: KeepAlive
    _head_timer: KeepAlive | None  # the head is sent after one of its periods without an event
    early_start: bool = False  # the head was sent before the first content-bearing event
    _stream_encoder: StreamEncoder | None = None
    _is_silent: bool = False

    def __post_init__(self) -> None:
        if self._head_timer is not None:
            self._head_timer.enter(self)

    @property
    def completion(self) -> ReplyFormat:
        return self.parsed.reply.completion

    def begin(self, headers: Mapping[str, str], context: ResponseContext) -> BatchSink:
        """Start the response unless it has begun; return the function that sends event batches."""
        self._stream_encoder = self.parsed.reply.encoder(context)
        if not self.early_start:
            self._start_stream(self.parsed.places.renamed(headers))
        feed, exchange = self._stream_encoder.feed, self._exchange
        write = exchange.write

        def send(batch: Batch) -> Awaitable[None] | None:
            data = feed(batch)
            if not data:
                return None
            if self._is_silent:
                self._is_silent = False
            return None if write(data) else exchange.drained()

        return send

    def leave(self) -> None:
        self._ping_timer.leave(self)
        if self._head_timer is not None:
            self._head_timer.leave(self)

    def _start_stream(self, headers: Mapping[str, str]) -> None:
        self._exchange.start(
            200,
            "text/event-stream; charset=utf-8",
            {"cache-control": "no-cache", "x-accel-buffering": "no", **headers},
        )
        self._exchange.filler = self._ping_comment
        if self._head_timer is not None:
            self._head_timer.leave(self)
        self._ping_timer.enter(self)

    def break_off(self, failure: Exception) -> None:
        exchange = self._exchange
        told = failure if isinstance(failure, ServiceError) else internal(exchange.request_id)
        if told is not failure:
            log.error("stream failed", path=exchange.path, exc_info=failure)
        if self._stream_encoder is None:
            context = ResponseContext(self._identity, self.parsed.request.model, "")
            self._stream_encoder = self.parsed.reply.encoder(context)
        exchange.write(self._stream_encoder.broken(error_details_for(told, exchange.headers)))
        forget_frames(failure)

    async def finish(self, exchange: Exchange) -> None:
        assert self._stream_encoder is not None
        exchange.end(self._stream_encoder.end())

    def period_over(self) -> None:
        """Send the head if it is still missing, and a comment if nothing else was sent."""
        if self._exchange.status is None:
            self.early_start = self._is_silent = True
            self._start_stream({})
        if self._is_silent and not self._exchange.blocked:
            self._exchange.write(self._ping_comment)
        self._is_silent = True


async def send_cached(
    exchange: Exchange,
    page: CachedPage,
    headers: Mapping[str, str],
    *,
    content_type: str = "application/json",
    status: int = 200,
) -> None:
    """Send the page, or status 304 if the client has this version of it."""
    headers = {"vary": "accept-encoding", **headers, "etag": page.etag}
    body = page.body
    if page.lasting and exchange.headers.accepts("br"):
        body, headers["content-encoding"] = await page.smallest(), "br"
    elif exchange.headers.accepts("gzip"):
        body, headers["content-encoding"] = await page.small(), "gzip"
    known = exchange.headers.get("if-none-match", "") if status == 200 else ""
    if known and (known.strip() == "*" or page.etag.removeprefix("W/") in known):
        exchange.start(304, content_type, headers, len(body))  # the length of the whole answer
        exchange.end()
    else:
        exchange.respond(status, body, content_type=content_type, headers=headers)


_ONE_PACKET = 1400  # bytes; compressing less saves no packet
_LARGE_REPLY = 32 * 1024  # bytes; compressing more takes longer than to ask a thread


async def send_compressed(
    exchange: Exchange,
    body: bytes,
    headers: Mapping[str, str],
    *,
    content_type: str = "application/json",
) -> None:
    """Send status 200 and the body, compressed if that saves packets and the client accepts it."""
    headers = {"vary": "accept-encoding", **headers}
    coding = next((each for each in _COMPRESSORS if exchange.headers.accepts(each)), "")
    if coding and len(body) > _ONE_PACKET:
        compress, headers["content-encoding"] = _COMPRESSORS[coding], coding
        large = len(body) > _LARGE_REPLY
        body = await offload(compress, body, 6) if large else compress(body, 1)
    exchange.respond(200, body, content_type=content_type, headers=headers)


def _compress_gzip(body: bytes, level: int) -> bytes:
    window, memory = (zlib.MAX_WBITS, zlib.DEF_MEM_LEVEL) if level > 1 else (13, 5)
    packer = zlib.compressobj(level, zlib.DEFLATED, 16 + window, memory)
    return packer.compress(body) + packer.flush()


_COMPRESSORS: Mapping[str, Callable[[bytes, int], bytes]] = {
    "zstd": zstd.compress,
    "gzip": _compress_gzip,
}
"""By the names of codings, the best first; the second argument is the level."""


@dataclass(frozen=True, slots=True)
class Export:
    """A file to download; ``pieces`` yields at least once."""

    content_type: str
    filename: str
    pieces: AsyncGenerator[bytes]

    async def send(self, exchange: Exchange, headers: Mapping[str, str]) -> None:
        """Send the file no faster than the client reads it; stop when the client leaves."""
        disposition = {"content-disposition": f'attachment; filename="{self.filename}"'}
        async with aclosing(self.pieces):
            first = await anext(self.pieces)  # an error here can still have its own status
            exchange.start(200, self.content_type, {**headers, **disposition})
            exchange.write(first)
            async for piece in self.pieces:
                if exchange.gone:
                    return
                exchange.write(piece)
                if exchange.blocked:
                    await exchange.drained()
        exchange.end()


def csv_lines(rows: Iterable[Iterable[str]]) -> bytes:
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    return text.getvalue().encode("utf-8", "replace")


Rows = AsyncGenerator[Iterable[Sequence[str]]]  # pieces of a table, the first of which is the head


async def csv_pieces(rows: Rows) -> AsyncGenerator[bytes]:
    """Yield rows as pieces of CSV; the header line comes together with the first rows."""
    text, is_head = b"", True
    async with aclosing(rows):
        async for piece in rows:
            text += await asyncio.to_thread(csv_lines, (map(csv_text, row) for row in piece))
            if text and not is_head:
                yield text
                text = b""
            is_head = False


def csv_text(text: str) -> str:
    """Return a cell's text, after an apostrophe if a spreadsheet would take it for a formula."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) else text
