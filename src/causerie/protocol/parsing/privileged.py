"""Names of fields by which a request would use what belongs to the operator.

A client's field of such a name never reaches a provider, except where the operator allows that very
field. The names are those of public APIs and of servers that people run; of an address every
spelling counts that has a word for one. A name that is missing here is no hole: what is not listed
is not sent either.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

Privilege = Literal[
    "model", "provider", "price", "plugin", "limit", "transport", "address", "secret"
]

PRIVILEGES: Mapping[Privilege, str] = {
    "model": "another model than the one that was priced answers, and is billed to your key",
    "provider": "another company may answer, at its price and with its rules for data",
    "price": "a tier or a priority that costs more, or is served before others, at your expense",
    "plugin": "searches, tools and files of the provider, billed by use, which nobody charges here",
    "limit": "more output than the request's limit, budgets and limits by tokens count with",
    "transport": "how the provider runs, caches, stores or transfers the request; on some servers "
    "code that it runs",
    "address": "the provider contacts a host that the client names",
    "secret": "the request is sent with credentials of the client's, or goes around yours",
}
"""Each with what a client gets by it."""

_NAMES: Mapping[Privilege, tuple[str, ...]] = {
    "model": (
        "adapter", "adapters", "base_model", "deployment", "deployment_id", "draft", "draft_model",
        "engine", "engines", "fallback", "fallback_models", "fallbacks", "lora", "lora_adapter",
        "lora_adapters", "lora_name", "lora_path", "lora_request", "model", "model_alias",
        "model_id", "model_list", "model_name", "model_path", "models", "preset", "presets",
        "prompt_id", "prompt_template_id", "speculative", "speculative_config", "variant",
    ),
    "provider": (
        "custom_llm_provider", "data_collection", "gateway", "order", "provider",
        "provider_options", "provider_preferences", "providers", "route", "router", "routes",
        "routing", "routing_strategy", "vendor", "zdr",
    ),
    "price": (
        "billing", "budget_id", "cost", "fast", "inference_geo", "latency", "max_price",
        "performance_config", "plan", "prices", "pricing", "priority", "processing_tier", "qos",
        "service_level", "service_tier", "speed", "tier", "ttl",
    ),
    "plugin": (
        "agent", "agents", "apps", "attachments", "builtin_tools", "citation_options",
        "code_execution", "code_interpreter", "computer_use", "connectors", "container",
        "data_sources", "enable_search", "extensions", "file_id", "file_ids",
        "file_search", "files", "grounding", "guardrails", "knowledge_base", "mcp", "mcp_servers",
        "online", "plugins", "retrieval", "search", "search_mode", "search_options",
        "search_parameters", "server_tools", "skills", "tool_resources", "transforms",
        "vector_store_ids", "web_search", "web_search_options",
    ),
    "limit": (
        "best_of", "candidate_count", "max_completions", "max_gen_len", "max_generated_tokens",
        "max_length", "max_new_tokens", "max_output_tokens", "max_response_output_tokens",
        "max_tokens_to_sample", "max_total_tokens", "max_turns", "maximum_tokens", "n_choices",
        "n_ctx", "n_predict", "num_beams", "num_completions", "num_ctx", "num_generations",
        "num_predict", "num_return_sequences", "output_tokens", "thinking_budget",
    ),
    "transport": (
        "async", "background", "bootstrap_room", "cache_control_injection_points",
        "custom_logit_processor", "custom_params", "data_parallel_rank", "disagg_prefill_dp_rank",
        "disaggregated_params", "ec_transfer_params", "extra_args", "extra_body", "extra_headers",
        "extra_params", "extra_query", "headers", "id_slot", "keep_alive", "kv_transfer_params",
        "litellm_params", "logits_processors", "metadata_headers", "mock_response", "no_log",
        "num_retries", "options", "query", "request", "request_id", "rid", "session_params",
        "slot_id", "timeout", "transport", "vllm_xargs",
    ),
    "address": (),
    "secret": (
        "access_key", "access_token", "api_base", "api_key", "api_keys", "api_version",
        "authorization", "aws_access_key_id", "aws_secret_access_key", "bearer", "byok",
        "client_secret", "cookie", "cookies", "credential", "credentials", "key", "organization",
        "password", "project", "secret", "token", "vertex_credentials",
    ),
}  # fmt: skip
_BY_NAME: Mapping[str, Privilege] = {
    name: privilege for privilege, names in _NAMES.items() for name in names
}
_ADDRESS = re.compile(
    r"(?:^|_)(?:addr|address|addresses|callback|callbacks|domain|domains|provider|providers|host|"
    r"hostname|hosts|ip|origin|port|proxies|proxy|redirect|server|servers|uri|uris|url|urls|"
    r"webhook|webhooks|website|websites)(?:_|$)"
)
_RUN_TOGETHER = re.compile(r"(?:url|uri|webhook|hostname|callback)s?$")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def privilege_of(name: str) -> Privilege | None:
    """Return what a field of this name would choose, ``None`` where it is of no such kind.

    ``callbackURL``, ``callback-url`` and ``callback_url`` are one name.
    """
    plain = _HUMP.sub("_", name[:256]).replace("-", "_").replace(".", "_").strip("_ ").lower()
    found = _BY_NAME.get(plain)
    if found is None and (_ADDRESS.search(plain) or _RUN_TOGETHER.search(plain)):
        return "address"
    return found
