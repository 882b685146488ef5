"""Events in portions say what they said together."""

from __future__ import annotations

import json
from typing import Any

import pytest
from casekit import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from providerkit import BufferedBody, body_stream, chunk

from causerie.errors import UpstreamFailed
from causerie.http import answers
from causerie.http.answers import PlainAnswer
from causerie.protocol.events import (
    PORTION,
    Batch,
    Event,
    Finished,
    ReasoningDelta,
    TextDelta,
    TokenLogprob,
    ToolCallDelta,
    ToolCallStarted,
    Usage,
    in_portions,
    is_large_batch,
    joined_events,
)
from causerie.protocol.request import ChatRequest
from causerie.protocol.response import CompletionIdentity, ResponseContext
from causerie.shapes.chat_completions.encoder import completion
from causerie.shapes.chat_completions.reader import with_reply

_CONTEXT = ResponseContext(CompletionIdentity("c", 0, "r"), "m", "f", router_names=True)
_PARSED = with_reply(ChatRequest("m", ()))
_texts = st.builds(
    lambda start, times: start * times, st.text("ab \n😀", min_size=1), st.integers(1, PORTION)
)
_tokens = st.builds(
    lambda count, top: (
        (TokenLogprob("x", -1.0, b"x", (TokenLogprob("y", -2.0, b"y"),) * top),) * count
    ),
    st.integers(0, 1_000),
    st.integers(0, 3),
)
_blocks = st.sampled_from([(), ({"type": "reasoning.encrypted", "data": "x"},)])
_events = st.one_of(
    st.builds(ReasoningDelta, _texts, st.just(0), _blocks),
    st.builds(TextDelta, _texts, _tokens),
    st.builds(ToolCallDelta, st.just(0), _texts),
)


def _answer(batch: Batch) -> Any:
    started, end = ToolCallStarted(0, "c", "f"), (Finished("stop"), Usage(1, 1))
    return completion(_CONTEXT, [started, *batch, *end])


@settings(max_examples=examples(40), deadline=None)
@given(events=st.lists(_events, min_size=1, max_size=6))
def test_portions_say_what_the_events_said(events: list[Event]) -> None:
    portions = in_portions(events)
    assert _answer([event for portion in portions for event in portion]) == _answer(events)
    assert not any(is_large_batch(portion) for portion in portions if len(portion) > 1)


async def test_a_large_event_keeps_its_place() -> None:
    """It is read elsewhere, so that it could be overtaken; what fails behind it fails after it."""
    said = ["a", "large " * 300_000, "b", "larger " * 300_000, "c"]
    body = b"".join(b"data: %s\n\n" % json.dumps(chunk(content=text)).encode() for text in said)
    events: list[Event] = []
    batches = 0
    with pytest.raises(UpstreamFailed, match="before it was complete"):
        async for batch in body_stream(BufferedBody(body)):
            events += batch
            batches += 1
            assert not is_large_batch(batch)
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == "".join(said)
    assert batches > len(said)


def test_many_short_events_are_large() -> None:
    events = [TextDelta("x", (), number % 2) for number in range(10_000)]
    assert is_large_batch(events)
    assert max(map(len, in_portions(events))) < 5_000


def test_events_that_cannot_be_joined_are_not_looked_at_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked: list[int] = []

    def noting(events: Batch) -> list[Event]:
        looked.append(len(events))
        return joined_events(events)

    monkeypatch.setattr(answers, "joined_events", noting)
    answer = PlainAnswer(_PARSED)
    take = answer.begin({}, _CONTEXT)
    said = [TextDelta(f"{number} ", (), number % 2) for number in range(50_000)]
    for start in range(0, len(said), 100):
        take(said[start : start + 100])
    assert sum(looked) < 51_000
    assert max(looked) < 5_000
    assert _answer(answer._collected_events) == _answer(said)


def test_events_are_joined_across_batches() -> None:
    answer = PlainAnswer(_PARSED)
    take = answer.begin({}, _CONTEXT)
    for _ in range(20_000):
        take((TextDelta("x"),))
    assert len(kept := answer._collected_events) < 5_000
    assert "".join(e.text for e in kept if isinstance(e, TextDelta)) == "x" * 20_000
