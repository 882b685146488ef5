"""Daily allowance of free requests of a project, over all its keys and free models; days are UTC.

A request that was rejected or failed does not count, unless it is charged. The counts are of this
process; at first use, and then every few seconds, it reads those of others from the ledger's sums.
Replicas may together exceed the limit by the requests that they admit within these seconds.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

from msgspec import Struct, field

from causerie.errors import RateLimited, StoreUnavailable, counted
from causerie.hosted.accounts.authorization import Clock
from causerie.hosted.accounts.bounds import BudgetPeriod
from causerie.hosted.accounts.usage import By, Step, UsageQuery
from causerie.hosted.store.accounts import SqlStore
from causerie.protocol.model_entries import FREE, is_free
from causerie.protocol.money import exact

_KEPT = 100_000
_REFRESH_SECONDS = 5.0


class FreeOptions(Struct, frozen=True, kw_only=True):
    """Free requests a day."""

    requests: int = 50
    paid_requests: int = 1000
    """For projects with credits of at least ``paid_from``."""
    paid_from: Decimal = Decimal(10)


class FreeDay(Struct, frozen=True):
    """State of a project's daily allowance; ``resets_in`` is in seconds."""

    limit: int
    used: int
    resets_in: int

    @property
    def left(self) -> int:
        return max(self.limit - self.used, 0)

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers ``x-ratelimit-…-requests-day``."""
        return {
            "x-ratelimit-limit-requests-day": str(self.limit),
            "x-ratelimit-remaining-requests-day": str(self.left),
            "x-ratelimit-reset-requests-day": f"{self.resets_in}s",
        }


class _Day(Struct):
    date: date | None = None
    done: int = 0
    running: int = 0


class _Account(Struct):
    day: _Day = field(default_factory=_Day)
    put_in: Decimal = Decimal(0)
    asked: float = -math.inf
    loading: asyncio.Lock = field(default_factory=asyncio.Lock)


class FreeUse:
    """A running free request; leaving the block with an error takes it back unless ``charged``."""

    __slots__ = ("_day", "charged", "day_status")

    def __init__(self, day: _Day, day_status: FreeDay) -> None:
        self._day = day  # its own, whatever the clock says when it ends
        self.day_status = day_status
        self.charged = False
        day.running += 1

    def __enter__(self) -> FreeUse:
        return self

    def __exit__(self, kind: object, failure: BaseException | None, trace: object) -> None:
        self._day.running -= 1
        self._day.done += self.charged or not isinstance(failure, Exception)


class FreeAllowances:
    """The allowances of all projects in one process; ``seconds`` returns a monotonic time."""

    def __init__(self, store: SqlStore, clock: Clock, seconds: Callable[[], float]) -> None:
        self._store = store
        self._clock = clock
        self._seconds = seconds
        self._accounts: dict[str, _Account] = {}
        self.options = FreeOptions()

    async def take(self, project: str) -> FreeUse:
        """Count a free request, which runs until its block ends.

        Raises :class:`RateLimited` if none is left, and :class:`StoreUnavailable` if the earlier
        ones cannot be read.
        """
        account = await self._known(project)
        day_status = self._day_status(account, account.day.running)
        if not day_status.left:
            raise self._refusal(day_status)
        return FreeUse(
            account.day, FreeDay(day_status.limit, day_status.used + 1, day_status.resets_in)
        )

    async def of(self, project: str) -> FreeDay:
        """Return the state without running requests; raise :class:`StoreUnavailable`."""
        return self._day_status(await self._known(project), 0)

    def _day_status(self, account: _Account, running: int) -> FreeDay:
        options, now = self.options, self._clock()
        paid = account.put_in >= options.paid_from
        limit = options.paid_requests if paid else options.requests
        ends = BudgetPeriod.DAY.start(now) + timedelta(days=1)
        return FreeDay(
            limit, account.day.done + running, max(math.ceil((ends - now).total_seconds()), 1)
        )

    async def _known(self, project: str) -> _Account:
        account = self._accounts.get(project)
        if account is None:
            if len(self._accounts) >= _KEPT:
                # The database knows the counts of those that have no request under way.
                self._accounts = {
                    name: one for name, one in self._accounts.items() if one.day.running
                }
            account = self._accounts[project] = _Account()
        if not self._is_fresh(account):
            async with account.loading:
                if not self._is_fresh(account):
                    await self._load(project, account)
        return account

    def _is_fresh(self, account: _Account) -> bool:
        today = self._clock().astimezone(UTC).date()
        return account.day.date == today and self._seconds() - account.asked < _REFRESH_SECONDS

    async def _load(self, project: str, account: _Account) -> None:
        now = self._clock()
        today = now.astimezone(UTC).date()
        try:
            done = await self._count(project, now)
            async with self._store.reading() as tx:
                put_in = await tx.credits.total(project) or Decimal(0)
        except StoreUnavailable:
            if account.day.date != today:
                raise
            done, put_in = account.day.done, account.put_in  # as far as is known here
        if account.day.date != today:
            account.day = _Day(today)
        account.day.done, account.put_in = max(account.day.done, done), put_in
        account.asked = self._seconds()

    async def _count(self, project: str, now: datetime) -> int:
        midnight = BudgetPeriod.DAY.start(now)
        today = UsageQuery(
            midnight, midnight + timedelta(days=1), step=Step.ALL, by=(By.MODEL,), project=project
        )
        sums = await self._store.usage.sums(today)
        free = [each for each in sums if is_free(each.group[By.MODEL])]
        done = sum(each.requests - each.refused - each.failed for each in free)
        if any(each.refused + each.failed for each in free):
            done += await self._store.usage.charged_failures(project, midnight, FREE)
        return done

    def _refusal(self, day_status: FreeDay) -> RateLimited:
        options, wait = self.options, day_status.resets_in
        more = ""
        if day_status.limit < options.paid_requests:
            more = (
                f" Projects into which at least {exact(options.paid_from)} was put have "
                f"{options.paid_requests} a day."
            )
        return RateLimited(
            f"The project may make {counted(day_status.limit, 'free request')} a day, over all its "
            f"keys and models; none is left. They begin anew at 00:00 UTC, in {wait} s.{more} "
            "Without `:free` the model has no such limit.",
            code="requests",
            metadata={
                "limit": "free_requests_per_day",
                "allowed": day_status.limit,
                "used": day_status.used,
                "needed": 1,
            },
            headers={
                "Retry-After": str(wait),
                **day_status.headers,
                "x-ratelimit-limit-requests": str(day_status.limit),
                "x-ratelimit-remaining-requests": "0",
                "x-ratelimit-reset-requests": f"{wait}s",
            },
        )
