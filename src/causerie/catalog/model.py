"""One model of the catalog: who can answer for it, at which tariff, with which parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import TypeVar

from msgspec import UNSET, Struct

from causerie.errors import InvalidRequest
from causerie.protocol.alike import alike
from causerie.protocol.events import Usage
from causerie.protocol.model_entries import (
    Evidence,
    Modalities,
    Pricing,
    PricingTier,
    ReasoningSupport,
    ServedModelEntry,
)
from causerie.protocol.parameters import EFFORTS, HONOURED, Effort, SamplingDefaults, refused_by
from causerie.protocol.request import ChatRequest, Operation
from causerie.protocol.targets import NO_PREFERENCES, Candidate, Preferences, TargetOffer


class TargetExclusion(Struct, frozen=True):
    """Why a target is excluded: a ``field`` of the request, if any, and words for people."""

    field: str
    words: str


OWN_PROVIDER = "causerie"  # the name of this service among the providers of a model
_MILLION = 1_000_000
_REQUESTS = 1000
_BILLIONTH = 9  # decimals of what a request costs
_PROMPT_SHARE = Decimal("0.75")  # of the tokens of a usual request


@dataclass(frozen=True, slots=True)
class Tariff:
    """Prices of one token and one request; ``None`` means the price of other tokens of its kind.

    ``written`` is for prompt tokens that the target wrote into its cache. ``tiers`` are other
    tariffs, each for requests with more prompt tokens than its number, which rise. ``usual``
    compares endpoints: a million tokens in 1000 requests, three in four of the prompt. The cost of
    requests is computed in whole numbers: all prices in one unit, a power of ten.
    """

    prompt: Decimal = Decimal(0)
    completion: Decimal = Decimal(0)
    cached: Decimal | None = None
    request: Decimal = Decimal(0)
    reasoning: Decimal | None = None
    written: Decimal | None = None
    tiers: tuple[tuple[int, Tariff], ...] = ()
    usual: Decimal = field(init=False)
    _whole_prices: Sequence[int] = field(init=False, repr=False, compare=False)
    _units_per_billionth: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        tokens = self.prompt * _PROMPT_SHARE + self.completion * (1 - _PROMPT_SHARE)
        object.__setattr__(self, "usual", tokens * _MILLION + self.request * _REQUESTS)
        cached = self.prompt if self.cached is None else self.cached
        thought = self.completion if self.reasoning is None else self.reasoning
        written = self.prompt if self.written is None else self.written
        prices = (
            *(self.prompt, cached, written, self.completion, thought, self.request),
            *(self.dearest_input, self.dearest_output),
        )
        decimals = max(_BILLIONTH, *(-int(one.as_tuple().exponent) for one in prices))
        object.__setattr__(self, "_whole_prices", [int(one.scaleb(decimals)) for one in prices])
        object.__setattr__(self, "_units_per_billionth", 10 ** (decimals - _BILLIONTH))

    def cost(self, usage: Usage) -> int:
        """Return the price of a reply in billionths; 0 without output."""
        return self.charge(usage) if usage.completion or usage.units else 0

    def charge(self, usage: Usage) -> int:
        """Return the price of these tokens and a request in billionths, rounded half to even.

        A rerank costs the price of a request for each search unit.
        """
        if self.tiers and (tier := self.at(usage.prompt)) is not self:
            return tier.charge(usage)
        prompt, cached, written, completion, reasoning, request, *_ = self._whole_prices
        return _divide_half_even(
            prompt * (usage.prompt - usage.cached - usage.written)
            + cached * usage.cached
            + written * usage.written
            + completion * (usage.completion - usage.reasoning)
            + reasoning * usage.reasoning
            + request * (usage.units or 1),
            self._units_per_billionth,
        )

    @property
    def dearest_output(self) -> Decimal:
        return max(self.completion, self.reasoning or Decimal(0))

    @property
    def dearest_input(self) -> Decimal:
        return max(self.prompt, self.cached or Decimal(0), self.written or Decimal(0))

    def at(self, prompt: int) -> Tariff:
        """Return the tariff of requests with so many prompt tokens."""
        return next((tier for above, tier in reversed(self.tiers) if prompt > above), self)

    def most(self, prompt: int, completion: int, units: int = 0) -> int:
        """Return the highest price in billionths of so many tokens, whatever part is reasoning."""
        if self.tiers and (tier := self.at(prompt)) is not self:
            return tier.most(prompt, completion, units)
        *_, request, input, output = self._whole_prices
        cost = input * prompt + output * completion + request * (units or 1)
        return _divide_half_even(cost, self._units_per_billionth)

    @property
    def free(self) -> bool:
        tokens = (self.prompt, self.completion, self.cached, self.reasoning, self.written)
        return not (any(tokens) or self.request or self.tiers)

    @property
    def by_million(self) -> Mapping[str, Decimal]:
        return {
            "prompt": self.prompt * _MILLION,
            "completion": self.completion * _MILLION,
            "request": self.request,
        }

    def offer(self, target: str, provider: str) -> TargetOffer:
        prompt, completion = self.prompt * _MILLION, self.dearest_output * _MILLION
        return TargetOffer(target, provider, prompt, completion)

    def entry(self) -> Pricing:
        tiers = [PricingTier(above=at, **tier._format_token_prices()) for at, tier in self.tiers]
        prices = self._format_token_prices()
        return Pricing(request=plain(self.request), tiers=tiers or UNSET, **prices)

    def _format_token_prices(self) -> dict[str, str]:
        found = {
            "prompt": self.prompt,
            "completion": self.completion,
            "input_cache_read": self.cached,
            "input_cache_write": self.written,
            "internal_reasoning": self.reasoning,
        }
        return {name: plain(price) for name, price in found.items() if price is not None}


def _divide_half_even(dividend: int, divisor: int) -> int:
    whole, rest = divmod(dividend, divisor)
    return whole + (2 * rest > divisor or (2 * rest == divisor and whole & 1))


def highest(tariffs: Iterable[Tariff]) -> Tariff:
    """Return a tariff whose every price is at least that of each tariff; free without any."""
    first, *others = {*tariffs} or {_FREE}
    if not others:
        return first
    bounds = sorted({above for one in (first, *others) for above, _ in one.tiers})
    flat = [
        _build_highest_flat_tariff(one.at(above + 1) for one in (first, *others))
        for above in (-1, *bounds)
    ]
    return replace(flat[0], tiers=tuple(zip(bounds, flat[1:], strict=True)))


def _build_highest_flat_tariff(tariffs: Iterable[Tariff]) -> Tariff:
    every = list(tariffs)
    return Tariff(
        prompt=max(one.dearest_input for one in every),
        completion=max(one.dearest_output for one in every),
        request=max(one.request for one in every),
    )


def plain(price: Decimal) -> str:
    return f"{price.normalize():f}"


_ALWAYS = frozenset(
    {
        *("model", "messages", "stream", "stream_options"),
        *("include_reasoning", "modalities", "session_id"),
    }
)
"""Parameters that every target supports, or the service itself."""

_ALIKE = (
    frozenset({"max_tokens", "max_completion_tokens"}),
    frozenset({"continue_final_message", "add_generation_prompt"}),
)
"""Names of one ability."""

_SWITCHES = frozenset({"reasoning", "reasoning_effort", "chat_template_kwargs"})
"""Ways to switch thinking, each written as the target knows it."""

_OF_PROBABILITIES = frozenset({"logprobs", "top_logprobs"})
"""The engine gives no probabilities of tokens that were proposed to it."""


def of_provider(honoured: Iterable[str] | None, *, switches: bool) -> frozenset[str] | None:
    """Return the parameters that a provider's model supports; ``switches`` adds thinking's."""
    if honoured is None:
        return None
    known = frozenset(honoured)
    for names in _ALIKE:
        if known & names:
            known |= names
    if switches:
        known |= _SWITCHES
    return (known | _ALWAYS) & HONOURED


def of_engine(engine: str, *, speculates: bool) -> frozenset[str]:
    """Return the parameters that an engine supports; speculation rules out log-probabilities."""
    honoured = HONOURED - refused_by(engine)
    return honoured - _OF_PROBABILITIES if speculates else honoured


_FREE = Tariff()


@dataclass(frozen=True, slots=True)
class ModelProfile:
    """Capabilities of a model; lengths in tokens, ``None`` if not known (yet).

    It rejects the parameters in ``lacks``, even if they are listed as supported. ``sampling`` is
    the default.
    """

    context_length: int | None = None
    max_output_tokens: int | None = None
    images: bool = False
    must_think: bool = False
    thinks: bool | None = True
    lacks: frozenset[str] = frozenset()
    sampling: SamplingDefaults | None = None
    loaded: bool | None = None
    """Whether it is in memory; ``None`` where that is nobody's business."""


@dataclass(frozen=True, slots=True)
class ProviderClaims:
    """A model's capabilities as its provider's own list states them; ``None``: it states none.

    Modalities are those that it takes, and those that it returns.
    """

    parameters: frozenset[str] | None = None
    takes: tuple[str, ...] | None = None
    returns: tuple[str, ...] | None = None


_NO_CLAIMS = ProviderClaims()
_FALLS_SHORT: Mapping[Evidence, str] = {
    "measured": "does not support",
    "claimed": "was not measured, and its provider does not claim",
    "unknown": "is not known to support",
}


@dataclass(frozen=True, slots=True)
class TargetCapabilities:
    """Capabilities of one target; ``parameters`` is ``None`` if unknown: all pass."""

    candidate: Candidate
    parameters: frozenset[str] | None = None
    profile: Callable[[], ModelProfile] = field(default=ModelProfile)
    operations: frozenset[Operation] | None = None
    """``None`` if unknown: all pass."""
    provider: str = OWN_PROVIDER
    claims: ProviderClaims = _NO_CLAIMS

    @property
    def name(self) -> str:
        return self.candidate.name

    @property
    def evidence(self) -> Evidence:
        if self.parameters is not None:
            return "measured"
        return "unknown" if self.claims.parameters is None else "claimed"

    @property
    def supported(self) -> frozenset[str]:
        """Return the parameters that are known to be supported."""
        return _ALWAYS if self.parameters is None else self.parameters - self.profile().lacks

    @property
    def claimed(self) -> frozenset[str]:
        """Return the parameters that only the provider says are supported."""
        if self.parameters is not None or self.claims.parameters is None:
            return frozenset()
        return self.claims.parameters

    def serves(self, operation: Operation) -> bool:
        return self.operations is None or operation in self.operations

    def accepted_parameters(self, preferences: Preferences = NO_PREFERENCES) -> frozenset[str]:
        """Return the parameters that a request may use: all if nothing is known."""
        return HONOURED if self.parameters is None else self.parameters

    @property
    def falls_short(self) -> str:
        return _FALLS_SHORT[self.evidence]

    def disliked(self, preferences: Preferences) -> Iterator[tuple[str, str]]:
        """Yield the field and the reason of each preference that excludes this target."""
        return iter(())

    def exclusions(self, request: ChatRequest) -> Iterator[TargetExclusion]:
        """Yield each reason why this target cannot take the request; none if it can."""
        for name in sorted(request.params - self.accepted_parameters(request.preferences)):
            yield TargetExclusion(name, f"{self.falls_short} `{name}`")
        for name, why in self.disliked(request.preferences):
            yield TargetExclusion(f"provider.{name}", why)
        if not self.serves(request.operation):
            yield TargetExclusion("model", f"does not serve {request.operation}")


_MODALITIES: Mapping[Operation, str] = {
    **{"chat": "text", "completions": "text"},
    **{"embeddings": "embeddings", "rerank": "rerank"},
}
"""What each operation returns, in the words of the well-known aggregating router."""


_TEXT = ("text",)
MODALITIES = ("text", "image", "file", "audio", "video")


def output_modalities(capabilities: Iterable[TargetCapabilities]) -> Sequence[str]:
    found: set[str] = set()
    for one in capabilities:
        if one.operations is None:
            found |= {*(one.claims.returns or _TEXT)}
        else:
            found |= {_MODALITIES[name] for name in one.operations}
    return [each for each in dict.fromkeys((*_MODALITIES.values(), *MODALITIES)) if each in found]


def modalities(capabilities: Sequence[TargetCapabilities]) -> Modalities:
    """Return the input and output modalities that at least one of the targets has."""
    takes, measured = set(_TEXT), False
    for one in capabilities:
        profile = one.profile()
        takes |= {"image"} if profile.images else set()
        takes |= {*(one.claims.takes or ())}
        loaded = one.provider == OWN_PROVIDER and profile.thinks is not None
        measured = measured or loaded or profile.images
    claimed = any(one.claims.takes is not None for one in capabilities)
    return Modalities(
        input_modalities=[each for each in MODALITIES if each in takes],
        output_modalities=output_modalities(capabilities),
        evidence="measured" if measured else "claimed" if claimed else "unknown",
    )


def evidence_of(capabilities: Iterable[TargetCapabilities]) -> Evidence:
    """Return the best evidence that any of the targets has for its parameters."""
    found = {one.evidence for one in capabilities}
    return "measured" if "measured" in found else "claimed" if "claimed" in found else "unknown"


_Target = TypeVar("_Target", bound=TargetCapabilities)


def serving(model: str, capabilities: Sequence[_Target], operation: Operation) -> Sequence[_Target]:
    """Return the targets that serve an operation; raise :class:`InvalidRequest` if none does."""
    found = [one for one in capabilities if one.serves(operation)]
    if not found:
        served = sorted({name for one in capabilities for name in one.operations or ()})
        raise InvalidRequest(
            f"The model {model} serves {', '.join(served)}, not {operation}; choose a model whose "
            "entry in GET /models lists it, or send the request to the path of what this one "
            "serves.",
            code="unsupported_operation",
            param="model",
        )
    return found


def excluded_targets(
    capabilities: Iterable[TargetCapabilities], request: ChatRequest
) -> dict[str, Sequence[TargetExclusion]]:
    each = ((one.name, list(one.exclusions(request))) for one in capabilities)
    return {name: why for name, why in each if why}


@dataclass(frozen=True, slots=True)
class ModelCard:
    """Names of a model: its id, its aliases in requests, and name and description for people."""

    id: str
    name: str
    description: str = ""
    created: int = 0  # Unix seconds
    aliases: tuple[str, ...] = ()


class TargetTariffs(Struct, frozen=True):
    """Tariffs of a model by target; ``usual`` is that of all others."""

    usual: Tariff = _FREE
    by_target: Mapping[str, Tariff] = {}
    listed: bool = False  # at least one comes from a price list

    def of(self, target: str) -> Tariff:
        return self.by_target.get(target, self.usual)

    @property
    def dearest(self) -> Tariff:
        return highest(self.by_target.values()) if self.by_target else self.usual


_NO_TARIFFS = TargetTariffs()


class ServedModel:
    """A model outside the router's catalog, with the targets that answer for it.

    It supports what at least one target supports; requests go to those that support all of it.
    """

    def __init__(
        self,
        card: ModelCard,
        capabilities: Iterable[TargetCapabilities],
        tariffs: TargetTariffs = _NO_TARIFFS,
    ) -> None:
        self._tariffs = tariffs
        self._may_cost_money = any(
            not each.free for each in (tariffs.usual, *tariffs.by_target.values())
        )
        self.card = card
        self.id = self.recorded = card.id
        self._target_facts = tuple(capabilities)
        self._routing_candidates = tuple(one.candidate for one in self._target_facts)
        sets = [one.accepted_parameters() for one in self._target_facts]
        self.parameters = frozenset[str]().union(*sets)
        self._common_parameters = self.parameters.intersection(*sets)
        every: frozenset[Operation] = frozenset(_MODALITIES)
        self._common_operations = every.intersection(
            *(every if one.operations is None else one.operations for one in self._target_facts)
        )

    @property
    def tariffs(self) -> TargetTariffs:
        return self._tariffs

    def cost(self, served_by: str, usage: Usage) -> int:
        """Return the price of a reply in billionths."""
        return self.tariffs.of(served_by).cost(usage) if self._may_cost_money else 0

    @property
    def names(self) -> Sequence[str]:
        return (self.card.id, *self.card.aliases)

    @property
    def targets(self) -> Sequence[str]:
        return [one.name for one in self._routing_candidates]

    @property
    def offers(self) -> Sequence[TargetOffer]:
        tariffs = self.tariffs
        return [tariffs.of(one.name).offer(one.name, one.provider) for one in self._target_facts]

    def candidates(self, request: ChatRequest) -> Sequence[Candidate]:
        operation = request.operation
        if request.params <= self._common_parameters and operation in self._common_operations:
            return self._routing_candidates
        capabilities = serving(self.id, self._target_facts, operation)
        if request.params <= self._common_parameters:
            return [one.candidate for one in capabilities]
        for name in sorted(request.params - self.parameters):
            raise InvalidRequest(
                f"The model {self.id} does not support `{name}`; its entry in GET /models lists "
                "what it supports.",
                code="unsupported_parameter",
                param=name,
            )
        able = [one for one in capabilities if request.params <= one.accepted_parameters()]
        if not able:
            raise self._build_no_target_error(request.params)
        return [one.candidate for one in able]

    def excluded(self, request: ChatRequest) -> Mapping[str, Sequence[TargetExclusion]]:
        return excluded_targets(self._target_facts, request)

    def profile(self, target: str) -> ModelProfile:
        return next(one.profile() for one in self._target_facts if one.name == target)

    def adapted(self, request: ChatRequest) -> ChatRequest:
        return request

    def changes(self, request: ChatRequest) -> Sequence[str]:
        return ()

    def entry(self, *, reasoning_object: bool = False) -> ServedModelEntry:
        profile, tariffs = self._merge_target_profiles(), self.tariffs
        parameters = frozenset[str]().union(*(one.supported for one in self._target_facts))
        claimed = frozenset[str]().union(*(one.claimed for one in self._target_facts)) - parameters
        efforts = efforts_of(profile.thinks, mandatory=profile.must_think)
        reasoning = ReasoningSupport(supported_efforts=efforts, mandatory=profile.must_think)
        longest = profile.max_output_tokens
        architecture = modalities(self._target_facts)
        if "text" not in architecture.output_modalities:
            parameters = claimed = frozenset()
        if not reasoning_object:
            parameters, claimed = parameters - {"reasoning"}, claimed - {"reasoning"}
        return alike(
            ServedModelEntry,
            self.card,
            owned_by="causerie",
            context_length=profile.context_length,
            architecture=architecture,
            pricing=tariffs.dearest.entry(),
            supported_parameters=sorted(parameters),
            claimed_parameters=sorted(claimed) or UNSET,
            evidence=evidence_of(self._target_facts),
            default_parameters=profile.sampling,
            reasoning=UNSET if profile.thinks is False or not parameters else reasoning,
            max_output_tokens=UNSET if longest is None else longest,
            list_price=tariffs.listed or UNSET,
            loaded=UNSET if profile.loaded is None else profile.loaded,
        )

    def _merge_target_profiles(self) -> ModelProfile:
        profiles = [one.profile() for one in self._target_facts]
        return ModelProfile(
            context_length=_find_smallest(profile.context_length for profile in profiles),
            max_output_tokens=_find_smallest(profile.max_output_tokens for profile in profiles),
            must_think=all(profile.must_think for profile in profiles),
            thinks=any_thinks(profiles),
            lacks=frozenset.intersection(*(profile.lacks for profile in profiles)),
            sampling=common_sampling(profiles),
            loaded=profiles[0].loaded if len(profiles) == 1 else None,
        )

    def _build_no_target_error(self, requested: frozenset[str]) -> InvalidRequest:
        lacking = {
            one.name: sorted(requested - one.accepted_parameters()) for one in self._target_facts
        }
        nearest = min(lacking.values(), key=len)
        words = "; ".join(
            f"{name} lacks {', '.join(f'`{one}`' for one in names)}"
            for name, names in lacking.items()
        )
        return InvalidRequest(
            f"No target of the model {self.id} supports all parameters of the request: {words}. "
            f"Leave out `{nearest[0]}`.",
            code="unsupported_parameter",
            param=nearest[0],
        )


def common_sampling(profiles: Iterable[ModelProfile]) -> SamplingDefaults | None:
    """Return the default sampling of all targets; ``None`` if it is unknown or differs."""
    first, *others = (profile.sampling for profile in profiles)
    return first if all(other == first for other in others) else None


def any_thinks(profiles: Iterable[ModelProfile]) -> bool | None:
    """Return whether any profile thinks; ``None`` if none is known to and one is unknown."""
    found = {profile.thinks for profile in profiles}
    return True if True in found else None if None in found else False


def efforts_of(thinks: bool | None, *, mandatory: bool) -> Sequence[Effort] | None:
    """Return the reasoning efforts that a model takes; ``None`` if unknown whether it thinks."""
    if thinks is None:
        return None
    return [effort for effort in EFFORTS if effort != "none" or not mandatory]


def _find_smallest(lengths: Iterable[int | None]) -> int | None:
    return min((length for length in lengths if length is not None), default=None)
