"""Prometheus metrics: counters of requests from their records, and states of engines."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import add, attrgetter

from msgspec import Struct
from prometheus_client import ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector, CollectorRegistry

from causerie import __version__
from causerie.engines.base import EngineState, EngineStatus
from causerie.metering.meter import Record
from causerie.protocol.money import BILLION
from causerie.routing.target_state import TargetStatus

# A registry of its own, so that several services fit into one process. Labels have few values:
# doors, models, codes; never a key or anything that a caller wrote.

_WAIT = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 60, 120)
_TIMES: Mapping[str, tuple[str, tuple[float, ...]]] = {
    "first_token": ("Time to first token.", _WAIT),
    "token": (
        "Time per output token after the first.",
        (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1),
    ),
    "request": ("Duration of requests.", (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 60, 120, 300, 600)),
    "queue": ("Time in the queue.", _WAIT),
    "overhead": (
        "Time to first token without the time spent at targets.",
        (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5),
    ),
}
_TOKENS = {
    kind: attrgetter(kind)
    for kind in ("prompt", "completion", "cached", "written", "reasoning", "discarded")
}
_PLACE = ("door", "model")
_MOST_NAMES = 200
_TOGETHER = 128  # requests that are counted together

_End = tuple[int, str | None, str | None, bool]  # status, code, finish, stream


_Row = tuple[Sequence[str], float]  # values of the labels, and the number


QueueSize = Callable[[], Iterable[tuple[str, int]]]
"""Returns how many requests wait for each model."""


class StoreStatus(Struct, frozen=True):
    """State of the database of accounts and of what is on its way there.

    ``budgets`` counts budgets by owner and the share in percent that is used at least.
    """

    database: bool
    journal: bool
    waiting: int
    budgets: Mapping[tuple[str, str], int] = {}


class MetricsCounters(Collector):
    """All metrics of one service; a sink for records, which are counted many at a time."""

    content_type = CONTENT_TYPE_LATEST

    def __init__(
        self,
        engines: Callable[[], Sequence[EngineStatus]],
        queue: QueueSize | None = None,
        targets: Callable[[], Sequence[TargetStatus]] = tuple,
        shared: Callable[[], bool | None] = lambda: None,
        store: Callable[[], StoreStatus | None] = lambda: None,
    ) -> None:
        """``shared`` returns whether the shared store of limits answers, if there is one.

        So does ``store`` with accounts.
        """
        self._store = store
        self._engines = engines
        self._queue = queue
        self._targets = targets
        self._shared = shared
        self._ended: list[Record] = []
        self._names: set[str] = set()  # that labels have below wildcards
        self._places: defaultdict[tuple[str, str], _Place] = defaultdict(_Place)
        self._refused: dict[tuple[str, str, str], int] = {}
        self._registry = CollectorRegistry()
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    def write(self, record: Record) -> None:
        self._ended.append(record)
        if len(self._ended) >= _TOGETHER:
            self._count()

    def refused(self, door: str, code: str, status: int) -> None:
        """Count one request that was refused before the pipeline."""
        key = (door, str(status), code)
        self._refused[key] = self._refused.get(key, 0) + 1

    def outcomes(self) -> Mapping[str, tuple[int, int]]:
        """Return how many requests each model has had, and how many of them failed (5xx)."""
        self._count()
        found: dict[str, tuple[int, int]] = {}
        for (_, model), place in self._places.items():
            requests, failed = found.get(model, (0, 0))
            requests += place.requests.total()
            failed += sum(n for (status, *_), n in place.requests.items() if status >= 500)
            found[model] = (requests, failed)
        return found

    def exposition(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        self._count()
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        yield from self._present()
        yield from self._past()

    def _past(self) -> Iterator[Metric]:
        ended = ("status", "code", "finish", "stream")
        requests = _counter("requests", "Completed requests.", *_PLACE, *ended)
        tokens = _counter("tokens", "Tokens, by kind.", *_PLACE, "kind")
        words = "Replies that another target continued after a failure."
        continued = _counter("continued", words, *_PLACE)
        cost = _counter("cost", "Cost of requests, in the currency of the prices.", *_PLACE)
        for place, numbers in self._places.items():
            for (status, code, finish, stream), count in numbers.requests.items():
                end = (str(status), code or "", finish or "", "true" if stream else "false")
                requests.add_metric([*place, *end], count)
            for kind, count in numbers.tokens.items():
                tokens.add_metric([*place, kind], count)
            continued.add_metric(place, numbers.continued)
            cost.add_metric(place, numbers.cost / BILLION)
        yield from (requests, tokens, continued, cost)
        words = "Requests rejected before a model was chosen."
        yield _filled(_counter("refused", words, "door", "status", "code"), self._refused.items())
        for name, (words, _) in _TIMES.items():
            family = HistogramMetricFamily(f"causerie_{name}_seconds", words, labels=_PLACE)
            for place, numbers in self._places.items():
                times = numbers.times[name]
                if times.all:
                    family.add_metric(place, times.buckets(), times.sum)
            yield family

    def _present(self) -> Iterator[Metric]:
        build = _gauge("build_info", "Version of the service.", "version")
        yield _filled(build, [((__version__,), 1)])
        statuses = self._engines()
        state = _gauge("engine_state", "1 for the current state of an engine.", "model", "state")
        yield _filled(state, [row for each in statuses for row in _states(each.state, each.model)])
        facts: dict[str, tuple[str, Iterable[tuple[str, float]]]] = {
            "engine_slots": ("Slots of an engine.", [(s.model, s.slots) for s in statuses]),
            "engine_busy_slots": ("Slots in use.", [(s.model, s.busy) for s in statuses]),
            "engine_restarts": ("Restarts so far.", [(s.model, s.restarts) for s in statuses]),
            "engine_memory_bytes": (
                "Memory, estimated until loaded.",
                [(s.model, s.memory_bytes) for s in statuses if s.memory_bytes is not None],
            ),
            "queue_length": ("Requests waiting for a slot.", self._queue() if self._queue else ()),
        }
        for name, (words, values) in facts.items():
            yield _filled(_gauge(name, words, "model"), [((model,), n) for model, n in values])
        yield from _members(statuses)
        target_health = _gauge(
            "target_state", "1 for the current state of a target.", "target", "state"
        )
        carried = _gauge("target_in_flight", "Requests in flight at a target.", "target")
        answers = _counter("target_answers", "Requests that a target started to answer.", "target")
        failures = _counter("target_failures", "Requests that failed there.", "target", "class")
        calls = _counter("tool_calls", "Delivered calls that were checked.", "target", "class")
        for target in self._targets():
            target_health.add_metric([target.name, target.state], 1)
            carried.add_metric([target.name], target.in_flight)
            answers.add_metric([target.name], target.answered)
            for cause, count in target.failed.items():
                failures.add_metric([target.name, cause], count)
            for name, count in target.calls.items():
                calls.add_metric([target.name, name], count)
        yield from (target_health, carried, answers, failures, calls)
        if (here := self._shared()) is not None:
            words = "1 while the server of shared limits and budgets is reachable."
            yield _filled(_gauge("shared_store_up", words), [((), float(here))])
        if (store := self._store()) is not None:
            yield from _stored(store)

    def _label(self, record: Record) -> str:
        # Of the names below a wildcard there is no end.
        if record.model == record.entry or record.model in self._names:
            return record.model
        if len(self._names) >= _MOST_NAMES:
            return record.entry
        self._names.add(record.model)
        return record.model

    def _count(self) -> None:
        ended, self._ended = self._ended, []
        places: defaultdict[tuple[str, str], list[Record]] = defaultdict(list)
        for record in ended:
            places[record.door, self._label(record)].append(record)
        for place, records in places.items():
            self._places[place].add(records)


class _Times:
    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.within = [0] * len(bounds)
        self.all = 0
        self.sum = 0.0

    def add(self, times: Sequence[float]) -> None:
        ordered = sorted(times)
        bounds = zip(self.bounds, self.within, strict=True)
        self.within = [within + bisect_right(ordered, bound) for bound, within in bounds]
        self.all += len(ordered)
        self.sum += sum(ordered)

    def buckets(self) -> list[tuple[str, float]]:
        names = [*map(str, map(float, self.bounds)), "+Inf"]
        return list(zip(names, map(float, [*self.within, self.all]), strict=True))


class _Place:
    def __init__(self) -> None:
        self.requests: Counter[_End] = Counter()
        self.tokens = dict.fromkeys(_TOKENS, 0)
        self.continued = 0
        self.cost = 0  # in billionths
        self.times = {name: _Times(bounds) for name, (_, bounds) in _TIMES.items()}

    def add(self, records: Sequence[Record]) -> None:
        self.requests.update([(one.status, one.code, one.finish, one.stream) for one in records])
        self.continued += sum([one.continued for one in records])
        self.cost += sum([one.cost for one in records])
        used = [record.used for record in records]
        for kind, count in _TOKENS.items():
            self.tokens[kind] += sum(map(count, used))
        times = self.times
        times["request"].add([record.duration_seconds for record in records])
        times["queue"].add([record.queue_seconds for record in records])
        times["overhead"].add([record.overhead_seconds for record in records])
        started = [
            (first, record.duration_seconds - first, record.used.completion)
            for record in records
            if (first := record.first_token_seconds) is not None
        ]
        times["first_token"].add([first for first, _, _ in started])
        times["token"].add(
            [rest / (count - 1) if rest > 0 else 0.0 for _, rest, count in started if count > 1]
        )


def _stored(store: StoreStatus) -> Iterator[Metric]:
    facts: Mapping[str, tuple[str, float]] = {
        "database_up": ("1 while the database answers.", store.database),
        "journal_up": ("1 while the journal takes records, or there is none.", store.journal),
        "usage_records_waiting": ("Usage records that wait for the database.", store.waiting),
    }
    for name, (words, value) in facts.items():
        yield _filled(_gauge(name, words), [((), float(value))])
    words = "Budgets of which at least this share is used, in percent."
    yield _filled(_gauge("budgets", words, "owner", "used"), store.budgets.items())


def _members(statuses: Sequence[EngineStatus]) -> Iterator[Metric]:
    words = "1 for the current state of a member of a pool."
    members = [(pool.model, each) for pool in statuses for each in pool.members]
    yield _filled(
        _gauge("pool_member_state", words, "model", "member", "state"),
        [row for pool, each in members for row in _states(each.state, pool, each.model)],
    )
    slots = _gauge("pool_member_slots", "Slots of a member.", "model", "member")
    busy = _gauge("pool_member_busy_slots", "Slots in use.", "model", "member")
    for pool, each in members:
        slots.add_metric([pool, each.model], each.slots)
        busy.add_metric([pool, each.model], each.busy)
    yield from (slots, busy)


def _states(state: EngineState, *labels: str) -> Iterator[_Row]:
    return (((*labels, one.value), float(state is one)) for one in EngineState)


def _filled(family: CounterMetricFamily | GaugeMetricFamily, rows: Iterable[_Row]) -> Metric:
    for labels, value in rows:
        family.add_metric(labels, value)
    return family


def _counter(name: str, words: str, *labels: str) -> CounterMetricFamily:
    return CounterMetricFamily(f"causerie_{name}", words, labels=labels)


def _gauge(name: str, words: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"causerie_{name}", words, labels=list(labels))


_HIGHEST = ("_state", "shared_store_up", "build_info", "_start_time_seconds", "_budgets")
_LOWEST = ("database_up", "journal_up")
"""Ends of the names of gauges that are merged by their highest or lowest value, not by the sum."""


def merged(texts: Sequence[str], past: str, *, workers: int, restarts: int) -> str:
    """Merge the metrics of running processes and the counts of ``past`` ones."""
    own = _gauge("workers", "Worker processes that answer requests.")
    ended = _counter("worker_restarts", "Worker processes that ended and were replaced.")
    new = _filled(own, [((), workers)]), _filled(ended, [((), restarts)])
    return _text([*_families([*texts, past]), *new])


def counts(texts: Sequence[str]) -> str:
    """Merge the counters and histograms, which stay when a process ends."""
    return _text([each for each in _families(texts) if each.type in ("counter", "histogram")])


def _families(texts: Sequence[str]) -> Iterator[Metric]:
    found: dict[str, tuple[Metric, dict[tuple[str, tuple[tuple[str, str], ...]], float]]] = {}
    for family in (each for text in texts for each in text_string_to_metric_families(text)):
        _, kept = found.setdefault(family.name, (family, {}))
        merge = _merge_of(family)
        for sample in family.samples:
            place = sample.name, tuple(sorted(sample.labels.items()))
            value = sample.value
            kept[place] = merge(kept[place], value) if place in kept else value
    for family, kept in found.values():
        whole = Metric(family.name, family.documentation, family.type)
        for (name, labels), value in kept.items():
            whole.add_sample(name, dict(labels), value)
        yield whole


def _merge_of(family: Metric) -> Callable[[float, float], float]:
    if family.type == "gauge" and family.name.endswith(_HIGHEST):
        return max
    return min if family.name.endswith(_LOWEST) else add


class _Given(Collector):
    def __init__(self, families: Sequence[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        yield from self._families


def _text(families: Sequence[Metric]) -> str:
    registry = CollectorRegistry()
    registry.register(_Given(families))
    return generate_latest(registry).decode()
