"""Reasons for the end of a reply, in the words of providers.

A word that is not listed is a good end where something was said, and a failure where nothing
was.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal

from causerie.errors import UnusableOutput, UpstreamFailed
from causerie.protocol.events import FinishReason

Meaning = Literal["stop", "length", "tool_calls", "content_filter", "failed", "unusable"]

WORDS: Mapping[str, Mapping[Meaning, Sequence[str]]] = {
    "OpenAI": {
        "stop": ("stop",),
        "length": ("length",),
        "tool_calls": ("tool_calls", "function_call"),
        "content_filter": ("content_filter",),
    },
    "OpenAI, Responses": {
        "stop": ("completed",),
        "length": ("max_output_tokens",),
        "failed": ("failed", "server_error", "rate_limit_exceeded", "cancelled", "canceled"),
    },
    "Anthropic": {
        "stop": ("end_turn", "stop_sequence", "pause_turn"),
        "length": ("max_tokens", "model_context_window_exceeded", "compaction"),
        "tool_calls": ("tool_use",),
        "content_filter": ("refusal",),
    },
    "Amazon Bedrock": {
        "stop": ("finish", "finished"),
        "content_filter": ("guardrail_intervened", "content_filtered"),
        "unusable": ("malformed_model_output", "malformed_tool_use"),
    },
    "Google Gemini and Vertex AI": {
        "stop": ("finish_reason_stop",),
        "length": ("finish_reason_max_tokens",),
        "content_filter": (
            "safety", "recitation", "blocklist", "prohibited_content", "spii", "model_armor",
            "image_safety", "image_prohibited_content", "image_recitation", "language",
            "finish_reason_safety",
        ),
        "unusable": (
            "malformed_function_call", "unexpected_tool_call", "too_many_tool_calls",
            "malformed_response",
        ),
        "failed": ("missing_thought_signature", "no_image", "image_other", "other"),
    },
    "Azure": {"content_filter": ("responsible_ai_policy_violation",)},
    "Mistral": {"length": ("model_length",), "failed": ("error",)},
    "Cohere": {
        "stop": ("complete",),
        "tool_calls": ("tool_call",),
        "length": ("error_limit",),
        "content_filter": ("error_toxic",),
        "failed": ("timeout", "user_cancel"),
    },
    "DeepSeek": {"failed": ("insufficient_system_resource", "aborted")},
    "Zhipu and Z.ai": {"content_filter": ("sensitive",), "failed": ("network_error",)},
    "Moonshot": {"failed": ("engine_overloaded", "engine_overloaded_error")},
    "MiniMax": {"length": ("max_output",)},
    "Alibaba DashScope": {"content_filter": ("data_inspection_failed", "datainspectionfailed")},
    "Baidu Qianfan": {"stop": ("normal",)},
    "Together, Fireworks and Text Generation Inference": {"stop": ("eos", "eos_token")},
    "Groq": {"unusable": ("tool_use_failed", "json_validate_failed")},
    "vLLM and SGLang": {"failed": ("abort",)},
    "gateways": {
        "content_filter": (
            "guardrail", "guardrails", "moderation", "moderated", "blocked", "content_blocked",
            "content_policy_violation", "policy_violation", "unsafe",
        ),
        "failed": (
            "upstream_error", "provider_error", "internal_error", "overloaded", "cancel",
            "service_unavailable", "interrupted", "failure",
        ),
    },
}  # fmt: skip
"""Lower-case words by who says them; none has two meanings."""

_MEANINGS: Final = {
    word: meaning
    for words in WORDS.values()
    for meaning, listed in words.items()
    for word in listed
}
_FIRST_STANDS = frozenset({"length", "content_filter"})


def word_of(reason: str) -> str:
    """Return a provider's word in the form of the table."""
    return reason.strip().lower().replace("-", "_").replace(" ", "_")


def later(before: str | None, reason: str) -> str:
    """Return the word that counts where a choice is given several reasons.

    Raises :class:`UpstreamFailed` for one that means a failure.
    """
    if before is not None and _MEANINGS.get(before) in _FIRST_STANDS:
        return before
    word = word_of(reason)
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
    """Return our reason for the end of a choice with or without calls, text or reasoning.

    Raises :class:`UpstreamFailed` where nothing was said and the word means no good end.
    """
    meaning = _MEANINGS.get(word or "")
    if meaning == "length" or meaning == "content_filter":
        return meaning
    if calls:
        return "tool_calls"
    if not said and meaning != "stop":
        raise UpstreamFailed("The provider ended its reply without an answer.")
    return "stop"
