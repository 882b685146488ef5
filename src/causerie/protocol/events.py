"""Events of a reply, the same for every kind of target, with helpers to split and join them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from causerie.protocol.reasoning import Block

FinishReason = Literal["stop", "length", "tool_calls", "content_filter", "error"]


class TokenLogprob(Struct, frozen=True, gc=False):
    """One token of the answer. ``logprob`` is a natural logarithm; ``raw`` its bytes."""

    text: str
    logprob: float
    raw: bytes
    top: tuple[TokenLogprob, ...] = ()


class ReasoningDelta(Struct, frozen=True, gc=False):
    """A piece of reasoning; its provider needs ``blocks`` back, which may have no text."""

    text: str
    choice: int = 0
    blocks: tuple[Block, ...] = ()


class TextDelta(Struct, frozen=True, gc=False):
    """A piece of the answer, with the log-probabilities of its tokens if requested."""

    text: str
    logprobs: tuple[TokenLogprob, ...] = ()
    choice: int = 0


class ToolCallStarted(Struct, frozen=True, gc=False):
    """The start of a call, counted from 0; its provider needs ``extra`` back."""

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
    verified: bool = True  # `False`: to check the reply against its format took too much work
    stop_sequence: str | None = None  # the stop string that ended it, if known


class Usage(Struct, frozen=True, gc=False):
    """Token counts of prompt and reply; ``impossible``: estimated, since wrong ones were told."""

    prompt: int
    completion: int
    cached: int = 0
    reasoning: int = 0
    estimated: bool = False
    discarded: int = 0  # tokens that were generated and taken back; not part of `completion`
    impossible: bool = False
    units: int = 0  # a reply without output tokens is charged by: search units, 1 for embeddings
    written: int = 0  # tokens of the prompt that the target wrote into its cache at a price


class PassedBytes(Struct, frozen=True, gc=False):
    """Bytes of a provider's reply that its client gets unchanged, since both speak one API.

    They are an event of a stream. Other events say the same, for those who count and keep.
    """

    data: bytes
    choice: int = 0
    last: bool = False  # they tell the client that the reply is complete


class PassedReply(PassedBytes, frozen=True, gc=False):
    """A whole reply, passed on unstreamed as bytes; events of its end and its usage follow."""


ContentEvent = ReasoningDelta | TextDelta | ToolCallStarted | ToolCallDelta
Event = ContentEvent | Finished | Usage | PassedBytes
Batch = Sequence[Event]
BatchSink = Callable[[Batch], Awaitable[object] | None]  # a result is awaited before the next
ArrivalSink = Callable[[Batch], bool]  # false: the next batch is to be awaited


@dataclass(frozen=True, slots=True)
class Trail:
    """Token ids of a reply so far; an engine with the same ``vocabulary`` can continue it."""

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


class CacheMiss(Struct, frozen=True):
    """Why less was reused than was ``reusable``; ``message`` is the index of what differed."""

    reason: str
    reusable: int
    message: int | None = None
    detail: str = ""

    def __str__(self) -> str:
        where = "" if self.message is None else f" at messages[{self.message}]"
        return self.reason + where + (f" ({self.detail})" if self.detail else "")


class CacheReport(Struct, frozen=True):
    """Tokens of the prompt, the reused ones, and the miss, if there was one."""

    prompt: int
    reused: int
    miss: CacheMiss | None = None

    def __str__(self) -> str:
        """Return the value of the header ``x-cache``: reused and prompt tokens, and a reason."""
        found = f"reused={self.reused}, prompt={self.prompt}"
        if self.miss is None:
            return found
        return f'{found}, reusable={self.miss.reusable}, miss="{self.miss}"'


CacheReporter = Callable[[str], CacheReport | None]
"""Reports on a request of the caller with this name, by that caller's conversations only."""


PORTION = 64 * 1024  # approximate size of a batch in characters
_MAX_EVENTS = 4096  # however short each is
_MAX_TOKENS = 256  # with log-probabilities, of one piece
_TOKEN_SIZE = 64  # characters that take as long to write as one log-probability
_CALL_SIZE = 64  # likewise, as a call without its name and arguments


def in_portions(batch: Batch) -> list[Batch]:
    """Split a batch, and long texts in it, into batches of about ``PORTION`` characters."""
    portions: list[Batch] = []
    portion: list[Event] = []
    room = PORTION
    for event in batch:
        for piece in _split_event(event):
            size = _estimate_event_size(piece)
            if (size > room or len(portion) == _MAX_EVENTS) and portion:
                portions.append(portion)
                portion, room = [], PORTION
            portion.append(piece)
            room -= size
    if portion:
        portions.append(portion)
    return portions


def joined_events(events: Batch) -> list[Event]:
    together: list[Event] = []
    for key, run in groupby(events, key=_joinable_text_key):
        first, *others = run
        if key is not None and others:
            name = "arguments" if isinstance(first, ToolCallDelta) else "text"
            text = "".join([getattr(event, name) for event in (first, *others)])
            first = replace(first, **{name: text})
            others = []
        together += (first, *others)
    return together


def _joinable_text_key(event: Event) -> tuple[object, ...] | None:
    match event:
        case TextDelta(logprobs=()):
            return TextDelta, event.choice
        case ReasoningDelta(blocks=()):
            return ReasoningDelta, event.choice
        case ToolCallDelta():
            return ToolCallDelta, event.choice, event.index
    return None


def is_large_batch(batch: Batch) -> bool:
    if len(batch) == 3 and batch[1].__class__ is Finished:  # most are a text, its end, its usage
        text = batch[0]
        if text.__class__ is TextDelta and not text.logprobs:
            return len(text.text) > PORTION
    if len(batch) > 2 and batch[-3].__class__ is PassedReply:
        return False  # nothing of it is encoded
    return len(batch) > _MAX_EVENTS or sum(map(_estimate_event_size, batch)) > PORTION


def _estimate_event_size(event: Event) -> int:
    match event:
        case TextDelta():
            tokens = sum(1 + len(one.top) for one in event.logprobs)
            return len(event.text) + _TOKEN_SIZE * tokens
        case ReasoningDelta():
            return len(event.text)
        case ToolCallDelta():
            return len(event.arguments)
        case ToolCallStarted():
            return _CALL_SIZE + len(event.name)
        case PassedBytes():
            return len(event.data)
    return 0


def _split_event(event: Event) -> Iterator[Event]:
    match event:
        case TextDelta(text, tokens) if len(tokens) > _MAX_TOKENS or len(text) > PORTION:
            # The text first: log-probabilities may follow it.
            yield from (TextDelta(piece, (), event.choice) for piece in _split_text(text))
            for start in range(0, len(tokens), _MAX_TOKENS):
                yield TextDelta("", tokens[start : start + _MAX_TOKENS], event.choice)
        case ReasoningDelta(text, blocks=()) if len(text) > PORTION:
            yield from (replace(event, text=piece) for piece in _split_text(text))
        case ToolCallDelta(_, text) if len(text) > PORTION:
            yield from (replace(event, arguments=piece) for piece in _split_text(text))
        case _:
            yield event


def _split_text(text: str) -> Iterator[str]:
    return (text[start : start + PORTION] for start in range(0, len(text), PORTION))
