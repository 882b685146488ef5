"""Replies of providers that speak the API of the client: passed on unchanged."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from causerie.errors import ErrorDetails
from causerie.protocol.events import Batch, Event, Verbatim
from causerie.protocol.response import Reply, ResponseContext, StreamEncoder


class PassingReply(Struct, frozen=True):
    """Passes on what a provider sent in the same API; ``encoded`` is for all other targets."""

    encoded: Reply

    def completion(self, context: ResponseContext, events: Sequence[Event]) -> object:
        for event in events:
            if isinstance(event, Verbatim):
                return msgspec.Raw(event.data)
        return self.encoded.completion(context, events)

    def encoder(self, context: ResponseContext) -> StreamEncoder:
        return PassingEncoder(self.encoded.encoder(context))


class PassingEncoder:
    __slots__ = ("_encoder", "_last", "_passes")

    def __init__(self, encoder: StreamEncoder) -> None:
        self._encoder = encoder
        self._last: list[bytes] = []
        self._passes = False

    def feed(self, batch: Batch) -> bytes:
        verbatim = [event for event in batch if isinstance(event, Verbatim)]
        self._passes = self._passes or bool(verbatim)
        if not self._passes:
            return self._encoder.feed(batch)
        self._last += [event.data for event in verbatim if event.last]
        return b"".join([event.data for event in verbatim if not event.last])

    def broken(self, error: ErrorDetails) -> bytes:
        self._last.clear()
        return self._encoder.broken(error)

    def end(self) -> bytes:
        return b"".join(self._last) if self._passes else self._encoder.end()
