"""Records of the ledger, made of those of the meter."""

from __future__ import annotations

import time
from datetime import UTC, datetime

from causerie.errors import InternalError
from causerie.metering.ledger import INTERRUPTED, INTERRUPTED_WORDS, UsageRecord, record_id
from causerie.metering.meter import Record


def interrupted(record: Record, prompt: int) -> UsageRecord:
    """Return the record of a request that runs now, as it is kept if it never ends."""
    record.id = record.id or record_id()
    return UsageRecord(
        id=record.id,
        request_id=record.request_id,
        at=_now() - _us(time.monotonic() - record.started),
        project=record.project,
        key=record.key,
        user=record.user,
        door=record.door,
        model=record.model,
        stream=record.stream,
        status=InternalError.status,
        code=INTERRUPTED,
        prompt=prompt,
        estimated=True,
        reason=INTERRUPTED_WORDS,
        app=record.labels.app,
        referer=record.labels.referer,
        tag=record.labels.tag,
    )


def ended(record: Record) -> UsageRecord:
    """Return the record of a request that has ended, without its cost."""
    used = record.used
    return UsageRecord(
        id=record.id or record_id(),
        request_id=record.request_id,
        at=_now() - _us(record.duration_seconds),
        project=record.project,
        key=record.key,
        user=record.user,
        door=record.door,
        model=record.model or record.asked,
        served_by=record.served_by,
        stream=record.stream,
        status=record.status,
        code=record.code,
        finish=record.finish,
        attempts=record.attempts,
        prompt=used.prompt,
        cached=used.cached,
        completion=used.completion,
        reasoning=used.reasoning,
        queue_us=_us(record.queue_seconds),
        first_token_us=_first(record.first_token_seconds),
        duration_us=_us(record.duration_seconds),
        upstream_us=_us(record.upstream_seconds),
        continued=record.continued,
        estimated=used.estimated,
        tried=tuple(record.tried),
        reason=record.reason,
        param=record.param,
        app=record.labels.app,
        referer=record.labels.referer,
        tag=record.labels.tag,
        cache_miss=record.cache_miss,
    )


def _now() -> int:
    return int(datetime.now(UTC).timestamp() * 1_000_000)


def _us(seconds: float) -> int:
    return int(seconds * 1_000_000)


def _first(seconds: float | None) -> int | None:
    return None if seconds is None else _us(seconds)
