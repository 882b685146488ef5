"""JSON Schemas of what only the doors of routers send.

The names are those that clients of the well-known aggregating router read.
"""

from __future__ import annotations

from causerie.edge.schema import (
    BOOLEAN,
    OBJECT,
    Schema,
    array,
    described,
    number,
    ref,
    structure,
    text,
)
from causerie.protocol.effort import EFFORTS

_WHOLE: Schema = {"type": "integer"}
_NUMBER: Schema = {"type": "number"}
_NUMBER_OR_NONE: Schema = {"type": ["number", "null"]}
_TEXT_OR_NONE: Schema = {"type": ["string", "null"]}
_WHOLE_OR_NONE: Schema = {"type": ["integer", "null"]}
_NONE: Schema = {"type": "null"}
_PRICE = text(pattern=r"^[0-9]+(\.[0-9]+)?$")


def market_schemas() -> dict[str, Schema]:
    """Return the schemas by name."""
    return {
        "RouterModel": _model(),
        "RouterModelData": structure("data", data=ref("RouterModel")),
        "RouterModelList": structure(
            "data total_count links",
            object=text(enum=["list"]),
            data=array(ref("RouterModel")),
            total_count=described(_WHOLE, "On all pages."),
            links=structure("next", next=described(_TEXT_OR_NONE, "The path of the next page.")),
        ),
        "RouterCount": structure("data", data=structure("count", count=_WHOLE)),
        "RouterEndpoints": structure("data", data=_endpoints()),
        "RouterEndpoint": _endpoint(),
        "Pricing": _pricing(),
        "Percentiles": {
            "anyOf": [_exactly(p50=_NUMBER, p75=_NUMBER, p90=_NUMBER, p99=_NUMBER), _NONE]
        },
        "RouterKey": structure("data", data=_key()),
        "RouterCredits": structure(
            "data", data=_exactly(total_credits=_NUMBER, total_usage=_NUMBER)
        ),
        "RouterGeneration": structure("data", data=_generation()),
    }


def _exactly(**properties: Schema) -> Schema:
    """An object that always has all of these."""
    return structure(" ".join(properties), **properties)


def _pricing() -> Schema:
    """Money as text: decimal numbers, without exponents."""
    return structure(
        "prompt completion request",
        prompt=_PRICE,
        completion=_PRICE,
        request=_PRICE,
        input_cache_read=_PRICE,
        internal_reasoning=_PRICE,
    )


def _architecture() -> Schema:
    return _exactly(
        modality=text(),
        input_modalities=array(text()),
        output_modalities=array(text()),
        tokenizer=text(),
        instruct_type=_TEXT_OR_NONE,
    )


def _model() -> Schema:
    always = _exactly(
        id=text(),
        object=text(enum=["model"]),
        canonical_slug=text(),
        name=text(),
        created=_WHOLE,
        owned_by=text(),
        description=text(),
        context_length=_WHOLE_OR_NONE,
        architecture=_architecture(),
        pricing=ref("Pricing"),
        top_provider=_exactly(
            context_length=_WHOLE_OR_NONE,
            max_completion_tokens=_WHOLE_OR_NONE,
            is_moderated=BOOLEAN,
        ),
        per_request_limits=_NONE,
        supported_parameters=array(text()),
        default_parameters=_NONE,
        supported_voices=_NONE,
        expiration_date=described(_TEXT_OR_NONE, "Its last day."),
        links=_exactly(details=text()),
    )
    properties = always["properties"]
    assert isinstance(properties, dict)
    properties["max_output_tokens"] = _WHOLE
    properties["reasoning"] = structure(
        "supported_efforts default_effort mandatory supports_max_tokens",
        supported_efforts=array(text(enum=list(EFFORTS))),
        default_effort=text(enum=list(EFFORTS)),
        mandatory=BOOLEAN,
        supports_max_tokens=BOOLEAN,
    )
    return always


def _endpoints() -> Schema:
    return _exactly(
        id=text(),
        name=text(),
        created=_WHOLE,
        description=text(),
        architecture=_architecture(),
        endpoints=array(ref("RouterEndpoint")),
    )


def _endpoint() -> Schema:
    figures = ("latency_last_5m", "throughput_last_5m", "latency_last_30m", "throughput_last_30m")
    uptimes = ("uptime_last_5m", "uptime_last_30m", "uptime_last_1d")
    share: Schema = {"type": ["number", "null"], "minimum": 0, "maximum": 100}
    return _exactly(
        name=text(),
        model_id=text(),
        model_name=text(),
        provider_name=text(),
        tag=text(),
        context_length=_WHOLE,
        max_completion_tokens=_WHOLE_OR_NONE,
        max_prompt_tokens=_WHOLE_OR_NONE,
        pricing=ref("Pricing"),
        quantization=_TEXT_OR_NONE,
        supported_parameters=array(text()),
        supported_parameters_measured=described(_TEXT_OR_NONE, "On which day."),
        supports_implicit_caching=BOOLEAN,
        supports_voice_cloning=BOOLEAN,
        supports_tool_choice=OBJECT,
        keeps_data=BOOLEAN,
        status=described(_WHOLE, "0: it is asked; below: it is not."),
        **dict.fromkeys(figures, ref("Percentiles")),
        **dict.fromkeys(uptimes, share),
    )


def _key() -> Schema:
    spent = [
        f"{kind}usage{period}"
        for kind in ("", "byok_")
        for period in ("", "_daily", "_weekly", "_monthly")
    ]
    return _exactly(
        label=text(),
        name=text(),
        limit=_NUMBER_OR_NONE,
        limit_remaining=_NUMBER_OR_NONE,
        limit_reset=_TEXT_OR_NONE,
        **dict.fromkeys(spent, _NUMBER),
        include_byok_in_limit=BOOLEAN,
        is_free_tier=described(BOOLEAN, "No money was put in."),
        is_management_key=BOOLEAN,
        is_provisioning_key=BOOLEAN,
        expires_at=_TEXT_OR_NONE,
        creator_user_id=_TEXT_OR_NONE,
        organization_id=_TEXT_OR_NONE,
        workspace_id=text(),
        allowed_data_regions=array(text()),
        free_model_daily_requests=_exactly(limit=_WHOLE, used=_WHOLE, remaining=_WHOLE),
        rate_limit=OBJECT,
    )


def _generation() -> Schema:
    counts = (
        *("tokens_prompt", "tokens_completion", "native_tokens_prompt", "native_tokens_cached"),
        *("native_tokens_completion", "native_tokens_reasoning"),
    )
    return structure(
        "id request_id model created_at total_cost usage origin streamed cancelled is_byok "
        + " ".join(counts),
        id=text(),
        request_id=text(),
        api_type=text(),
        app_id=described(_WHOLE_OR_NONE, "The same number for the same name of a program."),
        http_referer=_TEXT_OR_NONE,
        origin=text(),
        created_at=text(),
        data_region=text(),
        model=text(),
        provider_name=_TEXT_OR_NONE,
        is_byok=BOOLEAN,
        streamed=BOOLEAN,
        cancelled=described(BOOLEAN, "The client left."),
        finish_reason=_TEXT_OR_NONE,
        native_finish_reason=_TEXT_OR_NONE,
        latency=described(_NUMBER_OR_NONE, "Milliseconds to the first token."),
        generation_time=described(_NUMBER_OR_NONE, "Milliseconds after it."),
        total_cost=number(0, 2**53),
        usage=number(0, 2**53),
        **dict.fromkeys(counts, _WHOLE),
    )
