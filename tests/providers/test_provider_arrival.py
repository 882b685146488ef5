"""Batches that are handed on in the moment in which they arrive say what awaited ones say."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from itertools import chain, pairwise
from typing import Any

import pytest
from casekit import examples
from hypothesis import example, given, settings
from hypothesis import strategies as st
from providerkit import chunk, joined, reader

from causerie.errors import ServiceError
from causerie.http.client_connection import HttpResponse
from causerie.protocol.events import Batch, Event, TextDelta, Usage
from causerie.providers.target import BodyStream

_NEVER = float("inf")
_WORDS = [
    "fox",
    " ",
    "é",
    "",
    "<think>",
    "</think>",
    '"',
    "\\",
    "\n",
    '"content":"x"',
    "😀",
    "ab" * 99,
]
_CALL = {"index": 0, "id": "c", "function": {"name": "f", "arguments": "{}"}}
_THOUGHTS = [chunk(reasoning="b"), chunk(reasoning="c")]
_USAGE = {"prompt_tokens": 3, "completion_tokens": 4}


class Source:
    """A connection that a test says the pieces of."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()

    def pause(self) -> None: ...
    def read_on(self) -> None: ...
    def drop(self) -> None: ...


def response() -> HttpResponse:
    source = Source()
    head: asyncio.Future[bytes] = source.loop.create_future()
    head.set_result(b"")
    return HttpResponse(source, _NEVER, head, head, status=200)  # type: ignore[arg-type]  # a source without a socket


def takes(body: HttpResponse, piece: bytes) -> bool:
    """Hand over a piece as a connection does, which feeds it if this is false."""
    return body.taker is not None and not body.waiting.done() and body.taker(piece)


async def said(pieces: Sequence[bytes], sink: Sequence[bool] | None, **fields: Any) -> list[Event]:
    """The events of a stream; ``sink`` says of each batch whether the next may come that way.

    With ``None`` every batch is awaited. A failure is the last of them, as its words.
    """
    body, incoming = response(), reader(**fields)
    stream = BodyStream(incoming, body, 60.0, _NEVER)
    events: list[Any] = []
    answers = list(sink or ())

    def take(batch: Batch) -> bool:
        events.extend(batch)
        return not answers or answers.pop()

    async def read() -> None:
        try:
            async for batch in stream:
                events.extend(batch)
                if sink is not None:
                    stream.on_arrival(take)
        except ServiceError as failure:
            events.append(TextDelta(f"[failed: {failure}]"))
        events.append(incoming.usage)
        await stream.leave()

    reading = asyncio.create_task(read())
    for piece in pieces:
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        if not takes(body, piece):
            body.feed(piece)
    body.end(b"")
    await reading
    return joined(events)


_TEXTS = st.lists(
    st.sampled_from(["fox", "fox", "the ", *_WORDS]), min_size=1, max_size=4
)  # of chunks in a row, which have all else in common
_RUNS = st.one_of(
    st.sampled_from(
        [
            lambda text: chunk(content=text),
            lambda text: chunk(content=text),
            lambda text: chunk(reasoning=text),
            lambda text: chunk(reasoning_content=text, content=None),
            lambda text: chunk(reasoning=text, content=text),
            lambda text: chunk(index=1, content=text),
            lambda text: {**chunk(content=text), "usage": _USAGE, "system_fingerprint": "fp"},
        ]
    ).flatmap(lambda made: _TEXTS.map(lambda texts: list(map(made, texts)))),
    st.sampled_from(
        [
            chunk("stop"),
            chunk("length", content="end"),
            chunk(tool_calls=[_CALL]),
            chunk(refusal="no"),
            {"choices": [], "usage": _USAGE},
            {"choices": [{"index": 0, "delta": {"content": "x"}}, {"delta": {"content": "y"}}]},
            {"error": {"message": "gone"}},
        ]
    ).map(lambda alone: [alone]),
)


def _event(document: dict[str, Any], style: dict[str, Any]) -> bytes:
    return f"data: {json.dumps(document, **style)}\n\n".encode()


@given(
    st.lists(_RUNS, min_size=1, max_size=6).map(lambda runs: list(chain(*runs))),
    st.sampled_from([{}, {"ensure_ascii": False, "separators": (",", ":")}]),
    st.lists(st.integers(0, 2000), max_size=2),
    st.lists(st.booleans(), max_size=3),
    st.sampled_from([1, 2]),
)
@example([chunk(content="<think>a"), *_THOUGHTS, chunk(content="d")], {}, [], [], 1)
@settings(max_examples=examples(50))
def test_a_stream_cut_anywhere_says_the_same(
    documents: list[dict[str, Any]],
    style: dict[str, Any],
    cuts: list[int],
    sink: list[bool],
    choices: int,
) -> None:
    told = [_event(each, style) for each in (*documents, chunk("stop"))]
    events = [*told, b"data: [DONE]\n\n"]
    whole = b"".join(events)
    ends = {sum(map(len, events[: number + 1])) for number in range(len(events))}
    places = sorted({0, *ends, *(cut % len(whole) for cut in cuts)})
    pieces = [whole[start:end] for start, end in pairwise(places)]

    async def both() -> None:
        assert await said(pieces, sink, n=choices) == await said(pieces, None, n=choices)

    asyncio.run(both())


_BEFORE, _BEHIND = _event(chunk(content="fox"), {}).decode().split('"fox"')


@pytest.mark.parametrize(
    "odd",
    [
        f'{_BEFORE}\n"x"{_BEHIND}',
        f'{_BEFORE}"x"\n{_BEHIND}',
        f'{_BEFORE} "x"{_BEHIND}',
        f'{_BEFORE}"x\ny"{_BEHIND}',
        f'{_BEFORE}""{_BEHIND}',
        f'{_BEFORE}"{_BEHIND}',
        f'{_BEFORE}"x","role":"assistant"{_BEHIND}',
        f'{_BEFORE}"x\\ud83d"{_BEHIND}',
        f'"x"{_BEHIND}',
        f"{_BEFORE[6:]}x{_BEHIND}",
        f'data: {{"a":\n{_BEFORE}"x"{_BEHIND}',
        f'event: error\n{_BEFORE}"x"{_BEHIND}',
        f'{_BEFORE}"x"{_BEHIND.replace(chr(10), chr(13))}',
        f'{_BEFORE}"x"{_BEHIND}{_BEFORE}"y"{_BEHIND}',
        f': comment\n{_BEFORE}"x"{_BEHIND}',
        f'{_BEFORE}"x"{_BEHIND[:-1]}',
    ],
)
@pytest.mark.parametrize("reasoning", [False, True])
async def test_an_event_like_the_ones_before_it_says_what_its_bytes_say_one_by_one(
    odd: str, *, reasoning: bool
) -> None:
    usual = [f'{_BEFORE}"{word}"{_BEHIND}' for word in ("the", "quick", "brown")]
    told = [*usual, odd, *usual, _event(chunk("stop"), {}).decode(), "data: [DONE]\n\n"]
    if reasoning:
        told = [each.replace('"content"', '"reasoning"') for each in told]
    pieces = [each.encode() for each in told]
    one_by_one = [bytes([byte]) for byte in b"".join(pieces)]
    assert await said(pieces, []) == await said(one_by_one, None)
    assert await said(pieces, None) == await said(one_by_one, None)


async def test_an_event_of_two_lines_is_no_form_of_one() -> None:
    def event(text: str, field: str) -> bytes:
        first, _, second = f'{_BEFORE}"{text}"{_BEHIND}'.partition(",")
        return f"{first},\n{field}{second}".encode()

    usual = [event(text, "data: ") for text in ("the", "quick")]
    pieces = [*usual, event("brown", ""), *usual, _event(chunk("stop"), {}), b"data: [DONE]\n\n"]
    one_by_one = [bytes([byte]) for byte in b"".join(pieces)]
    assert await said(pieces, []) == await said(one_by_one, None)


async def test_only_what_says_more_than_text_wakes_who_awaits_the_next_batch() -> None:
    body, incoming = response(), reader()
    stream = BodyStream(incoming, body, 60.0, _NEVER)
    arrived: list[Batch] = []

    def take(batch: Batch) -> bool:
        arrived.append(batch)
        return len(arrived) != 3

    body.feed(_event(chunk(content="a"), {}))
    assert await anext(stream) == [TextDelta("a")]
    stream.on_arrival(take)
    awaiting = asyncio.create_task(anext(stream))
    await asyncio.sleep(0)
    first, forever = body.late, [chunk(content=text) for text in "bcd"]
    assert [takes(body, _event(each, {})) for each in forever] == [True] * 3
    assert arrived == [(TextDelta("b"),), (TextDelta("c"),), (TextDelta("d"),)]
    assert body.late > first, "each gives the next one as much time"
    last = _event(chunk(content="e"), {})
    assert not takes(body, last), "the sink wanted no more"
    body.feed(last)
    assert await awaiting == [TextDelta("e")]
    body.feed(b"data: [DONE]\n\n")
    usage = (await anext(stream))[-1]
    assert isinstance(usage, Usage)
    assert usage.completion == 5
