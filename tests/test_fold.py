"""The bytes of a stream are those of its chunks, however they are put together."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from causerie.errors import InternalError
from causerie.fold import Fold, Frame, Identity
from causerie.protocol.completion import Chunk, ChunkChoice, Delta
from causerie.protocol.events import Finished, ReasoningDelta, TextDelta, Usage
from causerie.protocol.sse import encode

texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=8) | st.just('""')
choices = st.integers(0, 2)
frames = st.builds(
    Frame,
    st.builds(Identity, texts, st.integers(0, 2**40), st.just("r")),
    texts,
    texts,
    st.booleans(),
)
said = st.lists(
    st.builds(TextDelta, texts, st.just(()), choices) | st.builds(ReasoningDelta, texts, choices),
    max_size=12,
)


def deltas(events: list[TextDelta | ReasoningDelta], *, visible: bool) -> Iterator[ChunkChoice]:
    """What the contract makes of texts, written down anew."""
    begun: set[int] = set()
    for event in events:
        if event.choice not in begun:
            begun.add(event.choice)
            yield ChunkChoice(index=event.choice, delta=Delta(role="assistant", content=""))
        if isinstance(event, TextDelta):
            yield ChunkChoice(index=event.choice, delta=Delta(content=event.text))
        elif visible and event.text:
            yield ChunkChoice(index=event.choice, delta=Delta(reasoning_content=event.text))


@given(frames, said, st.data())
def test_the_bytes_are_those_of_the_chunks(
    frame: Frame, events: list[TextDelta | ReasoningDelta], data: st.DataObject
) -> None:
    cut = data.draw(st.integers(0, len(events)))
    fold = Fold(frame)
    written = fold.feed(events[:cut]) + fold.feed(events[cut:])
    assert written == b"".join(
        encode(
            msgspec.json.encode(
                Chunk(
                    id=frame.identity.id,
                    created=frame.identity.created,
                    model=frame.model,
                    system_fingerprint=frame.fingerprint,
                    choices=[choice],
                )
            )
        )
        for choice in deltas(events, visible=frame.reasoning_visible)
    )


@given(frames, said)
def test_a_plain_answer_says_what_the_stream_says(
    frame: Frame, events: list[TextDelta | ReasoningDelta]
) -> None:
    ends = [Finished("length", index) for index in (2, 0, 1)]
    made = frame.completion([*events, *ends, Usage(3, 4)])
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
    frame = Frame(Identity("chatcmpl-1", 1, "r"), "m", "f")
    for events in ([], [TextDelta("half"), Finished("stop")]):
        with pytest.raises(InternalError, match="before it was complete"):
            frame.completion(events)
