"""Recognize errors about prompts that do not fit, by the words of many servers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from causerie.providers.wire import SAID

_SAID = SAID["overflow"]
WORDINGS: Sequence[tuple[str, str]] = _SAID["messages"]  # real messages, and who says them

_CODES = frozenset(_SAID["codes"])
_OVERFLOW_WORDS = re.compile(
    "|".join(_SAID["words"])
    .replace("<prompt>", _SAID["prompt"])
    .replace("<exceeds>", _SAID["exceeds"]),
    re.IGNORECASE,
)
_ANOTHER_ERROR = re.compile("|".join(_SAID["other_errors"]), re.IGNORECASE)
_MAX_LENGTH = 2000  # of what is searched
_TOKEN_COUNT = r"\d{1,3}(?:,\d{3})+|\d{1,12}"
_PLACE = re.compile(r"\\\{(\w+)\\\}|…")


@dataclass(frozen=True, slots=True)
class Overflow:
    """Token counts of a prompt that did not fit, as far as the provider reported them."""

    prompt: int | None
    output: int | None
    context: int | None


def overflow(error: Mapping[str, object]) -> Overflow | None:
    """Return the token counts in an error about a too long prompt; ``None`` for other errors."""
    words = " ".join(error_texts(error))
    known = bool({str(error.get("code")), str(error.get("type"))} & _CODES)
    if not known and _ANOTHER_ERROR.search(words):
        return None
    found = next(filter(None, (pattern.search(words) for pattern in _PATTERNS)), None)
    if not known and found is None and not _OVERFLOW_WORDS.search(words):
        return None
    numbers = {} if found is None else found.groupdict()
    counts = {name: int(number.replace(",", "")) for name, number in numbers.items()}
    return Overflow(
        prompt=_integer_or_none(error.get("n_prompt_tokens")) or _compute_prompt_tokens(counts),
        output=counts.get("output"),
        context=_integer_or_none(error.get("n_ctx")) or counts.get("context"),
    )


def error_texts(error: Mapping[str, object]) -> list[str]:
    """Return the texts of an error, each cut to the length that is searched."""
    behind = error.get("metadata")
    raw = behind.get("raw") if isinstance(behind, Mapping) else None
    return [text[:_MAX_LENGTH] for text in (error.get("message"), raw) if isinstance(text, str)]


def _compute_prompt_tokens(counts: Mapping[str, int]) -> int | None:
    if "prompt" in counts:
        return counts["prompt"] + counts.get("tools", 0)
    if "over" in counts and "context" in counts:
        return counts["context"] + counts["over"]
    return counts["total"] - counts["output"] if {"total", "output"} <= counts.keys() else None


def _integer_or_none(json_value: object) -> int | None:
    return json_value if isinstance(json_value, int) and not isinstance(json_value, bool) else None


def _compile_wording(sample_message: str) -> re.Pattern[str]:
    escaped = r"\s+".join(re.escape(part) for part in sample_message.split(" "))
    pattern = _PLACE.sub(
        lambda place: rf"(?P<{place[1]}>{_TOKEN_COUNT})" if place[1] else ".{0,80}?", escaped
    )
    return re.compile(pattern, re.IGNORECASE | re.DOTALL)


_PATTERNS = tuple(_compile_wording(wording) for _, wording in WORDINGS)
