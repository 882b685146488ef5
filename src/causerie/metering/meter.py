"""One record a request, written however the request ends.

``Meter.record`` is a context manager around the whole of a request: finished,
refused, broken, or left by its client, leaving it writes the record to every
sink. Times are in seconds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from causerie.errors import InternalError, ServiceError
from causerie.protocol.events import Batch, Finished, FinishReason, Usage

CLIENT_GONE = 499


@dataclass(slots=True)
class Record:
    """The facts of one request; no contents."""

    request_id: str
    door: str
    key: str
    model: str = ""
    stream: bool = False
    served_by: str = ""
    attempts: int = 0
    status: int = CLIENT_GONE
    code: str | None = "client_gone"
    finish: FinishReason | None = None
    prompt: int = 0
    completion: int = 0
    cached: int = 0
    reasoning: int = 0
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

    def failed(self, failure: ServiceError) -> None:
        """The request ended in this failure."""
        self.status, self.code = failure.status, failure.code


class RecordSink(Protocol):
    """Where records go."""

    def write(self, record: Record) -> None: ...


class Meter:
    """Makes the records and writes them to every sink."""

    def __init__(self, sinks: Sequence[RecordSink]) -> None:
        self._sinks = tuple(sinks)

    @contextmanager
    def record(self, request_id: str, door: str, key: str) -> Iterator[Record]:
        """A record that is written when the body is left, whatever the reason."""
        record = Record(request_id=request_id, door=door, key=key)
        try:
            yield record
        except ServiceError as failure:
            record.failed(failure)
            raise
        except Exception:
            record.status, record.code = InternalError.status, InternalError.code
            raise
        finally:
            record.settle()
            for sink in self._sinks:
                sink.write(record)
