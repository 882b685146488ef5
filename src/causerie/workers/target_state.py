"""Targets as several processes know them: one breaker, and what is under way in all of them.

Measurements stay with the process that made them; a worker reports them to its parent, whose
catalog and pages show those of all.
"""

from __future__ import annotations

from collections import Counter

from causerie.protocol.call_class import CallClass
from causerie.routing.reported_stats import ReportedLatencyStats
from causerie.routing.target import AdmissionQueue, Target
from causerie.routing.target_state import TargetState
from causerie.workers.circuit_breaker import SharedCircuitBreaker
from causerie.workers.messages import TargetObserved
from causerie.workers.request_slots import SharedRequestSlots


class SharedTargetState(TargetState):
    """The state of one target; requests under way are those of all processes."""

    __slots__ = ("_reported", "_reported_calls", "_requests", "_stats")

    def __init__(
        self,
        name: str,
        target: Target,
        admission_queue: AdmissionQueue | None,
        breaker: SharedCircuitBreaker,
        requests: SharedRequestSlots,
        latency_stats: ReportedLatencyStats,
    ) -> None:
        self._requests = requests
        self._stats = latency_stats
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
        """Return what a worker has to report, once; ``None`` where nothing is new."""
        measured = self._stats.taken()
        failed = self.failures - self._reported
        calls = self.call_stats.ever - self._reported_calls
        self._reported, self._reported_calls = self.failures.copy(), self.call_stats.ever.copy()
        if not (measured or failed or calls):
            return None
        return TargetObserved(measured, dict(failed), dict(calls))

    def learn(self, observed: TargetObserved) -> None:
        """Count what a worker has observed."""
        self._stats.add(observed.measured)
        self.answered += observed.measured.answered
        self.failures.update(observed.failed)
        if observed.calls:
            self.call_stats.add(list(Counter(observed.calls).elements()))
