"""Prompts that do not fit, in the words of the servers that say it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

# ``WORDINGS`` has real messages, with names in braces in place of their numbers; ``…`` stands for a
# few words more. Codes and words that only mean a prompt that is too long are known without
# numbers. Limits by the minute and errors about one value (an image, a name, the output limit
# alone) are other errors, even if they use the same words.

WORDINGS: tuple[tuple[str, str], ...] = (
    ("OpenAI, DeepSeek, vLLM", "maximum context length is {context} tokens. However, you requested "
     "{total} tokens ({prompt} in the messages, {output} in the completion)"),
    ("OpenAI", "maximum context length is {context} tokens, however you requested {total} tokens "
     "({prompt} in your prompt; {output} for the completion)"),
    ("OpenRouter", "maximum context length is {context} tokens. However, you requested about "
     "{total} tokens ({prompt} of text input, {output} in the output)"),
    ("OpenRouter", "maximum context length is {context} tokens. However, you requested about "
     "{total} tokens ({prompt} of text input, {tools} of tool input, {output} in the output)"),
    ("OpenAI, Azure", "maximum context length is {context} tokens. However, your messages resulted "
     "in {prompt} tokens"),
    ("OpenAI", "Input tokens exceed the configured limit of {context} tokens. Your messages "
     "resulted in {prompt} tokens"),
    ("vLLM", "maximum context length is {context} tokens. However, you requested {output} output "
     "tokens and your prompt contains…{prompt} input tokens"),
    ("vLLM", "maximum context length is {context} tokens. However, your request has {prompt} input "
     "tokens"),
    ("vLLM", "maximum context length is {context} tokens and your request has {prompt} input "
     "tokens"),
    ("vLLM", "You passed {prompt} input tokens and requested {output} output tokens. However, the "
     "model's context length is only {context} tokens"),
    ("vLLM", "maximum context length is {context} tokens. However, you requested {prompt} tokens "
     "in the messages"),
    ("vLLM", "maximum context length is {context} tokens. However, you requested {total} tokens"),
    ("vLLM", "prompt (length {prompt}) is longer than the maximum model length of {context}"),
    ("vLLM", "Input prompt ({prompt} tokens) is too long and exceeds limit of {context}"),
    ("SGLang", "maximum context length of {context} tokens. You requested a total of {total} "
     "tokens: {prompt} tokens from the input messages and {output} tokens for the completion"),
    ("SGLang, Together", "input ({prompt} tokens) is longer than the model's context length "
     "({context} tokens)"),
    ("SGLang", "Input length ({prompt} tokens) exceeds the maximum allowed length ({context} "
     "tokens)"),
    ("llama.cpp", "request ({prompt} tokens) exceeds the available context size ({context} "
     "tokens)"),
    ("llama.cpp", "input ({prompt} tokens) is larger than the max context size ({context} tokens)"),
    ("Ollama", "input length ({prompt} tokens) exceeds the context length ({context} tokens)"),
    ("LM Studio", "Trying to keep the first {prompt} tokens when context the overflows. However, "
     "the model is loaded with context length of only {context} tokens"),
    ("TGI, Together", "`inputs` tokens + `max_new_tokens` must be <= {context}. Given: {prompt} "
     "`inputs` tokens and {output} `max_new_tokens`"),
    ("TGI", "`inputs` must have less than {context} tokens. Given: {prompt}"),
    ("Anthropic", "prompt is too long: {prompt} tokens > {context} maximum"),
    ("Anthropic", "input length and `max_tokens` exceed context limit: {prompt} + {output} > "
     "{context}"),
    ("Anthropic", "input length and max_tokens exceed context limit: {prompt} + {output} > "
     "{context}"),
    ("Gemini, Vertex AI", "input token count ({prompt}) exceeds the maximum number of tokens "
     "allowed ({context})"),
    ("Gemini, Vertex AI", "input token count exceeds the maximum number of tokens allowed "
     "({context})"),
    ("Gemini, Vertex AI", "input token count exceeds the maximum number of tokens allowed "
     "{context}"),
    ("Vertex AI", "input token count is {prompt} but model only supports up to {context}"),
    ("LM Studio", "greater than the context length (n_keep: {prompt} >= n_ctx: {context})"),
    ("Mistral", "Prompt contains {prompt} tokens and {draft} draft tokens, too large for model "
     "with {context} maximum context length"),
    ("Mistral", "Prompt contains {prompt} tokens, too large for model with {context} maximum "
     "context length"),
    ("xAI", "maximum prompt length is {context} but the request contains {prompt} tokens"),
    ("Cerebras", "Current length is {prompt} while limit is {context}"),
    ("Fireworks", "prompt is too long: {prompt}, model maximum context length: {context}"),
    ("Copilot", "prompt token count of {prompt} exceeds the limit of {context}"),
    ("Kimi, Moonshot", "exceeded model token limit: {context} (requested: {prompt})"),
    ("Kimi, Moonshot", "exceeded model token limit: {context}"),
    ("DashScope", "Range of input length should be [{least}, {context}]"),
    ("Cohere", "total number of tokens in the prompt cannot exceed {context} - received {prompt}"),
    ("Cohere", "total number of tokens (prompt and prediction) cannot exceed {context} - received "
     "{total}"),
    ("Cohere", "total number of tokens in the prompt cannot exceed {context}"),
    ("Cohere", "size limit exceeded by {over} tokens…limit for this model is {context} tokens"),
    ("Cohere", "size limit exceeded by {over} tokens"),
    ("SiliconFlow", "length of prompt_tokens ({prompt}) must be less than max_seq_len ({context})"),
    ("Poolside", "Input length {prompt} exceeds the maximum allowed input length of {context} "
     "tokens"),
    ("others", "Input length ({prompt}) exceeds model's maximum context length ({context})"),
    ("others", "Prompt has {prompt} tokens, but the configured context size is {context} tokens"),
    ("Causerie", "maximum context length is {context} tokens; the prompt has…{prompt} token…asks "
     "for {output} token"),
    ("Causerie", "maximum context length is {context} tokens; the prompt has…{prompt} token"),
    ("others", "maximum context length is {context} tokens"),
    ("others", "maximum context length of {context} tokens"),
)  # fmt: skip

_CODES = frozenset({
    "context_length_exceeded", "context_window_exceeded", "exceed_context_size_error",
    "max_prompt_tokens_exceeded", "model_context_window_exceeded",
    "model_max_prompt_tokens_exceeded", "prompt_too_long", "request_too_large",
    "1261",  # Z.ai
    "3051",  # Mistral
})  # fmt: skip
_PROMPT = r"(?:prompt|inputs?|messages|conversation|request)"
_EXCEEDS = r"exceed(?:s|ed|ing)?|(?:longer|larger|greater|more) than|too (?:long|large)|overflow"
_OVERFLOW_WORDS = re.compile(
    rf"context[ _-]?(?:length|size|window|limit)[^.]{{0,60}}?(?:{_EXCEEDS})"
    rf"|(?:{_EXCEEDS})[^.]{{0,80}}?context[ _-]?(?:length|size|window|limit)"
    r"|maximum (?:context|model|prompt) length"
    r"|model's context (?:length|window)|context overflow"
    # Bedrock, Vertex AI, Ollama, Baidu
    rf"|\b{_PROMPT}(?: tokens?)? (?:is )?(?:much )?too (?:long|large)"
    rf"|\b{_PROMPT}\b[^.]{{0,40}}?(?:{_EXCEEDS})[^.]{{0,40}}?(?:tokens|max(?:imum)? length)"
    rf"|number of (?:input|prompt) tokens\b[^.]{{0,40}}?(?:{_EXCEEDS}|cannot)"
    r"|total length of all messages is too long"
    r"|tokens in request more than max tokens allowed"  # Z.ai
    r"|reduce the length of (?:the|your) (?:messages|prompt|input)"  # Groq, Cerebras
    r"|total tokens of image and text exceed"  # Volcengine
    r"|token limit exceeded"  # Novita
    r"|`inputs` (?:must have less than|tokens \+ `max_new_tokens` must be)"
    r"|(?:prompt|输入|上下文|提示|消息|请求)[^。]{0,16}?(?:超长|过长|超过|超出)"
    r"|(?:超过|超出)[^。]{0,12}?(?:最大长度|上下文|token)",
    re.IGNORECASE,
)
_ANOTHER_ERROR = re.compile(
    r"per[ -](?:second|minute|hour|day)|\b[tr]p[md]\b|rate[ _-]?limit|too many requests|quota"
    r"|throttl|wait (?:before|a)"
    r"|\b(?:image|picture|photo|video|audio|file|document|pixel|byte)s?\b(?! and text)"
    r"|string too (?:long|short)|'(?:user|name|stop|metadata)\b",
    re.IGNORECASE,
)
_MAX_LENGTH = 2000  # of what is searched
_TOKEN_COUNT = r"\d{1,3}(?:,\d{3})+|\d{1,12}"
_PLACE = re.compile(r"\\\{(\w+)\\\}|…")


@dataclass(frozen=True, slots=True)
class Overflow:
    """Token counts, as far as they were told."""

    prompt: int | None
    output: int | None
    context: int | None


def overflow(error: Mapping[str, object]) -> Overflow | None:
    """Read from the error why a prompt does not fit; ``None`` for errors about other things."""
    words = " ".join(error_texts(error))
    known = bool({str(error.get("code")), str(error.get("type"))} & _CODES)
    if not known and _ANOTHER_ERROR.search(words):
        return None
    counts = _counts(words)
    if not known and counts is None and not _OVERFLOW_WORDS.search(words):
        return None
    counts = counts or {}
    return Overflow(
        prompt=_count(error.get("n_prompt_tokens")) or _prompt(counts),
        output=counts.get("output"),
        context=_count(error.get("n_ctx")) or counts.get("context"),
    )


def error_texts(error: Mapping[str, object]) -> list[str]:
    """Return the texts of an error, each up to where it is searched."""
    behind = error.get("metadata")
    raw = behind.get("raw") if isinstance(behind, Mapping) else None
    return [text[:_MAX_LENGTH] for text in (error.get("message"), raw) if isinstance(text, str)]


def _counts(words: str) -> dict[str, int] | None:
    for pattern in _PATTERNS:
        if (match := pattern.search(words)) is not None:
            return {
                name: int(number.replace(",", "")) for name, number in match.groupdict().items()
            }
    return None


def _prompt(counts: Mapping[str, int]) -> int | None:
    if "prompt" in counts:
        return counts["prompt"] + counts.get("tools", 0)
    if "over" in counts and "context" in counts:
        return counts["context"] + counts["over"]
    return counts["total"] - counts["output"] if {"total", "output"} <= counts.keys() else None


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _pattern(wording: str) -> re.Pattern[str]:
    escaped = r"\s+".join(re.escape(part) for part in wording.split(" "))
    pattern = _PLACE.sub(
        lambda place: rf"(?P<{place[1]}>{_TOKEN_COUNT})" if place[1] else ".{0,80}?", escaped
    )
    return re.compile(pattern, re.IGNORECASE | re.DOTALL)


_PATTERNS = tuple(_pattern(wording) for _, wording in WORDINGS)
