"""The metrics of a service in which everything has happened."""

from __future__ import annotations

from edgekit import Statuses
from prometheus_client.parser import text_string_to_metric_families

from causerie.engines.base import EngineState, EngineStatus
from causerie.errors import Overloaded
from causerie.metering.meter import Record
from causerie.observe.metrics import MetricsCounters, StoreStatus, merged
from causerie.protocol.events import Usage
from causerie.routing.circuit_breaker import CircuitBreaker
from causerie.routing.target_state import TargetState

BESIDES = {"le"}  # of every histogram


def exposed() -> dict[str, tuple[str, set[str]]]:
    """Kind and labels of every metric of a service in which everything has happened."""
    target: object = None
    target_state = TargetState("t", target, None, CircuitBreaker(lambda: 0.0, lambda: 0.0))  # type: ignore[arg-type]  # unused
    target_state.failed(Overloaded("full"))
    target_state.call_stats.add(["fine"])
    member = EngineStatus("http://h:1", EngineState.READY)
    engine = EngineStatus("m", EngineState.READY, slots=4, memory_bytes=1, members=(member,))
    counters = MetricsCounters(
        Statuses([engine]).status,
        lambda: [("m", 1)],
        lambda: [target_state.status()],
        lambda: True,
        lambda: StoreStatus(database=True, journal=True, waiting=0, budgets={("project", "50"): 1}),
    )
    counters.refused("d", "invalid_json", 400)
    record = Record("r", "d", "k", model="m", used=Usage(3, 5), first_token_seconds=0.1)
    counters.write(record)
    found: dict[str, tuple[str, set[str]]] = {}
    text = merged([counters.exposition().decode()], "", workers=1, restarts=1)
    for family in text_string_to_metric_families(text):
        name = f"{family.name}_total" if family.type == "counter" else family.name
        labels = {label for sample in family.samples for label in sample.labels}
        found[name] = (family.type, labels - BESIDES)
    return found
