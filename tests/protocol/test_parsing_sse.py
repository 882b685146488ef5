"""The event-stream codec: what is encoded is decoded, wherever the pieces are cut."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from causerie.protocol.sse import DONE, PING, EventDecoder, LineTooLong, encode


def decode(pieces: list[bytes]) -> list[bytes]:
    decoder = EventDecoder()
    events = [event for piece in pieces for event in decoder.feed(piece)]
    return events + decoder.close()


lines = st.binary(min_size=1, max_size=20).filter(
    lambda data: b"\n" not in data and not data.endswith(b"\r")
)


@given(st.lists(lines, max_size=6), st.data())
def test_every_cut_gives_the_same_events(events: list[bytes], data: st.DataObject) -> None:
    wire = PING.join(encode(event) for event in events) + DONE
    cuts = sorted(data.draw(st.lists(st.integers(0, len(wire)), max_size=8)))
    edges = [0, *cuts, len(wire)]
    pieces = [wire[start:end] for start, end in itertools.pairwise(edges)]
    assert decode(pieces) == [*events, b"[DONE]"]


def test_one_byte_at_a_time() -> None:
    wire = encode('{"a":"\u2028é"}'.encode()) + PING + DONE
    assert decode([wire[at : at + 1] for at in range(len(wire))]) == [
        '{"a":"\u2028é"}'.encode(),
        b"[DONE]",
    ]


def test_what_other_servers_write_is_read() -> None:
    assert decode([b"\xef\xbb\xbfdata:x\r\n\r\n"]) == [b"x"]
    assert decode([b"event: message\nid: 3\ndata: a\ndata: b\n\n"]) == [b"a\nb"]
    assert decode([b": comment\n\n\ndata: x\n\ndata: last"]) == [b"x", b"last"]
    assert decode([b": ping\n\n"]) == []


@pytest.mark.parametrize("empty", [b"data: \n\n", b"data:\n\n", b"data: \r\n\r\n", b"data\n\n"])
def test_an_event_without_data_is_none(empty: bytes) -> None:
    """Some servers keep a connection alive with them; readers pass them over."""
    assert decode([empty]) == []
    assert decode([empty + encode(b"x") + empty + encode(b"y") + empty]) == [b"x", b"y"]
    assert decode([encode(b"x"), empty, encode(b"y"), empty]) == [b"x", b"y"]


def test_an_endless_line_is_not_held() -> None:
    decoder = EventDecoder(max_bytes=100)
    with pytest.raises(LineTooLong):
        decoder.feed(b"data: " + b"x" * 200)
    decoder = EventDecoder(max_bytes=100)
    with pytest.raises(LineTooLong):
        decoder.feed(b"data: 0123456789\n" * 20)


def test_a_ping_is_one_comment_line() -> None:
    assert PING == b": ping\n"
    assert encode(b"{}") == b"data: {}\n\n"
