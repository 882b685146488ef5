"""Identity, context and interface of an answer, which all shapes of the API share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from msgspec import UNSET, Struct, UnsetType

from causerie.errors import ErrorDetails
from causerie.protocol.events import Batch, BatchSink, Event, Usage


class CompletionIdentity(Struct, frozen=True, gc=False):
    """Identity of one completion: its id, creation time (Unix seconds), and the request's id."""

    id: str
    created: int
    request_id: str
    api: str = "chat"  # name of the API by which it was asked for, which records show


class ResponseContext(Struct, frozen=True):
    """Data of one completion that its events do not have, and the options of its caller."""

    identity: CompletionIdentity
    model: str
    fingerprint: str
    reasoning_visible: bool = True
    router_names: bool = False  # reasoning has routers' names, with what providers need back
    cost: Callable[[Usage], float] | None = None  # price of the reply, if the catalog has one
    provider: str | UnsetType = UNSET  # name of the provider that serves it
    used: Callable[[], Usage] | None = None  # tokens so far
    function_names: Mapping[str, str] = {}  # the caller's names of functions, where ours differ

    def function_name(self, name: str) -> str:
        return self.function_names.get(name, name)


ResponseSink = Callable[[Mapping[str, str], ResponseContext], BatchSink]
"""Starts the response to a reply that has started; returns the sink of the reply's batches."""
ReplyFormat = Callable[[ResponseContext, Sequence[Event]], object]
"""Returns a whole reply in the shape of the API, to be encoded as JSON."""


class StreamEncoder(Protocol):
    """Encodes the events of a reply into the bytes of a stream, as one API has it."""

    def feed(self, batch: Batch) -> bytes:
        """Return the bytes of a batch; ``b""`` if it has nothing for the client yet."""

    def broken(self, error: ErrorDetails) -> bytes:
        """Return the bytes that end a broken stream with its error."""

    def end(self) -> bytes:
        """Return the bytes that end a complete stream, whose usage has been recorded by then."""


class Reply(Protocol):
    """Writes the reply to one request, whole or as a stream."""

    def completion(self, context: ResponseContext, events: Sequence[Event]) -> object:
        """Return the whole reply, to be encoded as JSON."""

    def encoder(self, context: ResponseContext) -> StreamEncoder: ...


class Response(Protocol):
    """Answers a request; its start may be sent before the reply has begun."""

    @property
    def completion(self) -> ReplyFormat: ...
    @property
    def early_start(self) -> bool:
        """Return true if the status of the response was sent before the reply started."""

    @property
    def begin(self) -> ResponseSink: ...
