"""One log line for each request, from its record."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Literal

from msgspec import Struct

from causerie.metering.meter import Record
from causerie.observe.logging import LogBuffer

Level = Literal["info", "warning"]

# Select Graphic Rendition (ECMA-48, section 8.3.117).
_RESET, _DIM = "\x1b[0m", "\x1b[2m"
_RED, _GREEN, _YELLOW = "\x1b[31m", "\x1b[32m", "\x1b[33m"


class RequestLine(Struct, frozen=True, omit_defaults=True):
    """The JSON line; times are to a tenth of a millisecond."""

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
    cost: float | None = None
    error_class: str = ""
    reason: str = ""
    early_start: bool = False
    discarded: int = 0
    operation: str = "chat"
    units: int = 0


class RequestLog:
    """Writes a line for each record; a failure of the service is a warning."""

    def __init__(self, log_buffer: LogBuffer) -> None:
        self._tell = log_buffer.tell
        self.shows_door = False
        """The line on a terminal names the door."""

    def write(self, record: Record) -> None:
        self._tell(_level(record), self, record)

    def line(self, subject: Record, when: datetime) -> RequestLine:
        return _line(subject, when)

    def text(self, subject: Record, clock: str, *, colours: bool) -> str:
        """Return the line for a terminal, without unknown facts."""
        words = [
            f"{subject.status} {subject.model or subject.asked or '-'}",
            *_why(subject),
            *_amounts(subject),
            *([subject.operation] if subject.operation != "chat" else ()),
            *(["early start"] if subject.early_start else ()),
            *([subject.door] if self.shows_door else ()),
        ]
        text = "  ".join(words)
        if not colours:
            return f"{clock} {text}"
        return f"{_DIM}{clock}{_RESET} {_colour(subject.status)}{text[:3]}{_RESET}{text[3:]}"


def _why(record: Record) -> Sequence[str]:
    # An internal failure is found in other log lines by the id of the request.
    if record.code is None:
        return ()
    words = [record.code, record.error_class] if record.error_class else [record.code]
    return [*words, record.request_id] if record.status >= 500 else words


def _amounts(record: Record) -> Iterator[str]:
    used, first, seconds = record.used, record.first_token_seconds, record.duration_seconds
    if used.prompt or used.completion:
        yield f"{used.prompt} in, {used.completion} out"
    if first is not None and record.stream:
        yield f"TTFT {first:.2f} s"
    spent = seconds - first if first is not None and record.stream else seconds
    if used.completion and spent > 0:
        yield f"{used.completion / spent:.1f} tok/s"
    yield f"{seconds:.2f} s"
    if record.cost:
        whole, _, rest = f"{record.cost:f}".partition(".")
        yield f"${whole}.{rest.rstrip('0').ljust(2, '0')}"


def _colour(status: int) -> str:
    return _GREEN if status < 400 else _YELLOW if status < 500 else _RED


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
        float(record.cost) if record.cost else None,
        record.error_class,
        record.reason,
        record.early_start,
        used.discarded,
        record.operation,
        used.units,
    )
