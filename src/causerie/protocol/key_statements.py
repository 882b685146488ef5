"""Wire types of statements on a router's key, its credits, and one past request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta, Struct

Cost = Annotated[float, Meta(ge=0)]


class FreeRequests(Struct, frozen=True, kw_only=True):
    limit: int
    used: int
    remaining: int


class KeyRateLimit(Struct, frozen=True, kw_only=True):
    requests: int = -1
    interval: str = "10s"
    note: str = "See the x-ratelimit headers of replies."


class KeyStatement(Struct, frozen=True, kw_only=True):
    """State of a key: what it is, what it has spent, and what is left to it."""

    label: str
    name: str
    limit: float | None
    limit_remaining: float | None
    limit_reset: str | None
    usage: float
    usage_daily: float
    usage_weekly: float
    usage_monthly: float
    byok_usage: float = 0
    byok_usage_daily: float = 0
    byok_usage_weekly: float = 0
    byok_usage_monthly: float = 0
    include_byok_in_limit: bool = False
    is_free_tier: Annotated[bool, Meta(description="No money was put in.")]
    is_management_key: bool
    is_provisioning_key: bool
    expires_at: str | None
    creator_user_id: str | None
    organization_id: str | None = None
    workspace_id: str
    allowed_data_regions: Sequence[str] = ("global",)
    free_model_daily_requests: FreeRequests
    rate_limit: KeyRateLimit


class CreditsStatement(Struct, frozen=True, kw_only=True):
    """Money put in for a project, and spent."""

    total_credits: float
    total_usage: float


class GenerationStatement(Struct, frozen=True, kw_only=True):
    """The facts of one past request."""

    cache_discount: None = None
    external_user: None = None
    moderation_latency: None = None
    native_tokens_completion_images: None = None
    num_fetches: None = None
    num_input_audio_prompt: None = None
    num_media_completion: None = None
    num_media_prompt: None = None
    num_search_results: None = None
    preset_id: None = None
    provider_responses: None = None
    response_cache_source_id: None = None
    router: None = None
    service_tier: None = None
    session_id: None = None
    upstream_id: None = None
    upstream_inference_cost: None = None
    user_agent: None = None
    web_search_engine: None = None
    workspace_id: None = None
    id: str
    request_id: str
    api_type: str = "completions"
    app_id: Annotated[
        int | None, Meta(description="The same number for the same name of a program.")
    ]
    created_at: str
    data_region: str = "global"
    http_referer: str | None
    origin: str
    model: str
    provider_name: str | None
    is_byok: bool = False
    streamed: bool
    cancelled: Annotated[bool, Meta(description="The client left.")]
    finish_reason: str | None
    native_finish_reason: str | None
    latency: Annotated[float | None, Meta(description="Milliseconds to the first token.")]
    generation_time: Annotated[float | None, Meta(description="Milliseconds after it.")]
    tokens_prompt: int
    tokens_completion: int
    native_tokens_prompt: int
    native_tokens_cached: int
    native_tokens_completion: int
    native_tokens_reasoning: int
    total_cost: Cost
    usage: Cost
