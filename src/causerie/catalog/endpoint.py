"""Endpoints of a model in the router's catalog: which can take a request, and their order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from datetime import date
from itertools import chain

from msgspec import structs

from causerie.catalog.model import TargetCapabilities, Tariff
from causerie.errors import InvalidRequest
from causerie.protocol import targets
from causerie.protocol.money import exact
from causerie.protocol.parameters import HONOURED

BASIC = frozenset(
    {"model", "messages", "stream", "stream_options", "session_id", "include_reasoning"}
)
"""Parameters that every endpoint supports."""


@dataclass(frozen=True, slots=True)
class CatalogEndpoint(TargetCapabilities):
    """An endpoint of a model at a provider; ``private``: it stores nothing that it is sent."""

    tariff: Tariff = field(default_factory=Tariff)
    quantization: str | None = None
    private: bool = False
    probed: date | None = None

    def placed(self, priority: int = 0, weight: float = 1.0) -> targets.Candidate:
        """Return the routing candidate of this endpoint, with that priority and weight."""
        return targets.Candidate(self.name, priority, weight, self.candidate.bounds)

    @property
    def measured(self) -> bool:
        return self.parameters is not None

    def is_one_of(self, names: Set[str]) -> bool:
        return self.provider in names or self.name in names

    def accepted_parameters(
        self, preferences: targets.Preferences = targets.NO_PREFERENCES
    ) -> frozenset[str]:
        """Return the measured parameters; else all, or the claimed if support is required."""
        if self.parameters is None:
            return BASIC | self.claimed if preferences.require_parameters else HONOURED
        return self.parameters

    def disliked(self, preferences: targets.Preferences) -> Iterator[tuple[str, str]]:
        if preferences.only is not None and not self.is_one_of(preferences.only):
            yield "only", "is not in `provider.only`"
        if self.is_one_of(preferences.ignore):
            yield "ignore", "is in `provider.ignore`"
        wanted = preferences.quantizations
        if wanted is not None and (self.quantization or "unknown") not in wanted:
            yield "quantizations", f"has the quantization {self.quantization or 'unknown'}"
        if preferences.private and not self.private:
            yield "data_collection", "may keep what it is sent"
        if preferences.max_price is not targets.ANY_PRICE:
            for name, price in self.tariff.by_million.items():
                most = getattr(preferences.max_price, name)
                if most is not None and price > most:
                    yield f"max_price.{name}", f"costs {exact(price)} ({name})"
        order = preferences.order
        if order and not preferences.allow_fallbacks and not self.is_one_of({*order}):
            yield "order", "is not in `provider.order`, and `allow_fallbacks` is false"


# Without preferences cheap endpoints get more requests, by the inverse square of the price, and
# free ones come first. A sort or an order is kept strictly.

StatsReader = Callable[[str], targets.TargetStats | None]
"""Returns the statistics of a target by its name."""

FiguresReader = Callable[[str], targets.Figures]  # returns what lists show of a target by its name

_LEAST_WEIGHT = 1e-4


def able(
    model: str,
    endpoints: Sequence[CatalogEndpoint],
    wanted: frozenset[str],
    preferences: targets.Preferences,
) -> Sequence[CatalogEndpoint]:
    """Return the endpoints that take the request; raise with what excludes each if none does."""
    left = [
        one
        for one in endpoints
        if wanted <= one.accepted_parameters(preferences)
        and (preferences is targets.NO_PREFERENCES or not any(one.disliked(preferences)))
    ]
    if not left:
        raise _build_no_endpoint_error(model, endpoints, wanted, preferences)
    return proven(left, wanted) if preferences.require_parameters else left


def proven(endpoints: Sequence[CatalogEndpoint], wanted: frozenset[str]) -> list[CatalogEndpoint]:
    """Return the measured endpoints; all if none is or ``wanted`` has only basic parameters."""
    if wanted <= BASIC:
        return [*endpoints]
    return [one for one in endpoints if one.measured] or [*endpoints]


def ranked(
    endpoints: Sequence[CatalogEndpoint],
    preferences: targets.Preferences,
    sort: targets.SortBy | None,
    stats_of: StatsReader,
) -> Sequence[targets.Candidate]:
    """Return routing candidates in preferred order; ``sort`` is the model's own, if any."""
    by = preferences.sort or sort
    if preferences.order:
        named = [[one for one in endpoints if one.is_one_of({name})] for name in preferences.order]
        listed = list(dict.fromkeys(chain.from_iterable(named)))
        candidates = [one.placed(place) for place, one in enumerate(listed)]
        rest = [one for one in endpoints if one not in listed]
        for one in _build_sorted_candidates(rest, by, stats_of):
            candidates.append(structs.replace(one, priority=one.priority + len(listed)))
        return candidates  # without fallbacks the others were left out before
    candidates = _build_sorted_candidates(endpoints, by, stats_of)
    if preferences.allow_fallbacks:
        return candidates

    def rank(one: targets.Candidate) -> tuple[bool, int, float]:
        return not (stats_of(one.name) or targets.UNKNOWN_STATS).up, one.priority, -one.weight

    return [min(candidates, key=rank)]


def by_default(
    endpoints: Sequence[CatalogEndpoint], stats_of: StatsReader
) -> Sequence[CatalogEndpoint]:
    """Return endpoints by their share of requests without preferences, the largest first."""
    by_name = {one.name: one for one in endpoints}

    def rank(one: targets.Candidate) -> tuple[bool, int, bool, float]:
        stats = stats_of(one.name) or targets.UNKNOWN_STATS
        return not stats.up, one.priority, stats.degraded, -one.weight

    return [by_name[one.name] for one in sorted(weighted(endpoints), key=rank)]


def weighted(endpoints: Sequence[CatalogEndpoint]) -> list[targets.Candidate]:
    gratis = [one for one in endpoints if not one.tariff.usual]
    paid = [one for one in endpoints if one.tariff.usual]
    least = min((one.tariff.usual for one in paid), default=None)
    candidates = [one.placed() for one in gratis]
    for one in paid:
        assert least is not None
        weight = max((float(least) / float(one.tariff.usual)) ** 2, _LEAST_WEIGHT)
        candidates.append(one.placed(1 if gratis else 0, weight))
    return candidates


def _build_sorted_candidates(
    endpoints: Sequence[CatalogEndpoint], sort: targets.SortBy | None, read_stats: StatsReader
) -> list[targets.Candidate]:
    match sort:
        case None:
            return weighted(endpoints)
        case "price":
            prices = sorted({one.tariff.usual for one in endpoints})
            return [one.placed(prices.index(one.tariff.usual)) for one in endpoints]
        case "throughput" | "latency":
            places = sorted(
                endpoints,
                key=lambda one: (_compute_slowness(one.name, sort, read_stats), one.tariff.usual),
            )
            return [one.placed(place) for place, one in enumerate(places)]


def _compute_slowness(target_name: str, sort: targets.SortBy, read_stats: StatsReader) -> float:
    # One that nobody has measured lately gets one request to measure it.
    target_stats = read_stats(target_name) or targets.UNKNOWN_STATS
    measured = target_stats.speed if sort == "throughput" else target_stats.first_token
    if measured is None:
        return float("-inf") if target_stats.idle else float("inf")
    if sort == "throughput":
        return -measured.p50
    return measured.p50 if target_stats.expected is None else target_stats.expected


def _build_no_endpoint_error(
    model_id: str,
    endpoints: Sequence[CatalogEndpoint],
    needed_parameters: frozenset[str],
    preferences: targets.Preferences,
) -> InvalidRequest:
    excluded: dict[str, str] = {}
    params: list[tuple[int, str]] = []
    fields: list[str] = []
    for one in endpoints:
        lacks = sorted(needed_parameters - one.accepted_parameters(preferences))
        dislikes = list(one.disliked(preferences))
        named = ", ".join(f"`{name}`" for name in lacks)
        words = [f"{one.falls_short} {named}"] if lacks else []
        excluded[one.name] = " and ".join([*words, *(why for _, why in dislikes)])
        fields += [field for field, _ in dislikes]
        if lacks and not dislikes:
            params.append((len(lacks), lacks[0]))
    told = "; ".join(f"{name} {why}" for name, why in excluded.items())
    param = min(params)[1] if params else f"provider.{fields[0]}"
    return InvalidRequest(
        f"No endpoint of the model {model_id} can take this request: {told}. "
        + (f"Leave out `{param}`." if params else f"Change or leave out `{param}`."),
        code="unsupported_parameter" if params else "invalid_value",
        param=param,
        metadata={"excluded": excluded},
    )
