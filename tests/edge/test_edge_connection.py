"""HTTP/1.1 as our server speaks it: what a connection may do, byte by byte."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast
from unittest.mock import Mock

import pytest
from casekit import each_of
from edgekit import (
    ASK,
    HELLO,
    MemoryTransport,
    ScriptedPipeline,
    make_edge,
    parse_response,
    read_response,
    serving,
    wire,
)
from hypothesis import given
from hypothesis import strategies as st

from causerie.errors import InvalidRequest
from causerie.http.connection import Connections, Listen
from causerie.http.exchange import Exchange
from causerie.http.head import Headers
from causerie.protocol.events import TextDelta

STREAM = ASK | {"stream": True}


@asynccontextmanager
async def opened(port: int) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield reader, writer
    finally:
        writer.close()


async def test_requests_sent_at_once_are_answered_in_their_order() -> None:
    gate = asyncio.Event()
    pipeline = ScriptedPipeline(script=[gate, *HELLO])
    async with serving(make_edge(pipeline)) as port, opened(port) as (reader, writer):
        live = b"GET /health/live HTTP/1.1\r\nhost: localhost\r\n\r\n"
        writer.write(wire(ASK) + live + wire(ASK, path="/v1/nothing"))
        async with asyncio.timeout(60):
            await pipeline.opened.wait()
            gate.set()
            first = await read_response(reader)
            second = await read_response(reader)
            third = await read_response(reader)
    assert first.json()["object"] == "chat.completion"
    assert second.json() == {"status": "live"}
    assert third.status == 404


_CHUNKED = b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    "behind",
    [b"}", b"GET /" + b"x" * 100_000, _CHUNKED + b"ZZ\r\n"],
    ids=["rest", "head", "body"],
)
async def test_what_is_no_request_takes_no_answer_from_those_before_it(behind: bytes) -> None:
    """A client that counts characters where bytes are asked for sends the rest of its body so."""
    gate = asyncio.Event()
    pipeline = ScriptedPipeline(script=[gate, *HELLO])
    async with serving(make_edge(pipeline)) as port, opened(port) as (reader, writer):
        writer.write(wire(ASK) + wire(b"{") + behind)
        async with asyncio.timeout(60):
            await pipeline.opened.wait()
            gate.set()
            assert (await read_response(reader)).status == 200
            last = await read_response(reader)
            assert (last.error["code"], last.headers["connection"]) == ("invalid_json", "close")
            assert await reader.read() == b""


@each_of("first", [b"", b"GET /health/live HTTP/1.1\r\nhost: a\r\n\r\n"])
@each_of("last", [0, 2, 70_000])
@each_of(
    "lines",
    [b"x: " + b"a" * 65_536 + b"\r\n", b"x: y\r\n" * 12_000, b""],
    ids=["one header", "many headers", "path"],
)
async def test_a_head_that_comes_whole_may_be_no_larger_than_others(
    first: bytes, last: int, lines: bytes
) -> None:
    """``last`` of its bytes come later."""
    path = b"/v1/models" if lines else b"/" + b"a" * 65_536
    sent = first + b"GET " + path + b" HTTP/1.1\r\nhost: a\r\n" + lines + b"\r\n"
    cut = len(sent) - last
    connections = Connections(make_edge().answer, Listen())
    connection, transport = connections(), MemoryTransport()
    connection.connection_made(transport)
    for piece in filter(None, (sent[:cut], sent[cut:])):
        connection.data_received(piece)
    await connections.workers.ended()
    assert transport.closed
    if first:  # which says that the connection ends with it
        assert transport.written.count(b"200 OK") == transport.written.count(b"HTTP/1.1") == 1
    else:
        answer = parse_response(bytes(transport.written))
        assert (answer.status, answer.error["code"]) == (431, "head_too_large")


@each_of("path", ["/v1/chat/completions", "/v1/models"])
@each_of(("encoding", "body"), [(b"chunked", b"5\r\nhello\r\nZZ\r\n"), (b"gzip", b"0\r\n\r\n")])
@each_of("together", [True, False])
async def test_a_body_that_is_not_http_is_refused_in_json(
    path: str, encoding: bytes, body: bytes, together: bool
) -> None:
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n".encode()
    head += b"transfer-encoding: " + encoding + b"\r\n\r\n"
    connections = Connections(make_edge().answer, Listen())
    connection, transport = connections(), MemoryTransport()
    connection.connection_made(transport)
    for piece in [head + body] if together else [head, body]:
        connection.data_received(piece)
    answer = parse_response(bytes(transport.written))
    assert (answer.status, answer.error["code"]) == (400, "invalid_http")
    assert answer.headers["connection"] == "close"
    assert transport.closed
    connection.connection_lost(None)
    await connections.workers.ended()
    assert transport.written.count(b"HTTP/1.1") == 2  # the line, and the words


@each_of("cut", [None, 40, -12])
@each_of("chunked", [False, True])
async def test_a_request_that_offers_another_protocol_has_its_body(
    cut: int | None, chunked: bool
) -> None:
    """As the client of the JDK does with whatever it sends first: it would rather speak HTTP/2."""
    offer = (
        b"connection: Upgrade, HTTP2-Settings\r\nhttp2-settings: AAEAAEAA\r\nupgrade: h2c\r\n"
        b"accept: a\r\naccept: b\r\n\r\n"
    )
    request = wire(ASK).replace(b"\r\n\r\n", b"\r\n" + offer, 1)
    if chunked:
        head, _, body = request.partition(b"\r\n\r\n")
        head = head.replace(b"content-length: %d" % len(body), b"transfer-encoding: chunked")
        request = head + b"\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    pipeline = ScriptedPipeline()
    async with serving(make_edge(pipeline)) as port, opened(port) as (reader, writer):
        for _ in range(2):
            writer.write(request[:cut])
            if cut is not None:
                await asyncio.sleep(0)
                writer.write(request[cut:])
            async with asyncio.timeout(60):
                assert (await read_response(reader)).status == 200
    assert len(pipeline.requests) == 2


@pytest.mark.parametrize(("version", "connection"), [("1.0", "upgrade"), ("1.1", "close, upgrade")])
async def test_a_request_that_offers_another_protocol_may_be_the_last(
    version: str, connection: str
) -> None:
    """As one that came through a proxy that speaks HTTP/1.0 and passes the offer on."""
    request = wire(ASK, extra=f"connection: {connection}\r\nupgrade: h2c\r\n")
    request = request.replace(b"HTTP/1.1", b"HTTP/" + version.encode(), 1)
    pipeline = ScriptedPipeline()
    async with serving(make_edge(pipeline)) as port, opened(port) as (reader, writer):
        writer.write(request)
        async with asyncio.timeout(60):
            assert (await read_response(reader)).status == 200
            assert await reader.read() == b""


async def test_offers_that_come_at_once_are_declined_one_by_one() -> None:
    async def answer(exchange: Exchange) -> None:
        exchange.respond(200, b"")

    connections = Connections(answer, Listen())
    connection, transport = connections(), MemoryTransport()
    connection.connection_made(transport)
    connection.data_received(
        b"GET / HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n" * 1500
    )
    for _ in range(1500):
        await connections.workers.ended()
    assert transport.written.count(b"200 OK") == 1500
    assert not transport.closed


async def test_a_tunnel_is_not_opened() -> None:
    async with serving(make_edge()) as port, opened(port) as (reader, writer):
        writer.write(b"CONNECT localhost:1 HTTP/1.1\r\nhost: localhost\r\nupgrade: x\r\n\r\n\x16")
        async with asyncio.timeout(60):
            assert (await read_response(reader)).status == 404
            assert await reader.read() == b""


@pytest.mark.parametrize("size", [1, 7, 64])
async def test_a_chunked_body_is_read(size: int) -> None:
    body = json.dumps(ASK).encode()
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
    head = (
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\n"
        b"content-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
    )
    async with serving(make_edge()) as port, opened(port) as (reader, writer):
        writer.write(head + chunks)
        assert (await read_response(reader)).status == 200


async def test_a_client_that_asks_first_is_told_to_go_on() -> None:
    body = json.dumps(ASK).encode()
    head = wire(ASK, extra="expect: 100-continue\r\n").removesuffix(body)
    async with serving(make_edge()) as port, opened(port) as (reader, writer):
        writer.write(head)
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(body)
        assert (await read_response(reader)).status == 200


async def test_a_client_that_asks_first_is_refused_without_its_body() -> None:
    head = (
        b"POST /endpoints/locked/v1/chat/completions HTTP/1.1\r\nhost: localhost\r\n"
        b"content-type: application/json\r\ncontent-length: 1000\r\nexpect: 100-continue\r\n\r\n"
    )
    async with serving(make_edge()) as port, opened(port) as (reader, writer):
        writer.write(head)
        answer = await read_response(reader)
        assert (answer.status, answer.headers["connection"]) == (401, "close")
        writer.write(b"x" * 1000)  # it may come none the less, and is never asked for now
        async with asyncio.timeout(60):
            assert await reader.read() == b""


async def test_a_client_that_asks_first_and_sends_at_once_keeps_its_connection() -> None:
    async with serving(make_edge()) as port, opened(port) as (reader, writer):
        for path in ("/v1/chat/completions", "/endpoints/locked/v1/chat/completions", "/v1/x"):
            writer.write(wire(ASK, path, extra="expect: 100-continue\r\n"))
            assert "connection" not in (await read_response(reader)).headers


async def test_an_old_client_gets_a_body_that_ends_with_the_connection() -> None:
    body = json.dumps(STREAM).encode()
    request = wire(STREAM).replace(b"HTTP/1.1", b"HTTP/1.0", 1)
    async with serving(make_edge()) as port, opened(port) as (reader, writer):
        writer.write(request)
        answer = await read_response(reader)
    assert body
    assert "transfer-encoding" not in answer.headers
    assert answer.headers["connection"] == "close"
    assert answer.events()[-1] == "[DONE]"


async def test_an_old_client_may_keep_its_connection() -> None:
    live = b"GET /health/live HTTP/1.0\r\nhost: localhost\r\nconnection: keep-alive\r\n\r\n"
    async with serving(make_edge()) as port, opened(port) as (reader, writer):
        for _ in range(2):
            writer.write(live)
            answer = await read_response(reader)
            assert answer.headers["connection"] == "keep-alive"


async def test_the_client_may_ask_to_close() -> None:
    async with serving(make_edge()) as port, opened(port) as (reader, writer):
        writer.write(wire(ASK, extra="connection: close\r\n"))
        answer = await read_response(reader)
        assert answer.headers["connection"] == "close"
        assert await reader.read() == b""


async def test_an_unwanted_body_is_read_to_its_end_and_the_connection_goes_on() -> None:
    path = "/endpoints/locked/v1/chat/completions"
    async with serving(make_edge()) as port, opened(port) as (reader, writer):
        writer.write(wire(b"x" * 1_000_000, path=path))
        assert (await read_response(reader)).status == 401
        writer.write(wire(ASK))
        assert (await read_response(reader)).status == 200


async def test_an_unwanted_body_that_never_ends_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("causerie.http.connection._LINGER_SECONDS", 0.0)
    head = wire(b"x" * 1000, path="/endpoints/locked/v1/chat/completions")[:-500]
    async with serving(make_edge()) as port, opened(port) as (reader, writer):
        writer.write(head)
        assert (await read_response(reader)).status == 401
        async with asyncio.timeout(60):
            assert await reader.read() == b""


class Clock:
    """A loop whose time stands where a test puts it."""

    now = 0.0

    def time(self) -> float:
        return self.now


async def test_an_unwanted_body_may_come_slowly_but_not_for_ever() -> None:
    async def refuse(exchange: Exchange) -> None:
        exchange.refuse(InvalidRequest("Too large.", code="body_too_large", status=413))

    clock, transport = Clock(), Mock(is_closing=lambda: False)
    connections = Connections(refuse, Listen())
    connections.loop = cast(asyncio.AbstractEventLoop, clock)
    connection = connections()
    connection.connection_made(transport)
    connection.data_received(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\r\n")
    await connections.workers.ended()
    while not transport.close.called:
        clock.now += 4.0
        connections.sweep()
        connection.data_received(b"x")
    assert b"413" in transport.write.call_args_list[0].args[0]
    assert clock.now == 32.0


async def test_a_client_that_stopped_reading_does_not_win_time_by_asking_more() -> None:
    pipeline = ScriptedPipeline(script=[TextDelta("x" * 100_000)] * 400)
    async with (
        serving(make_edge(pipeline), stuck_seconds=0.1) as port,
        opened(port) as (_, writer),
    ):
        transport = cast(asyncio.Transport, writer.transport)
        transport.pause_reading()
        writer.write(wire(STREAM))
        await pipeline.opened.wait()
        for _ in range(3):
            await asyncio.sleep(0)  # the answer has started
        writer.write(wire(ASK))
        async with asyncio.timeout(60):
            await pipeline.released.wait()


async def test_answers_that_nobody_reads_are_not_heaped_up() -> None:
    begun: list[Exchange] = []

    async def answer(exchange: Exchange) -> None:
        begun.append(exchange)
        exchange.respond(200, b"")

    connections = Connections(answer, Listen())
    connection, transport = connections(), MemoryTransport()
    connection.connection_made(transport)
    for number in range(4):  # by then the head is known, too
        connection.data_received(wire({"n": number}))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    connection.pause_writing()
    connection.data_received(wire({"n": 4}))
    connection.data_received(wire({"n": 5}) + wire({"n": 6}))
    await asyncio.sleep(0)
    assert len(begun) == 4
    connection.resume_writing()
    for _ in range(8):
        await asyncio.sleep(0)
    assert [one.at_hand() for one in begun] == [b'{"n": %d}' % number for number in range(7)]
    await connections.workers.ended()


async def test_an_idle_connection_is_closed() -> None:
    async with (
        serving(make_edge(), keep_alive_seconds=0.05) as port,
        opened(port) as (reader, writer),
    ):
        writer.write(wire(ASK))
        assert (await read_response(reader)).status == 200
        async with asyncio.timeout(60):
            assert await reader.read() == b""


async def test_a_second_head_may_not_take_as_long_as_an_idle_connection() -> None:
    async with (
        serving(make_edge(), keep_alive_seconds=60, head_seconds=0.05) as port,
        opened(port) as (reader, writer),
    ):
        writer.write(wire(ASK))
        assert (await read_response(reader)).status == 200
        writer.write(b"GET /health/live HTTP/1.1\r\nhost:")
        async with asyncio.timeout(60):
            assert await reader.read() == b""


async def test_a_bug_in_the_middle_of_a_stream_ends_it_like_any_failure() -> None:
    pipeline = ScriptedPipeline(script=[HELLO[0], RuntimeError("a bug")])
    async with serving(make_edge(pipeline)) as port, opened(port) as (reader, writer):
        writer.write(wire(STREAM, extra="connection: close\r\n"))
        body = (await read_response(reader)).body
    data = [line for line in body.split(b"\n") if line.startswith(b"data: ")]
    assert data[-1] == b"data: [DONE]"
    broken = json.loads(data[-2].removeprefix(b"data: "))
    assert broken["error"]["code"] == "internal_error"
    assert broken["choices"][0]["finish_reason"] == "error"
    assert b"a bug" not in body


@each_of("value", ["a\r\nx-evil: 1", "\nx-evil: 1", "a\r", "\n\nb", "a\r\n\r\nb", "a\x85b"])
async def test_no_value_of_a_header_makes_a_line_of_its_own(value: str) -> None:
    async def answer(exchange: Exchange) -> None:
        exchange.respond(200, b"body", headers={"x-given": value, "x-next": "n"})

    connections = Connections(answer, Listen())
    connection, transport = connections(), MemoryTransport()
    connection.connection_made(transport)
    connection.data_received(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
    await connections.workers.ended()
    answered = parse_response(bytes(transport.written))
    assert set(answered.headers) == {
        "x-given", "x-next", "content-type", "x-request-id", "content-length"
    }  # fmt: skip
    assert (answered.headers["x-next"], answered.body) == ("n", b"body")


async def test_a_header_that_comes_again_is_not_lost_and_the_first_counts() -> None:
    seen: list[Headers] = []

    async def answer(exchange: Exchange) -> None:
        seen.append(exchange.headers)
        exchange.respond(200, b"")

    connections = Connections(answer, Listen())
    connection = connections()
    connection.connection_made(MemoryTransport())
    connection.data_received(
        b"GET / HTTP/1.0\r\nA: 1\r\nB:\r\na: 2\r\nb: \xe9\r\nA: 3\r\nConnection: keep-alive\r\n\r\n"
    )
    connection.data_received(b"GET / HTTP/1.0\r\nA: 4\r\n\r\n")
    await connections.workers.ended()
    await connections.workers.ended()
    first, second = seen
    assert first == {"a": "1", "b": "", "connection": "keep-alive"}
    assert (first.every("a"), first.every("b"), first.every("c")) == (
        ["1", "2", "3"],
        ["", "é"],
        [],
    )
    assert (second, second.every("a")) == ({"a": "4"}, ["4"])


async def test_what_comes_behind_a_body_says_nothing_of_the_request() -> None:
    seen: list[Headers] = []

    async def answer(exchange: Exchange) -> None:
        seen.append(exchange.headers)
        exchange.respond(200, b"")

    connections = Connections(answer, Listen())
    connection = connections()
    connection.connection_made(MemoryTransport())
    connection.data_received(
        b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n0\r\n"
    )
    connection.data_received(b"host: b\r\nauthorization: Bearer b\r\nb: b\r\n\r\n")
    connection.data_received(b"GET / HTTP/1.0\r\na: 1\r\n\r\n")
    await connections.workers.ended()
    await connections.workers.ended()
    assert seen == [{"host": "a", "transfer-encoding": "chunked"}, {"a": "1"}]
    assert seen[0].again is None


async def test_an_unfinished_response_is_seen_to_be_cut() -> None:
    edge = make_edge()

    async def stop_in_the_middle(exchange: Exchange) -> None:
        exchange.start(200, "text/plain", {})
        exchange.write(b"half")

    edge.mount("/half", stop_in_the_middle)
    async with serving(edge) as port, opened(port) as (reader, writer):
        writer.write(b"GET /half HTTP/1.1\r\nhost: localhost\r\n\r\n")
        async with asyncio.timeout(60):
            assert not (await reader.read()).endswith(b"0\r\n\r\n")


async def test_the_head_goes_out_with_the_first_piece() -> None:
    async def begin(exchange: Exchange) -> None:
        exchange.start(200, "text/plain", {})
        exchange.write(b"first")
        exchange.write(b"second")
        exchange.end()

    connections = Connections(begin, Listen())
    connection = connections()
    transport = _Wire()
    connection.connection_made(transport)
    connection.data_received(b"GET /x HTTP/1.1\r\nhost: localhost\r\n\r\n")
    await connections.workers.ended()
    first, second, end = transport.pieces
    assert first.startswith(b"HTTP/1.1 200 OK\r\n")
    assert first.endswith(b"\r\n\r\n5\r\nfirst\r\n")
    assert (second, end) == (b"6\r\nsecond\r\n", b"0\r\n\r\n")


@given(st.lists(st.integers(1, 400), max_size=12))
def test_a_request_may_arrive_in_any_pieces(cuts: list[int]) -> None:
    request = wire(ASK) + wire(ASK, path="/v1/nothing")

    async def ask() -> bytes:
        connections = Connections(make_edge().answer, Listen())
        connection = connections()
        transport = _Wire()
        connection.connection_made(transport)
        rest = request
        for cut in cuts:
            connection.data_received(rest[:cut]) if rest else None
            rest = rest[cut:]
        if rest:
            connection.data_received(rest)
        await connections.workers.ended()
        await connections.workers.ended()
        return bytes(transport.written)

    written = asyncio.run(ask())
    head, _, rest = written.partition(b"HTTP/1.1 404")
    assert parse_response(head).json()["object"] == "chat.completion"
    assert parse_response(b"HTTP/1.1 404" + rest).status == 404


class _Wire(asyncio.Transport):
    """Takes what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.pieces: list[bytes] = []

    @property
    def written(self) -> bytes:
        return b"".join(self.pieces)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.pieces.append(bytes(data))

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None:
        """It is never read by itself."""

    def resume_reading(self) -> None:
        """It is never read by itself."""


@each_of(
    ("line", "version", "keep_alive"),
    [
        (b"HTTP/1.1\r\n", "1.1", True),
        (b"HTTP/1.1\r\nConnection: keep-alive\r\n", "1.1", True),
        (b"HTTP/1.1\r\nConnection: close\r\n", "1.1", False),
        (b"HTTP/1.0\r\n", "1.0", False),
        (b"HTTP/1.0\r\nConnection: keep-alive\r\n", "1.0", True),
        (b"HTTP/1.0\r\nProxy-Connection: keep-alive\r\n", "1.0", True),
    ],
)
async def test_the_version_is_known_whatever_a_client_asks_of_its_connection(
    line: bytes, version: str, keep_alive: bool
) -> None:
    seen: list[tuple[str, bool]] = []

    async def answer(exchange: Exchange) -> None:
        seen.append((exchange.head.version, exchange.keep_alive))
        exchange.respond(200, b"")

    connections = Connections(answer, Listen())
    connection = connections()
    connection.connection_made(MemoryTransport())
    connection.data_received(b"GET / " + line + b"Host: a\r\n\r\n")
    await connections.workers.ended()
    assert seen == [(version, keep_alive)]
