"""The ledger: one record for each request, however it ended, safe before its end is reported."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import count, islice
from typing import TYPE_CHECKING, Protocol

import structlog
from msgspec import Struct, structs, to_builtins

from causerie.errors import ConstraintNotKept, StoreUnavailable
from causerie.protocol.money import amount_of

if TYPE_CHECKING:
    from causerie.metering.write_ahead_log import WriteAheadLog


log = structlog.get_logger(__name__)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 5.0
_GATHERED = 0.25
_FAILED = 500  # and above
_WHOLE = 200
CLIENT_GONE = 499

INTERRUPTED = "interrupted"
"""Code of a request whose process ended before it. Such a record never replaces another."""
INTERRUPTED_WORDS = "The service ended while the request ran."


class UsageRecord(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The facts of one request, without contents."""

    id: str
    request_id: str
    at: int
    """Time of its arrival, in microseconds since 1970."""
    project: str = ""
    key: str = ""
    user: str = ""
    door: str = ""
    model: str = ""
    """The model that the client asked for, if ``code`` reports that no model was chosen."""
    served_by: str = ""
    stream: bool = False
    status: int = 200
    code: str | None = None
    finish: str | None = None
    attempts: int = 0
    prompt: int = 0
    cached: int = 0
    completion: int = 0
    reasoning: int = 0
    cost: int = 0
    """Price of its tokens, in billionths."""
    queue_us: int = 0
    first_token_us: int | None = None
    duration_us: int = 0
    upstream_us: int = 0
    continued: int = 0
    estimated: bool = False
    tried: tuple[str, ...] = ()
    """Targets that were asked, each with the reason of its failure."""
    reason: str = ""
    """Text of a failure, if it cannot quote the request."""
    param: str | None = None
    """The field that the failure is about."""
    app: str = ""
    """The client's label for its program; so is ``referer``."""
    referer: str = ""
    tag: str = ""
    """The client's label for what the request is for."""
    cache_miss: str = ""
    """Why less of the prompt was cached than the turn before had computed; empty if it was not."""
    operation: str = "chat"
    units: int = 0
    """Search units of a rerank, 1 for embeddings; 0 where output tokens are charged."""
    written: int = 0
    """Tokens of the prompt that the provider wrote into its cache at a price."""

    @property
    def delivered(self) -> bool:
        """Return true if a client has a piece of a stream, which cannot be taken back."""
        return self.stream and self.first_token_us is not None

    @property
    def charged(self) -> bool:
        return is_charged(
            self.prompt,
            self.completion + self.units,
            worked=self.status == CLIENT_GONE or self.code == ConstraintNotKept.code,
            delivered=self.status == _WHOLE or self.delivered,
        )

    @property
    def amount(self) -> Decimal:
        return amount_of(self.cost)

    @property
    def moment(self) -> datetime:
        return _EPOCH + timedelta(microseconds=self.at)


def is_charged(prompt: int, output: int, *, worked: bool, delivered: bool) -> bool:
    """Return true if tokens or units are charged; the rule is in ``docs/guides/billing.md``.

    ``delivered`` content is charged however the reply ended, and also if a target ``worked`` for a
    client that left, or for a constraint that could not be kept.
    """
    return prompt + output > 0 if worked else delivered and output > 0


class UsageStore(Protocol):
    """Durable storage of usage records."""

    async def append(self, records: Sequence[UsageRecord]) -> None:
        """Store each record once by its id; raise :class:`StoreUnavailable`."""


_counter = count(secrets.randbits(62))


def record_id() -> str:
    """Return a new id that sorts by time: a UUID of version 7 (RFC 9562, 5.7).

    Its last 62 bits count from a random number (6.2, method 2). Request ids may repeat, since
    clients choose them.
    """
    milliseconds = time.time_ns() // 1_000_000
    number = next(_counter)
    last = 0x8000_0000_0000_0000 | number & 0x3FFF_FFFF_FFFF_FFFF
    text = f"{milliseconds << 16 | 0x7000:016x}{last:016x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


class _Waiting(Struct):
    record: UsageRecord
    mark: int = 0
    kept: asyncio.Future[None] | None = None
    done: bool = False


class Ledger:
    """Writes all usage records of a process; concurrent records share a transaction.

    With a journal a record is safe there, and the database follows; a request is also written when
    it starts, so that a crash leaves a record of it. Without one, or if its disk fails, a record is
    safe in the database. ``max_waiting`` bounds the queue for the database.
    """

    def __init__(
        self,
        store: UsageStore,
        write_ahead_log: WriteAheadLog | None = None,
        *,
        max_batch: int = 500,
        max_waiting: int = 50_000,
    ) -> None:
        self._usage_store = store
        self._write_ahead_log = write_ahead_log
        self._max_batch_size = self._batch_size = max_batch
        self._max_waiting_records = max_waiting
        self._waiting_records: deque[_Waiting] = deque()
        self._new_record_event = asyncio.Event()
        self._is_closing = self._is_database_unreachable = False
        self.journal_fails = False
        """Whether the journal did not take the last record."""
        self._writer_task: asyncio.Task[None] | None = None

    @property
    def waiting(self) -> int:
        """Return the number of records that the database does not have yet."""
        return len(self._waiting_records)

    @property
    def full(self) -> bool:
        """Return true if no further record fits, so that requests are refused."""
        return len(self._waiting_records) >= self._max_waiting_records

    @property
    def away(self) -> bool:
        """Return true if there is no journal and the database failed at the last attempt."""
        return self._is_database_unreachable and self._write_ahead_log is None

    def obstacle(self) -> str:
        """Return why no record could be kept now, or an empty text; tries the journal if needed."""
        if self.full:
            return f"{len(self._waiting_records)} usage records wait for the database"
        if not self._is_database_unreachable:
            return ""
        if self._write_ahead_log is None:
            return "the database cannot be used, and there is no journal"
        try:
            self._write_ahead_log.check()
        except OSError as failure:
            words = failure.strerror or str(failure)
            return f"the database cannot be used, nor the journal: {words}"
        return ""

    async def __aenter__(self) -> Ledger:
        """Write what an earlier run left, and start the writer; raise :class:`StoreUnavailable`."""
        if self._write_ahead_log is not None:
            left = list(self._write_ahead_log.left())
            if interrupted := sum(each.code == INTERRUPTED for each in left):
                log.warning("requests ended with the process before this one", records=interrupted)
            for start in range(0, len(left), self._max_batch_size):
                await self._store_leftover_records(left[start : start + self._max_batch_size])
            self._write_ahead_log.begin()
        self._writer_task = asyncio.get_running_loop().create_task(self._write_records())
        return self

    async def _store_leftover_records(self, records: Sequence[UsageRecord]) -> None:
        # What the database refuses now as it did before must not keep the service from starting.
        try:
            await self._usage_store.append(records)
        except StoreUnavailable:
            raise
        except Exception:  # noqa: BLE001 - one bad record must not hold up all others
            if len(records) == 1:
                self._set_aside_refused_record(records[0])
                return
            for each in records:
                await self._store_leftover_records([each])

    async def __aexit__(self, *failure: object) -> None:
        """Write the waiting records and stop; those that cannot be written stay in the journal."""
        self._is_closing = True
        self._new_record_event.set()
        if self._writer_task is not None:
            await asyncio.wait([self._writer_task])
            self._writer_task.result()
        if self._waiting_records and self._write_ahead_log is None:
            log.error("usage is lost: the database is away", records=len(self._waiting_records))

    def begin_request(self, record: UsageRecord) -> None:
        """Write the record that a request leaves if this process ends before :meth:`commit`.

        Raises :class:`StoreUnavailable` if neither journal nor database would keep the end.
        """
        if self._write_ahead_log is not None:
            try:
                self._write_ahead_log.begin_request(record)
            except OSError:  # whether the disk takes the end is seen then
                pass
            else:
                return
        if self._is_database_unreachable:
            raise _build_unrecordable_error()

    def prepare(self, record: UsageRecord) -> None:
        """Write the record, if possible, in case this process ends before :meth:`commit`."""
        if not self.full and not self._is_closing:
            with suppress(StoreUnavailable):
                self.begin_request(record)

    async def commit(self, record: UsageRecord) -> None:
        """Write the record and return when it is safe, or raise :class:`StoreUnavailable`.

        A cancelled caller does not withdraw the record.
        """
        if self._is_closing or (self.full and not record.delivered):
            raise _build_unrecordable_error()
        waiting = _Waiting(record)
        if self._write_ahead_log is not None:
            try:
                waiting.mark = self._write_ahead_log.write(record)
                self._waiting_records.append(waiting)
                self._new_record_event.set()
                await self._write_ahead_log.flushed(waiting.mark)
                self.journal_fails = False
                return
            except OSError as failure:
                self.journal_fails = True
                log.warning("the journal does not keep a usage record", reason=str(failure))
        if not waiting.mark:
            self._waiting_records.append(waiting)
            self._new_record_event.set()
        client_learns_anyway = self._is_database_unreachable and record.status >= _FAILED
        if not waiting.done and not client_learns_anyway:
            waiting.kept = asyncio.get_running_loop().create_future()
            await waiting.kept  # whoever leaves is told nothing, so the record stays as it is

    async def _write_records(self) -> None:
        pause = _FIRST_PAUSE
        while True:
            while not self._waiting_records:
                if self._is_closing:
                    return
                self._new_record_event.clear()
                await self._new_record_event.wait()
            if self._write_ahead_log is not None and not self._is_closing:
                await asyncio.sleep(_GATHERED)  # nobody waits: fewer transactions cost less
            batch = list(islice(self._waiting_records, self._batch_size))
            try:
                await self._usage_store.append([each.record for each in batch])
            except StoreUnavailable as failure:
                self._note_outage_and_fail_callers(failure)
                if self._is_closing:
                    return
                await asyncio.sleep(pause)
                pause = min(pause * 2, _LONGEST_PAUSE)
            except Exception as failure:  # noqa: BLE001 - one bad record must not hold up all others
                self._shrink_or_set_aside(batch, failure)
            else:
                pause = _FIRST_PAUSE
                self._is_database_unreachable = False
                self._dequeue_batch(batch)

    def _note_outage_and_fail_callers(self, failure: StoreUnavailable) -> None:
        # While the database is away records stay here and nobody waits for it.
        self._is_database_unreachable = True
        for each in self._waiting_records:
            if each.kept is not None and not each.kept.done():
                each.record = unrecorded(each.record, failure)
                if each.mark and self._write_ahead_log is not None:
                    with suppress(OSError):  # a disk that did not keep it may have what it was
                        self._write_ahead_log.write(each.record)
                _resolve_future(each.kept, failure)

    def _shrink_or_set_aside(self, refused_batch: Sequence[_Waiting], failure: Exception) -> None:
        # Each record is tried alone to find the one that the database refuses.
        self._is_database_unreachable = False
        if len(refused_batch) > 1:
            self._batch_size = 1
            return
        self._set_aside_refused_record(refused_batch[0].record)
        self._dequeue_batch(refused_batch, failure)

    def _set_aside_refused_record(self, record: UsageRecord) -> None:
        log.error("the database refuses a usage record", record=to_builtins(record))
        if self._write_ahead_log is not None:
            self._write_ahead_log.set_aside(record)

    def _dequeue_batch(self, batch: Sequence[_Waiting], failure: Exception | None = None) -> None:
        for each in batch:
            self._waiting_records.popleft()
            each.done = True
            _resolve_future(each.kept, failure)
        if self._write_ahead_log is not None:
            self._write_ahead_log.applied(batch[-1].mark)
        if not self._waiting_records:
            self._batch_size = self._max_batch_size


def _build_unrecordable_error() -> StoreUnavailable:
    return StoreUnavailable("Usage cannot be recorded now. Try again.")


def unrecorded(record: UsageRecord, failure: StoreUnavailable) -> UsageRecord:
    """Return a copy of a record as that of a request which ended with this failure."""
    told = structs.replace(
        record,
        status=failure.status,
        code=failure.code,
        reason=failure.message,
        param=failure.param,
    )
    return told if told.charged else structs.replace(told, cost=0)


def _resolve_future(future: asyncio.Future[None] | None, failure: Exception | None) -> None:
    if future is None or future.done():
        return
    if failure is None:
        future.set_result(None)
    else:
        future.set_exception(failure)
        future.exception()  # seen, even where nobody waits any more
