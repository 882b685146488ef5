"""Metrics of several processes are those of one that has seen everything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from edgekit import Statuses
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from causerie.engines.base import EngineState, EngineStatus
from causerie.metering.meter import Record
from causerie.observe.metrics import MetricsCounters, StoreStatus, counts, merged
from causerie.protocol.events import Usage

OF_PROCESSES = ("causerie_worker", "process_")
RECORDS = st.builds(
    lambda door, model, status, tokens, seconds: Record(
        "r",
        door,
        None,
        model=model,
        status=status,
        used=Usage(tokens, tokens + 1),
        first_token_seconds=seconds,
    ),
    st.sampled_from("ab"),
    st.sampled_from(["m", "n", 'quoted " and \\ name']),
    st.sampled_from([200, 429, 502]),
    st.integers(0, 1000),
    st.integers(0, 200).map(lambda quarters: quarters / 4),  # whose sums are exact
)
Samples = Mapping[tuple[str, str, frozenset[tuple[str, str]]], float]


def exposition(records: Sequence[Record]) -> str:
    """Return the metrics of a process that has seen these requests."""
    engine = EngineStatus("m", EngineState.READY, slots=4)
    counters = MetricsCounters(Statuses([engine]).status, lambda: [("m", len(records))])
    for record in records:
        counters.write(record)
        if record.door == "a":
            counters.refused("a", "invalid_json", 400)
    return counters.exposition().decode()


def samples(text: str, kinds: Sequence[str]) -> Samples:
    """Return the samples of the service's own metrics of these kinds."""
    return {
        (family.type, sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        if family.type in kinds and not family.name.startswith(OF_PROCESSES)
        for sample in family.samples
    }


@given(st.lists(st.lists(RECORDS, max_size=8), min_size=1, max_size=3), st.lists(RECORDS))
def test_counts_of_all_processes_are_those_of_one(
    processes: list[list[Record]], ended: list[Record]
) -> None:
    past = counts([counts([exposition(ended)]), ""])
    text = merged([exposition(each) for each in processes], past, workers=2, restarts=1)
    seen = [record for each in processes for record in each] + ended
    kinds = ("counter", "histogram")
    assert samples(text, kinds) == samples(exposition(seen), kinds)
    assert "causerie_workers 2.0" in text
    assert "causerie_worker_restarts_total 1.0" in text


@given(st.lists(RECORDS, max_size=5), st.lists(RECORDS, max_size=5))
def test_gauges_of_running_processes_are_added_and_states_are_not(
    one: list[Record], other: list[Record]
) -> None:
    past = counts([exposition(one)])
    text = merged([exposition(one), exposition(other)], past, workers=2, restarts=0)
    found = {name: value for (_, name, _), value in samples(text, ("gauge",)).items()}
    assert found["causerie_queue_length"] == len(one) + len(other)
    assert found["causerie_build_info"] == 1.0


def test_merging_again_changes_nothing() -> None:
    once = merged([exposition([])], "", workers=1, restarts=0)
    kinds = ("counter", "histogram", "gauge")
    assert samples(merged([once], "", workers=1, restarts=0), kinds) == samples(once, kinds)


def test_a_store_is_up_only_where_every_process_reaches_it_and_budgets_are_not_added_up() -> None:
    budgets = {("project", "50"): 2}
    stores = [
        StoreStatus(database=True, journal=True, waiting=3, budgets=budgets),
        StoreStatus(database=False, journal=True, waiting=4, budgets=budgets),
    ]
    texts = [_stored(store) for store in stores]
    found = {
        name: value
        for (_, name, _), value in samples(
            merged(texts, "", workers=2, restarts=0), ["gauge"]
        ).items()
    }
    assert [found[f"causerie_{name}"] for name in ("database_up", "journal_up")] == [0, 1]
    assert (found["causerie_usage_records_waiting"], found["causerie_budgets"]) == (7, 2)


def _stored(store: StoreStatus) -> str:
    return MetricsCounters(Statuses([]).status, store=lambda: store).exposition().decode()
