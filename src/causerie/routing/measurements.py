"""Measurements of all targets over the last day and the last 90 days.

Those of this process are in its targets' statistics. With a store, what every process measured is
added up there by quarter of an hour, and read back. Requests are not slowed: a task writes what has
been added since it wrote last. Memory is bounded by targets and the quarters of a day.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from typing import NamedTuple, Protocol

import structlog

from causerie.errors import StoreUnavailable
from causerie.protocol.targets import (
    DAY_SECONDS,
    QUARTER_SECONDS,
    Figure,
    Figures,
    TargetStats,
    TimeBucket,
)
from causerie.routing.router import Router
from causerie.routing.target_state import TargetState

log = structlog.get_logger(__name__)

_WRITE_SECONDS = 15.0
_READ_EVERY = 4  # writes: what other processes wrote is seen after that
_DAYS_KEPT = 90
_DAYS_FRESH_SECONDS = 60.0
_HOUR_QUARTERS = 4
_THOUSANDTHS, _MILLIONTHS = 1_000, 1_000_000


class QuarterSums(NamedTuple):
    """Sums of a target in a quarter of an hour, which processes add to.

    Medians are summed times the number of answered requests: ``first_token_us`` in microseconds,
    ``speed`` in thousandths of a token per second.
    """

    answered: int = 0
    failed: int = 0
    first_tokens: int = 0
    first_token_us: int = 0
    speeds: int = 0
    speed: int = 0

    def plus(self, other: QuarterSums, times: int = 1) -> QuarterSums:
        return QuarterSums(*(a + times * b for a, b in zip(self, other, strict=True)))

    @staticmethod
    def of(bucket: TimeBucket) -> QuarterSums:
        count, first, speed = bucket.answered, bucket.first_token, bucket.speed
        return QuarterSums(
            count,
            bucket.failed,
            *((0, 0) if first is None else (count, round(count * first * _MILLIONTHS))),
            *((0, 0) if speed is None else (count, round(count * speed * _THOUSANDTHS))),
        )

    def bucket(self, start: int) -> TimeBucket:
        first = self.first_token_us / self.first_tokens / _MILLIONTHS if self.first_tokens else None
        speed = self.speed / self.speeds / _THOUSANDTHS if self.speeds else None
        return TimeBucket(start, self.answered, self.failed, first, speed)


_NONE = QuarterSums()
Rows = Sequence[tuple[str, int, QuarterSums]]
"""Target, start of a quarter in Unix seconds, and sums."""


class MeasurementStore(Protocol):
    """Durable storage of quarters; every method raises :class:`StoreUnavailable`."""

    async def add(self, rows: Rows) -> None: ...
    async def since(self, start: int) -> Rows: ...
    async def days(self, since: int) -> Mapping[str, Sequence[TimeBucket]]:
        """Return answered and failed requests by target and day (UTC), the oldest first."""


class Measurements:
    """What is measured of targets, by their names; without a store of this process alone.

    ``wall`` returns Unix nanoseconds.
    """

    def __init__(
        self,
        router: Callable[[], Router],
        store: MeasurementStore | None = None,
        wall: Callable[[], int] = time.time_ns,
    ) -> None:
        self._router, self._store, self._wall = router, store, wall
        self._written: dict[TargetState, dict[int, QuarterSums]] = {}  # by this process
        self._marks: dict[TargetState, object] = {}
        self._kept: dict[str, dict[int, QuarterSums]] = {}  # by all processes, of the last day
        self._read_from = 0
        self._days: Mapping[str, Sequence[TimeBucket]] = {}
        self._days_read = float("-inf")
        self._one = asyncio.Lock()  # reads the days at a time

    @asynccontextmanager
    async def kept(self) -> AsyncIterator[None]:
        """Read what is stored, and write in the background; at the end write the rest.

        No write is cancelled, since nobody would know whether it was made.
        """
        if self._store is None:
            yield
            return
        ended = asyncio.Event()
        await self._tried(self.read)
        task = asyncio.get_running_loop().create_task(self._follow(ended))
        try:
            yield
        finally:
            ended.set()
            await asyncio.wait([task])

    async def _follow(self, ended: asyncio.Event) -> None:
        number, ends = 0, False
        while not ends:
            with suppress(TimeoutError):
                async with asyncio.timeout(_WRITE_SECONDS):
                    await ended.wait()
            number, ends = number + 1, ended.is_set()
            await self._tried(self.write)
            if number % _READ_EVERY == 0 and not ends:
                await self._tried(self.read)

    async def _tried(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except StoreUnavailable:
            log.warning("measurements wait for the database")

    async def write(self) -> None:
        """Add what was measured since the last time; raise :class:`StoreUnavailable`."""
        if self._store is None:
            return
        live = self._router().target_states()
        changes: list[tuple[TargetState, int, QuarterSums]] = []
        for state in dict.fromkeys([*self._written, *live]):
            mark = state.latency_stats.mark()
            if self._marks.get(state) != mark:
                self._marks[state] = mark
                written = self._written.setdefault(state, {})
                for bucket in state.latency_stats.history.day():
                    sums = QuarterSums.of(bucket).plus(written.get(bucket.start, _NONE), -1)
                    if any(sums):
                        changes.append((state, bucket.start, sums))
                await asyncio.sleep(0)
        if changes:
            try:
                await self._store.add([(state.name, start, sums) for state, start, sums in changes])
            except BaseException:
                self._marks.clear()
                raise
        for state, start, sums in changes:
            for known in (self._written[state], self._kept.setdefault(state.name, {})):
                known[start] = known.get(start, _NONE).plus(sums)
        self._forget(live)

    def _forget(self, live: Iterable[TargetState]) -> None:
        since, kept = self._since(), {*live}
        for state in [one for one in self._written if one not in kept and not one.in_flight]:
            del self._written[state]
            self._marks.pop(state, None)
        for sums in (*self._written.values(), *self._kept.values()):
            for start in [one for one in sums if one < since]:
                del sums[start]
        for name in [name for name, sums in self._kept.items() if not sums]:
            del self._kept[name]

    async def read(self) -> None:
        """Read what all processes wrote; raise :class:`StoreUnavailable`."""
        if self._store is None:
            return
        start = max(self._since(), self._read_from)
        rows = await self._store.since(start)
        for name, quarter, sums in rows:
            self._kept.setdefault(name, {})[quarter] = sums
        # What others still add to the quarter before is read once more.
        now = self._wall() // 1_000_000_000
        self._read_from = now - now % QUARTER_SECONDS - QUARTER_SECONDS
        if not self._days:
            await self.days()

    def history(self, name: str) -> Sequence[TimeBucket]:
        """Return the quarters of the last day that had requests, the oldest first."""
        own = self._router().history(name)
        if self._store is None:
            return own
        sums = dict(self._kept.get(name, {}))
        state = self._router().target_state(name)
        written = self._written.get(state, {}) if state is not None else {}
        for bucket in own:
            added = QuarterSums.of(bucket).plus(written.get(bucket.start, _NONE), -1)
            sums[bucket.start] = sums.get(bucket.start, _NONE).plus(added)
        since = self._since()
        return [sums[start].bucket(start) for start in sorted(sums) if start >= since]

    async def days(self) -> Mapping[str, Sequence[TimeBucket]]:
        """Return all requests of the last 90 days by target and day, at most a minute old."""
        async with self._one:
            if self._store is not None and time.monotonic() - self._days_read > _DAYS_FRESH_SECONDS:
                since = self._wall() // 1_000_000_000 - _DAYS_KEPT * DAY_SECONDS
                self._days = await self._store.days(since)
                self._days_read = time.monotonic()
        return self._days

    def figures(self, name: str) -> Figures:
        """Return what lists show of a target, each from the shortest time that has it."""
        stats = self._router().target_stats(name) or TargetStats()
        day = self.history(name)
        last = day[-1].start if day else self._last_day(name)
        hour = self._wall() // 1_000_000_000 - _HOUR_QUARTERS * QUARTER_SECONDS
        recent = [one for one in day if one.start >= hour]
        first = None if stats.first_token is None else stats.first_token.p50
        speed = None if stats.speed is None else stats.speed.p50
        answered = sum(one.answered for one in day)
        asked = answered + sum(one.failed for one in day)
        return Figures(
            _figure(first, recent, day, lambda one: one.first_token),
            _figure(speed, recent, day, lambda one: one.speed),
            answered / asked if asked else None,
            None if last is None else datetime.fromtimestamp(last, UTC),
        )

    def _last_day(self, name: str) -> int | None:
        known = self._days.get(name)
        return known[-1].start if known else None

    def _since(self) -> int:
        return int(self._wall() // 1_000_000_000) // QUARTER_SECONDS * QUARTER_SECONDS - (
            DAY_SECONDS - QUARTER_SECONDS
        )


def _figure(
    now: float | None,
    hour: Sequence[TimeBucket],
    day: Sequence[TimeBucket],
    value: Callable[[TimeBucket], float | None],
) -> Figure | None:
    if now is not None:
        return Figure(now, "5 minutes")
    for window, buckets in (("hour", hour), ("24 hours", day)):
        found = [(one.answered, each) for one in buckets if (each := value(one)) is not None]
        if count := sum(answered for answered, _ in found):
            return Figure(sum(answered * each for answered, each in found) / count, window)
    return None
