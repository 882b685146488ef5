"""One record a request, written however the request ends.

``Meter.record`` is a context manager around the whole of a request: finished,
refused, broken, or left by its client, leaving it writes the record to every
sink. Times are in seconds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Protocol

from msgspec import Struct, field

from causerie.errors import InternalError, ServiceError
from causerie.protocol.events import Batch, Finished, FinishReason, Usage

CLIENT_GONE = 499


class Record(Struct):
    """The facts of one request; no contents."""

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

    @property
    def overhead_seconds(self) -> float:
        """Until the first token: what was spent neither in the queue nor in the engine."""
        if self.first_token_seconds is None:
            return 0.0
        return max(self.first_token_seconds - self.queue_seconds - self.upstream_seconds, 0.0)

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
            used = self.usage()
            self.prompt, self.completion = used.prompt, used.completion
            self.cached, self.reasoning = used.cached, used.reasoning
            self.estimated = used.estimated

    def failed(self, failure: ServiceError) -> None:
        """The request ended in this failure."""
        self.status, self.code = failure.status, failure.code


class RecordSink(Protocol):
    """Where records go."""

    def write(self, record: Record) -> None: ...


class Meter:
    """Makes the records and writes them to every sink."""

    def __init__(self, sinks: Sequence[RecordSink]) -> None:
        self.sinks = tuple(sinks)

    def record(self, request_id: str, door: str, key: str) -> Recording:
        """A record that is written when the block is left, whatever the reason."""
        return Recording(self.sinks, Record(request_id=request_id, door=door, key=key))


class Recording:
    """One request, from its beginning to its record."""

    __slots__ = ("_record", "_sinks")

    def __init__(self, sinks: Sequence[RecordSink], record: Record) -> None:
        self._sinks = sinks
        self._record = record

    def __enter__(self) -> Record:
        return self._record

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        record = self._record
        if isinstance(error, ServiceError):
            record.failed(error)
        elif isinstance(error, Exception):
            record.status, record.code = InternalError.status, InternalError.code
        record.settle()
        for sink in self._sinks:
            sink.write(record)
