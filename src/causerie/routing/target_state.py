"""A target as routing knows it: its breaker, its running requests, and checks of its health."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import structlog
from msgspec import Struct

from causerie.errors import ErrorClass, Overloaded, RateLimited, ServiceError, UpstreamFailed
from causerie.protocol.targets import CallClass, TargetStats
from causerie.routing.circuit_breaker import CircuitBreaker, State
from causerie.routing.target import AdmissionQueue, Target
from causerie.routing.target_stats import HALF_HOUR, CallStats, LatencyStats

log = structlog.get_logger(__name__)

IMPOSSIBLE_USAGE = "impossible_usage"
"""Code of a reply whose usage cannot be; the reply itself is good."""
DEGRADED_WEIGHT = 0.1
_PROOF_MINUTES = 5
_FULL_SECONDS = 1.0  # where a full target does not say for how long


class TargetStatus(Struct, frozen=True):
    """State of a target; ``wait_seconds`` until requests may be sent to it.

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
    """One target, by its name; ``admission_queue`` bounds what it does at the same time."""

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
        elif isinstance(failure, UpstreamFailed) and not _is_answered(failure):
            failure.metadata.setdefault("target", self.name)
            was_open = self.breaker.open
            self.breaker.failed(reason, proven=self.proven)
            self.latency_stats.failed()
            self._tell_opening(failure, was_open=was_open)
        else:
            self.breaker.refuses()

    @property
    def proven(self) -> bool:
        return bool(self.latency_stats.uptime(_PROOF_MINUTES))

    def absent(self, failure: ServiceError) -> None:
        was_open = self.breaker.open
        self.breaker.absent(cause_of(failure), proven=self.proven)
        self._tell_opening(failure, was_open=was_open)

    def _tell_opening(self, failure: ServiceError, *, was_open: bool) -> None:
        if self.breaker.open and not was_open:
            log.warning(
                "target down",
                target=self.name,
                code=cause_of(failure),
                reason=str(failure),
                cause=str(failure.__cause__ or ""),
            )

    def state(self) -> State:
        """Return the state to show: ``up`` after failures only if it has answered lately.

        ``degraded``: a third of the recent requests failed, but not the last ones in a row.
        """
        breaker = self.breaker
        state = breaker.state()
        if state == "up" and (breaker.failures or breaker.rejections) and not self.proven:
            return "half_open"
        return "degraded" if state == "up" and self.latency_stats.recent_failures() else state

    @property
    def weight(self) -> float:
        """Return the part of its weight that a target has now; less if it is degraded."""
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
    """Return the class of a failure at a target; its code where it has none."""
    cause = failure.error_class
    return failure.code if cause is None else cause.value


def wait_of(failure: ServiceError) -> float:
    """Return the seconds after which a full target may have room."""
    said = failure.headers.get("Retry-After", "")
    return float(said) if said.isdigit() else _FULL_SECONDS


def _is_answered(failure: ServiceError) -> bool:
    # 408 means that the target was too slow.
    if failure.error_class is ErrorClass.UNUSABLE_OUTPUT:
        return True
    status = failure.metadata.get("upstream_status")
    return isinstance(status, int) and status < 500 and failure.code != "upstream_timeout"


class Check(Struct, frozen=True):
    """``ask`` raises if the server does not answer; first after an interval, or ``at_start``."""

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
    """Run health checks during the block, of targets that get no requests or fail."""
    loop = asyncio.get_running_loop()
    tasks = [loop.create_task(_watch(check, target_states, pause)) for check in checks]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        for task in tasks:
            with suppress(asyncio.CancelledError):
                await task


async def _watch(
    check: Check,
    target_states: Callable[[str], TargetState | None],
    pause: Callable[[float], Awaitable[None]],
) -> None:
    answered = -1
    due, there = check.at_start, True
    while True:
        found = [state for name in check.targets if (state := target_states(name)) is not None]
        total = sum(each.answered for each in found)
        if due or total == answered or any(each.breaker.failures for each in found):
            there = await examine(check, found, was_there=there)
        due, answered = False, total
        await pause(check.interval_seconds * _jitter.uniform(0.8, 1.2))


async def examine(check: Check, target_states: Sequence[TargetState], *, was_there: bool) -> bool:
    """Record a check; return whether the server answers. Success counts only after a failure."""
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
