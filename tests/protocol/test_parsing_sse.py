"""The event-stream codec: what is encoded is decoded, wherever the pieces are cut."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from causerie.protocol.sse import DONE, PING, EventDecoder, LineTooLong, NamedEvent, encode


def decode(pieces: list[bytes], *, values: bool = False) -> list[bytes]:
    decoder = EventDecoder(values=values)
    events = [event for piece in pieces for event in decoder.feed(piece)]
    return events + decoder.close()


lines = st.binary(min_size=1, max_size=20).filter(
    lambda data: b"\n" not in data and b"\r" not in data
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
    assert decode([b"data: a\rdata: b\r\rdata: c\r\r"]) == [b"a\nb", b"c"]
    assert decode([b"data: a\rdata: b\n\n", b"data: c\r\n\n"]) == [b"a\nb", b"c"]
    assert decode([b"data: a\r", b"", b"\ndata: b\r\n\r\n"]) == [b"a\nb"]


@given(
    st.lists(
        st.sampled_from(
            [b"data: {}", b": wait", b"event: ping", b"event: message", b"event: ", b"event:  x",
             b"event: ping\ndata: {}\n", b"event: x\ndata: [1]\n", b'{"a":', b'"}\\"]"}',
             b"[1]", b"", b"data:x", b"id: 3", b"\xef\xbb\xbf", b"{", b"}"]
        ),
        max_size=9,
    ),
    st.lists(st.sampled_from([b"\n", b"\r\n", b"\r"]), min_size=9, max_size=9),
    st.lists(st.integers(0, 200), max_size=6),
)  # fmt: skip
def test_every_cut_of_odd_lines_gives_the_same_events(
    found: list[bytes], ends: list[bytes], cuts: list[int]
) -> None:
    wire = b"".join(line + end for line, end in zip(found, ends, strict=False))
    edges = [0, *sorted(cut % (len(wire) + 1) for cut in cuts), len(wire)]
    pieces = [wire[start:end] for start, end in itertools.pairwise(edges)]
    whole, parts, letters = (
        decode(each, values=True)
        for each in ([wire], pieces, [wire[at : at + 1] for at in range(len(wire))])
    )
    assert parts == whole == letters
    names = [[getattr(each, "name", b"") for each in events] for events in (whole, parts, letters)]
    assert names[0] == names[1] == names[2]


def test_a_value_without_a_field_name_is_an_event_where_it_is_asked_for() -> None:
    value = b'{"a": "}\\"",\n "b": [1]}'
    assert decode([value], values=True) == [value]
    assert decode([value + b"\n\n" + DONE], values=True) == [value, b"[DONE]"]
    assert decode([b": wait\n\n" + value], values=True) == [value]
    assert decode([b'{"a":1}\n{"b":2}\n[3]\n'], values=True) == [b'{"a":1}', b'{"b":2}', b"[3]"]
    assert decode([b'{"a":\ndata: x\n\n'], values=True) == [b'{"a":', b"x"]
    assert decode([value]) == []


def test_an_event_that_is_no_message_has_its_name() -> None:
    [event, other] = decode([b"event: ping\ndata: {}\n\n", b"event: message\ndata: x\n\n"])
    assert isinstance(event, NamedEvent)
    assert (event, event.name) == (b"{}", b"ping")
    assert not isinstance(other, NamedEvent)


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
