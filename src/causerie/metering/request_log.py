"""One log line a request, from its record: numbers and names, never contents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Protocol

from causerie.metering.meter import Record


class Journal(Protocol):
    """Where lines go; writing one costs the request next to nothing."""

    def write(
        self, level: Literal["info", "warning"], event: str, facts: Mapping[str, object]
    ) -> None: ...


class RequestLog:
    """Writes a line for each record."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def write(self, record: Record) -> None:
        """Log the record; a failure of ours is a warning, everything else is news."""
        first = record.first_token_seconds
        self._journal.write(
            "warning" if record.status >= 500 else "info",
            "request",
            {
                "request_id": record.request_id,
                "door": record.door,
                "key": record.key,
                "model": record.model,
                "served_by": record.served_by,
                "attempts": record.attempts,
                "continued": record.continued,
                "stream": record.stream,
                "status": record.status,
                "code": record.code,
                "finish": record.finish,
                "prompt": record.prompt,
                "completion": record.completion,
                "cached": record.cached,
                "reasoning": record.reasoning,
                "queue_ms": _ms(record.queue_seconds),
                "first_token_ms": _ms(first) if first is not None else None,
                "duration_ms": _ms(record.duration_seconds),
            },
        )


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 1)
