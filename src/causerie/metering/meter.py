"""One record a request, written however the request ends.

Finished, refused, broken, or left by its client: whoever began a record writes it,
to every sink. Times are in seconds.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from msgspec import Struct, field

from causerie.errors import InternalError, ServiceError
from causerie.metering.contents import Contents
from causerie.protocol.events import Batch, Finished, FinishReason, Usage
from causerie.protocol.labels import UNLABELLED, Labels

CLIENT_GONE = 499
_SPOKEN = frozenset({402, 403, 429})  # about budgets, rights and limits, in our own words


class Record(Struct):
    """The facts of one request; contents only where its project keeps them."""

    request_id: str
    door: str
    key: str
    model: str = ""
    stream: bool = False
    served_by: str = ""
    attempts: int = 0
    continued: int = 0
    tried: Sequence[str] = ()  # who was asked, with why each did not do, where it was more than one
    status: int = CLIENT_GONE
    code: str | None = "client_gone"
    finish: FinishReason | None = None
    prompt: int = 0
    completion: int = 0
    cached: int = 0
    reasoning: int = 0
    estimated: bool = False  # the tokens, where a target did not count them
    queue_seconds: float = 0.0
    upstream_seconds: float = 0.0
    first_token_seconds: float | None = None
    duration_seconds: float = 0.0
    started: float = field(default_factory=time.monotonic)
    usage: Callable[[], Usage] | None = None  # asked once the request has ended
    project: str = ""
    user: str = ""
    reason: str = ""  # a failure's words, where they cannot quote the request
    param: str | None = None
    labels: Labels = UNLABELLED
    reservation: object = None  # what is held for it, for whoever settles
    contents: Contents | None = None

    @property
    def overhead_seconds(self) -> float:
        """Until the first token: what was spent neither in the queue nor in the engine."""
        if self.first_token_seconds is None:
            return 0.0
        spent = self.first_token_seconds - self.queue_seconds - self.upstream_seconds
        return spent if spent > 0 else 0.0

    def first_token(self) -> None:
        """The first content-bearing event is there."""
        self.first_token_seconds = time.monotonic() - self.started

    def see(self, batch: Batch) -> None:
        """Take note of what is passed on."""
        for event in batch:
            if type(event) is Finished:
                self.finish = event.reason
            elif type(event) is Usage:
                self.status, self.code = 200, None

    def settle(self) -> None:
        """Fill in what is only known at the end."""
        self.duration_seconds = time.monotonic() - self.started
        if self.usage is not None:
            used, self.usage = self.usage(), None  # who answered sees the record: no circle is left
            self.prompt, self.completion = used.prompt, used.completion
            self.cached, self.reasoning = used.cached, used.reasoning
            self.estimated = used.estimated

    def ended(self, failure: BaseException) -> None:
        """The request did not end as it should; a cancellation is a client that has left."""
        if isinstance(failure, ServiceError):
            self.failed(failure)
        elif isinstance(failure, Exception):
            self.status, self.code = InternalError.status, InternalError.code

    def failed(self, failure: ServiceError) -> None:
        """The request ended in this failure."""
        self.status, self.code, self.param = failure.status, failure.code, failure.param
        if failure.status in _SPOKEN or failure.status >= 500:
            self.reason = failure.message


class RecordSink(Protocol):
    """Where records go."""

    def write(self, record: Record) -> None: ...


class Books(Protocol):
    """Where what a request used is settled and kept."""

    async def enter(self, record: Record) -> None:
        """Return when the record is safe; raises :class:`ServiceError` where it cannot be."""
        ...


class Charged(Protocol):
    """Who made a request, and whom it is charged to."""

    @property
    def key(self) -> str: ...
    @property
    def project(self) -> str: ...
    @property
    def user(self) -> str: ...


class Meter:
    """Makes the records, writes them to every sink, and enters them in the books, if any."""

    def __init__(self, sinks: Sequence[RecordSink], books: Books | None = None) -> None:
        self.sinks = tuple(sinks)
        self.books = books

    def begin(self, request_id: str, door: str, caller: Charged) -> Record:
        """The record of a request that begins now; give it to :meth:`write` however it ends."""
        return Record(request_id, door, caller.key, project=caller.project, user=caller.user)

    def write(self, record: Record) -> Awaitable[None] | None:
        """The request has ended. Where there are books, the record is safe when the
        result has been awaited, which raises where it cannot be.
        """
        record.settle()
        for sink in self.sinks:
            sink.write(record)
        return None if self.books is None else self.books.enter(record)
