"""Targets as several processes know them: one breaker, and what is under way in all of them.

Measurements stay with the process that made them; a worker reports them to its parent, whose
catalog and pages show those of all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from causerie.protocol.call_class import CallClass
from causerie.routing.latency_stats import LatencyStats
from causerie.routing.target import AdmissionQueue, Target
from causerie.routing.target_state import TargetState
from causerie.workers.circuit_breaker import SharedCircuitBreaker
from causerie.workers.messages import TargetObserved
from causerie.workers.request_slots import SharedRequestSlots


class ReportedLatencyStats(LatencyStats):
    """Statistics that keep what is new until it is reported."""

    __slots__ = ("_down", "_first_tokens", "_speeds")

    def __init__(self, clock: Callable[[], float]) -> None:
        super().__init__(clock)
        self._first_tokens: list[tuple[float, float]] = []
        self._speeds: list[tuple[int, float, float]] = []
        self._down = 0

    def answered(self, seconds: float, now: float) -> None:
        """As in the base."""
        super().answered(seconds, now)
        self._first_tokens.append((seconds, now))

    def failed(self) -> None:
        """As in the base."""
        super().failed()
        self._down += 1

    def wrote(self, tokens: int, seconds: float, now: float) -> None:
        """As in the base."""
        super().wrote(tokens, seconds, now)
        self._speeds.append((tokens, seconds, now))

    def taken(self, failed: Counter[str], calls: Counter[CallClass]) -> TargetObserved | None:
        """Return what is new, once, with these failures and calls; ``None`` where nothing is."""
        first_tokens, speeds, down = self._first_tokens, self._speeds, self._down
        if not (first_tokens or speeds or down or failed or calls):
            return None
        self._first_tokens, self._speeds, self._down = [], [], 0
        return TargetObserved(first_tokens, speeds, down, dict(failed), dict(calls))


class SharedTargetState(TargetState):
    """The state of one target; requests under way are those of all processes."""

    __slots__ = ("_reported", "_reported_calls", "_requests")

    def __init__(
        self,
        name: str,
        target: Target,
        admission_queue: AdmissionQueue | None,
        breaker: SharedCircuitBreaker,
        requests: SharedRequestSlots,
        latency_stats: LatencyStats,
    ) -> None:
        self._requests = requests
        self._reported: Counter[str] = Counter()
        self._reported_calls: Counter[CallClass] = Counter()
        super().__init__(name, target, admission_queue, breaker, latency_stats)

    @property
    def in_flight(self) -> int:
        """Requests under way, of all processes."""
        return self._requests.taken

    @in_flight.setter
    def in_flight(self, number: int) -> None:
        """Counted where it is shared."""

    def enter(self) -> None:
        """As in the base."""
        self._requests.take()

    def leave(self) -> None:
        """As in the base."""
        self._requests.give_back()

    def observed(self) -> TargetObserved | None:
        """Return what a worker has to report, once."""
        stats = self.latency_stats
        if not isinstance(stats, ReportedLatencyStats):
            return None
        failed = self.failures - self._reported
        calls = self.call_stats.ever - self._reported_calls
        self._reported, self._reported_calls = self.failures.copy(), self.call_stats.ever.copy()
        return stats.taken(failed, calls)

    def learn(self, observed: TargetObserved) -> None:
        """Count what a worker has observed."""
        for seconds, moment in observed.answered:
            self.latency_stats.answered(seconds, moment)
        for tokens, seconds, moment in observed.speeds:
            self.latency_stats.wrote(tokens, seconds, moment)
        for _ in range(observed.down):
            self.latency_stats.failed()
        self.answered += len(observed.answered)
        self.failures.update(observed.failed)
        if observed.calls:
            self.call_stats.add(list(Counter(observed.calls).elements()))
