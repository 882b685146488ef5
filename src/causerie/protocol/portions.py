"""Split batches of events, so that others have their turn, and join events, to save memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import groupby
from typing import Any

from msgspec.structs import replace

from causerie.protocol.events import (
    Batch,
    Event,
    Finished,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    ToolCallStarted,
)

PORTION = 64 * 1024
"""The size of what is handed on at once, about, in characters."""
_EVENTS = 4096  # however short each is
_TOKENS = 256  # with log-probabilities, of one piece
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
            if (size > room or len(portion) == _EVENTS) and portion:
                portions.append(portion)
                portion, room = [], PORTION
            portion.append(piece)
            room -= size
    if portion:
        portions.append(portion)
    return portions


def joined(events: Batch) -> list[Event]:
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
    """Return the key that is common to the pieces of one text; ``None`` for other events."""
    match event:
        case TextDelta(logprobs=()):
            return TextDelta, event.choice
        case ReasoningDelta(blocks=()):
            return ReasoningDelta, event.choice
        case ToolCallDelta():
            return ToolCallDelta, event.choice, event.index
    return None


def is_large(batch: Batch) -> bool:
    """Return whether writing the events takes so long that others should have their turn."""
    if len(batch) == 3 and batch[1].__class__ is Finished:  # most are a text, its end, its usage
        text = batch[0]
        if text.__class__ is TextDelta and not text.logprobs:
            return len(text.text) > PORTION
    return len(batch) > _EVENTS or sum(map(_size, batch)) > PORTION


def _size(event: Event) -> int:
    """Return about how many characters take as long to write."""
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
        if len(event.logprobs) > _TOKENS or len(event.text) > PORTION:
            return _texts_and_tokens(event)
    elif isinstance(event, ReasoningDelta):
        if len(event.text) > PORTION and not event.blocks:
            return (replace(event, text=text) for text in _cut(event.text))
    elif isinstance(event, ToolCallDelta) and len(event.arguments) > PORTION:
        return (replace(event, arguments=text) for text in _cut(event.arguments))
    return iter((event,))


def _texts_and_tokens(event: TextDelta) -> Iterator[Event]:
    """The text first: log-probabilities may follow it."""
    tokens = event.logprobs
    for text in _cut(event.text):
        yield TextDelta(text, (), event.choice)
    for start in range(0, len(tokens), _TOKENS):
        yield TextDelta("", tokens[start : start + _TOKENS], event.choice)


def _cut(text: str) -> Iterator[str]:
    return (text[start : start + PORTION] for start in range(0, len(text), PORTION))
