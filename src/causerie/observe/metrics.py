"""Prometheus metrics: counters of requests from their records, and states of engines."""

from __future__ import annotations

import tomllib
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from operator import add, attrgetter
from pathlib import Path
from typing import Literal

from msgspec import Struct, convert
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


class _Family(Struct, frozen=True):
    # A row of metrics.toml, which has the words.
    kind: Literal["counter", "gauge", "histogram"]
    words: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    merge: Literal["sum", "highest", "lowest"] = "sum"
    of: Literal["engine", "member", "target"] | None = None
    field: str = ""


_FAMILIES = convert(
    tomllib.loads(Path(__file__).with_name("metrics.toml").read_text("utf-8")), dict[str, _Family]
)
_TIMES = [name for name, row in _FAMILIES.items() if row.buckets]
_MERGES: dict[str, Callable[[float, float], float]] = {"sum": add, "highest": max, "lowest": min}
_TOKENS = {
    kind: attrgetter(kind)
    for kind in ("prompt", "completion", "cached", "written", "reasoning", "discarded")
}
_MOST_NAMES = 200
_TOGETHER = 128  # requests that are counted together

_End = tuple[int, str | None, str | None, bool]  # status, code, finish, stream


_Row = tuple[Sequence[str], float]  # values of the labels, and the number


QueueSize = Callable[[], Iterable[tuple[str, int]]]
"""Returns how many requests wait for each model."""


class StoreStatus(Struct, frozen=True):
    """State of the account database and its journal, and the number of records not yet stored.

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
        queue: QueueSize = tuple,
        targets: Callable[[], Sequence[TargetStatus]] = tuple,
        shared: Callable[[], bool | None] = lambda: None,
        store: Callable[[], StoreStatus | None] = lambda: None,
    ) -> None:
        """Set the functions that return current states; their ``None``: that store is not used."""
        self._get_store_status = store
        self._get_engine_statuses = engines
        self._get_queue_lengths = queue
        self._get_target_statuses = targets
        self._get_shared_store_up = shared
        self._uncounted_records: list[Record] = []
        self._model_labels_below_wildcards: set[str] = set()  # that labels have below wildcards
        self._counts_by_door_and_model: defaultdict[tuple[str, str], _Counts] = defaultdict(_Counts)
        self._refusals_by_door_status_and_code: Counter[tuple[str, str, str]] = Counter()
        self._registry = CollectorRegistry()
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    def write(self, record: Record) -> None:
        self._uncounted_records.append(record)
        if len(self._uncounted_records) >= _TOGETHER:
            self._count_ended_records()

    def refused(self, door: str, code: str, status: int) -> None:
        """Count one request that was refused before the pipeline."""
        self._refusals_by_door_status_and_code[door, str(status), code] += 1

    def outcomes(self) -> Mapping[str, tuple[int, int]]:
        """Return how many requests each model has had, and how many of them failed (5xx)."""
        self._count_ended_records()
        found: dict[str, tuple[int, int]] = {}
        for (_, model), place in self._counts_by_door_and_model.items():
            requests, failed = found.get(model, (0, 0))
            requests += place.requests.total()
            failed += sum(n for (status, *_), n in place.requests.items() if status >= 500)
            found[model] = (requests, failed)
        return found

    def exposition(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        self._count_ended_records()
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        yield from self._collect_gauges()
        yield from self._collect_counters_and_histograms()

    def _collect_counters_and_histograms(self) -> Iterator[Metric]:
        places = self._counts_by_door_and_model.items()
        ended = [((*place, *end), n) for place, it in places for end, n in it.ended()]
        yield _new_family("requests", ended)
        tokens = [((*place, kind), n) for place, it in places for kind, n in it.tokens.items()]
        yield _new_family("tokens", tokens)
        yield _new_family("continued", [(place, it.continued) for place, it in places])
        yield _new_family("cost", [(place, it.cost / BILLION) for place, it in places])
        yield _new_family("refused", self._refusals_by_door_status_and_code.items())
        for name in _TIMES:
            row = _FAMILIES[name]
            family = HistogramMetricFamily(f"causerie_{name}", row.words, labels=row.labels)
            for place, it in places:
                times = it.times[name]
                if times.all:
                    family.add_metric(place, times.buckets(), times.sum)
            yield family

    def _collect_gauges(self) -> Iterator[Metric]:
        yield _new_family("build_info", [((__version__,), 1)])
        engines = self._get_engine_statuses()
        found: Mapping[str, Sequence[tuple[tuple[str, ...], object]]] = {
            "engine": [((each.model,), each) for each in engines],
            "member": [
                ((pool.model, each.model), each) for pool in engines for each in pool.members
            ],
            "target": [((each.name,), each) for each in self._get_target_statuses()],
        }
        for name, row in _FAMILIES.items():
            if row.of is not None:
                rows = (_yield_field_rows(*one, row.field) for one in found[row.of])
                yield _new_family(name, chain.from_iterable(rows))
        yield _new_family("queue_length", [((model,), n) for model, n in self._get_queue_lengths()])
        if (here := self._get_shared_store_up()) is not None:
            yield _new_family("shared_store_up", [((), float(here))])
        if (store := self._get_store_status()) is not None:
            yield _new_family("database_up", [((), float(store.database))])
            yield _new_family("journal_up", [((), float(store.journal))])
            yield _new_family("usage_records_waiting", [((), store.waiting)])
            yield _new_family("budgets", store.budgets.items())

    def _choose_model_label(self, record: Record) -> str:
        # Of the names below a wildcard there is no end.
        if record.model == record.entry or record.model in self._model_labels_below_wildcards:
            return record.model
        if len(self._model_labels_below_wildcards) >= _MOST_NAMES:
            return record.entry
        self._model_labels_below_wildcards.add(record.model)
        return record.model

    def _count_ended_records(self) -> None:
        ended, self._uncounted_records = self._uncounted_records, []
        places: defaultdict[tuple[str, str], list[Record]] = defaultdict(list)
        for record in ended:
            places[record.door, self._choose_model_label(record)].append(record)
        for place, records in places.items():
            self._counts_by_door_and_model[place].add(records)


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


_ENDING: Callable[[Record], _End] = attrgetter("status", "code", "finish", "stream")
_FACTS = attrgetter(
    "continued", "cost", "used", "duration_seconds", "queue_seconds", "overhead_seconds"
)


class _Counts:
    def __init__(self) -> None:
        self.requests: Counter[_End] = Counter()
        self.tokens = dict.fromkeys(_TOKENS, 0)
        self.continued = 0
        self.cost = 0  # in billionths
        self.times = {name: _Times(_FAMILIES[name].buckets) for name in _TIMES}

    def ended(self) -> Iterator[tuple[tuple[str, str, str, str], int]]:
        for (status, code, finish, stream), count in self.requests.items():
            yield (str(status), code or "", finish or "", "true" if stream else "false"), count

    def add(self, records: Sequence[Record]) -> None:
        self.requests.update(map(_ENDING, records))
        continued, costs, used, durations, queued, overheads = zip(
            *map(_FACTS, records), strict=True
        )
        self.continued += sum(continued)
        self.cost += sum(costs)
        for kind, count in _TOKENS.items():
            self.tokens[kind] += sum(map(count, used))
        times = self.times
        times["request_seconds"].add(durations)
        times["queue_seconds"].add(queued)
        times["overhead_seconds"].add(overheads)
        started = [record for record in records if record.first_token_seconds is not None]
        firsts = [record.first_token_seconds or 0.0 for record in started]
        times["first_token_seconds"].add(firsts)
        times["token_seconds"].add(
            [
                max(record.duration_seconds - first, 0.0) / (record.used.completion - 1)
                for record, first in zip(started, firsts, strict=True)
                if record.used.completion > 1
            ]
        )


def _yield_field_rows(labels: tuple[str, ...], status: object, field_name: str) -> Iterator[_Row]:
    value = getattr(status, field_name)
    if isinstance(value, EngineState):
        yield from (((*labels, one.value), float(value is one)) for one in EngineState)
    elif isinstance(value, str):
        yield (*labels, value), 1
    elif isinstance(value, Mapping):
        yield from (((*labels, key), count) for key, count in value.items())
    elif value is not None:
        yield labels, value


def _new_family(family_name: str, rows: Iterable[_Row]) -> Metric:
    row = _FAMILIES[family_name]
    kind = CounterMetricFamily if row.kind == "counter" else GaugeMetricFamily
    family = kind(f"causerie_{family_name}", row.words, labels=row.labels)
    for labels, value in rows:
        family.add_metric(labels, value)
    return family


def merged(texts: Sequence[str], past: str, *, workers: int, restarts: int) -> str:
    """Merge the metrics of running processes and the counts of ``past`` ones."""
    new = (
        _new_family("workers", [((), workers)]),
        _new_family("worker_restarts", [((), restarts)]),
    )
    return _encode_exposition_text([*_merge_families([*texts, past]), *new])


def counts(texts: Sequence[str]) -> str:
    """Return the merged counters and histograms of these expositions, without their gauges."""
    return _encode_exposition_text(
        [each for each in _merge_families(texts) if each.type in ("counter", "histogram")]
    )


def _merge_families(expositions: Sequence[str]) -> Iterator[Metric]:
    found: dict[str, tuple[Metric, dict[tuple[str, tuple[tuple[str, str], ...]], float]]] = {}
    for family in (each for text in expositions for each in text_string_to_metric_families(text)):
        _, kept = found.setdefault(family.name, (family, {}))
        row = _FAMILIES.get(family.name.removeprefix("causerie_"))
        merge = _MERGES["sum" if row is None else row.merge]
        for sample in family.samples:
            place = sample.name, tuple(sorted(sample.labels.items()))
            value = sample.value
            kept[place] = merge(kept[place], value) if place in kept else value
    for family, kept in found.values():
        whole = Metric(family.name, family.documentation, family.type)
        for (name, labels), value in kept.items():
            whole.add_sample(name, dict(labels), value)
        yield whole


class _GivenFamilies(Collector):
    def __init__(self, families: Sequence[Metric]) -> None:
        self._families_to_encode = families

    def collect(self) -> Iterator[Metric]:
        yield from self._families_to_encode


def _encode_exposition_text(families: Sequence[Metric]) -> str:
    return generate_latest(_GivenFamilies(families)).decode()
