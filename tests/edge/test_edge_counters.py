"""Records become numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from prometheus_client.parser import text_string_to_metric_families

from causerie import __version__
from causerie.engines.base import EngineState, EngineStatus
from causerie.observe.metrics import MetricsCounters
from causerie.protocol.events import Usage
from causerie.protocol.targets import CallClass


@dataclass(frozen=True)
class Ended:
    door: str = "open"
    model: str = "m"
    entry: str = "m"
    status: int = 200
    code: str | None = None
    finish: str | None = "stop"
    stream: bool = True
    continued: int = 0
    used: Usage = field(default_factory=lambda: Usage(10, 5, 4, 2))
    queue_seconds: float = 0.01
    first_token_seconds: float | None = 0.5
    duration_seconds: float = 2.5
    overhead_seconds: float = 0.001
    cost: int = 0


def samples(counters: MetricsCounters) -> dict[tuple[str, ...], float]:
    """Every sample by its name and the values of its labels."""
    text = counters.exposition().decode()
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_an_ended_request_is_counted() -> None:
    counters = MetricsCounters(lambda: [])
    counters.write(Ended())
    counters.write(Ended(status=503, code="queue_full", finish=None, first_token_seconds=None))
    found = samples(counters)
    done = ("causerie_requests_total", "", "open", "stop", "m", "200", "true")
    refused = ("causerie_requests_total", "queue_full", "open", "", "m", "503", "true")
    assert (found[done], found[refused]) == (1, 1)
    for kind, count in {"prompt": 20, "completion": 10, "cached": 8, "reasoning": 4}.items():
        assert found["causerie_tokens_total", "open", kind, "m"] == count
    assert found["causerie_first_token_seconds_sum", "open", "m"] == 0.5
    assert found["causerie_first_token_seconds_count", "open", "m"] == 1
    assert found["causerie_token_seconds_sum", "open", "m"] == 0.5  # 2 s for 4 tokens
    assert found["causerie_request_seconds_count", "open", "m"] == 2
    assert found["causerie_overhead_seconds_sum", "open", "m"] == 0.002


def test_one_token_has_no_time_between_tokens() -> None:
    counters = MetricsCounters(lambda: [])
    counters.write(Ended(used=Usage(10, 1)))
    assert ("causerie_token_seconds_sum", "open", "m") not in samples(counters)


def test_engines_and_queues_are_read_when_somebody_looks() -> None:
    statuses = [EngineStatus("m", EngineState.LOADING, slots=4, busy=3, restarts=2)]
    counters = MetricsCounters(lambda: statuses, lambda: [("m", 7)])
    found = samples(counters)
    assert found["causerie_engine_state", "m", "loading"] == 1
    assert found["causerie_engine_state", "m", "ready"] == 0
    assert found["causerie_engine_slots", "m"] == 4
    assert found["causerie_engine_busy_slots", "m"] == 3
    assert found["causerie_engine_restarts", "m"] == 2
    assert found["causerie_queue_length", "m"] == 7
    statuses[0] = EngineStatus("m", EngineState.READY, memory_bytes=9)
    found = samples(counters)
    assert found["causerie_engine_state", "m", "ready"] == 1
    assert found["causerie_engine_memory_bytes", "m"] == 9


@dataclass(frozen=True)
class Target:
    name: str
    state: str = "up"
    in_flight: int = 0
    answered: int = 0
    failed: Mapping[str, int] = field(default_factory=dict)
    calls: Mapping[CallClass, int] = field(default_factory=dict)


def test_targets_and_continued_replies() -> None:
    north = Target("north/m", "down", 2, 7, {"timeout": 3}, {"fine": 5})
    counters = MetricsCounters(lambda: [], targets=lambda: [north, Target("south/m")])
    counters.write(Ended(continued=2))
    counters.write(Ended())
    found = samples(counters)
    assert found["causerie_continued_total", "open", "m"] == 2
    assert found["causerie_target_answers_total", "north/m"] == 7
    assert found["causerie_target_answers_total", "south/m"] == 0
    assert found["causerie_target_failures_total", "timeout", "north/m"] == 3
    assert found["causerie_tool_calls_total", "fine", "north/m"] == 5
    assert found["causerie_target_in_flight", "north/m"] == 2
    assert found["causerie_target_state", "down", "north/m"] == 1


def test_the_process_itself() -> None:
    found = samples(MetricsCounters(lambda: []))
    assert found["process_resident_memory_bytes",] > 0
    assert found["causerie_build_info", __version__] == 1


def test_two_services_in_one_process_do_not_meet() -> None:
    first, second = MetricsCounters(lambda: []), MetricsCounters(lambda: [])
    first.refused("open", "invalid_json", 400)
    key = ("causerie_refused_total", "invalid_json", "open", "400")
    assert samples(first)[key] == 1
    assert key not in samples(second)


def test_names_below_wildcards_are_bounded() -> None:
    counters = MetricsCounters(tuple)
    for number in range(300):
        counters.write(Ended(model=f"openai/m-{number}", entry="openai/*"))
    text = counters.exposition().decode()
    assert 'model="openai/m-199"' in text
    assert 'model="openai/m-200"' not in text
    assert "causerie_requests_total{" in text
    assert 'model="openai/*"' in text
