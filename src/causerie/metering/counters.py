"""Prometheus counters: what happened, from the records; what is, from the engines.

One registry of our own, so that several services in one process (tests, for
one) do not meet in it. Labels have few values: doors, models of the catalog,
codes; never a key or anything that a caller wrote.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from causerie.engines.base import EngineState, EngineStatus

_FIRST_TOKEN = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 60, 120)
_PER_TOKEN = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1)
_WHOLE = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 60, 120, 300, 600)
_OVERHEAD = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5)


class Counted(Protocol):
    """What is read of a record: one request, ended. Times are in seconds."""

    @property
    def door(self) -> str: ...
    @property
    def model(self) -> str: ...
    @property
    def status(self) -> int: ...
    @property
    def code(self) -> str | None: ...
    @property
    def finish(self) -> str | None: ...
    @property
    def stream(self) -> bool: ...
    @property
    def prompt(self) -> int: ...
    @property
    def completion(self) -> int: ...
    @property
    def cached(self) -> int: ...
    @property
    def reasoning(self) -> int: ...
    @property
    def queue_seconds(self) -> float: ...
    @property
    def first_token_seconds(self) -> float | None: ...
    @property
    def duration_seconds(self) -> float: ...
    @property
    def overhead_seconds(self) -> float: ...


class Queue(Protocol):
    """How many requests wait for each model."""

    def __call__(self) -> Iterable[tuple[str, int]]: ...


class Counters:
    """All metrics of one service; a sink for records."""

    content_type = CONTENT_TYPE_LATEST

    def __init__(
        self,
        engines: Callable[[], Sequence[EngineStatus]],
        queue: Queue | None = None,
    ) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(_Present(engines, queue))
        place = ["door", "model"]
        self._requests = self._counter(
            "requests", "Requests that ended.", [*place, "status", "code", "finish", "stream"]
        )
        self._refused = self._counter(
            "refused", "Requests refused before a model was chosen.", ["door", "status", "code"]
        )
        self._tokens = self._counter("tokens", "Tokens, by kind.", [*place, "kind"])
        self._first = self._times("first_token", "Until the first token.", place, _FIRST_TOKEN)
        self._each = self._times("token", "For each token after the first.", place, _PER_TOKEN)
        self._whole = self._times("request", "For a whole request.", place, _WHOLE)
        self._queued = self._times("queue", "In the queue.", place, _FIRST_TOKEN)
        self._overhead = self._times("overhead", "Spent by the service itself.", place, _OVERHEAD)

    def write(self, record: Counted) -> None:
        """Count one request that ended."""
        place = (record.door, record.model)
        self._requests.labels(
            *place,
            str(record.status),
            record.code or "",
            record.finish or "",
            "true" if record.stream else "false",
        ).inc()
        kinds = {
            "prompt": record.prompt,
            "completion": record.completion,
            "cached": record.cached,
            "reasoning": record.reasoning,
        }
        for kind, count in kinds.items():
            self._tokens.labels(*place, kind).inc(count)
        self._whole.labels(*place).observe(record.duration_seconds)
        self._queued.labels(*place).observe(record.queue_seconds)
        self._overhead.labels(*place).observe(record.overhead_seconds)
        if record.first_token_seconds is None:
            return
        self._first.labels(*place).observe(record.first_token_seconds)
        if record.completion > 1:
            rest = record.duration_seconds - record.first_token_seconds
            self._each.labels(*place).observe(max(rest, 0.0) / (record.completion - 1))

    def refused(self, door: str, code: str, status: int) -> None:
        """Count one request that was refused at the edge."""
        self._refused.labels(door, str(status), code).inc()

    def exposition(self) -> bytes:
        """Everything, in Prometheus' text format."""
        return generate_latest(self._registry)

    def _counter(self, name: str, words: str, labels: list[str]) -> Counter:
        return Counter(f"causerie_{name}", words, labels, registry=self._registry)

    def _times(
        self, name: str, words: str, labels: list[str], buckets: tuple[float, ...]
    ) -> Histogram:
        return Histogram(
            f"causerie_{name}_seconds", words, labels, buckets=buckets, registry=self._registry
        )


class _Present(Collector):
    """What holds at the moment somebody looks."""

    def __init__(self, engines: Callable[[], Sequence[EngineStatus]], queue: Queue | None) -> None:
        self._engines = engines
        self._queue = queue

    def collect(self) -> Iterator[Metric]:
        """One gauge a fact, one sample a model."""
        statuses = self._engines()
        state = _gauge("engine_state", "1 for the state that an engine is in.", "model", "state")
        for status in statuses:
            for one in EngineState:
                state.add_metric([status.model, one.value], float(status.state is one))
        yield state
        facts: dict[str, tuple[str, list[tuple[str, float]]]] = {
            "engine_slots": ("Slots.", [(s.model, s.slots) for s in statuses]),
            "engine_busy_slots": ("Slots that generate.", [(s.model, s.busy) for s in statuses]),
            "engine_restarts": ("Restarts so far.", [(s.model, s.restarts) for s in statuses]),
            "engine_memory_bytes": (
                "Memory, estimated until loaded.",
                [(s.model, s.memory_bytes) for s in statuses if s.memory_bytes is not None],
            ),
            "queue_length": ("Requests that wait.", list(self._queue() if self._queue else ())),
        }
        for name, (words, values) in facts.items():
            gauge = _gauge(name, words, "model")
            for model, value in values:
                gauge.add_metric([model], value)
            yield gauge


def _gauge(name: str, words: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"causerie_{name}", words, labels=list(labels))
