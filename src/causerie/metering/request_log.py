"""One log line for each request, from its record."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from msgspec import UNSET, Struct, UnsetType

from causerie.metering.meter import Record
from causerie.observe.logging import LogBuffer
from causerie.protocol.money import BILLION, amount_of, exact

# Select Graphic Rendition (ECMA-48, section 8.3.117).
_RESET, _DIM = "\x1b[0m", "\x1b[2m"
_RED, _GREEN, _YELLOW = "\x1b[31m", "\x1b[32m", "\x1b[33m"


class RequestLine(Struct, frozen=True, kw_only=True):
    """The JSON line of a request; the last facts are there only where they say something."""

    time: datetime
    level: str
    event: str = "request"
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
    trace_id: str | UnsetType = UNSET
    cost: float | UnsetType = UNSET
    error_class: str | UnsetType = UNSET
    reason: str | UnsetType = UNSET
    early_start: bool | UnsetType = UNSET
    written: int | UnsetType = UNSET
    discarded: int | UnsetType = UNSET
    operation: str | UnsetType = UNSET
    units: int | UnsetType = UNSET


class RequestLog:
    """Writes a line for each record; a failure of the service is a warning."""

    def __init__(self, log_buffer: LogBuffer) -> None:
        self._buffer_line = log_buffer.tell
        self.shows_door = False
        """The line on a terminal names the door."""

    def write(self, record: Record) -> None:
        self._buffer_line("warning" if record.status >= 500 else "info", self, record)

    def line(self, subject: Record, when: datetime) -> RequestLine:
        """Return the JSON line; times are to a tenth of a millisecond."""
        used, first = subject.used, subject.first_token_seconds
        return RequestLine(
            time=when,
            level="warning" if subject.status >= 500 else "info",
            request_id=subject.request_id,
            door=subject.door,
            key=subject.key,
            model=subject.model or subject.asked,
            served_by=subject.served_by,
            attempts=subject.attempts,
            continued=subject.continued,
            tried=subject.tried,
            stream=subject.stream,
            status=subject.status,
            code=subject.code,
            finish=subject.finish,
            prompt=used.prompt,
            completion=used.completion,
            cached=used.cached,
            reasoning=used.reasoning,
            estimated=used.estimated,
            queue_ms=_milliseconds(subject.queue_seconds),
            first_token_ms=None if first is None else _milliseconds(first),
            duration_ms=_milliseconds(subject.duration_seconds),
            trace_id=subject.trace_id or UNSET,
            cost=subject.cost / BILLION if subject.cost else UNSET,
            error_class=subject.error_class or UNSET,
            reason=subject.reason or UNSET,
            early_start=subject.early_start or UNSET,
            written=used.written or UNSET,
            discarded=used.discarded or UNSET,
            operation=UNSET if subject.operation == "chat" else subject.operation,
            units=used.units or UNSET,
        )

    def text(self, subject: Record, clock: str, *, colours: bool) -> str:
        """Return the line for a terminal, without unknown facts."""
        failure = [subject.code, subject.error_class] if subject.code is not None else []
        if failure and subject.status >= 500:  # other log lines are found by the id
            failure.append(subject.request_id)
        words = [
            f"{subject.status} {subject.model or subject.asked or '-'}",
            *filter(None, failure),
            *_usage_words(subject),
            *([subject.operation] if subject.operation != "chat" else ()),
            *(["early start"] if subject.early_start else ()),
            *([subject.door] if self.shows_door else ()),
        ]
        text = "  ".join(words)
        if not colours:
            return f"{clock} {text}"
        colour = _GREEN if subject.status < 400 else _YELLOW if subject.status < 500 else _RED
        return f"{_DIM}{clock}{_RESET} {colour}{text[:3]}{_RESET}{text[3:]}"


def _usage_words(record: Record) -> Iterator[str]:
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
        yield exact(amount_of(record.cost))


def _milliseconds(seconds: float) -> float:
    return int(seconds * 10_000 + 0.5) / 10
