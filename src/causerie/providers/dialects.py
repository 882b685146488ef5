"""Known dialects and known providers, by the names that the configuration uses."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from causerie.protocol.parameters import EXTENDED_SAMPLING, HINT_NAMES, of_origin
from causerie.providers.dialect import (
    MESSAGES_PATH,
    RESPONSES_PATH,
    Api,
    CallIds,
    Continuing,
    Dialect,
    HistoryStyle,
    Shape,
    Shaping,
    ThinkingControl,
)

_COMMON = of_origin("common")
_OPENAI = of_origin("common", "openai")
_ENGINES = of_origin("common", "openai", "engines")
_LOGPROBS = frozenset({"logprobs", "top_logprobs"})
_PLAIN_TEXT = frozenset({"skip_special_tokens", "spaces_between_special_tokens"})
_EFFORTS = ("minimal", "low", "medium", "high", "xhigh", "max")
_AS_THEY_ARE = {effort: effort for effort in _EFFORTS}
_THREE = {
    "none": "none", "minimal": "low", "low": "low", "medium": "medium", "high": "high",
    "xhigh": "high", "max": "high",
}  # fmt: skip
# A class of price is the operator's choice.
_PROVIDERS_HINTS = HINT_NAMES - {"service_tier"}
_CACHED = frozenset({"messages.content.cache_control", "tools.cache_control"})
_RESULTS = _CACHED | {"cache_control", "messages.cache_control", "messages.is_error"}
_SAMPLERS = frozenset({
    "dry_allowed_length", "dry_base", "dry_multiplier", "dry_penalty_last_n",
    "dynatemp_exponent", "dynatemp_range", "mirostat", "mirostat_eta", "mirostat_tau",
    "repeat_last_n", "repeat_penalty", "top_n_sigma", "typical_p", "xtc_probability",
    "xtc_threshold",
})  # fmt: skip
_BY_FORMAT: dict[Shape, Shaping] = {
    "json_object": "response_format",
    "json_schema": "response_format",
}
_STRUCTURED: dict[Shape, Shaping] = _BY_FORMAT | {
    "regex": "structured_outputs",
    "choice": "structured_outputs",
    "grammar": "structured_outputs",
}

GENERIC = Dialect(
    name="generic",
    server="any other provider",
    thinking=ThinkingControl("as_sent", efforts={"none": "none", **_AS_THEY_ARE}),
    accepts=_ENGINES | _PROVIDERS_HINTS | {"documents", "modalities", "session_id"},
    history=HistoryStyle(details=True, extras=True, developer=True),
    continuing=Continuing("as_sent"),
    shapes=_STRUCTURED,
    tags=True,
)

CAUSERIE = replace(
    GENERIC,
    name="causerie",
    server="another service like this one",
    knows=_RESULTS,
    continuing=Continuing("flag", after_reasoning=True),
    choices=frozenset({"none", "auto", "required", "named", "allowed"}),
    tags=False,
    fetches=True,  # it decides in turn
    native=MESSAGES_PATH | RESPONSES_PATH,
    extends=True,
)

OPENAI = Dialect(
    name="openai",
    server="OpenAI",
    thinking=ThinkingControl("effort", efforts={"none": "none", **_AS_THEY_ARE, "max": "xhigh"}),
    accepts=_OPENAI | _PROVIDERS_HINTS | {"modalities"},
    history=HistoryStyle(reasoning=(), call_ids=CallIds(".{1,40}"), developer=True),
    limit="max_completion_tokens",
    choices=frozenset({"none", "auto", "required", "named", "allowed"}),
    shapes=_BY_FORMAT,
    strict_schemas=True,
    fetches=True,
    native=RESPONSES_PATH,
    coarse_cache=True,
)

AZURE = replace(OPENAI, name="azure", server="Azure OpenAI, by its v1 API", api=Api(key="api-key"))

AZURE_DEPLOYMENTS = replace(
    AZURE,
    name="azure-deployments",
    server="Azure OpenAI, by deployment and api-version",
    api=Api(path="/deployments/{model}/chat/completions", key="api-key", version="2024-10-21"),
    accepts=_OPENAI | {"user"},
    native={},
)

# It refuses fields that it does not know. GPT-OSS writes its reasoning as `<reasoning>` into the
# content, and takes no `logit_bias`; `response_format` has an effect on later models only.
BEDROCK = replace(
    OPENAI,
    name="bedrock",
    server="Amazon Bedrock, by its chat completions",
    accepts=(_OPENAI - {"n"}) | {"metadata", "prediction", "store", "user"},
    history=HistoryStyle(reasoning=(), developer=True),
    fetches=False,
    native={},
    tags=True,
    tag="reasoning",
)

VLLM = Dialect(
    name="vllm",
    server="vLLM",
    thinking=ThinkingControl("template", efforts=_AS_THEY_ARE, budget="thinking_token_budget"),
    accepts=_ENGINES | {"documents", "user", "session_id"},
    knows=_PLAIN_TEXT | {"include_stop_str_in_output"},
    history=HistoryStyle(reasoning=("reasoning_content", "reasoning")),
    continuing=Continuing("flag", after_reasoning=True),
    shapes=_STRUCTURED,
    cache_salt="cache_salt",
    tags=True,
)

SGLANG = Dialect(
    name="sglang",
    server="SGLang",
    thinking=ThinkingControl("template", efforts=_AS_THEY_ARE),
    accepts=_ENGINES | {"user"},
    knows=_PLAIN_TEXT | {"no_stop_trim"},
    continuing=Continuing("flag"),
    shapes=_BY_FORMAT | {"regex": "regex", "choice": "choice_regex", "grammar": "ebnf"},
    cache_salt="cache_salt",
    tags=True,
)

LLAMA_SERVER = Dialect(
    name="llama-server",
    server="llama.cpp's server",
    thinking=ThinkingControl(
        "template", efforts=_AS_THEY_ARE, effort_in_template=True, budget="thinking_budget_tokens"
    ),
    accepts=_ENGINES - {"repetition_penalty", "min_tokens", "stop_token_ids"},
    knows=_SAMPLERS,
    continuing=Continuing("flag", after_reasoning=True, in_reasoning=True),
    renames={"repetition_penalty": "repeat_penalty"},
    choices=frozenset({"none", "auto", "required"}),
    shapes=_BY_FORMAT | {"choice": "choice_grammar", "grammar": "grammar"},
    streams=True,
    tags=True,
    parallel_by_default=False,
    least_top_logprobs=1,
)

OLLAMA = Dialect(
    name="ollama",
    server="Ollama",
    thinking=ThinkingControl("effort", efforts=_THREE),
    accepts=_COMMON | _LOGPROBS | {"seed"},
    history=HistoryStyle(reasoning=("reasoning",)),
    limit="max_tokens",
    choices=frozenset(),
    shapes=_BY_FORMAT,
    tags=True,
)

LM_STUDIO = Dialect(
    name="lmstudio",
    server="LM Studio",
    thinking=ThinkingControl("effort", efforts={**_THREE, "xhigh": "xhigh", "max": "xhigh"}),
    accepts=_COMMON | {"top_k", "seed", "logit_bias"},
    knows=frozenset({"repeat_penalty"}),
    renames={"repetition_penalty": "repeat_penalty"},
    limit="max_tokens",
    choices=frozenset({"none", "auto", "required"}),
    shapes={"json_schema": "response_format", "json_object": "object_schema"},
    streams=True,
    tags=True,
)

OPENROUTER = Dialect(
    name="openrouter",
    server="the well-known aggregating router",
    thinking=ThinkingControl(
        "object", efforts={"none": "none", **_AS_THEY_ARE}, budget="reasoning.max_tokens"
    ),
    accepts=(_OPENAI - {"n"})
    | EXTENDED_SAMPLING
    | {"user", "verbosity", "session_id", "prompt_cache_key"},
    knows=_CACHED | {"top_a", "usage.include"},
    history=HistoryStyle(reasoning=("reasoning",), details=True, developer=True),
    shapes=_BY_FORMAT,
    strict_schemas=True,
    demands=True,
    fetches=True,
    coarse_cache=True,
)

DEEPSEEK = Dialect(
    name="deepseek",
    server="DeepSeek",
    thinking=ThinkingControl(
        "typed",
        efforts={"minimal": "low", "low": "low"}
        | dict.fromkeys(("medium", "high", "xhigh"), "high")
        | {"max": "max"},
    ),
    accepts=_COMMON | _LOGPROBS,
    knows=frozenset({"messages.prefix"}),
    history=HistoryStyle(placeholder=" "),
    continuing=Continuing("prefix"),
    limit="max_tokens",
    shapes={"json_object": "response_format"},
    unheeded=frozenset({"temperature", "presence_penalty", "frequency_penalty"}),
    coarse_cache=True,
)

MISTRAL = Dialect(
    name="mistral",
    server="Mistral",
    thinking=ThinkingControl("effort", efforts={"none": "none"} | dict.fromkeys(_EFFORTS, "high")),
    accepts=_COMMON | {"n", "parallel_tool_calls", "prediction", "metadata"},
    knows=frozenset({"messages.prefix", "safe_prompt"}),
    history=HistoryStyle(
        reasoning=(),
        parts=True,
        call_ids=CallIds("[a-zA-Z0-9]{9}", prefix="", digits=9),
        lenient=False,
        names=False,
    ),
    continuing=Continuing("prefix", repeats=True),
    renames={"seed": "random_seed"},
    limit="max_tokens",
    shapes=_BY_FORMAT,
    strict_schemas=True,
    tells_usage=False,
    fetches=True,
    coarse_cache=True,
)

ANTHROPIC = Dialect(
    name="anthropic",
    server="Anthropic",
    api=Api(
        bodies="messages",
        path="/messages",
        models="/models?limit=1000",
        key="x-api-key",
        headers=(("anthropic-version", "2023-06-01"),),
    ),
    thinking=ThinkingControl(
        "adaptive", efforts=_AS_THEY_ARE | {"minimal": "low"}, budget="thinking.budget_tokens"
    ),
    accepts=frozenset({"temperature", "top_p", "top_k", "stop", "parallel_tool_calls", "user"}),
    knows=_RESULTS,
    history=HistoryStyle(
        reasoning=(),
        details=True,
        call_ids=CallIds("[a-zA-Z0-9_-]{1,64}", prefix="toolu_"),
        names=False,
    ),
    continuing=Continuing("as_sent"),
    limit="max_tokens",
    shapes={"json_schema": "response_format"},
    streams=True,
    tells_usage=False,
    fetches=True,
    native=MESSAGES_PATH,
    coarse_cache=True,
)

_EVERY = (
    GENERIC, CAUSERIE, OPENAI, VLLM, SGLANG, LLAMA_SERVER, OLLAMA, LM_STUDIO, OPENROUTER,
    DEEPSEEK, MISTRAL, ANTHROPIC, AZURE, AZURE_DEPLOYMENTS, BEDROCK,
)  # fmt: skip
DIALECTS: Mapping[str, Dialect] = {each.name: each for each in _EVERY}


@dataclass(frozen=True, slots=True)
class KnownProvider:
    """Values that the setting ``known`` fills in, as ``known.toml`` has them."""

    name: str
    title: str  # its name for people
    base_url: str
    docs: str  # address of its documentation
    dialect: str = "generic"
    key: str = ""  # beginning of its API keys; empty: they have no common one
    local: bool = False  # it runs on one's own machine, and needs no key
    own: str = ""
    """Word of the base URL in place of which everybody has one of his own."""


_LISTED = tomllib.loads(Path(__file__).with_name("known.toml").read_text("utf-8"))["providers"]
KNOWN_PROVIDERS: Mapping[str, KnownProvider] = {
    one.name: one for one in msgspec.convert(_LISTED, tuple[KnownProvider, ...])
}
