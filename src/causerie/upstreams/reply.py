"""A reply of an upstream under way: bytes to batches of events, with every deadline held.

Entered, the head of the response is there and good; left, the connection is
free again or closed at once, which ends the work on the other side.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from types import TracebackType
from typing import Self

from causerie.errors import ServiceError, UpstreamFailed
from causerie.protocol.events import Batch, Event, Usage
from causerie.protocol.partial import Partial, Trail
from causerie.protocol.request import ChatRequest
from causerie.protocol.sse import Decoder, LineTooLong
from causerie.transport.errors import TransportFailed
from causerie.transport.response import HttpResponse
from causerie.upstreams.endpoint import Endpoint, failed, too_late
from causerie.upstreams.incoming import Incoming
from causerie.upstreams.outgoing import outgoing
from causerie.upstreams.patience import Patience
from causerie.upstreams.separator import Separators

_MAX_REPLY_BYTES = 64 * 1024 * 1024
_MAX_EVENT_BYTES = 16 * 1024 * 1024
_TAIL_SECONDS = 2.0  # for usage, once every choice has ended
_CLOSING_SECONDS = 0.1  # for the end of the body after the end of the stream


class Reply:
    """Use as an async context manager; iterate ``events`` once."""

    __slots__ = (
        "_begun", "_decoder", "_endpoint", "_failure", "_incoming", "_model", "_over", "_partial",
        "_patience", "_request", "_response", "changes",
    )  # fmt: skip

    def __init__(
        self,
        endpoint: Endpoint,
        model: str,
        request: ChatRequest,
        partial: Partial | None,
        separators: Separators | None,
    ) -> None:
        self._endpoint = endpoint
        self._model = model
        self._request = request
        self._partial = partial
        self._incoming = Incoming(request, endpoint.dialect, separators=separators, partial=partial)
        self._decoder: Decoder | None = None
        self._response: HttpResponse | None = None
        self._patience: Patience | None = None
        self._begun: list[Event] = []  # of a plain reply
        self._failure: ServiceError | None = None
        self._over = False
        self.changes: Sequence[str] = ()

    @property
    def events(self) -> AsyncIterator[Batch]:
        return self

    @property
    def fingerprint(self) -> str:
        """What the server calls its engine and weights, else the dialect's name."""
        return self._incoming.fingerprint or f"fp_{self._endpoint.dialect.name}"

    def usage(self) -> Usage:
        """The tokens so far."""
        return self._incoming.usage

    def trail(self) -> Trail | None:
        """Other servers' tokens are not known."""
        return None

    async def __aenter__(self) -> Self:
        endpoint, deadlines = self._endpoint, self._endpoint.deadlines
        sent = outgoing(self._request, endpoint.dialect, self._model, self._partial)
        self.changes = sent.changes
        endpoint.enter()
        began = asyncio.get_running_loop().time()
        first = min(deadlines.first_token, deadlines.total) if sent.streamed else deadlines.total
        try:
            response = self._response = await endpoint.post(sent.body, began + first)
            if not 200 <= response.status < 300:
                raise await endpoint.refused(response)
            if _is_stream(response, streamed=sent.streamed):
                response.take_over()
                self._patience = Patience(response, began + first, began + deadlines.total)
            else:
                self._whole(response.at_hand() or await response.read(_MAX_REPLY_BYTES))
        except TransportFailed as failure:
            self._close()
            raise failed(failure) from failure
        except BaseException:
            self._close()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Batch:
        """The events that arrived together; raises :class:`ServiceError` where the reply breaks."""
        while not self._over:
            if self._failure is not None:
                raise self._failure
            events, self._begun = self._begun, []
            if not events:
                if self._patience is None:
                    break
                events = await self._read(self._patience)
            if events:
                return events
        raise StopAsyncIteration

    def _whole(self, body: bytes) -> None:
        """A plain reply, or a stream that came as something else."""
        if body.lstrip().startswith(b"data:"):
            self._begun = self._take(body)
            if not self._incoming.ended and self._failure is None:
                self._begun += self._ended()
        else:
            self._begun = self._incoming.whole(body)
        self._incoming.ended = True

    async def _read(self, patience: Patience) -> list[Event]:
        """The events of the next piece; the end and failures are kept for the next call."""
        if self._incoming.ended:
            await self._drained(patience)
            return []
        try:
            piece = await patience.piece()
        except TransportFailed as failure:
            return self._broken(failure, late=patience.passed)
        events = self._take(piece) if piece else self._ended()
        if events:
            tail = self._incoming.complete
            patience.until(_TAIL_SECONDS if tail else self._endpoint.deadlines.between_chunks)
            if patience.passed and self._failure is None and not tail:
                self._failure = too_late()
        return events

    def _take(self, piece: bytes) -> list[Event]:
        events: list[Event] = []
        decoder = self._decoder
        if decoder is None:
            decoder = self._decoder = Decoder(_MAX_EVENT_BYTES)
        try:
            for data in decoder.feed(piece):
                events += self._incoming.feed(data)
        except LineTooLong:
            self._failure = UpstreamFailed("The endpoint sent an event that is too long.")
        except ServiceError as failure:
            self._failure = failure
        return events

    def _ended(self) -> list[Event]:
        """The body has ended."""
        events: list[Event] = []
        try:
            for data in self._decoder.close() if self._decoder is not None else ():
                events += self._incoming.feed(data)
            events += self._incoming.finish()
        except ServiceError as failure:
            self._failure = failure
        return events

    def _broken(self, failure: TransportFailed, *, late: bool) -> list[Event]:
        """The body broke off: a failure, unless the reply is complete but for its usage."""
        if self._incoming.complete:
            return self._ended()
        self._failure = too_late() if late else failed(failure)
        self._failure.__cause__ = failure
        return []

    async def _drained(self, patience: Patience) -> None:
        """Read the end of the body, so that the connection can be used again."""
        self._over = True
        patience.until(_CLOSING_SECONDS)
        try:
            while await patience.piece():
                pass
        except TransportFailed:
            pass  # the reply is complete; only the connection is lost

    def _close(self) -> None:
        if self._patience is not None:
            self._patience.stop()
        if self._response is not None:
            self._response.close()
        self._endpoint.leave()


def _is_stream(response: HttpResponse, *, streamed: bool) -> bool:
    """Whether the body is a stream of events, by what was asked for where the type is odd."""
    said = response.headers.get("content-type", "")
    if said == "application/json":
        return False
    kind = said.partition(";")[0].strip().lower()
    if kind == "text/event-stream":
        return True
    return streamed and kind not in ("application/json", "text/html")
