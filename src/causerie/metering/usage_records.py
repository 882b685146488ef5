"""Make records of the ledger from those of the meter, at the end and while a request runs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime

from msgspec import structs

from causerie.errors import InternalError
from causerie.metering.ledger import INTERRUPTED, INTERRUPTED_WORDS, UsageRecord, record_id
from causerie.metering.meter import Record

_BETWEEN_SECONDS = 5.0
_AT_ONCE = 100  # requests: each takes some 30 µs


class RunningRequests:
    """Requests that run, with the records that they leave if this process ends before them.

    ``write`` is called with the record of each stream every few seconds, with the tokens that were
    delivered until then. So a crash loses the charge of a stream's last seconds only.
    """

    def __init__(self, write: Callable[[Record, UsageRecord], None]) -> None:
        self._write = write
        self._running: dict[str, tuple[Record, UsageRecord]] = {}
        self._due: list[str] = []
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, record: Record, prompt: int) -> UsageRecord:
        """Return the record of a request that goes to a target now."""
        usage = interrupted(record, prompt)
        self._running[usage.id] = record, usage
        if self._timer is None:
            self._look_again(_BETWEEN_SECONDS)
        return usage

    def end(self, record: Record) -> None:
        """Forget a request that has ended."""
        self._running.pop(record.id, None)

    def _look_again(self, seconds: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, self._look)

    def _look(self) -> None:
        due = self._due = self._due or list(self._running)
        for id in due[-_AT_ONCE:]:
            if id in self._running:
                record, before = self._running[id]
                usage = _so_far(record, before)
                if usage is not None:
                    self._running[id] = record, usage
                    self._write(record, usage)
        del due[-_AT_ONCE:]
        self._timer = None
        if self._running:
            self._look_again(0 if due else _BETWEEN_SECONDS)


def _so_far(record: Record, before: UsageRecord) -> UsageRecord | None:
    """Return what a running stream leaves now, or ``None`` where nothing was added."""
    outcome = record.outcome
    if outcome is None or not record.stream:
        return None
    used = outcome.usage()
    if used.completion == before.completion or not outcome.delivered:
        return None
    return structs.replace(
        before,
        served_by=outcome.served_by,
        attempts=len(outcome.tried),
        prompt=used.prompt,
        cached=used.cached,
        completion=used.completion,
        reasoning=used.reasoning,
        first_token_us=_first(record.first_token_seconds),
        duration_us=_us(time.monotonic() - record.started),
    )


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
