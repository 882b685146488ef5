"""Patterns and formats of schemas, compiled once, to check strings by them.

The library allocates about a kilobyte for each new character, and each of its calls holds the
interpreter's lock. So it reads texts in pieces, and work and memory are counted.
"""

from __future__ import annotations

import json
from functools import lru_cache
from threading import Lock
from time import thread_time

from llguidance import LLMatcher, LLParserLimits, LLTokenizer

from causerie.chat.schema.bounded_cache import BoundedCache

STEP_SECONDS = 20e-6  # of processor time
HEADER = "%llguidance {}\nstart: "
_PIECE = 256  # bytes in one call of the library: 3 ms with the worst patterns that are known
_COMPILED_BYTES = 50_000  # of a pattern
_STATE_BYTES = 1_300  # for each byte that was matched
_MOST_BYTES = 32_000_000  # of one pattern
MOST_KEPT_BYTES = 64_000_000  # of all patterns together


class WorkExceeded(Exception):
    """A check takes more work than its caller, or the library, allows."""


class Work:
    """Counter of the steps that may still be taken; a copy is the same counter."""

    __slots__ = ("left",)

    def __init__(self, left: int) -> None:
        self.left = left

    def __copy__(self) -> Work:
        return self

    def spend(self, steps: int) -> None:
        """Subtract steps from those left; raise :class:`WorkExceeded` if there are too few."""
        self.left -= steps
        if self.left < 0:
            raise WorkExceeded


PATTERNS = BoundedCache[tuple[str, str], tuple[LLMatcher, int]](MOST_KEPT_BYTES, _MOST_BYTES)
"""Compiled patterns and formats of all schemas, each with an estimate of its memory."""
_PATTERNS_LOCK = Lock()


def follows_rule(text: str, keyword: str, rule: str, work: Work) -> bool:
    """Return whether a string follows a ``pattern`` or ``format``; raise :class:`WorkExceeded`."""
    began, key = thread_time(), (keyword, rule)
    with _PATTERNS_LOCK:
        known = PATTERNS.get(key)
    if known is None:
        schema = json.dumps({"type": "string", keyword: rule}, ensure_ascii=False)
        known = matcher_of(f"{HEADER}%json {schema}"), _COMPILED_BYTES
        work.spend(1 + int((thread_time() - began) / STEP_SECONDS))
    matcher, size = known
    quoted = json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
    size += len(quoted) * _STATE_BYTES
    with _PATTERNS_LOCK:
        PATTERNS.keep(key, (matcher, size), size)
    return follows(quoted, matcher, work)


def follows(text: str, matcher: LLMatcher, work: Work) -> bool:
    """Return whether a grammar admits the whole text; raise :class:`WorkExceeded`."""
    try:
        raw = text.encode()
    except UnicodeEncodeError:
        return False
    began, reader = thread_time(), matcher.deep_copy()
    for at in range(0, len(raw), _PIECE):
        piece = list(raw[at : at + _PIECE])
        taken = reader.try_consume_tokens(piece)
        now = thread_time()
        work.spend(1 + int((now - began) / STEP_SECONDS))
        began = now
        if reader.is_error():  # of the work that the library bounds
            raise WorkExceeded
        if taken < len(piece):
            return False
    return reader.is_accepting()


def matcher_of(grammar: str, limits: LLParserLimits | None = None) -> LLMatcher:
    limits = limits or LLParserLimits(verbose_errors=False)
    return LLMatcher(_build_byte_tokenizer(), grammar, log_level=0, limits=limits)


@lru_cache(maxsize=1)
def _build_byte_tokenizer() -> LLTokenizer:
    return LLTokenizer("byte")
