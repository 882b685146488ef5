"""One log line a request, from its record: numbers and names, never contents."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Literal, Protocol

from msgspec import Struct

from causerie.metering.meter import Record

Level = Literal["info", "warning"]


class RequestLine(Struct, frozen=True, omit_defaults=True):
    """The line, in its order; times are to a tenth of a millisecond."""

    time: datetime
    level: Level
    event: str
    request_id: str
    door: str
    key: str
    model: str
    served_by: str
    attempts: int
    continued: int
    tried: Sequence[str]
    stream: bool
    status: int
    code: str | None
    finish: str | None
    prompt: int
    completion: int
    cached: int
    reasoning: int
    estimated: bool
    queue_ms: float
    first_token_ms: float | None
    duration_ms: float
    trace_id: str = ""


class LineSink(Protocol):
    """Destination of log lines; writing one costs the request next to nothing.

    The line is made when it is written: many together, and soon.
    """

    def tell(
        self, level: Level, line: Callable[[Record, datetime], RequestLine], subject: Record
    ) -> None: ...


class RequestLog:
    """Writes a line for each record; a failure of ours is a warning, everything else is news."""

    def __init__(self, log_buffer: LineSink) -> None:
        self._tell = log_buffer.tell

    def write(self, record: Record) -> None:
        """Have a line written; it is not made where nobody wants its level."""
        self._tell(_level(record), _line, record)


def _level(record: Record) -> Level:
    return "warning" if record.status >= 500 else "info"


def _line(record: Record, when: datetime) -> RequestLine:
    used, first = record.used, record.first_token_seconds
    return RequestLine(
        when,
        _level(record),
        "request",
        record.request_id,
        record.door,
        record.key,
        record.model or record.asked,
        record.served_by,
        record.attempts,
        record.continued,
        record.tried,
        record.stream,
        record.status,
        record.code,
        record.finish,
        used.prompt,
        used.completion,
        used.cached,
        used.reasoning,
        used.estimated,
        int(record.queue_seconds * 10_000 + 0.5) / 10,
        int(first * 10_000 + 0.5) / 10 if first is not None else None,
        int(record.duration_seconds * 10_000 + 0.5) / 10,
        record.trace_id,
    )
