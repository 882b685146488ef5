"""Texts that two patterns share, found by the library that enforces them."""

from __future__ import annotations

import json
from functools import lru_cache

from llguidance import LLMatcher, LLParserLimits, LLTokenizer

_LIMITS = LLParserLimits(initial_lexer_fuel=100_000, max_lexer_states=10_000, verbose_errors=False)


@lru_cache(maxsize=256)
def may_overlap(one: str, other: str) -> bool:
    """Return whether some text may match both of two rewritten patterns."""
    schema = {"type": "string", "allOf": [{"pattern": one}, {"pattern": other}]}
    grammar = "%llguidance {}\nstart: %json " + json.dumps(schema, ensure_ascii=False)
    matcher = LLMatcher(_bytes(), grammar, log_level=0, limits=_LIMITS)
    return not (matcher.is_error() and "empty" in matcher.get_error().lower())


@lru_cache(maxsize=1)
def _bytes() -> LLTokenizer:
    return LLTokenizer("byte")
