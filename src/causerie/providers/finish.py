"""Reasons for the end of a reply, in the words of providers.

A word that is not listed is a good end where something was said, else a failure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal

from causerie.errors import UnusableOutput, UpstreamFailed
from causerie.protocol.events import FinishReason

Meaning = Literal["stop", "length", "tool_calls", "content_filter", "failed", "unusable"]

WORDS: Mapping[Meaning, Sequence[str]] = {
    "stop": (
        "stop", "completed",  # OpenAI
        "end_turn", "stop_sequence", "pause_turn",  # Anthropic
        "finish", "finished",  # Amazon Bedrock
        "finish_reason_stop", "complete", "normal",  # Google, Cohere, Baidu
        "eos", "eos_token",  # Together, Fireworks, Text Generation Inference
    ),
    "length": (
        "length", "max_output_tokens",  # OpenAI
        "max_tokens", "model_context_window_exceeded", "compaction",  # Anthropic
        "finish_reason_max_tokens", "model_length", "error_limit",  # Google, Mistral, Cohere
        "max_output",  # MiniMax
    ),
    "tool_calls": (
        "tool_calls", "function_call", "tool_use", "tool_call",  # OpenAI, Anthropic, Cohere
    ),
    "content_filter": (
        "content_filter", "refusal",  # OpenAI, Anthropic
        "guardrail_intervened", "content_filtered",  # Amazon Bedrock
        "safety", "recitation", "blocklist", "prohibited_content", "spii", "model_armor",  # Google
        "image_safety", "image_prohibited_content", "image_recitation", "language",
        "finish_reason_safety",
        "responsible_ai_policy_violation", "error_toxic", "sensitive",  # Azure, Cohere, Z.ai
        "data_inspection_failed", "datainspectionfailed",  # Alibaba
        "guardrail", "guardrails", "moderation", "moderated", "blocked", "content_blocked",
        "content_policy_violation", "policy_violation", "unsafe",  # gateways
    ),
    "failed": (
        "failed", "server_error", "rate_limit_exceeded", "cancelled", "canceled",  # OpenAI
        "missing_thought_signature", "no_image", "image_other", "other",  # Google
        "error", "timeout", "user_cancel", "network_error",  # Mistral, Cohere, Z.ai
        "insufficient_system_resource", "aborted", "abort",  # DeepSeek, vLLM, SGLang
        "engine_overloaded", "engine_overloaded_error",  # Moonshot
        "upstream_error", "provider_error", "internal_error", "overloaded", "cancel",  # gateways
        "service_unavailable", "interrupted", "failure",
    ),
    "unusable": (
        "malformed_model_output", "malformed_tool_use",  # Amazon Bedrock
        "malformed_function_call", "unexpected_tool_call", "too_many_tool_calls",  # Google
        "malformed_response",
        "tool_use_failed", "json_validate_failed",  # Groq
    ),
}  # fmt: skip
"""Lower-case words, with who says them; none has two meanings."""

_MEANINGS: Final = {word: meaning for meaning, words in WORDS.items() for word in words}
_FIRST_STANDS = frozenset({"length", "content_filter"})


def later(before: str | None, reason: str) -> str:
    """Return the word that counts where there are several; raise for one that means a failure."""
    if before is not None and _MEANINGS.get(before) in _FIRST_STANDS:
        return before
    word = reason.strip().lower().replace("-", "_").replace(" ", "_")
    meaning = _MEANINGS.get(word)
    if meaning == "failed":
        raise UpstreamFailed("The provider broke its reply off.")
    if meaning == "unusable":
        raise UnusableOutput("The provider broke its reply off, which is no valid call.")
    return word


def is_cut(word: str | None) -> bool:
    """Return true if a choice that ended so may have ended anywhere."""
    return _MEANINGS.get(word or "") in _FIRST_STANDS


def finish_reason(word: str | None, *, calls: bool, said: bool) -> FinishReason:
    """Return our reason; raise where nothing was said and the word means no good end."""
    meaning = _MEANINGS.get(word or "")
    if meaning == "length" or meaning == "content_filter":
        return meaning
    if calls:
        return "tool_calls"
    if not said and meaning != "stop":
        raise UpstreamFailed("The provider ended its reply without an answer.")
    return "stop"
