"""Measurements of all targets over the last day and the last 90 days.

Those of this process are in its targets' statistics. With a store, what every process measured is
added up there by quarter of an hour and by day, and read back. Requests are not slowed: a task
writes what has been added since it wrote last. Memory is bounded by targets, quarters of a day and
90 days.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from typing import NamedTuple, Protocol

import structlog

from causerie.errors import StoreUnavailable
from causerie.protocol import targets
from causerie.routing.router import Router
from causerie.routing.target_state import TargetState

log = structlog.get_logger(__name__)

DAYS_KEPT = 90
_WRITE_SECONDS = 15.0
_READ_EVERY = 4  # writes: what other processes wrote is seen after that
_HOUR_SECONDS = 3600


class Sums(NamedTuple):
    """Sums of one target's measurements in a quarter of an hour or a day.

    Medians are summed times the number of answered requests: ``first_token_us`` in microseconds,
    ``speed`` in thousandths of a token per second.
    """

    answered: int = 0
    failed: int = 0
    first_tokens: int = 0
    first_token_us: int = 0
    speeds: int = 0
    speed: int = 0

    def plus(self, other: Sums, times: int = 1) -> Sums:
        return Sums(*(a + times * b for a, b in zip(self, other, strict=True)))

    @staticmethod
    def of(bucket: targets.TimeBucket) -> Sums:
        count, first, speed = bucket.answered, bucket.first_token, bucket.speed
        timed = (0, 0) if first is None else (count, round(count * first * 1_000_000))
        paced = (0, 0) if speed is None else (count, round(count * speed * 1000))
        return Sums(count, bucket.failed, *timed, *paced)

    def bucket(self, start: int) -> targets.TimeBucket:
        first = self.first_token_us / self.first_tokens / 1_000_000 if self.first_tokens else None
        speed = self.speed / self.speeds / 1000 if self.speeds else None
        return targets.TimeBucket(start, self.answered, self.failed, first, speed)


_NONE = Sums()
Row = tuple[str, int, Sums]  # target, start in Unix seconds, and sums


class MeasurementStore(Protocol):
    """Interface of a measurement store, whose methods may raise :class:`StoreUnavailable`."""

    async def add(self, quarters: Sequence[Row]) -> None: ...
    async def quarters(self, since: int) -> Sequence[Row]: ...
    async def days(self, since: int) -> Sequence[Row]: ...  # by UTC


_SumsByTarget = dict[str, dict[int, Sums]]  # of a target, by their starts


class Measurements:
    """Measurements of targets, by name; without a store those of this process alone.

    ``wall`` returns Unix nanoseconds.
    """

    def __init__(
        self,
        router: Callable[[], Router],
        store: MeasurementStore | None = None,
        wall: Callable[[], int] = time.time_ns,
    ) -> None:
        self._get_router, self._store, self._unix_time_ns = router, store, wall
        self._last_written_quarter: dict[TargetState, tuple[int, Sums]] = {}  # by us
        self._quarter_hour_sums: _SumsByTarget = {}  # by all processes
        self._daily_sums: _SumsByTarget = {}
        self._read_since = 0  # earlier quarters, and days, do not change

    @asynccontextmanager
    async def kept(self) -> AsyncIterator[None]:
        """Read stored measurements, write new ones in the background, and at the end the rest.

        No write is cancelled, since nobody would know whether it was made.
        """
        if self._store is None:
            yield
            return
        ended = asyncio.Event()
        await self._try_store_operation(self.read)
        task = asyncio.get_running_loop().create_task(self._write_and_read_periodically(ended))
        try:
            yield
        finally:
            ended.set()
            await asyncio.wait([task])

    async def _write_and_read_periodically(self, stop_event: asyncio.Event) -> None:
        number, ends = 0, False
        while not ends:
            with suppress(TimeoutError):
                async with asyncio.timeout(_WRITE_SECONDS):
                    await stop_event.wait()
            number, ends = number + 1, stop_event.is_set()
            await self._try_store_operation(self.write)
            if number % _READ_EVERY == 0 and not ends:
                await self._try_store_operation(self.read)

    async def _try_store_operation(self, operation: Callable[[], Awaitable[None]]) -> None:
        try:
            await operation()
        except StoreUnavailable:
            log.warning("measurements wait for the database")

    async def write(self) -> None:
        """Add measurements since the last write to the store; raise :class:`StoreUnavailable`."""
        if self._store is None:
            return
        live = dict.fromkeys(self._get_router().target_states())
        changes: list[tuple[TargetState, int, Sums]] = []
        for state in {**self._last_written_quarter, **live}:
            changes += [(state, start, sums) for start, sums in self._compute_unwritten_sums(state)]
            await asyncio.sleep(0)  # a median of thousands each
        if changes:
            await self._store.add([(state.name, start, sums) for state, start, sums in changes])
        for state, start, sums in changes:
            last, before = self._last_written_quarter.get(state, (start, _NONE))
            self._last_written_quarter[state] = start, sums.plus(before) if start == last else sums
            kept = self._quarter_hour_sums.setdefault(state.name, {})
            kept[start] = kept.get(start, _NONE).plus(sums)
        for state in [s for s in self._last_written_quarter if s not in live and not s.in_flight]:
            del self._last_written_quarter[state]

    def _compute_unwritten_sums(self, target_state: TargetState) -> Iterator[tuple[int, Sums]]:
        last, before = self._last_written_quarter.get(target_state, (0, _NONE))
        for bucket in target_state.latency_stats.history.day():
            if bucket.start >= last:
                sums = Sums.of(bucket).plus(before if bucket.start == last else _NONE, -1)
                if any(sums):
                    yield bucket.start, sums

    async def read(self) -> None:
        """Read the stored measurements of all processes; raise :class:`StoreUnavailable`."""
        if self._store is None:
            return
        now = self._unix_time_ns() // 1_000_000_000
        day, all_days = now - targets.DAY_SECONDS, now - DAYS_KEPT * targets.DAY_SECONDS
        new = self._read_since
        _put_rows_drop_old(self._quarter_hour_sums, await self._store.quarters(max(day, new)), day)
        days = await self._store.days(max(all_days, new - targets.DAY_SECONDS))
        _put_rows_drop_old(self._daily_sums, days, all_days)
        quarter = targets.QUARTER_SECONDS
        self._read_since = now - now % quarter - quarter  # late ones are seen

    def history(self, name: str) -> Sequence[targets.TimeBucket]:
        """Return a target's quarter-hours of the last day that had requests, the oldest first."""
        state = self._get_router().target_state(name)
        if self._store is None:
            return () if state is None else state.latency_stats.history.day()
        sums = dict(self._quarter_hour_sums.get(name, {}))
        if state is not None:
            for start, added in self._compute_unwritten_sums(state):
                sums[start] = sums.get(start, _NONE).plus(added)
        since = self._unix_time_ns() // 1_000_000_000 - targets.DAY_SECONDS
        return [sums[start].bucket(start) for start in sorted(sums) if start > since]

    def days(self, *names: str) -> Sequence[targets.TimeBucket]:
        """Return the request counts of all named targets together, by day (UTC), for 90 days.

        At most a minute old. Days without requests are left out, and so are times.
        """
        answered, failed = defaultdict[int, int](int), defaultdict[int, int](int)
        for name in names:
            for start, sums in self._daily_sums.get(name, {}).items():
                answered[start] += sums.answered
                failed[start] += sums.failed
        return [
            targets.TimeBucket(start, answered[start], failed[start], None, None)
            for start in sorted(answered)
        ]

    def figures(self, name: str) -> targets.Figures:
        """Return a target's typical latency and speed, share of answered requests and last use."""
        stats = self._get_router().target_stats(name) or targets.UNKNOWN_STATS
        day = self.history(name)
        hour_ago = self._unix_time_ns() // 1_000_000_000 - _HOUR_SECONDS
        hour = [one for one in day if one.start > hour_ago]
        answered = sum(one.answered for one in day)
        asked = answered + sum(one.failed for one in day)
        last = day[-1].start if day else max(self._daily_sums.get(name, ()), default=None)
        return targets.Figures(
            _choose_figure(stats.first_token, hour, day, lambda one: one.first_token),
            _choose_figure(stats.speed, hour, day, lambda one: one.speed),
            answered / asked if asked else None,
            None if last is None else datetime.fromtimestamp(last, UTC),
        )


def _put_rows_drop_old(sums_by_target: _SumsByTarget, rows: Sequence[Row], since: int) -> None:
    for name, start, sums in rows:
        sums_by_target.setdefault(name, {})[start] = sums
    for name, found in [*sums_by_target.items()]:
        if min(found) <= since and not (found := {s: v for s, v in found.items() if s > since}):
            del sums_by_target[name]
        else:
            sums_by_target[name] = found


def _choose_figure(
    recent_percentiles: targets.Percentiles | None,
    hour: Sequence[targets.TimeBucket],
    day: Sequence[targets.TimeBucket],
    read_value: Callable[[targets.TimeBucket], float | None],
) -> targets.Figure | None:
    if recent_percentiles is not None:
        return targets.Figure(recent_percentiles.p50, "5 minutes")
    windows: Mapping[str, Sequence[targets.TimeBucket]] = {
        "hour": hour,
        "24 hours": day,
    }
    for window, buckets in windows.items():
        found = [(one.answered, each) for one in buckets if (each := read_value(one)) is not None]
        if count := sum(answered for answered, _ in found):
            return targets.Figure(sum(answered * each for answered, each in found) / count, window)
    return None
