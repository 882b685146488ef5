"""A reply of an upstream under way: asked for, begun, left.

Entered, the head of the response is there and good; left, the connection is
free again or closed at once, which ends the work on the other side.
"""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import AsyncIterator, Sequence
from time import monotonic
from types import TracebackType
from typing import Protocol, Self

from causerie.errors import ServiceError
from causerie.offload import LARGE, offload
from causerie.protocol.events import Batch, Usage
from causerie.protocol.partial import Partial, Trail
from causerie.protocol.request import ChatRequest
from causerie.transport.errors import Stale, TransportFailed
from causerie.transport.response import HttpResponse
from causerie.upstreams.endpoint import Endpoint, failed
from causerie.upstreams.everyday import Read, read_everyday
from causerie.upstreams.incoming import Incoming
from causerie.upstreams.outgoing import written
from causerie.upstreams.separator import Separators
from causerie.upstreams.stream import Held, Stream

_NEVER = float("inf")
_MAX_REPLY_BYTES = 16 * 1024 * 1024


class Asked(Protocol):
    """A model of an endpoint, with what tells apart reasoning inside the content."""

    @property
    def endpoint(self) -> Endpoint: ...
    @property
    def model(self) -> str: ...
    @property
    def separators(self) -> Separators | None: ...


class Reply:
    """Use as an async context manager; the rest is there once it is entered.

    ``events`` are iterated once; ``changes`` were made to the request, and ``ignored``
    were not sent on.
    """

    __slots__ = (
        "_asked", "_batch", "_everyday", "_incoming", "_partial", "_request", "_stream", "changes",
        "ignored",
    )  # fmt: skip

    changes: Sequence[str]
    ignored: Sequence[str]
    _batch: Batch | None  # all of it, where it is no stream
    _incoming: Incoming  # unless it is ``_everyday``

    def __init__(self, asked: Asked, request: ChatRequest, partial: Partial | None) -> None:
        self._asked = asked
        self._request = request
        self._partial = partial
        self._everyday: Read | None = None
        self._stream: Stream | None = None

    @property
    def events(self) -> AsyncIterator[Batch]:
        return self._stream or self

    @property
    def fingerprint(self) -> str:
        """What the server calls its engine and weights, else the dialect's name."""
        read = self._everyday
        named = self._incoming.fingerprint if read is None else read[1]
        return named or self._asked.endpoint.fingerprint

    def usage(self) -> Usage:
        """The tokens so far."""
        read = self._everyday
        return self._incoming.usage if read is None else read[0][2]

    def trail(self) -> Trail | None:
        """Other servers' tokens are not known."""
        return None

    async def __aenter__(self) -> Self:
        asked = self._asked
        endpoint = asked.endpoint
        sent = await written(self._request, endpoint.dialect, asked.model, self._partial)
        self.changes, self.ignored, streamed = sent.changes, sent.ignored, sent.streamed
        began = monotonic()
        due = end = began + endpoint.deadlines.total
        if streamed:
            due = min(began + endpoint.deadlines.first_token, end)
        endpoint.enter()
        try:
            asking = endpoint.post(sent.body, due)
            del sent  # so that its body is not kept until there is an answer
            try:
                response = await asking
            except Stale:
                sent = await written(self._request, endpoint.dialect, asked.model, self._partial)
                response = await endpoint.post(sent.body, due, anew=True)
            body = response.at_hand()
            if response.status == 200 and body.startswith(b"{"):
                await self._whole(body)
            else:
                await self._arriving(response, end, streamed=streamed)
        except TransportFailed as failure:
            endpoint.leave()
            raise failed(failure) from failure
        except BaseException as failure:
            endpoint.leave()
            if isinstance(failure, ServiceError):
                failure.changes = self.changes
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if self._stream is not None:
                await self._stream.leave()
        finally:
            self._asked.endpoint.leave()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Batch:
        """The only batch of a plain reply."""
        batch, self._batch = self._batch, None
        if batch is None:
            raise StopAsyncIteration
        return batch

    async def _arriving(self, response: HttpResponse, end: float, *, streamed: bool) -> None:
        """A stream, or what is not there yet, or is no good."""
        try:
            if not 200 <= response.status < 300:
                raise await self._asked.endpoint.refused(response)
            stream = _is_stream(response, streamed=streamed)
            if stream and not (await response.beginning()).lstrip().startswith(b"{"):
                self._streamed(response, end)
            else:
                await self._whole(await response.read(_MAX_REPLY_BYTES))
        except BaseException:
            response.close()
            raise

    async def _whole(self, body: bytes) -> None:
        """A plain reply, or a stream that came as something else."""
        if len(body) <= LARGE:
            self._read(body)
        else:
            await offload(self._read, body)

    def _read(self, body: bytes) -> None:
        asked, request, body = self._asked, self._request, body.removeprefix(BOM_UTF8)
        new = self._partial is None and not request.continue_final_message
        if new and request.top_logprobs is None:
            read = self._everyday = read_everyday(body, asked.separators)
            if read is not None:
                self._batch = read[0]
                return
        if body.lstrip().startswith(b"data:"):
            self._streamed(Held(body), _NEVER)
        else:
            incoming = self._incoming = self._reader()
            self._batch = incoming.whole(body)

    def _streamed(self, body: HttpResponse | Held, end: float) -> None:
        incoming = self._incoming = self._reader()
        self._stream = Stream(incoming, body, self._asked.endpoint.deadlines.between_chunks, end)

    def _reader(self) -> Incoming:
        asked = self._asked
        return Incoming(self._request, asked.endpoint.dialect, asked.separators, self._partial)


def _is_stream(response: HttpResponse, *, streamed: bool) -> bool:
    """Whether the body is a stream of events, by what was asked for where the type is odd."""
    kind = response.media_type
    if kind == b"text/event-stream":
        return True
    return streamed and kind not in (b"application/json", b"text/html")
