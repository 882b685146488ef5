"""One log line a request, from its record: numbers and names, never contents."""

from __future__ import annotations

import structlog

from causerie.metering.meter import Record

log = structlog.get_logger(__name__)


class RequestLog:
    """Writes a line for each record."""

    def write(self, record: Record) -> None:
        """Log the record; a failure of ours is a warning, everything else is news."""
        write = log.warning if record.status >= 500 else log.info
        first = record.first_token_seconds
        write(
            "request",
            request_id=record.request_id,
            door=record.door,
            key=record.key,
            model=record.model,
            served_by=record.served_by,
            stream=record.stream,
            status=record.status,
            code=record.code,
            finish=record.finish,
            prompt=record.prompt,
            completion=record.completion,
            cached=record.cached,
            reasoning=record.reasoning,
            queue_ms=_ms(record.queue_seconds),
            first_token_ms=_ms(first) if first is not None else None,
            duration_ms=_ms(record.duration_seconds),
        )


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 1)
