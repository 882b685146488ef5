"""Patterns that may match the same text, so that a grammar cannot hold the schemas of both; and
patterns that match a name.

Patterns with different fixed beginnings are told apart at once. The library that enforces patterns
compares the others, which takes about a millisecond for each pair: a few pairs of a schema are
compared, and all others may overlap. Python's own matcher is given no pattern of a client: it goes
back, without end in some.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from llguidance import LLMatcher, LLParserLimits, LLTokenizer

_LIMITS = LLParserLimits(initial_lexer_fuel=100_000, max_lexer_states=10_000, verbose_errors=False)
MOST_MATCHED = 4_000
"""Pairs of a name and a pattern that are compared in one schema."""
_MOST_COMPARED = 6  # pairs of patterns in one schema
_MOST_HEAD = 24  # characters of a fixed beginning that are looked at
_HEAD = re.compile(r"\^([\w :/-]*)(\$\Z)?")
_REPEATED = frozenset("?*+{")
_LITERAL = re.compile(r"(\^?)([\w :/-]*)(\$?)")


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


def matches(pattern: str, name: str) -> bool:
    """Return whether a rewritten pattern matches ``name``; true if that takes too long to tell."""
    literal = _LITERAL.fullmatch(pattern)
    if literal is not None:
        return _holds(*literal.groups(), name=name)
    matcher = _of_pattern(pattern).deep_copy()
    raw = list(json.dumps(name, ensure_ascii=False).encode(errors="replace"))
    taken = matcher.try_consume_tokens(raw)
    return (taken == len(raw) and matcher.is_accepting()) or matcher.is_error()


def _holds(start: str, text: str, end: str, *, name: str) -> bool:
    if start and end:
        return name == text
    if start:
        return name.startswith(text)
    return name.endswith(text) if end else text in name


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
    matcher = _of({"type": "string", "allOf": [{"pattern": one}, {"pattern": other}]})
    return not (matcher.is_error() and "empty" in matcher.get_error().lower())


@lru_cache(maxsize=256)
def _of_pattern(pattern: str) -> LLMatcher:
    return _of({"type": "string", "pattern": pattern})


def _of(schema: Mapping[str, object]) -> LLMatcher:
    grammar = "%llguidance {}\nstart: %json " + json.dumps(schema, ensure_ascii=False)
    return LLMatcher(_bytes(), grammar, log_level=0, limits=_LIMITS)


@lru_cache(maxsize=1)
def _bytes() -> LLTokenizer:
    return LLTokenizer("byte")
