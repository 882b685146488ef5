"""Events of an answer, the same for every kind of target.

Every target (a text engine behind ``chat``, or another's server behind ``providers``) yields these,
in this order for each choice: reasoning before text, a call's start before its arguments, exactly
one ``Finished`` last. ``Usage`` comes once, after every choice has finished. Events travel in
batches: those that arrived together are passed on together.

None of these is ever part of a reference cycle, so the garbage collector skips them (``gc=False``).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct

from causerie.protocol.reasoning import Block

FinishReason = Literal["stop", "length", "tool_calls", "content_filter", "error"]


class TokenLogprob(Struct, frozen=True, gc=False):
    """One token of the answer. ``logprob`` is a natural logarithm; ``raw`` its bytes."""

    text: str
    logprob: float
    raw: bytes
    top: tuple[TokenLogprob, ...] = ()


class ReasoningDelta(Struct, frozen=True, gc=False):
    """A piece of the reasoning text.

    ``blocks`` are the same in the form of a provider that needs it back, and
    what of it cannot be read: the text may be empty then.
    """

    text: str
    choice: int = 0
    blocks: tuple[Block, ...] = ()


class TextDelta(Struct, frozen=True, gc=False):
    """A piece of the answer, with the log-probabilities of its tokens where asked for."""

    text: str
    logprobs: tuple[TokenLogprob, ...] = ()
    choice: int = 0


class ToolCallStarted(Struct, frozen=True, gc=False):
    """A call has started. ``index`` counts the calls of one choice from 0.

    ``extra`` is what its provider put alongside it and needs back (``extra_content``).
    """

    index: int
    id: str
    name: str
    choice: int = 0
    extra: Mapping[str, Any] | None = None


class ToolCallDelta(Struct, frozen=True, gc=False):
    """A piece of the JSON text of a call's arguments."""

    index: int
    arguments: str
    choice: int = 0


class Finished(Struct, frozen=True, gc=False):
    """A choice has ended."""

    reason: FinishReason
    choice: int = 0
    verified: bool = True
    """False if checking the reply against its response format took too much work."""


class Usage(Struct, frozen=True, gc=False):
    """Token counts of the whole request; ``completion`` includes ``reasoning``.

    ``estimated``: prompt or completion were not counted for certain. ``impossible``: the target
    reported numbers that cannot be right, and they were estimated instead.
    """

    prompt: int
    completion: int
    cached: int = 0
    reasoning: int = 0
    estimated: bool = False
    discarded: int = 0
    """Tokens that were generated and taken back; not part of ``completion``."""
    impossible: bool = False


ContentEvent = ReasoningDelta | TextDelta | ToolCallStarted | ToolCallDelta
Event = ContentEvent | Finished | Usage
Batch = Sequence[Event]
BatchSink = Callable[[Batch], Awaitable[object] | None]
"""Takes batches as they come; its result, if any, is awaited before the next batch."""
ArrivalSink = Callable[[Batch], bool]
"""Takes a batch in the moment in which it arrives; false: the next one is to be waited for."""
