"""Deletion of requests, audit entries and contents after the days that the settings give."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from functools import partial

import structlog
from msgspec import Struct

from causerie.errors import StoreUnavailable
from causerie.hosted.accounts.authorization import Clock
from causerie.hosted.store.retention import SqlRetention

log = structlog.get_logger(__name__)

_AT_ONCE = 500
_MEASUREMENTS_DAYS = 90
_PAUSE = 0.1  # between two batches: requests are written in between


class RetentionOptions(Struct, frozen=True):
    """Days for which rows are kept; ``None``: requests and audit entries for ever."""

    requests: int | None = None
    audit: int | None = None
    contents: int | None = None
    """At most; projects choose fewer."""


class Retention:
    """Deletes what is older than the ``options`` say, in the background and in small batches."""

    def __init__(self, store: SqlRetention, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self.options = RetentionOptions()

    async def follow(self, seconds: float = 60.0) -> None:
        """Delete every so many seconds, until cancelled."""
        while True:
            try:
                await self.sweep()
            except StoreUnavailable:
                log.warning("what is kept too long waits for the database")
            await asyncio.sleep(seconds)

    async def sweep(self) -> None:
        """Delete everything whose time is over now; raise :class:`StoreUnavailable`."""
        store, options = self._store, self.options
        await self._all(partial(store.contents, self._clock(), self._before(options.contents)))
        for days, delete in (
            (options.requests, store.requests),
            (options.audit, store.audit),
            (_MEASUREMENTS_DAYS, store.measurements),
        ):
            if (before := self._before(days)) is not None:
                await self._all(partial(delete, before))

    def _before(self, days: int | None) -> datetime | None:
        return None if days is None else self._clock() - timedelta(days=days)

    async def _all(self, delete: Callable[[int], Awaitable[int]]) -> None:
        found = _AT_ONCE
        while found == _AT_ONCE:
            found = await delete(_AT_ONCE)
            await asyncio.sleep(_PAUSE if found == _AT_ONCE else 0)
