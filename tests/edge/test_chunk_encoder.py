"""The bytes of a stream are those of its chunks, however they are put together."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import chain
from typing import get_args

import msgspec
import pytest
from casekit import each_of
from hypothesis import given
from hypothesis import strategies as st

from causerie.errors import InternalError
from causerie.protocol.events import (
    Event,
    Finished,
    FinishReason,
    ReasoningDelta,
    TextDelta,
    TokenLogprob,
    Usage,
)
from causerie.protocol.response import CompletionIdentity, ResponseContext
from causerie.protocol.sse import encode
from causerie.shapes.chat_completions.encoder import (
    Chunk,
    ChunkChoice,
    ChunkEncoder,
    Delta,
    Logprobs,
    TokenLogprobBody,
    completion,
    usage_body,
)

texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=8) | st.just('""')
choices = st.integers(0, 2)
counts = st.integers(0, 2**40)
frames = st.builds(
    ResponseContext,
    st.builds(CompletionIdentity, texts, st.integers(0, 2**40), st.just("r")),
    texts,
    texts,
    st.booleans(),
    st.just(False),
    st.none() | st.floats(0, 1).map(lambda cost: lambda usage: cost),
)
weighed = st.builds(TokenLogprob, texts, st.floats(-9, 0), st.binary(max_size=2))
logprobs = st.just(()) | st.lists(weighed, max_size=2).map(tuple)
said = st.lists(
    st.builds(TextDelta, texts, logprobs, choices) | st.builds(ReasoningDelta, texts, choices),
    max_size=12,
)
ends = st.builds(Finished, st.sampled_from(get_args(FinishReason)), choices)
used = st.builds(Usage, counts, counts, counts, counts)
all_events = st.lists(said | st.lists(ends, max_size=1) | st.lists(used, max_size=1), max_size=4)


def chunks(frame: ResponseContext, events: list[Event]) -> Iterator[Chunk]:
    """Yield the chunks that the contract makes of events, in a second implementation."""

    def chunk(*choices: ChunkChoice) -> Chunk:
        return Chunk(
            id=frame.identity.id,
            created=frame.identity.created,
            model=frame.model,
            system_fingerprint=frame.fingerprint,
            choices=list(choices),
        )

    begun: set[int] = set()
    for event in events:
        if isinstance(event, Usage):
            last = chunk()
            last.usage = usage_body(event, frame.cost)
            yield last
            continue
        if event.choice not in begun:
            begun.add(event.choice)
            role = Delta(role="assistant", content="")
            yield chunk(ChunkChoice(index=event.choice, delta=role))
        told = ChunkChoice(index=event.choice, delta=Delta())
        if isinstance(event, TextDelta):
            told.delta.content = event.text
            if event.logprobs:
                told.logprobs = Logprobs(content=[weight(token) for token in event.logprobs])
        elif isinstance(event, Finished):
            told.finish_reason = event.reason
        elif isinstance(event, ReasoningDelta):
            if not (frame.reasoning_visible and event.text):
                continue
            told.delta.reasoning_content = event.text
        yield chunk(told)


def weight(token: TokenLogprob) -> TokenLogprobBody:
    return TokenLogprobBody(
        token=token.text, logprob=token.logprob, bytes=list(token.raw), top_logprobs=[]
    )


@given(frames, all_events, st.data())
def test_the_bytes_are_those_of_the_chunks(
    frame: ResponseContext, parts: list[list[Event]], data: st.DataObject
) -> None:
    events = list(chain.from_iterable(parts))
    cut = data.draw(st.integers(0, len(events)))
    fold = ChunkEncoder(frame)
    written = fold.feed(events[:cut]) + fold.feed(events[cut:])
    assert written == b"".join(
        encode(msgspec.json.encode(chunk)) for chunk in chunks(frame, events)
    )


@given(frames, texts, texts, ends, used)
def test_a_plain_answer_is_the_same_in_one_piece_and_in_several(
    frame: ResponseContext, text: str, more: str, end: Finished, usage: Usage
) -> None:
    pieces = [TextDelta(text, (), end.choice), TextDelta(more, (), end.choice)]
    one = TextDelta(text + more, (), end.choice)
    assert completion(frame, [one, end, usage]) == completion(frame, [*pieces, end, usage])


@given(frames, said)
def test_a_plain_answer_says_what_the_stream_says(
    frame: ResponseContext, events: list[TextDelta | ReasoningDelta]
) -> None:
    ends = [Finished("length", index) for index in (2, 0, 1)]
    made = completion(frame, [*events, *ends, Usage(3, 4)])
    assert [choice.index for choice in made.choices] == [0, 1, 2]
    assert (made.usage.total_tokens, made.choices[0].finish_reason) == (7, "length")
    for choice in made.choices:
        mine = [event for event in events if event.choice == choice.index]
        spoken = "".join(event.text for event in mine if isinstance(event, TextDelta))
        thought = "".join(event.text for event in mine if isinstance(event, ReasoningDelta))
        assert choice.message.content == spoken
        shown = thought if thought and frame.reasoning_visible else msgspec.UNSET
        assert choice.message.reasoning_content == shown


def test_an_answer_without_its_usage_is_no_answer() -> None:
    frame = ResponseContext(CompletionIdentity("chatcmpl-1", 1, "r"), "m", "f")
    for events in ([], [TextDelta("half"), Finished("stop")]):
        with pytest.raises(InternalError, match="before it was complete"):
            completion(frame, events)


@each_of(
    ("events", "ended"),
    [
        ([], [0]),
        ([TextDelta("half")], [0]),
        ([TextDelta("whole"), Finished("stop")], []),
        ([TextDelta("a"), TextDelta("b", (), 1), Finished("stop")], [1]),
        ([TextDelta("a"), TextDelta("b", (), 1), Finished("stop"), Finished("stop", 1)], []),
    ],
)
def test_a_stream_that_breaks_ends_every_choice_once(events: list[Event], ended: list[int]) -> None:
    fold = ChunkEncoder(ResponseContext(CompletionIdentity("chatcmpl-1", 1, "r"), "m", "f"))
    fold.feed(events)
    error = InternalError("It broke.").error()
    told = json.loads(fold.broken(error).removeprefix(b"data: "))
    assert told["error"] == msgspec.to_builtins(error)
    assert [choice["index"] for choice in told["choices"]] == ended
    assert all(choice["finish_reason"] == "error" for choice in told["choices"])
