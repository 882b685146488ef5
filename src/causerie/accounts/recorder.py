"""Writes down what was said, behind the requests: best effort, and no reply waits for it.

Recordings that cannot be written (the database is away, too much waits) are lost, and the log
reports their number. The usage of a request never depends on it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence

import structlog
from msgspec import Struct

from causerie.accounts.authorization import Clock
from causerie.accounts.ports import AccountStore
from causerie.accounts.recording import Recording
from causerie.errors import StoreUnavailable
from causerie.metering.contents import Contents
from causerie.metering.ledger import UsageRecord
from causerie.protocol.events import Usage

log = structlog.get_logger(__name__)

_AT_ONCE = 20
_SWEEP_SECONDS = 60.0
_SWEPT_AT_ONCE = 500


class _Waiting(Struct):
    """One request whose contents are to be written."""

    usage: UsageRecord
    contents: Contents
    weight: int


class Recorder:
    """One writer for the contents of this process. Enter it in the loop that uses it.

    ``most`` bounds how many wait, ``most_bytes`` about how much memory they hold.
    """

    def __init__(
        self,
        store: AccountStore,
        clock: Clock,
        *,
        most: int = 500,
        most_bytes: int = 64 * 1024 * 1024,
    ) -> None:
        self._store = store
        self._clock = clock
        self._most = most
        self._left = most_bytes
        self._waiting: deque[_Waiting] = deque()
        self._more = asyncio.Event()
        self._closing = False
        self._writer: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Recorder:
        self._writer = asyncio.get_running_loop().create_task(self._write())
        return self

    async def __aexit__(self, *failure: object) -> None:
        """Write what waits, then end."""
        self._closing = True
        self._more.set()
        if self._writer is not None:
            await asyncio.wait([self._writer])
            self._writer.result()

    def put(self, usage: UsageRecord, contents: Contents) -> None:
        """Have these contents written; returns at once."""
        weight = contents.weight
        if len(self._waiting) >= self._most or weight > self._left or self._closing:
            log.warning("contents are not kept: too much waits", request_id=usage.request_id)
            return
        self._left -= weight
        self._waiting.append(_Waiting(usage, contents, weight))
        self._more.set()

    async def sweep(self, seconds: float = _SWEEP_SECONDS) -> None:
        """Until cancelled: remove, every so many seconds, what has been kept for its time."""
        while True:
            try:
                await self.expire()
            except StoreUnavailable:
                log.warning("contents whose time is over wait for the database")
            await asyncio.sleep(seconds)

    async def expire(self) -> None:
        """Remove what has been kept for its time; raises :class:`StoreUnavailable`."""
        now, found = self._clock(), _SWEPT_AT_ONCE
        while found == _SWEPT_AT_ONCE:
            async with self._store.writing() as repositories:
                found = await repositories.recordings.expire(now, _SWEPT_AT_ONCE)

    async def _write(self) -> None:
        while True:
            while not self._waiting:
                if self._closing:
                    return
                self._more.clear()
                await self._more.wait()
            batch = [self._waiting.popleft() for _ in range(min(_AT_ONCE, len(self._waiting)))]
            try:
                made = await asyncio.to_thread(_recordings, batch)
                async with self._store.writing() as repositories:
                    await repositories.recordings.put(made)
            except StoreUnavailable:
                log.warning("contents are not kept: the database is away", requests=len(batch))
            except Exception:  # noqa: BLE001 - what cannot be written once must not end all writing
                # Without the words of the failure: they may quote the contents.
                log.error("contents are not kept: they cannot be written", requests=len(batch))
            self._left += sum(each.weight for each in batch)


def _recordings(batch: Sequence[_Waiting]) -> list[Recording]:
    return [_recording(each.usage, each.contents) for each in batch]


def _recording(usage: UsageRecord, contents: Contents) -> Recording:
    request = contents.request()
    reply = contents.reply(
        Usage(usage.prompt, usage.completion, usage.cached, usage.reasoning, usage.estimated)
    )
    return Recording(
        id=usage.id,
        project_id=usage.project,
        user_id=usage.user,
        at=usage.moment,
        request=request.text,
        request_cut=request.cut,
        reply=reply.text,
        reply_cut=reply.cut,
    )
