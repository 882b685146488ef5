"""Prompts that do not fit, as servers say it: each has its own words, some give the numbers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_CODES = frozenset({"context_length_exceeded", "exceed_context_size_error", "3051"})
_WORDS = re.compile(
    r"maximum context length"
    r"|context[ _](?:length|size|window)[^.]{0,60}exceed"
    r"|exceeds?[^.]{0,80}context[ _](?:length|size|window)"
    r"|longer than the (?:model's context|maximum model) length"
    r"|exceeds the maximum allowed length"
    r"|model's context length"
    r"|greater than the context length"
    r"|(?:input|prompt)[^.]{0,40} too (?:long|large) for"
    r"|loaded with context length of only"
    r"|prompt is too long: \d+ tokens"
    r"|exceed context limit: \d+",
    re.IGNORECASE,
)
_CONTEXT = (
    re.compile(r"context (?:length|size|window)(?: of| is|:)?(?: only)? \(?(\d+)", re.IGNORECASE),
    re.compile(r"(?:context|allowed) (?:length|size) \((\d+)", re.IGNORECASE),
    re.compile(r"model length of (\d+)", re.IGNORECASE),
    re.compile(r"with (\d+) maximum context", re.IGNORECASE),
    re.compile(r"> (\d+)(?: maximum|\Z)", re.IGNORECASE),
)
_PROMPT = (
    re.compile(r"(\d+) (?:tokens )?(?:in|from) the (?:input )?(?:messages|prompt)", re.IGNORECASE),
    re.compile(r"(\d+) (?:of text|prompt|input) (?:input|tokens)", re.IGNORECASE),
    re.compile(r"(\d+) input tokens", re.IGNORECASE),
    re.compile(r"messages resulted in (\d+)", re.IGNORECASE),
    re.compile(r"(?:request|input|prompt)(?: length)? \((?:length )?(\d+)", re.IGNORECASE),
    re.compile(r"prompt (?:contains|has) (?:at least )?(\d+)", re.IGNORECASE),
    re.compile(r"keep the first (\d+) tokens", re.IGNORECASE),
    re.compile(r"prompt is too long: (\d+) tokens", re.IGNORECASE),
    re.compile(r"exceed context limit: (\d+)", re.IGNORECASE),
)
_OUTPUT = (
    re.compile(r"(\d+) (?:tokens )?(?:in|for) the (?:completion|output)", re.IGNORECASE),
    re.compile(r"requested (\d+) output tokens", re.IGNORECASE),
    re.compile(r"(\d+) tokens of output", re.IGNORECASE),
    re.compile(r"exceed context limit: \d+ \+ (\d+)", re.IGNORECASE),
)
_MAX_LENGTH = 2000  # of what is searched


@dataclass(frozen=True, slots=True)
class Overflow:
    """Token counts, as far as they were told."""

    prompt: int | None
    output: int | None
    context: int | None


def overflow(error: Mapping[str, object]) -> Overflow | None:
    """Read from the error why a prompt does not fit; ``None`` for errors about other things."""
    text = error.get("message")
    words = text[:_MAX_LENGTH] if isinstance(text, str) else ""
    marks = {str(error.get("code")), str(error.get("type"))}
    if not marks & _CODES and not _WORDS.search(words):
        return None
    return Overflow(
        prompt=_count(error.get("n_prompt_tokens")) or _found(_PROMPT, words),
        output=_found(_OUTPUT, words),
        context=_count(error.get("n_ctx")) or _found(_CONTEXT, words),
    )


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _found(patterns: tuple[re.Pattern[str], ...], words: str) -> int | None:
    for pattern in patterns:
        match = pattern.search(words)
        if match is not None:
            return int(match.group(1)[:12])
    return None
