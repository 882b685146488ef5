"""What a target says while it answers, whatever kind of target it is.

Every target (a text engine behind ``chat``, or somebody's chat endpoint behind
``upstreams``) yields these, in this order for each choice: reasoning before
text, a call's start before its arguments, exactly one ``Finished`` last.
``Usage`` comes once, after every choice has finished.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

FinishReason = Literal["stop", "length", "tool_calls", "content_filter", "error"]


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """One token of the answer. ``logprob`` is a natural logarithm; ``raw`` its bytes."""

    text: str
    logprob: float
    raw: bytes
    top: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """A piece of the reasoning text."""

    text: str
    choice: int = 0


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of the answer, with the log-probabilities of its tokens where asked for."""

    text: str
    logprobs: tuple[TokenLogprob, ...] = ()
    choice: int = 0


@dataclass(frozen=True, slots=True)
class ToolCallStarted:
    """A call has begun. ``index`` counts the calls of one choice from 0."""

    index: int
    id: str
    name: str
    choice: int = 0


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    """A piece of the JSON text of a call's arguments."""

    index: int
    arguments: str
    choice: int = 0


@dataclass(frozen=True, slots=True)
class Finished:
    """A choice has ended."""

    reason: FinishReason
    choice: int = 0


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts of the whole request; ``completion`` includes ``reasoning``."""

    prompt: int
    completion: int
    cached: int = 0
    reasoning: int = 0


ContentEvent = ReasoningDelta | TextDelta | ToolCallStarted | ToolCallDelta
Event = ContentEvent | Finished | Usage
