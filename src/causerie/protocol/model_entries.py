"""Wire types of the catalog, and variants of a model by the end of its id."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from causerie.protocol.parameters import Effort, SamplingDefaults
from causerie.protocol.targets import CallCounts, Percentiles

FREE = ":free"


def is_free(model: str) -> bool:
    return model.endswith(FREE)


def free_name(name: str) -> str:
    """Return the name under which use of free variants is counted, apart from all other use."""
    return f"{name} free"


DefaultParameters = Annotated[
    SamplingDefaults | None,
    Meta(
        description="Sampling where a request sets none: of the model's publisher, or of the "
        "operator. `null` if it is not known (yet)."
    ),
]
Price = Annotated[str, Meta(pattern=r"^[0-9]+(\.[0-9]+)?$")]
Percent = Annotated[float, Meta(ge=0, le=100)]


class TokenPricing(Struct, frozen=True, kw_only=True):
    """Prices of one token as text: decimal numbers, without exponents."""

    prompt: Price
    completion: Price
    input_cache_read: Price | UnsetType = UNSET
    input_cache_write: Price | UnsetType = UNSET
    internal_reasoning: Price | UnsetType = UNSET


class PricingTier(TokenPricing, frozen=True, kw_only=True):
    """Prices of requests with more prompt tokens than ``above``."""

    above: int


class Pricing(TokenPricing, frozen=True, kw_only=True):
    """Prices of a token and of a request as text: decimal numbers, without exponents."""

    request: Price
    tiers: Sequence[PricingTier] | UnsetType = UNSET


class Model(Struct, frozen=True, kw_only=True):
    """An entry of ``GET /models``: a model of the router's catalog, or any other."""

    id: str
    object: Literal["model"] = "model"


class ModelList(Struct, frozen=True, kw_only=True):
    """The models behind a door."""

    object: Literal["list"] = "list"
    data: Sequence[Model]


Evidence = Literal["measured", "claimed", "unknown"]


class Modalities(Struct, frozen=True, kw_only=True):
    input_modalities: Annotated[
        Sequence[str], Meta(description="Without `evidence` text alone; more may be taken.")
    ]
    output_modalities: Sequence[str]
    evidence: Annotated[
        Evidence,
        Meta(
            description="`measured`: known of a model that this service runs; `claimed`: of the "
            "provider's own list; `unknown`: neither."
        ),
    ]


_Efforts = Annotated[
    Sequence[Effort] | None,
    Meta(description="`null` until the model has been loaded: whether it thinks is not known."),
]


class ReasoningSupport(Struct, frozen=True, kw_only=True):
    supported_efforts: _Efforts
    mandatory: bool


SupportedParameters = Annotated[
    Sequence[str],
    Meta(
        description="Measured, or configured: requests with others are rejected. Without such "
        "`evidence` those that the service itself answers for, and no request is rejected."
    ),
]
ClaimedParameters = Annotated[
    Sequence[str] | UnsetType,
    Meta(
        description="What the provider's own list says in addition, and nobody has measured. "
        "Absent: it says nothing more."
    ),
]
ParameterEvidence = Annotated[
    Evidence,
    Meta(
        description="Of the parameters: `measured` of at least one endpoint, else `claimed`, else "
        "`unknown`."
    ),
]


class ServedModelEntry(Model, frozen=True, kw_only=True):
    """A model outside of the router's catalog in ``GET /models``, without its display name."""

    created: int
    owned_by: str
    description: str
    context_length: int | None
    architecture: Modalities
    pricing: Pricing
    supported_parameters: SupportedParameters
    claimed_parameters: ClaimedParameters = UNSET
    evidence: ParameterEvidence
    default_parameters: DefaultParameters
    reasoning: ReasoningSupport | UnsetType = UNSET
    max_output_tokens: int | UnsetType = UNSET
    list_price: Annotated[
        Literal[True] | UnsetType,
        Meta(description="The price is that of a price list, since the operator has set none."),
    ] = UNSET
    loaded: Annotated[
        bool | UnsetType,
        Meta(description="Of a model of the cache: whether it is in memory."),
    ] = UNSET


class Architecture(Modalities, frozen=True, kw_only=True):
    modality: str
    tokenizer: str = "Other"
    instruct_type: str | None = None


class TopProvider(Struct, frozen=True, kw_only=True):
    """Limits of the cheapest endpoint."""

    context_length: int | None
    max_completion_tokens: int | None
    is_moderated: bool = False


class Links(Struct, frozen=True, kw_only=True):
    """Links of a model; ``details`` is a path below the base URL."""

    details: str


class RouterReasoning(Struct, frozen=True, kw_only=True):
    supported_efforts: _Efforts
    default_effort: Effort
    mandatory: bool
    supports_max_tokens: bool = True


class RouterModel(Model, frozen=True, kw_only=True):
    """A model of the router's catalog, as ``GET /models`` shows it."""

    canonical_slug: str
    name: str
    created: int
    owned_by: str
    description: str
    context_length: int | None
    architecture: Architecture
    pricing: Pricing
    top_provider: TopProvider
    per_request_limits: None = None
    supported_parameters: SupportedParameters
    claimed_parameters: ClaimedParameters = UNSET
    evidence: ParameterEvidence
    default_parameters: DefaultParameters = None
    supported_voices: None = None
    expiration_date: Annotated[str | None, Meta(description="Its last day.")]
    links: Links
    max_output_tokens: int | UnsetType = UNSET
    reasoning: RouterReasoning | UnsetType = UNSET


class PageLinks(Struct, frozen=True, kw_only=True):
    next: Annotated[str | None, Meta(description="The path of the next page.")]


class PageTail(Struct, frozen=True, kw_only=True):
    """The part of a page of the router's catalog behind its entries, which are kept as bytes."""

    object: Literal["list"] = "list"
    total_count: Annotated[int, Meta(description="On all pages.")]
    links: PageLinks


class RouterModelList(PageTail, frozen=True, kw_only=True):
    """A page of the router's catalog."""

    data: Sequence[RouterModel]


class Count(Struct, frozen=True, kw_only=True):
    count: int


class RouterEndpoint(Struct, frozen=True, kw_only=True):
    """An endpoint; times in milliseconds, throughputs in tokens per second, uptimes in percent."""

    name: str
    model_id: str
    model_name: str
    provider_name: str
    tag: str
    context_length: int
    max_completion_tokens: int | None
    max_prompt_tokens: int | None = None
    pricing: Pricing
    quantization: str | None
    supported_parameters: SupportedParameters
    claimed_parameters: ClaimedParameters = UNSET
    evidence: Evidence
    supported_parameters_measured: Annotated[str | None, Meta(description="On which day.")]
    supports_implicit_caching: bool
    supports_voice_cloning: bool = False
    supports_tool_choice: Mapping[str, bool]
    keeps_data: bool
    status: Annotated[int, Meta(description="0: it is asked; below: it is not.")]
    latency_last_5m: Percentiles | None
    throughput_last_5m: Percentiles | None
    latency_last_30m: Percentiles | None
    throughput_last_30m: Percentiles | None
    uptime_last_5m: Percent | None
    uptime_last_30m: Percent | None
    uptime_last_1d: Percent | None
    tool_calls_last_1d: Annotated[
        CallCounts | None,
        Meta(
            description="Delivered calls that were checked, by class: of models that this service "
            "runs all, of other providers a sample."
        ),
    ]


class ModelEndpoints(Struct, frozen=True, kw_only=True):
    """A model of the router's catalog with each of its endpoints."""

    id: str
    name: str
    created: int
    description: str
    architecture: Architecture
    endpoints: Sequence[RouterEndpoint]
