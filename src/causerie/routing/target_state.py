"""State of a routing target: statistics, breaker, running requests and health checks."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from statistics import median

import msgspec
import structlog
from msgspec import Struct

from causerie.errors import ErrorClass, Overloaded, RateLimited, ServiceError, UpstreamFailed
from causerie.protocol.targets import (
    QUARTER_SECONDS,
    CallClass,
    CallCounts,
    Percentiles,
    TargetStats,
    TimeBucket,
)
from causerie.routing.circuit_breaker import CircuitBreaker, State
from causerie.routing.target import AdmissionQueue, Target

FIVE_MINUTES = 300.0
HALF_HOUR = 1800.0
SAMPLES_KEPT = 2000
_SHARES = (0.5, 0.75, 0.9, 0.99)
_NEWEST = 3  # measurements that say how it is now, where they are not older than
_NOW_SECONDS = 5.0
_FRESH_SECONDS = 1.0  # percentiles are not counted again within
log = structlog.get_logger(__name__)

IMPOSSIBLE_USAGE = "impossible_usage"
"""Code of a reply whose usage cannot be; the reply itself is good."""
DEGRADED_WEIGHT = 0.1
_PROOF_MINUTES = 5
_FULL_SECONDS = 1.0  # where a full target does not say for how long


class Samples(Struct, eq=False):
    """The newest measured values with their times, for medians and percentiles."""

    _clock: Callable[[], float]
    _timed_values: deque[tuple[float, float]] = msgspec.field(
        default_factory=partial(deque, maxlen=SAMPLES_KEPT)
    )
    _summaries: dict[float, tuple[float, Percentiles]] = {}

    def add(self, value: float, now: float) -> None:
        self._timed_values.append((now, value))

    def newest_median(self) -> float | None:
        """Return the median of the newest three values of the last 5 s; ``None`` for under two."""
        since = self._clock() - _NOW_SECONDS
        newest = islice(reversed(self._timed_values), _NEWEST)
        values = sorted(value for made, value in newest if made >= since)
        return values[(len(values) - 1) // 2] if len(values) > 1 else None

    def median_since(self, since: float) -> float | None:
        values = [value for made, value in self._timed_values if made >= since]
        return median(values) if values else None

    def percentiles(self, window: float = FIVE_MINUTES) -> Percentiles | None:
        """Return the percentiles of the last ``window`` seconds; ``None`` without measurements."""
        now = self._clock()
        if not self._timed_values or self._timed_values[-1][0] < now - window:
            return None
        if window in self._summaries and now - self._summaries[window][0] < _FRESH_SECONDS:
            return self._summaries[window][1]
        values = sorted(value for made, value in self._timed_values if made >= now - window)
        last = len(values) - 1
        found = Percentiles(*(values[min(int(len(values) * one), last)] for one in _SHARES))
        self._summaries[window] = (now, found)
        return found


_SECOND_NS = 1_000_000_000
_QUARTER_NS = QUARTER_SECONDS * _SECOND_NS
QUARTERS_KEPT = 96  # quarters of a day


class Minute(Struct, eq=False):
    """Counts of the answered and the failed requests of one minute."""

    number: float
    answered: int = 0
    failed: int = 0


class AvailabilityHistory(Struct, eq=False):
    """Request counts and medians of a target in each quarter of an hour of the last day."""

    _first_tokens: Samples
    _speeds: Samples
    _wall_clock: Callable[[], int]
    _past_quarters: deque[TimeBucket] = msgspec.field(
        default_factory=partial(deque, maxlen=QUARTERS_KEPT - 1)
    )
    _current_quarter_number: int = 0  # of the quarter that is going on
    _current_quarter_start: float = 0.0
    _current_quarter_minutes: list[Minute] = []

    def begin(self, minute: Minute, now: float) -> float:
        """Add a new minute; return the seconds until the current quarter of an hour ends."""
        number, since = divmod(self._wall_clock(), _QUARTER_NS)
        if number > self._current_quarter_number:
            if self._current_quarter_minutes:
                self._past_quarters.append(self._build_current_quarter())
            self._current_quarter_number, self._current_quarter_start = number, now
            self._current_quarter_minutes = []
        self._current_quarter_minutes.append(minute)
        return (_QUARTER_NS - since) / _SECOND_NS

    def day(self) -> Sequence[TimeBucket]:
        """Return the quarter-hours of the last day that had requests, the oldest first."""
        since = (self._wall_clock() // _QUARTER_NS - QUARTERS_KEPT + 1) * QUARTER_SECONDS
        going_on = [self._build_current_quarter()] if self._current_quarter_minutes else []
        return [one for one in (*self._past_quarters, *going_on) if one.start >= since]

    def _build_current_quarter(self) -> TimeBucket:
        return TimeBucket(
            start=self._current_quarter_number * QUARTER_SECONDS,
            answered=sum(minute.answered for minute in self._current_quarter_minutes),
            failed=sum(minute.failed for minute in self._current_quarter_minutes),
            first_token=self._first_tokens.median_since(self._current_quarter_start),
            speed=self._speeds.median_since(self._current_quarter_start),
        )


_DAY_MINUTES = 1440
_RECENT_MINUTES = 5
_LEAST_FAILED = 3  # fewer say nothing of a target
_DEGRADED = 3  # at least one of so many recent requests failed
_LEAST_SECONDS = 0.005  # a reply that came at once tells nothing of speed


class LatencyStats:
    """Latency, speed and uptime of one target; ``waiting``: start times by unanswered attempt."""

    def __init__(self, clock: Callable[[], float], wall: Callable[[], int] = time.time_ns) -> None:
        self._clock = clock
        self.first_token = Samples(clock)
        self.speed = Samples(clock)
        self.history = AvailabilityHistory(self.first_token, self.speed, wall)
        self.waiting: dict[object, float] = {}
        self._newest_answered_start = float("-inf")  # when the newest of the answered ones began
        self._current_minute = Minute(0)
        self._past_minutes: deque[Minute] = deque()  # of the last day
        self._counts_by_window: dict[int, tuple[float, int, int]] = {}  # before the current minute
        self._minute_end = float("-inf")
        self._failures_recent_until = float("-inf")  # the last failure is recent until then

    def recent_failures(self) -> tuple[int, int] | None:
        """Return counts of failed and all requests in 5 minutes; ``None`` if under a third failed.

        It costs next to nothing where none failed lately.
        """
        if self._failures_recent_until == float("-inf"):
            return None
        if self._clock() >= self._failures_recent_until:
            self._failures_recent_until = float("-inf")
            return None
        answered, failed = self._count_recent_answered_and_failed(_RECENT_MINUTES)
        is_degraded = failed >= _LEAST_FAILED and failed * _DEGRADED >= answered + failed
        return (failed, answered + failed) if is_degraded else None

    def expected(self) -> float | None:
        """Return the expected seconds to the first token; ``None`` if unknown.

        The largest of the usual time, that of the newest few, and the wait of a request that began
        after all answered ones, so that a target that has become slow is noticed at once.
        """
        usual = self.first_token.percentiles()
        if usual is None:
            return None
        newest = self.first_token.newest_median() or 0.0
        since = [at for at in self.waiting.values() if at > self._newest_answered_start]
        waited = self._clock() - min(since) if since else 0.0
        return max(usual.p50, newest, waited)

    def answered(self, seconds: float, now: float) -> None:
        if now >= self._minute_end:
            self._begin_minute(now)
        self._current_minute.answered += 1
        if now - seconds > self._newest_answered_start:
            self._newest_answered_start = now - seconds
        self.first_token.add(seconds, now)

    def failed(self) -> None:
        now = self._clock()
        if now >= self._minute_end:
            self._begin_minute(now)
        self._current_minute.failed += 1
        self._failures_recent_until = now + _RECENT_MINUTES * 60

    def wrote(self, tokens: int, seconds: float, now: float) -> None:
        if tokens > 1 and seconds >= _LEAST_SECONDS:
            if now >= self._minute_end:
                self._begin_minute(now)
            self.speed.add(tokens / seconds, now)

    def uptime(self, minutes: int) -> float | None:
        """Return the share of answered requests in the last ``minutes``; ``None`` without any."""
        answered, failed = self._count_recent_answered_and_failed(minutes)
        return answered / (answered + failed) if answered + failed else None

    def _count_recent_answered_and_failed(self, minutes: int) -> tuple[int, int]:
        now = self._clock() // 60
        summed, answered, failed = self._counts_by_window.get(minutes, (-1.0, 0, 0))
        if summed != now:
            past = [one for one in self._past_minutes if one.number > now - minutes]
            answered, failed = sum(one.answered for one in past), sum(one.failed for one in past)
            self._counts_by_window[minutes] = now, answered, failed
        if self._current_minute.number > now - minutes:
            answered += self._current_minute.answered
            failed += self._current_minute.failed
        return answered, failed

    def _begin_minute(self, now: float) -> None:
        number = now // 60
        self._past_minutes.append(self._current_minute)
        while self._past_minutes and self._past_minutes[0].number <= number - _DAY_MINUTES:
            self._past_minutes.popleft()
        self._counts_by_window.clear()
        self._current_minute = Minute(number)
        left = self.history.begin(self._current_minute, now)
        self._minute_end = min((number + 1) * 60, now + left)


class CallStats(Struct, eq=False):
    """Counts of a target's delivered tool calls by class, since the start and of the last day."""

    _clock: Callable[[], float]
    _quarters: deque[tuple[int, Counter[CallClass]]] = msgspec.field(
        default_factory=partial(deque, maxlen=QUARTERS_KEPT)
    )
    ever: Counter[CallClass] = msgspec.field(default_factory=Counter)

    def add(self, classes: Sequence[CallClass]) -> None:
        self.ever.update(classes)
        number = self._compute_quarter_number()
        if not self._quarters or self._quarters[-1][0] != number:
            self._quarters.append((number, Counter()))
        self._quarters[-1][1].update(classes)

    def day(self) -> CallCounts | None:
        since = self._compute_quarter_number() - QUARTERS_KEPT
        newer = (counts for number, counts in self._quarters if number > since)
        total = sum(newer, Counter[CallClass]())
        return msgspec.convert(dict(total), CallCounts) if total else None

    def _compute_quarter_number(self) -> int:
        return int(self._clock() // QUARTER_SECONDS)


class TargetStatus(Struct, frozen=True):
    """Snapshot of a target's state; requests may be sent to it after ``wait_seconds``.

    ``answered`` counts started replies, ``failed`` failed requests and replies with impossible
    usage by cause, ``calls`` checked calls by class, all since its start.
    """

    name: str
    state: State
    in_flight: int
    failures: int
    wait_seconds: float
    reason: str
    recent_failures: tuple[int, int] | None = None  # failed and all of five minutes, if degraded
    answered: int = 0
    failed: Mapping[str, int] = {}
    calls: Mapping[CallClass, int] = {}


@dataclass(eq=False)
class TargetState:
    """A named target with its admission queue, circuit breaker, counts and statistics."""

    name: str
    target: Target
    admission_queue: AdmissionQueue | None
    breaker: CircuitBreaker
    in_flight: int = 0
    answered: int = 0  # requests that it began to answer, ever
    failures: Counter[str] = field(default_factory=Counter)  # requests that failed, by cause

    def __post_init__(self) -> None:
        self.latency_stats = LatencyStats(self.breaker.clock)
        self.call_stats = CallStats(self.breaker.clock)

    def failed(self, failure: ServiceError) -> None:
        cause, reason = failure.error_class, cause_of(failure)
        self.failures[reason] += 1
        if cause is ErrorClass.MODEL_NOT_FOUND and "*" in self.name and self.answered:
            self.breaker.refuses()  # below a wildcard clients make up names
        elif cause is not None and cause.is_rejection:
            failure.metadata.setdefault("target", self.name)
            was_rejecting = self.breaker.rejecting
            self.breaker.rejects(reason)
            self.latency_stats.failed()
            if self.breaker.rejecting and not was_rejecting:
                log.warning("target rejecting", target=self.name, code=reason, reason=str(failure))
        elif isinstance(failure, (Overloaded, RateLimited)):
            ours = failure.code == Overloaded.code and "upstream_status" not in failure.metadata
            if not ours:  # which is checked anew for the next request
                self.breaker.full(wait_of(failure), reason)
        elif isinstance(failure, UpstreamFailed) and not _has_target_answered(failure):
            failure.metadata.setdefault("target", self.name)
            self._record_and_log_if_down(failure, self.breaker.failed)
            self.latency_stats.failed()
        else:
            self.breaker.refuses()

    @property
    def proven(self) -> bool:
        return bool(self.latency_stats.uptime(_PROOF_MINUTES))

    def absent(self, failure: ServiceError) -> None:
        self._record_and_log_if_down(failure, self.breaker.absent)

    def _record_and_log_if_down(self, failure: ServiceError, record: Callable[..., None]) -> None:
        was_open = self.breaker.open
        record(cause_of(failure), proven=self.proven)
        if self.breaker.open and not was_open:
            log.warning(
                "target down",
                target=self.name,
                code=cause_of(failure),
                reason=str(failure),
                cause=str(failure.__cause__ or ""),
            )

    def state(self) -> State:
        """Return the state to show: after failures ``up`` only if a request was answered lately.

        ``degraded``: a third of the recent requests failed, but not the last ones in a row.
        """
        breaker = self.breaker
        state = breaker.state()
        if state == "up" and (breaker.failures or breaker.rejections) and not self.proven:
            return "half_open"
        return "degraded" if state == "up" and self.latency_stats.recent_failures() else state

    @property
    def weight(self) -> float:
        """Return the factor of the target's weight in routing: 1.0, or 0.1 while it is degraded."""
        return 1.0 if self.latency_stats.recent_failures() is None else DEGRADED_WEIGHT

    def status(self) -> TargetStatus:
        breaker = self.breaker
        return TargetStatus(
            name=self.name,
            state=self.state(),
            in_flight=self.in_flight,
            failures=breaker.failures,
            wait_seconds=breaker.wait(),
            reason=breaker.reason,
            recent_failures=self.latency_stats.recent_failures(),
            answered=self.answered,
            failed=dict(self.failures),
            calls=dict(self.call_stats.ever),
        )

    def target_stats(self) -> TargetStats:
        latency_stats = self.latency_stats
        return TargetStats(
            up=(state := self.state()) in ("up", "degraded"),
            degraded=state == "degraded",
            idle=self.in_flight == 0,
            first_token=latency_stats.first_token.percentiles(),
            speed=latency_stats.speed.percentiles(),
            expected=latency_stats.expected(),
            first_token_half_hour=latency_stats.first_token.percentiles(HALF_HOUR),
            speed_half_hour=latency_stats.speed.percentiles(HALF_HOUR),
            uptime=latency_stats.uptime(5),
            uptime_half_hour=latency_stats.uptime(30),
            uptime_day=latency_stats.uptime(1440),
            calls_day=self.call_stats.day(),
        )


def cause_of(failure: ServiceError) -> str:
    """Return the name of a failure's error class, or its code if it has no class."""
    cause = failure.error_class
    return failure.code if cause is None else cause.value


def wait_of(failure: ServiceError) -> float:
    """Return the seconds to wait for a full target: its ``Retry-After``, or 1."""
    said = failure.headers.get("Retry-After", "")
    return float(said) if said.isdigit() else _FULL_SECONDS


def _has_target_answered(failure: ServiceError) -> bool:
    status = failure.metadata.get("upstream_status")
    answered = isinstance(status, int) and status < 500 and failure.code != "upstream_timeout"
    return answered or failure.error_class is ErrorClass.UNUSABLE_OUTPUT


class Check(Struct, frozen=True):
    """A repeated health check of targets; ``ask`` raises if their server does not answer."""

    ask: Callable[[], Awaitable[None]]
    interval_seconds: float
    targets: Sequence[str]
    at_start: bool = False


_jitter = random.Random()


@asynccontextmanager
async def checking_health(
    target_states: Callable[[str], TargetState | None],
    checks: Sequence[Check],
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> AsyncIterator[None]:
    """Repeat health checks during the block, skipping targets that answer requests."""
    loop = asyncio.get_running_loop()
    tasks = [loop.create_task(_repeat_check(check, target_states, pause)) for check in checks]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        for task in tasks:
            with suppress(asyncio.CancelledError):
                await task


async def _repeat_check(
    check: Check,
    find_target_state: Callable[[str], TargetState | None],
    pause: Callable[[float], Awaitable[None]],
) -> None:
    answered = -1
    due, there = check.at_start, True
    while True:
        found = [state for name in check.targets if (state := find_target_state(name)) is not None]
        total = sum(each.answered for each in found)
        if due or total == answered or any(each.breaker.failures for each in found):
            there = await examine(check, found, was_there=there)
        due, answered = False, total
        await pause(check.interval_seconds * _jitter.uniform(0.8, 1.2))


async def examine(check: Check, target_states: Sequence[TargetState], *, was_there: bool) -> bool:
    """Run a health check, record its result at the targets, and return if the server answers."""
    try:
        await check.ask()
    except Overloaded as full:
        for target_state in target_states:
            target_state.failed(full)
        return was_there
    except ServiceError as failure:
        for target_state in target_states:
            target_state.absent(failure)
        return False
    if not was_there:
        for target_state in target_states:
            target_state.breaker.back()
    return True
