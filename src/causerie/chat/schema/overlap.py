"""Patterns that may match the same text, so that a grammar cannot hold the schemas of both.

Patterns with different fixed beginnings are told apart at once. The library that enforces patterns
compares the others, which takes about a millisecond for each pair: a few pairs of a schema are
compared, and all others may overlap.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

from llguidance import LLMatcher, LLParserLimits, LLTokenizer

_LIMITS = LLParserLimits(initial_lexer_fuel=100_000, max_lexer_states=10_000, verbose_errors=False)
_MOST_COMPARED = 6  # pairs of patterns in one schema
_MOST_HEAD = 24  # characters of a fixed beginning that are looked at
_HEAD = re.compile(r"\^([\w :/-]*)(\$\Z)?")
_REPEATED = frozenset("?*+{")


@dataclass(slots=True)
class PatternIndex:
    """Patterns by their fixed beginnings, each with the number of its group."""

    _heads: defaultdict[str, list[tuple[str, int]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    _longer: defaultdict[str, list[tuple[str, int]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    """By each shorter beginning."""

    def add(self, pattern: str, group: int) -> None:
        """Add a rewritten pattern."""
        head = _head(pattern)
        self._heads[head].append((pattern, group))
        for length in range(len(head)):
            self._longer[head[:length]].append((pattern, group))

    def near(self, pattern: str) -> Iterator[tuple[str, int]]:
        """The patterns whose beginning does not exclude that of ``pattern``."""
        head = _head(pattern)
        for length in range(len(head) + 1):
            yield from self._heads.get(head[:length], ())
        yield from self._longer.get(head, ())


@dataclass(slots=True)
class PatternOverlap:
    """Compares the patterns of one schema."""

    _left: int = _MOST_COMPARED

    def possible(self, one: str, other: str) -> bool:
        """Return whether some text may match both of two rewritten patterns."""
        if one == other or not self._left:
            return True
        self._left -= 1
        return _may_overlap(one, other)


def _head(pattern: str) -> str:
    """Return the characters that a matching text begins with; ``$`` is the end of the text."""
    found = _HEAD.match(pattern)
    if found is None or "|" in pattern:
        return ""
    head = found[1] + (found[2] or "")
    if pattern[len(head) + 1 : len(head) + 2] in _REPEATED:
        head = head[:-1]
    return head[:_MOST_HEAD]


@lru_cache(maxsize=256)
def _may_overlap(one: str, other: str) -> bool:
    schema = {"type": "string", "allOf": [{"pattern": one}, {"pattern": other}]}
    grammar = "%llguidance {}\nstart: %json " + json.dumps(schema, ensure_ascii=False)
    matcher = LLMatcher(_bytes(), grammar, log_level=0, limits=_LIMITS)
    return not (matcher.is_error() and "empty" in matcher.get_error().lower())


@lru_cache(maxsize=1)
def _bytes() -> LLTokenizer:
    return LLTokenizer("byte")
