"""What console pages read of the service: models, prices, abilities, and states of targets."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from datetime import date
from decimal import Decimal
from hashlib import sha256
from typing import Any, Protocol

from msgspec import Struct

from causerie.access.allowed import AccessRule
from causerie.catalog.catalog import DoorCatalog
from causerie.catalog.model import Tariff
from causerie.engines.base import EngineState, EngineStatus
from causerie.hosted.accounts.people import User
from causerie.hosted.operations.ports import Operations, TargetView
from causerie.hosted.operations.probes import GROUPS
from causerie.http.exchange import Exchange
from causerie.protocol.model_entries import Evidence
from causerie.protocol.numbers import money
from causerie.protocol.targets import Figures, TimeBucket
from causerie.routing.target_state import TargetStatus


class DoorView(Struct, frozen=True):
    name: str
    prefix: str


class ModelVerdict(Struct, frozen=True):
    """Verdict of access rules on a model: why it is refused, or the ``targets`` allowed for it."""

    id: str
    refusal: str
    targets: Sequence[str]
    providers: Sequence[str]
    whole: bool = True


class ServiceView(Protocol):
    """The service, as its pages read it."""

    @property
    def operations(self) -> Operations: ...

    def doors(self) -> Sequence[DoorView]: ...

    def models(
        self, door: str | None = None, rules: Sequence[AccessRule] = ()
    ) -> Sequence[Mapping[str, Any]]:
        """Return entries as ``GET /models`` does, of one door or all doors that take project keys.

        Those that one of the ``rules`` forbids are left out.
        """

    def verdicts(self, rules: Sequence[AccessRule]) -> Sequence[ModelVerdict]:
        """Return for each model of the doors that take project keys whether the rules allow it."""

    def unpriced(self) -> Sequence[str]:
        """Return providers' models that are counted as free because no price of them is known."""

    def provider_costs(self) -> Mapping[tuple[str, str], Tariff]:
        """Return the known tariffs at which targets charge this service, by model and target."""

    def market(self) -> DoorCatalog | None:
        """Return the public catalog; ``None`` without a router door."""

    def policy(self, provider: str) -> Mapping[str, Any]:
        """Return the data policy that a provider's settings state; empty if none is known."""

    def answering(self, model: str) -> Sequence[str]:
        """Return the names of the targets of a model."""

    async def complete(
        self, exchange: Exchange, user: User, project_id: str, *, routed: bool = False
    ) -> None:
        """Answer the request as ``POST /chat/completions``, counted for the project.

        ``routed``: at the door of the catalog, whose requests may prefer providers. Raises
        ``ServiceError`` before the answer begins.
        """

    async def talk(self, exchange: Exchange, body: bytes, model: str) -> None:
        """Answer a chat request of a visitor without an account, at the catalog's door."""

    def status(self) -> Sequence[EngineStatus]: ...

    def targets(self) -> Sequence[TargetStatus]: ...

    def history(self, target: str) -> Sequence[TimeBucket]: ...

    def requests(self, target: str) -> int: ...

    def worker(self) -> tuple[int, int] | None: ...


_MILLION = 1_000_000
_NEARNESS: Mapping[str, int] = (
    {"ready": 0, "degraded": 1, "busy": 1, "loading": 2}
    | dict.fromkeys(("asleep", "not used", "recovering"), 3)
    | {"down": 4, "rejecting": 4, "failed": 4}
)
STATE_WORDS: Mapping[str, str] = {
    "up": "ready",
    "full": "busy",
    "half_open": "recovering",
    "trying": "recovering",
    "unused": "not used",
}
"""What pages call states of targets that routing has other words for."""
_PLAIN = frozenset({"model", "messages", "stream", "stream_options"})


class StatusBadge(Struct, frozen=True):
    """State of one target: a word, with a ``tone`` (good, warn, bad or none), and details."""

    target: str
    word: str
    tone: str = ""
    detail: str = ""
    progress: float | None = None


class ModelPrice(Struct, frozen=True):
    """Price of a million tokens of each kind, and of one request."""

    prompt: Decimal
    completion: Decimal
    cached: Decimal | None = None
    reasoning: Decimal | None = None
    request: Decimal = Decimal(0)

    @property
    def free(self) -> bool:
        tokens = (self.prompt, self.completion, self.cached, self.reasoning)
        return not (any(tokens) or self.request)


class Ability(Struct, frozen=True):
    """An ability of a model, with its evidence: measured, or claimed by the provider."""

    word: str
    evidence: Evidence


class ModelRow(Struct, frozen=True):
    """A model as a page shows it; measurements and price are those of one endpoint."""

    id: str
    name: str
    description: str
    context: int | None
    output: int | None
    modalities: Sequence[str]
    modality_evidence: Evidence
    price: ModelPrice | None
    parameters: Sequence[str]
    claimed: Sequence[str]
    evidence: Evidence
    """Of the parameters."""
    thinks: bool | None
    """``None``: not known before it has been loaded."""
    efforts: Sequence[str]
    must_think: bool
    defaults: Mapping[str, float]
    """Parameters where a request sets none; empty if they are not known."""
    abilities: Sequence[Ability]
    figures: Figures = Figures()
    longest: int | None = None
    """The longest context of all endpoints."""
    cheaper: ModelPrice | None = None
    """The price of the cheapest endpoint, if it is another one."""
    lowest: frozenset[str] = frozenset()
    """Parts of the price that cost more elsewhere, and nowhere less."""
    endpoint: str = ""
    """The endpoint that the price and figures are of, if there are several."""
    ends: date | None = None
    public: bool = False
    """It is in the catalog."""
    listed: bool = False
    """Its price is a list price."""

    @property
    def ability_words(self) -> str:
        plain = [each.word for each in self.abilities if each.evidence != "claimed"]
        claimed = [each.word for each in self.abilities if each.evidence == "claimed"]
        return ", ".join([*plain, *([f"claimed: {', '.join(claimed)}"] if claimed else ())])

    @property
    def groups(self) -> Sequence[tuple[str, Sequence[str], Sequence[str]]]:
        """Return the parameters by purpose: measured, and those that are only claimed."""
        found = []
        for title, names in grouped_parameters(sorted({*self.parameters, *self.claimed})):
            measured = [name for name in names if name in self.parameters]
            found.append((title, measured, [name for name in names if name not in measured]))
        return found


def grouped_parameters(parameters: Sequence[str]) -> Sequence[tuple[str, Sequence[str]]]:
    """Return parameters by purpose, without those that every model has."""
    named = {name for _, names in GROUPS for name in names} | _PLAIN
    found = [(title, [name for name in names if name in parameters]) for title, names in GROUPS]
    found.append(("Other", [name for name in parameters if name not in named]))
    return [(title, names) for title, names in found if names]


def model_row(entry: Mapping[str, Any]) -> ModelRow:
    id = str(entry.get("id", ""))
    reasoning = entry.get("reasoning") or {}
    efforts, must_think = reasoning.get("supported_efforts", ()), bool(reasoning.get("mandatory"))
    architecture = entry.get("architecture") or {}
    modalities = tuple(architecture.get("input_modalities") or ("text",))
    parameters = tuple(entry.get("supported_parameters") or ())
    claimed = tuple(entry.get("claimed_parameters") or ())
    return ModelRow(
        id=id,
        name=str(entry.get("name") or id),
        description=str(entry.get("description") or ""),
        context=entry.get("context_length"),
        output=entry.get("max_output_tokens"),
        modalities=modalities,
        modality_evidence=architecture.get("evidence", "unknown"),
        price=_parse_token_prices(entry.get("pricing") or {}),
        parameters=parameters,
        claimed=claimed,
        evidence=entry.get("evidence", "unknown"),
        thinks=None if efforts is None else bool(efforts),
        efforts=tuple(efforts or ()),
        must_think=must_think,
        defaults=entry.get("default_parameters") or {},
        abilities=[*_build_evidenced_abilities(entry, parameters, claimed, thinks=bool(efforts))],
        listed=bool(entry.get("list_price")),
    )


_ABILITIES = {
    "tools": "tools",
    "response_format": "structured output",
    "reasoning": "thinking",
    "reasoning_effort": "thinking",
}


def _build_evidenced_abilities(
    entry: Mapping[str, Any], parameters: Container[str], claimed: Container[str], *, thinks: bool
) -> Iterator[Ability]:
    found: dict[str, Evidence] = {}
    for name, word in _ABILITIES.items():
        if name in parameters and (word != "thinking" or thinks):
            found[word] = "measured"
        elif name in claimed:
            found.setdefault(word, "claimed")
    architecture = entry.get("architecture") or {}
    for name in architecture.get("input_modalities") or ():
        if name != "text":
            found["images" if name == "image" else name] = architecture.get("evidence", "unknown")
    if (entry.get("reasoning") or {}).get("mandatory"):
        found["always thinks"] = "measured"
    yield from (Ability(word, evidence) for word, evidence in found.items())
    if entry.get("evidence") == "unknown" and "measured" not in found.values():
        yield Ability("abilities not known", "unknown")


def anchor(model: str) -> str:
    return f"model-{sha256(model.encode()).hexdigest()[:12]}"


def target_badges(
    service_view: ServiceView, targets: Mapping[str, Sequence[str]]
) -> Mapping[str, Sequence[StatusBadge]]:
    engines = {each.model: _build_engine_badge(each) for each in service_view.status()}
    target_states = {each.name: each for each in service_view.targets()}

    def badge(name: str) -> StatusBadge:
        return engines.get(name) or target_badge(name, target_states.get(name))

    return {model: [*map(badge, names)] for model, names in targets.items()}


def best(badges: Sequence[StatusBadge]) -> Sequence[StatusBadge]:
    """Return at most one badge: that of the target nearest to answering, without its name."""
    found = min(badges, key=lambda each: _NEARNESS.get(each.word, len(_NEARNESS)), default=None)
    if found is None:
        return ()
    detail = found.detail if found.progress is not None else ""
    return [StatusBadge("", found.word, found.tone, detail, found.progress)]


def service_badges(service_view: ServiceView) -> Sequence[StatusBadge]:
    """Return a badge for each engine and each other target of the service, engines first."""
    engines = [_build_engine_badge(each) for each in service_view.status()]
    own = {each.target for each in engines}
    others = [each for each in service_view.targets() if each.name not in own]
    return [*engines, *(target_badge(each.name, each) for each in others)]


def troubled(badges: Sequence[StatusBadge]) -> Sequence[StatusBadge]:
    """Return the badges of targets that are not ready, the worst first."""
    found = [each for each in badges if each.tone in ("warn", "bad")]
    return sorted(found, key=lambda each: each.tone)  # "bad" is before "warn"


def _parse_token_prices(pricing: Mapping[str, Any]) -> ModelPrice | None:
    try:
        prompt, completion = money(pricing["prompt"]), money(pricing["completion"])
    except (KeyError, ValueError):
        return None
    return ModelPrice(prompt * _MILLION, completion * _MILLION)


def _build_engine_badge(status: EngineStatus) -> StatusBadge:
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


def target_badge(name: str, status: TargetStatus | TargetView | None) -> StatusBadge:
    if status is None:
        return StatusBadge(name, "not known")
    word = STATE_WORDS.get(status.state, status.state)
    if status.state == "up":
        running = f"{status.in_flight} running" if status.in_flight else ""
        return StatusBadge(name, word, "good", running)
    failures = status.recent_failures if isinstance(status, TargetStatus) else None
    if failures is not None:
        why = f"{failures[0]} of {failures[1]} requests failed in five minutes"
        return StatusBadge(name, word, "warn", why)
    wait = f"next attempt in {status.wait_seconds:.0f} s" if status.wait_seconds > 0 else ""
    tone = "bad" if status.state in ("down", "rejecting") else "warn"
    detail = ", ".join(filter(None, [status.reason.replace("_", " "), wait]))
    return StatusBadge(name, word, tone, detail)


class FoldedMatrix(Struct, frozen=True):
    """A folded matrix: ``differing`` parameters have a row each, ``alike`` are grouped by mark."""

    measured: Sequence[Any]
    unmeasured: Sequence[Any]
    differing: Sequence[str]
    alike: Sequence[tuple[str, Sequence[str]]]


def folded(columns: Sequence[Any], groups: Sequence[tuple[str, Sequence[str]]]) -> FoldedMatrix:
    """Fold a matrix: group the parameters that have the same mark in all measured columns."""
    unmeasured = [each for each in columns if {c.mark for c in each.cells.values()} == {"unknown"}]
    measured = [each for each in columns if each not in unmeasured]
    differing: list[str] = []
    alike: dict[str, list[str]] = {
        mark: [] for mark in ("partly", "no", "unclear", "unknown", "yes")
    }
    for name in (name for _, names in groups for name in names):
        marks = {column.cells[name].mark for column in measured}
        if len(marks) == 1:
            alike[marks.pop()].append(name)
        elif marks:
            differing.append(name)
    folded_away = [(mark, names) for mark, names in alike.items() if names]
    return FoldedMatrix(measured, unmeasured, differing, folded_away)
