"""Reports of replicas on their targets, once a second.

They tell what they measured, so that uptime, latency and calls of a target are those of all
replicas, and when a breaker opens or closes. What a replica was told it does not tell again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from msgspec import Struct

from causerie.protocol.call_class import CallClass
from causerie.routing.reported_stats import Measurements, ReportedLatencyStats
from causerie.routing.target_state import TargetState
from causerie.runtime.circuit_breaker import CircuitBreaker

SAMPLES = 200  # of a kind in a report; the others are only counted
_OWN_EVIDENCE_SECONDS = 2.0
_WAIT_SECONDS = 1.0  # that a target is left alone here because it failed elsewhere
_LONGER_SECONDS = 0.5  # by which a wait must have grown to be told again


class BreakerCondition(Struct, frozen=True):
    """The state of a breaker, for how many seconds more, and the code of the reason."""

    kind: Literal["up", "down", "full"] = "up"
    seconds: float = 0.0
    reason: str = ""


class TargetReport(Struct, frozen=True, omit_defaults=True):
    """Of one target. The moments of ``measured`` are ages in seconds."""

    measured: Measurements = Measurements()
    calls: Mapping[CallClass, int] = {}
    """Delivered calls that were checked, by class."""
    condition: BreakerCondition | None = None
    """Set when it has changed."""


class _Doubted(Struct, frozen=True):
    """News of a failure that an own answer contradicts; ``answered`` is the moment of that."""

    answered: float
    reason: str


class TargetReporter:
    """Makes and reads the reports of one replica on its targets."""

    def __init__(self, target_states: Callable[[], Sequence[TargetState]]) -> None:
        self._target_states = target_states
        self._told: dict[str, _Told] = {}

    def taken(self) -> dict[str, TargetReport]:
        """Return what is new, by the name of the target; once."""
        reports: dict[str, TargetReport] = {}
        told: dict[str, _Told] = {}
        for state in self._target_states():
            stats = state.latency_stats
            if not isinstance(stats, ReportedLatencyStats):
                continue
            before = self._told.get(state.name)
            if before is None or before.state is not state:
                before = _Told(state)
            told[state.name] = before
            report = before.report(stats)
            if report is not None:
                reports[state.name] = report
        self._told = told
        return reports

    def learn(self, name: str, report: TargetReport) -> None:
        """Count what another replica tells of the target of that name, if it is here too."""
        told = self._told.get(name)
        if told is not None:
            told.learn(report)


class _Told:
    """News of one target that this replica told, or was told."""

    def __init__(self, state: TargetState) -> None:
        self.state = state
        self._calls: Counter[CallClass] = Counter()
        self._kind = "up"
        self._until = 0.0
        self._doubted: _Doubted | None = None

    def report(self, stats: ReportedLatencyStats) -> TargetReport | None:
        """Return what is new; ``None`` where nothing is."""
        self._settle_doubt(stats)
        measured = stats.taken()
        calls = self.state.call_stats.ever - self._calls
        self._calls = self.state.call_stats.ever.copy()
        condition = self._changed()
        if not (measured or calls or condition):
            return None
        now = self.state.breaker.clock()
        return TargetReport(_aged(measured, now), dict(calls), condition)

    def learn(self, report: TargetReport) -> None:
        """Count it, and follow its condition where nothing found here contradicts."""
        stats = self.state.latency_stats
        now = self.state.breaker.clock()
        assert isinstance(stats, ReportedLatencyStats)
        stats.learn(_aged(report.measured, now))
        if report.calls:
            self.state.call_stats.learn(report.calls)
        condition = report.condition
        if condition is not None:
            self._follow(condition, stats.own_answer)
            self._note(_condition(self.state.breaker))

    def _follow(self, condition: BreakerCondition, answered: float) -> None:
        breaker = self.state.breaker
        now, self._doubted = breaker.clock(), None
        if condition.kind == "up":
            if not breaker.well:
                breaker.answers()
        elif condition.kind == "full":
            breaker.full(condition.seconds, condition.reason)
        elif now - answered < _OWN_EVIDENCE_SECONDS:
            self._doubted = _Doubted(answered, condition.reason)
        else:
            self.state.told_down(_WAIT_SECONDS, condition.reason)

    def _settle_doubt(self, stats: ReportedLatencyStats) -> None:
        """Follow the news after all if no answer came since, because it is not told again."""
        doubted, now = self._doubted, self.state.breaker.clock()
        if doubted is None or now - doubted.answered < _OWN_EVIDENCE_SECONDS:
            return
        self._doubted = None
        if stats.own_answer == doubted.answered:
            self.state.told_down(_WAIT_SECONDS, doubted.reason)
            self._note(_condition(self.state.breaker))

    def _changed(self) -> BreakerCondition | None:
        now = _condition(self.state.breaker)
        until = self.state.breaker.clock() + now.seconds
        longer = now.seconds > 0 and until > self._until + _LONGER_SECONDS
        if now.kind == self._kind and not longer:
            return None
        self._note(now)
        return now

    def _note(self, condition: BreakerCondition) -> None:
        self._kind = condition.kind
        self._until = self.state.breaker.clock() + condition.seconds


def _condition(breaker: CircuitBreaker) -> BreakerCondition:
    if breaker.open:
        return BreakerCondition("down", breaker.wait(), breaker.reason)
    if breaker.state() == "full":
        return BreakerCondition("full", breaker.wait(), breaker.reason)
    return BreakerCondition()


def _aged(measured: Measurements, now: float) -> Measurements:
    """Return them with ages for moments, or with moments for ages: both are now less the other."""
    return Measurements(
        measured.answered,
        tuple((seconds, now - at) for seconds, at in measured.first_tokens[-SAMPLES:]),
        tuple((tokens, seconds, now - at) for tokens, seconds, at in measured.speeds[-SAMPLES:]),
        measured.down,
    )
