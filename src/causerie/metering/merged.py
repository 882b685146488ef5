"""Metrics of several processes as those of one, in Prometheus' text format."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector, CollectorRegistry

_HIGHEST = ("_state", "_up", "build_info", "_start_time_seconds")
"""Ends of the names of gauges whose highest value is that of all; of the others it is the sum."""

_Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def merged(texts: Sequence[str], past: str, *, workers: int, restarts: int) -> str:
    """Return the metrics of the processes that run, added to the counts of ``past`` ones.

    ``workers`` processes answer, ``restarts`` were replaced.
    """
    own = GaugeMetricFamily("causerie_workers", "Worker processes that answer requests.")
    own.add_metric([], workers)
    ended = CounterMetricFamily(
        "causerie_worker_restarts", "Worker processes that ended and were replaced."
    )
    ended.add_metric([], restarts)
    return _text([*_families([*texts, past]), own, ended])


def counts(texts: Sequence[str]) -> str:
    """Return the counters and histograms of processes, which stay when a process ends."""
    return _text([each for each in _families(texts) if each.type in ("counter", "histogram")])


def _families(texts: Sequence[str]) -> Iterator[Metric]:
    """Yield each family once, with the samples of all texts."""
    families: dict[str, Metric] = {}
    samples: dict[str, _Samples] = {}
    for family in (each for text in texts for each in text_string_to_metric_families(text)):
        _ = families.setdefault(family.name, family)
        _add(samples.setdefault(family.name, {}), family)
    for name, family in families.items():
        yield _metric(family, samples[name])


def _add(kept: _Samples, family: Metric) -> None:
    highest = family.type == "gauge" and family.name.endswith(_HIGHEST)
    for sample in family.samples:
        place = sample.name, tuple(sorted(sample.labels.items()))
        before = kept.get(place, 0.0)
        kept[place] = max(before, sample.value) if highest else before + sample.value


def _metric(
    family: Metric, samples: Mapping[tuple[str, tuple[tuple[str, str], ...]], float]
) -> Metric:
    whole = Metric(family.name, family.documentation, family.type)
    for (name, labels), value in samples.items():
        whole.add_sample(name, dict(labels), value)
    return whole


class _Given(Collector):
    def __init__(self, families: Sequence[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        """Yield the families."""
        yield from self._families


def _text(families: Sequence[Metric]) -> str:
    registry = CollectorRegistry()
    registry.register(_Given(families))
    return generate_latest(registry).decode()
