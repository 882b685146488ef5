"""Streams that break, read to where they broke."""

from __future__ import annotations

import json
from time import monotonic

import pytest
from providerkit import BufferedBody, body_stream, chunk

from causerie.errors import UpstreamFailed
from causerie.http.client_connection import TransportFailed
from causerie.protocol.events import Event, Finished, TextDelta, Usage
from causerie.providers.target import BodyStream

BEGUN = json.dumps(chunk(content="Hi")).encode()
ENDED = json.dumps(chunk("stop", content="Hi")).encode()
END = json.dumps(chunk("stop")).encode()
TOLD = json.dumps({"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 7}}).encode()


class Breaking(BufferedBody):
    """A body that breaks off after what there is of it."""

    async def piece(self, late: float = float("inf")) -> bytes:
        if body := await super().piece(late):
            return body
        raise TransportFailed("reset", "the server broke the connection off", sent=True)


def stream(body: bytes) -> BodyStream:
    return body_stream(Breaking(body))


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


@pytest.mark.parametrize(
    "rest",
    [b'data: {"error": {"message": "no counts"}}\n\n', b"data: {\n\n"],
    ids=["an error", "no JSON"],
)
async def test_what_fails_after_the_end_of_a_reply_does_not_break_it(rest: bytes) -> None:
    """A target that continued it would say more than the whole."""
    events: list[Event] = []
    async for batch in stream(b"data: " + ENDED + b"\n\n" + rest):
        events += batch
    assert events[:2] == [TextDelta("Hi"), Finished("stop")]
    assert isinstance(events[2], Usage)


async def test_usage_is_waited_for_only_a_while() -> None:
    """Also where the end has come by itself, as from most servers."""
    waits: list[float] = []
    pieces = [b"data: " + BEGUN + b"\n\n", b"data: " + END + b"\n\n", b": ping\n\n"]

    class Silent(Breaking):
        async def piece(self, late: float = float("inf")) -> bytes:
            waits.append(late - monotonic())
            return pieces.pop(0) if pieces else await super().piece(late)

    events: list[Event] = []
    async for batch in body_stream(Silent(b"")):
        events += batch
    assert events[:2] == [TextDelta("Hi"), Finished("stop")]
    assert waits[1] > 50
    assert max(waits[2:]) <= 2


async def test_a_reply_that_breaks_off_says_what_came_and_fails() -> None:
    broken = stream(b"data: " + BEGUN + b"\n\n")
    assert await anext(broken) == [TextDelta("Hi")]
    with pytest.raises(UpstreamFailed, match="broke the connection off") as failure:
        await anext(broken)
    assert isinstance(failure.value.__cause__, TransportFailed)


async def test_a_burst_of_small_events_is_read_in_small_turns() -> None:
    event = b"data: " + BEGUN + b"\n\n"
    batches = [batch async for batch in stream(event * 5_000 + b"data: " + ENDED + b"\n\n")]
    assert sum(map(len, batches)) == 5_003  # each, the last one, its end, and usage
    assert max(map(len, batches)) <= 16 * 1024 // len(event) + 3
