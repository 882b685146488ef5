"""Events of a reply, the same for every kind of target, with helpers to split and join them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from causerie.protocol.reasoning import Block

# Events of an answer, the same for every kind of target.

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


# The part of a reply that was sent before its target failed; another target continues it.
#
# Only replies with one choice are continued.


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


# Report on the prefix cache: the tokens of a prompt that were reused, and why not more.


class CacheMiss(Struct, frozen=True):
    """Reason why less was reused than the last request of the conversation had computed.

    ``reusable`` is what that request had computed, in tokens. ``message`` is the index of the
    message that differed, where one did; ``detail`` says more of the place.
    """

    reason: str
    reusable: int
    message: int | None = None
    detail: str = ""

    def __str__(self) -> str:
        where = "" if self.message is None else f" at messages[{self.message}]"
        return self.reason + where + (f" ({self.detail})" if self.detail else "")


class CacheReport(Struct, frozen=True):
    """Tokens of the prompt, those of them that were reused, and the miss, if there was one."""

    prompt: int
    reused: int
    miss: CacheMiss | None = None

    def __str__(self) -> str:
        """Return the value of the header ``x-cache``."""
        found = f"reused={self.reused}, prompt={self.prompt}"
        if self.miss is None:
            return found
        return f'{found}, reusable={self.miss.reusable}, miss="{self.miss}"'


CacheReporter = Callable[[str], CacheReport | None]
"""Reports on a request of the caller with this name, whose conversations alone it looks at."""


# Split batches of events, so that others have their turn, and join events, to save memory.

PORTION = 64 * 1024
"""The size of what is handed on at once, about, in characters."""
_MAX_EVENTS = 4096  # however short each is
_MAX_TOKENS = 256  # with log-probabilities, of one piece
_TOKEN_SIZE = 64  # characters that take as long to write as one log-probability
_CALL_SIZE = 64  # likewise, as a call without its name and arguments


def in_portions(batch: Batch) -> list[Batch]:
    """Return the events in batches of about ``PORTION``; a longer text comes in pieces.

    Pieces that are put together say what the event said. Blocks of reasoning stay whole.
    """
    portions: list[Batch] = []
    portion: list[Event] = []
    room = PORTION
    for event in batch:
        for piece in _pieces(event):
            size = _size(piece)
            if (size > room or len(portion) == _MAX_EVENTS) and portion:
                portions.append(portion)
                portion, room = [], PORTION
            portion.append(piece)
            room -= size
    if portion:
        portions.append(portion)
    return portions


def joined_events(events: Batch) -> list[Event]:
    """Return the events with successive pieces of one text joined."""
    together: list[Event] = []
    for key, run in groupby(events, key=_text_that_goes_on):
        first, *others = run
        if key is not None and others:
            name = "arguments" if isinstance(first, ToolCallDelta) else "text"
            text = "".join([getattr(event, name) for event in (first, *others)])
            first = replace(first, **{name: text})
            others = []
        together += (first, *others)
    return together


def _text_that_goes_on(event: Event) -> tuple[object, ...] | None:
    match event:
        case TextDelta(logprobs=()):
            return TextDelta, event.choice
        case ReasoningDelta(blocks=()):
            return ReasoningDelta, event.choice
        case ToolCallDelta():
            return ToolCallDelta, event.choice, event.index
    return None


def is_large_batch(batch: Batch) -> bool:
    """Return whether writing the events takes so long that others should have their turn."""
    if len(batch) == 3 and batch[1].__class__ is Finished:  # most are a text, its end, its usage
        text = batch[0]
        if text.__class__ is TextDelta and not text.logprobs:
            return len(text.text) > PORTION
    return len(batch) > _MAX_EVENTS or sum(map(_size, batch)) > PORTION


def _size(event: Event) -> int:
    size = _SIZES.get(event.__class__)
    return 0 if size is None else size(event)


def _size_of_text(event: TextDelta) -> int:
    tokens = len(event.logprobs)
    if not tokens:
        return len(event.text)
    alternatives = sum(len(one.top) for one in event.logprobs)
    return len(event.text) + _TOKEN_SIZE * (tokens + alternatives)


_SIZES: Mapping[type, Callable[[Any], int]] = {
    TextDelta: _size_of_text,
    ReasoningDelta: lambda event: len(event.text),
    ToolCallDelta: lambda event: len(event.arguments),
    ToolCallStarted: lambda event: _CALL_SIZE + len(event.name),
}


def _pieces(event: Event) -> Iterator[Event]:
    if isinstance(event, TextDelta):
        if len(event.logprobs) > _MAX_TOKENS or len(event.text) > PORTION:
            return _texts_and_tokens(event)
    elif isinstance(event, ReasoningDelta):
        if len(event.text) > PORTION and not event.blocks:
            return (replace(event, text=text) for text in _cut_text(event.text))
    elif isinstance(event, ToolCallDelta) and len(event.arguments) > PORTION:
        return (replace(event, arguments=text) for text in _cut_text(event.arguments))
    return iter((event,))


def _texts_and_tokens(event: TextDelta) -> Iterator[Event]:
    # The text first: log-probabilities may follow it.
    tokens = event.logprobs
    for text in _cut_text(event.text):
        yield TextDelta(text, (), event.choice)
    for start in range(0, len(tokens), _MAX_TOKENS):
        yield TextDelta("", tokens[start : start + _MAX_TOKENS], event.choice)


def _cut_text(text: str) -> Iterator[str]:
    return (text[start : start + PORTION] for start in range(0, len(text), PORTION))
