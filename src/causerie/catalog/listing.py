"""An entry of the router's catalog: one model with its endpoints and their prices."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Literal, get_args

from msgspec import UNSET, structs

from causerie.catalog.endpoint import (
    CatalogEndpoint,
    FiguresReader,
    StatsReader,
    able,
    by_default,
    proven,
    ranked,
    weighted,
)
from causerie.catalog.model import (
    ModelCard,
    ModelProfile,
    TargetExclusion,
    Tariff,
    any_thinks,
    common_sampling,
    efforts_of,
    evidence_of,
    excluded_targets,
    modalities,
    serving,
)
from causerie.errors import InvalidRequest, NotFound
from causerie.protocol import model_entries as entries
from causerie.protocol.alike import alike
from causerie.protocol.events import Usage
from causerie.protocol.parameters import USUAL_EFFORT
from causerie.protocol.request import ChatRequest
from causerie.protocol.targets import (
    NO_PREFERENCES,
    UNKNOWN_STATS,
    Candidate,
    Percentiles,
    SortBy,
    TargetOffer,
)

Twist = Literal["nitro", "floor", "thinking", "extended"]
TWISTS: Mapping[str, Twist] = {name: name for name in get_args(Twist)}
_SORTS: Mapping[Twist, SortBy] = {"nitro": "throughput", "floor": "price"}


def today() -> date:
    return datetime.now(UTC).date()


@dataclass(slots=True)
class _Facts:
    # What follows from all endpoints; kept because lists ask a thousand models for them.

    profiles: tuple[ModelProfile, ...] = ()
    supported: frozenset[str] = frozenset()
    claimed: frozenset[str] = frozenset()
    modalities: entries.Modalities | None = None
    context_length: int | None = None


@dataclass(frozen=True, slots=True)
class Listing:
    """A model of the router's catalog, offered until ``ends``; ``twist`` is a suffix.

    ``nitro``: the fastest first; ``floor``: the cheapest first; ``thinking``: the model thinks;
    ``extended``: only endpoints with the longest context.
    """

    card: ModelCard
    endpoints: tuple[CatalogEndpoint, ...]
    stats_of: StatsReader
    figures_of: FiguresReader
    ends: date | None = None
    twist: Twist | None = None
    clock: Callable[[], date] = today
    _cached_facts: _Facts = field(default_factory=_Facts, init=False, repr=False, compare=False)

    @property
    def id(self) -> str:
        return self.card.id

    @property
    def recorded(self) -> str:
        return self.id

    @property
    def names(self) -> Sequence[str]:
        return (self.card.id, *self.card.aliases)

    @property
    def is_over(self) -> bool:
        return self.ends is not None and self.clock() > self.ends

    @property
    def supported(self) -> frozenset[str]:
        """Return the parameters that at least one endpoint was measured to support."""
        return self._combined_endpoint_facts.supported

    @property
    def claimed(self) -> frozenset[str]:
        """Return the parameters that are not measured, and that a provider claims."""
        return self._combined_endpoint_facts.claimed

    @property
    def parameters(self) -> frozenset[str]:
        return self.supported | self.claimed

    @property
    def evidence(self) -> entries.Evidence:
        return evidence_of(self.endpoints)

    @property
    def modalities(self) -> entries.Modalities:
        found = self._combined_endpoint_facts.modalities
        assert found is not None
        return found

    @property
    def targets(self) -> Sequence[str]:
        return [one.name for one in self.endpoints]

    @property
    def offers(self) -> Sequence[TargetOffer]:
        return [one.tariff.offer(one.name, one.provider) for one in self.endpoints]

    @property
    def sort(self) -> SortBy | None:
        return _SORTS.get(self.twist) if self.twist is not None else None

    def twisted(self, twist: Twist) -> Listing:
        endpoints = self.endpoints
        if twist == "extended":
            lengths = {one.name: one.profile().context_length or 0 for one in endpoints}
            longest = max(lengths.values())
            endpoints = tuple(one for one in endpoints if lengths[one.name] == longest)
        return replace(self, endpoints=endpoints, twist=twist)

    def adapted(self, request: ChatRequest) -> ChatRequest:
        """Return the request as the twist changes it; raise :class:`InvalidRequest` on conflict."""
        if self.twist != "thinking":
            return request
        thinking = request.thinking
        if thinking.enabled is False:
            raise InvalidRequest(
                f"`:thinking` contradicts the request, whose thinking is off; ask for {self.id}.",
                param="model",
            )
        if thinking.enabled:
            return request
        usual = USUAL_EFFORT if thinking.budget is None else None
        on = structs.replace(thinking, enabled=True, usual_effort=usual)
        return structs.replace(
            request,
            thinking=on,
            params=request.params | {"reasoning"},
            sent=request.document,  # it cannot be passed on as it came
            native=None,
        )

    def changes(self, request: ChatRequest) -> Sequence[str]:
        adds = self.twist == "thinking" and not request.thinking.enabled
        return ("model:thinking->reasoning.enabled",) if adds else ()

    def candidates(self, request: ChatRequest) -> Sequence[Candidate]:
        if self.is_over:
            raise NotFound(
                f"The model {self.id} was there until {self.ends}; GET /models lists those that "
                "there are.",
                code="model_not_found",
                param="model",
            )
        preferences, operation = request.preferences, request.operation
        endpoints: Sequence[CatalogEndpoint] = self.endpoints
        if not all(one.serves(operation) for one in endpoints):
            endpoints = serving(self.id, endpoints, operation)
        endpoints = able(self.id, endpoints, request.params, preferences)
        sort = self.sort
        if preferences is NO_PREFERENCES and sort is None:
            return weighted(endpoints)
        return ranked(endpoints, preferences, sort, self.stats_of)

    def excluded(self, request: ChatRequest) -> Mapping[str, Sequence[TargetExclusion]]:
        found = excluded_targets(self.endpoints, request)
        if request.preferences.require_parameters:
            left = [one for one in self.endpoints if one.name not in found]
            preferred = proven(left, request.params)
            claims = TargetExclusion(
                "provider.require_parameters",
                "only claims to support what others were measured to support",
            )
            found |= {one.name: (claims,) for one in left if one not in preferred}
        return found

    @property
    def output_modalities(self) -> Sequence[str]:
        return self.modalities.output_modalities

    def profile(self, target: str) -> ModelProfile:
        return next(one.profile() for one in self.endpoints if one.name == target)

    def cost(self, served_by: str, usage: Usage) -> int:
        found = (one.tariff for one in self.endpoints if one.name == served_by)
        return next(found, Tariff()).cost(usage)

    def provider(self, served_by: str) -> str:
        found = (one.provider for one in self.endpoints if one.name == served_by)
        return next(found, served_by)

    @property
    def cheapest(self) -> CatalogEndpoint:
        return min(self.endpoints, key=lambda one: one.tariff.usual)

    @property
    def price(self) -> Decimal:
        return self.cheapest.tariff.usual

    @property
    def headline(self) -> CatalogEndpoint:
        """Return the endpoint that gets most requests; its figures stand for the model."""
        return self.by_default[0]

    @property
    def by_default(self) -> Sequence[CatalogEndpoint]:
        if len(self.endpoints) == 1:
            return self.endpoints
        return by_default(self.endpoints, self.stats_of)

    @property
    def input_modalities(self) -> frozenset[str]:
        return frozenset(self.modalities.input_modalities)

    @property
    def created(self) -> int:
        return self.card.created

    @property
    def providers(self) -> frozenset[str]:
        return frozenset(one.provider for one in self.endpoints)

    @property
    def profiles(self) -> tuple[ModelProfile, ...]:
        return tuple([one.profile() for one in self.endpoints])

    @property
    def throughput(self) -> float | None:
        found = self.figures_of(self.headline.name).speed
        return None if found is None else found.value

    @property
    def latency(self) -> float | None:
        found = self.figures_of(self.headline.name).first_token
        return None if found is None else found.value

    @property
    def context_length(self) -> int | None:
        return self._combined_endpoint_facts.context_length

    @property
    def _combined_endpoint_facts(self) -> _Facts:
        facts, profiles = self._cached_facts, self.profiles
        if facts.profiles != profiles:
            every = self.endpoints
            facts.supported = frozenset[str]().union(*(one.supported for one in every))
            claimed = frozenset[str]().union(*(one.claimed for one in every))
            facts.claimed = claimed - facts.supported
            facts.modalities = modalities(every)
            facts.context_length = _find_largest(profile.context_length for profile in profiles)
            facts.profiles = profiles
        return facts

    def entry(self, *, reasoning_object: bool = True) -> entries.RouterModel:
        profiles, top = self.profiles, self.cheapest
        parameters, claimed = self.supported, self.claimed
        if not reasoning_object:
            parameters, claimed = parameters - {"reasoning"}, claimed - {"reasoning"}
        if "text" not in self.output_modalities:
            parameters = claimed = frozenset()
        may_think = any_thinks(profiles) is not False
        reasons = may_think and (
            self.evidence == "unknown" or (parameters | claimed) & {"reasoning", "reasoning_effort"}
        )
        longest = _find_largest(profile.max_output_tokens for profile in profiles)
        return alike(
            entries.RouterModel,
            self.card,
            canonical_slug=self.id,
            owned_by=self.id.partition("/")[0],
            context_length=self.context_length,
            architecture=_build_architecture_entry(self.modalities),
            pricing=top.tariff.entry(),
            top_provider=entries.TopProvider(
                context_length=top.profile().context_length,
                max_completion_tokens=top.profile().max_output_tokens,
            ),
            supported_parameters=sorted(parameters),
            claimed_parameters=sorted(claimed) or UNSET,
            evidence=self.evidence,
            default_parameters=common_sampling(profiles),
            expiration_date=None if self.ends is None else self.ends.isoformat(),
            links=entries.Links(details=f"/models/{self.id}/endpoints"),
            max_output_tokens=UNSET if longest is None else longest,
            reasoning=_build_reasoning_entry(profiles) if reasons else UNSET,
        )

    def with_endpoints(self) -> entries.ModelEndpoints:
        return alike(
            entries.ModelEndpoints,
            self.card,
            architecture=_build_architecture_entry(self.modalities),
            endpoints=[self._build_endpoint_entry(one) for one in self.endpoints],
        )

    def _build_endpoint_entry(self, endpoint: CatalogEndpoint) -> entries.RouterEndpoint:
        stats, profile = self.stats_of(endpoint.name) or UNKNOWN_STATS, endpoint.profile()
        supported = endpoint.supported
        return entries.RouterEndpoint(
            name=f"{endpoint.provider} | {self.id}",
            model_id=self.id,
            model_name=self.card.name,
            provider_name=endpoint.provider,
            tag=endpoint.name,
            context_length=profile.context_length or 0,
            max_completion_tokens=profile.max_output_tokens,
            pricing=endpoint.tariff.entry(),
            quantization=endpoint.quantization,
            supported_parameters=sorted(supported),
            claimed_parameters=sorted(endpoint.claimed - supported) or UNSET,
            evidence=endpoint.evidence,
            supported_parameters_measured=endpoint.probed.isoformat() if endpoint.probed else None,
            supports_implicit_caching=endpoint.tariff.cached is not None,
            supports_tool_choice=dict.fromkeys(
                ("none", "auto", "required", "function"), supported >= {"tools", "tool_choice"}
            ),
            keeps_data=not endpoint.private,
            status=0 if stats.up else -1,
            latency_last_5m=_scale_percentiles(stats.first_token, 1000),
            throughput_last_5m=_scale_percentiles(stats.speed, 1),
            latency_last_30m=_scale_percentiles(stats.first_token_half_hour, 1000),
            throughput_last_30m=_scale_percentiles(stats.speed_half_hour, 1),
            uptime_last_5m=_convert_to_percent(stats.uptime),
            uptime_last_30m=_convert_to_percent(stats.uptime_half_hour),
            uptime_last_1d=_convert_to_percent(self.figures_of(endpoint.name).uptime_day),
            tool_calls_last_1d=stats.calls_day,
        )


def _scale_percentiles(percentiles: Percentiles | None, factor: float) -> Percentiles | None:
    if percentiles is None:
        return None
    return Percentiles(*(round(value * factor, 3) for value in structs.astuple(percentiles)))


def _convert_to_percent(share: float | None) -> float | None:
    return None if share is None else round(share * 100, 3)


def _build_architecture_entry(media: entries.Modalities) -> entries.Architecture:
    both = (media.input_modalities, media.output_modalities)
    return entries.Architecture(modality="->".join(map("+".join, both)), **structs.asdict(media))


def _build_reasoning_entry(profiles: Sequence[ModelProfile]) -> entries.RouterReasoning:
    mandatory = all(profile.must_think for profile in profiles)
    return entries.RouterReasoning(
        supported_efforts=efforts_of(any_thinks(profiles), mandatory=mandatory),
        default_effort=USUAL_EFFORT,
        mandatory=mandatory,
    )


def _find_largest(lengths: Iterable[int | None]) -> int | None:
    return max((length for length in lengths if length is not None), default=None)
