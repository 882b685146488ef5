"""Prompts that do not fit, in the words of the servers that say it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from causerie.providers.wire import SAID

# Codes and words that only mean a prompt that is too long are known without numbers. Limits by
# the minute and errors about one value (an image, a name, the output limit alone) are other errors,
# even if they use the same words.

WORDINGS: Sequence[tuple[str, str]] = SAID["overflow"]["messages"]
"""Real messages, and who says them."""

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
