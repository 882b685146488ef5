"""The part of a reply that was sent before its target failed; another target continues it.

Only replies with one choice are continued.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Trail:
    """The exact tokens of a reply so far; they mean something to engines of that ``vocabulary``."""

    vocabulary: str
    tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PartialCall:
    """A call that has started; ``arguments`` is the text so far."""

    index: int
    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Partial:
    """A reply so far. ``completion`` counts its tokens, ``reasoning_tokens`` those of reasoning."""

    reasoning: str = ""
    text: str = ""
    calls: tuple[PartialCall, ...] = ()
    completion: int = 0
    reasoning_tokens: int = 0
    trail: Trail | None = None
