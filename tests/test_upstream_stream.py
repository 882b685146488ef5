"""Streams that break, read to where they broke."""

from __future__ import annotations

import json

import pytest
from upstreamkit import chunk, reader

from causerie.errors import UpstreamFailed
from causerie.protocol.events import Event, Finished, TextDelta, Usage
from causerie.transport.errors import TransportFailed
from causerie.upstreams.stream import Held, Stream

BEGUN = json.dumps(chunk(content="Hi")).encode()
ENDED = json.dumps(chunk("stop", content="Hi")).encode()
TOLD = json.dumps({"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 7}}).encode()


class Breaking(Held):
    """A body that breaks off after what there is of it."""

    async def piece(self, late: float = float("inf")) -> bytes:
        if body := await super().piece(late):
            return body
        raise TransportFailed("reset", "the server broke the connection off", sent=True)


def stream(body: bytes) -> Stream:
    return Stream(reader(), Breaking(body), 60.0, float("inf"))


@pytest.mark.parametrize(
    ("rest", "told"),
    [(b"", False), (b"data: " + TOLD[:-9], False), (b"data: " + TOLD, True)],
    ids=["nothing", "half an event", "an event without its end"],
)
async def test_a_reply_that_is_complete_but_for_its_usage_is_no_failure(
    rest: bytes, told: bool
) -> None:
    events: list[Event] = []
    async for batch in stream(b"data: " + ENDED + b"\n\n" + rest):
        events += batch
    assert events[:2] == [TextDelta("Hi"), Finished("stop")]
    assert isinstance(events[2], Usage)
    assert (events[2].completion == 7) is told


async def test_a_reply_that_breaks_off_says_what_came_and_fails() -> None:
    broken = stream(b"data: " + BEGUN + b"\n\n")
    assert await anext(broken) == [TextDelta("Hi")]
    with pytest.raises(UpstreamFailed, match="broke the connection off") as failure:
        await anext(broken)
    assert isinstance(failure.value.__cause__, TransportFailed)
