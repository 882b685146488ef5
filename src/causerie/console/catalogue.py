"""The catalog for people: what a model can do, what it costs, and how those stand who answer.

Entries come as ``GET /models`` gives them; a field that one lacks is not known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from hashlib import sha256
from types import MappingProxyType
from typing import Any

from causerie.console.ports import ServiceView
from causerie.engines.base import EngineState, EngineStatus
from causerie.operations.matrix import GROUPS
from causerie.protocol.numbers import money
from causerie.routing.target_state import TargetStatus

_MILLION = 1_000_000
_NEARNESS = MappingProxyType(
    {"ready": 0, "full": 1, "loading": 2}
    | dict.fromkeys(("asleep", "unused", "trying", "half open"), 3)
    | {"down": 4, "rejecting": 4, "failed": 4}
)
_PLAIN = frozenset({"model", "messages", "stream", "stream_options"})


@dataclass(frozen=True, slots=True)
class StatusBadge:
    """State of one target: a word, with a ``tone`` (good, warn, bad or none), and details."""

    target: str
    word: str
    tone: str = ""
    detail: str = ""
    progress: float | None = None


@dataclass(frozen=True, slots=True)
class ModelRow:
    """A model as a page shows it. Prices are per 1M tokens."""

    id: str
    name: str
    description: str
    context: int | None
    output: int | None
    images: bool
    price: tuple[Decimal, Decimal] | None
    parameters: Sequence[str]
    thinks: bool | None
    """``None``: not known before it has been loaded."""
    efforts: Sequence[str]
    must_think: bool
    defaults: Mapping[str, float]
    """Parameters where a request sets none; empty if they are not known."""

    @property
    def anchor(self) -> str:
        """A name for elements of a page; the id itself may hold any character."""
        return anchor(self.id)

    @property
    def groups(self) -> Sequence[tuple[str, Sequence[str]]]:
        return grouped(self.parameters)

    @property
    def abilities(self) -> Sequence[str]:
        """Return its capabilities, in a few words."""
        words = {"tools": "tools", "response_format": "structured output"}
        found = [word for name, word in words.items() if name in self.parameters]
        if self.thinks:
            found.append("thinking")
        return [*found, "images"] if self.images else found


def grouped(parameters: Sequence[str]) -> Sequence[tuple[str, Sequence[str]]]:
    """Parameters by what they are for; those that everything has are left out."""
    named = {name for _, names in GROUPS for name in names} | _PLAIN
    found = [(title, [name for name in names if name in parameters]) for title, names in GROUPS]
    found.append(("Other", [name for name in parameters if name not in named]))
    return [(title, names) for title, names in found if names]


def view(entry: Mapping[str, Any]) -> ModelRow:
    id = str(entry.get("id", ""))
    reasoning = entry.get("reasoning") or {}
    efforts = reasoning.get("supported_efforts", ())
    architecture = entry.get("architecture") or {}
    return ModelRow(
        id=id,
        name=str(entry.get("name") or id),
        description=str(entry.get("description") or ""),
        context=entry.get("context_length"),
        output=entry.get("max_output_tokens"),
        images="image" in (architecture.get("input_modalities") or ()),
        price=_price(entry.get("pricing") or {}),
        parameters=tuple(entry.get("supported_parameters") or ()),
        thinks=None if efforts is None else bool(efforts),
        efforts=tuple(efforts or ()),
        must_think=bool(reasoning.get("mandatory")),
        defaults=entry.get("default_parameters") or {},
    )


def anchor(model: str) -> str:
    """Return the id of a page's elements about a model."""
    return f"model-{sha256(model.encode()).hexdigest()[:12]}"


def target_badges(
    service_view: ServiceView, targets: Mapping[str, Sequence[str]]
) -> Mapping[str, Sequence[StatusBadge]]:
    """Return the states of targets, by the key that they are given under."""
    engines = {each.model: _engine(each) for each in service_view.status()}
    target_states = {each.name: each for each in service_view.targets()}
    return {
        model: [
            engines[name] if name in engines else _target_state(name, target_states.get(name))
            for name in names
        ]
        for model, names in targets.items()
    }


def best(badges: Sequence[StatusBadge]) -> Sequence[StatusBadge]:
    """Return the state of the target that is the nearest to answering, without its name."""
    found = min(badges, key=lambda each: _NEARNESS.get(each.word, len(_NEARNESS)), default=None)
    if found is None:
        return ()
    detail = found.detail if found.progress is not None else ""
    return [StatusBadge("", found.word, found.tone, detail, found.progress)]


def service_badges(service_view: ServiceView) -> Sequence[StatusBadge]:
    """Return the state of everything that answers requests, engines first, each once."""
    engines = [_engine(each) for each in service_view.status()]
    own = {each.target for each in engines}
    others = [each for each in service_view.targets() if each.name not in own]
    return [*engines, *(_target_state(each.name, each) for each in others)]


def troubled(badges: Sequence[StatusBadge]) -> Sequence[StatusBadge]:
    """Return those that are not ready, the worst first."""
    found = [each for each in badges if each.tone in ("warn", "bad")]
    return sorted(found, key=lambda each: each.tone)  # "bad" is before "warn"


def _price(pricing: Mapping[str, Any]) -> tuple[Decimal, Decimal] | None:
    try:
        prompt = money(pricing["prompt"]) * _MILLION
        completion = money(pricing["completion"]) * _MILLION
    except (KeyError, ValueError):
        return None
    return prompt, completion


def _engine(status: EngineStatus) -> StatusBadge:
    if status.state is EngineState.READY:
        busy = f"{status.busy} of {status.slots} busy" if status.slots else ""
        away = status.detail if status.members else ""
        tone = "warn" if away else "good"
        return StatusBadge(status.model, "ready", tone, ", ".join(filter(None, [busy, away])))
    if status.state is EngineState.LOADING:
        done = f"{status.progress * 100:.0f} %" if status.progress is not None else status.detail
        return StatusBadge(status.model, "loading", "warn", done, status.progress)
    if status.state is EngineState.FAILED:
        return StatusBadge(status.model, "failed", "bad", status.detail or "restarting")
    return StatusBadge(status.model, "asleep", "", "loads with the first request")


def _target_state(name: str, status: TargetStatus | None) -> StatusBadge:
    """A target that others run, by what its breaker knows."""
    if status is None:
        return StatusBadge(name, "not known")
    running = f"{status.in_flight} running" if status.in_flight else ""
    if status.state == "up":
        return StatusBadge(name, "ready", "good", running)
    wait = f"next attempt in {status.wait_seconds:.0f} s" if status.wait_seconds > 0 else ""
    tone = "bad" if status.state in ("down", "rejecting") else "warn"
    detail = ", ".join(filter(None, [status.reason.replace("_", " "), wait]))
    return StatusBadge(name, status.state.replace("_", " "), tone, detail)
