"""Hostile connections and bodies, over real sockets: always an answer, never a 500 or a hang."""

from __future__ import annotations

import asyncio

import pytest
from casekit import each_of
from edgekit import ASK, LOCKED, Response, ScriptedPipeline, make_edge, read_response, serving, wire

from causerie.http.api import RequestLimits
from causerie.http.exchange import BodyLimits

MEBIBYTE = 1024 * 1024
ANSWER_SECONDS = 60


async def exchange(port: int, *pieces: bytes) -> Response:
    """Send the pieces, keep the connection open, and read what comes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        async with asyncio.timeout(ANSWER_SECONDS):
            return await read_response(reader)
    finally:
        writer.close()


BODIES = {
    "bad UTF-8": b'{"model":"\xff\xfe"}',
    "deep arrays": b"[" * MEBIBYTE,
    "deep objects": b'{"a":' * 200_000,
    "deep and closed": b'{"model":"m","x":' + b"[" * 5000 + b"]" * 5000 + b"}",
    "huge integer": b'{"model":"m","seed":' + b"9" * 100_000 + b"}",
    "huge float": b'{"model":"m","temperature":1e9999}',
    "many values": b"[" + b"0," * (7 * MEBIBYTE) + b"0]",
    "many strings": b"[" + b'"",' * (5 * MEBIBYTE) + b'""]',
    "nothing but quotes": b'"' * (16 * MEBIBYTE),
    "nothing but backslashes": b"\\" * (16 * MEBIBYTE),
    "nothing": b"",
    "zero bytes": b"\x00" * MEBIBYTE,
    "lone surrogate": b'{"model":"\\udfff"}',
    "many keys": b"{" + b",".join(b'"k%d":0' % at for at in range(300_000)) + b"}",
    "tools without end": b'{"model":"m","messages":[],"tools":[' + b"{}," * 100_000 + b"{}]}",
}


@each_of("name", BODIES)
async def test_hostile_bodies_are_refused(name: str) -> None:
    async with serving(make_edge()) as port:
        answer = await exchange(port, wire(BODIES[name]))
    assert answer.status == 400
    assert answer.error["type"] == "invalid_request_error"


async def test_a_body_of_exactly_the_limit_is_read() -> None:
    start = b'{"model":"m","messages":[{"role":"user","content":"'
    content = start + b"a" * (16 * MEBIBYTE - len(start) - 4) + b'"}]}'
    assert len(content) == 16 * MEBIBYTE
    async with serving(make_edge()) as port:
        assert (await exchange(port, wire(content))).status == 200


@pytest.mark.parametrize("announced", [True, False])
async def test_a_larger_body_is_refused_and_can_be_sent_to_its_end(announced: bool) -> None:
    body = b"a" * (17 * MEBIBYTE)
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\n"
    head += b"content-type: application/json\r\n"
    if announced:
        pieces = [head + b"content-length: %d\r\n\r\n" % len(body), body]
    else:
        chunk = b"%x\r\n%s\r\n" % (len(body), body)
        pieces = [head + b"transfer-encoding: chunked\r\n\r\n", chunk, b"0\r\n\r\n"]
    async with serving(make_edge()) as port:
        answer = await exchange(port, *pieces)
    assert (answer.status, answer.error["code"]) == (413, "body_too_large")
    assert answer.headers["connection"] == "close"


async def test_a_body_that_never_ends_is_given_up() -> None:
    limits = RequestLimits(body=BodyLimits(seconds=0.05))
    pipeline = ScriptedPipeline()
    async with serving(make_edge(pipeline, limits=limits)) as port:
        answer = await exchange(port, wire(ASK)[:-5])
    assert (answer.status, answer.error["code"]) == (408, "request_timeout")
    assert not pipeline.requests


@pytest.mark.parametrize(
    "sent",
    [b"", b"POST /v1/chat", b"GET /health HTTP/1.1\r\nhost: lo"],
    ids=["nothing", "half a line", "half a head"],
)
async def test_a_head_that_never_ends_is_given_up(sent: bytes) -> None:
    async with serving(make_edge(), head_seconds=0.05) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sent)
        async with asyncio.timeout(ANSWER_SECONDS):
            assert await reader.read() == b""
        writer.close()


@pytest.mark.parametrize(
    "head",
    [
        b"GET /health HTTP/1.1\r\nx: " + b"a" * 200_000,
        b"GET /" + b"a" * 200_000,
        b"GET /health HTTP/1.1\r\n" + b"x: y\r\n" * 50_000,
    ],
    ids=["one long header", "a long path", "many headers"],
)
async def test_a_head_without_bounds_is_refused(head: bytes) -> None:
    async with serving(make_edge()) as port:
        answer = await exchange(port, head)
    assert (answer.status, answer.error["code"]) == (431, "head_too_large")


@pytest.mark.parametrize(
    "line", [b"\x16\x03\x01\x02\x00\x01", b"GET\r\n\r\n", b"FOO / HTTP/9.9\r\n\r\n", b"\x00" * 64]
)
async def test_what_is_not_http_is_refused_in_json(line: bytes) -> None:
    async with serving(make_edge()) as port:
        answer = await exchange(port, line)
    assert (answer.status, answer.error["code"]) == (400, "invalid_http")


async def test_a_path_of_odd_bytes_leads_nowhere() -> None:
    async with serving(make_edge()) as port:
        for path in (b"/%ff%fe", b"/v1/%00", b"/v1/models/%f0%9f", b"//v1/models", b"/v1/%2e%2e"):
            answer = await exchange(port, b"GET %s HTTP/1.1\r\nhost: localhost\r\n\r\n" % path)
            assert answer.status == 404, path


async def test_an_upgrade_is_not_taken_up() -> None:
    async with serving(make_edge()) as port:
        extra = "host: a\r\nconnection: upgrade\r\nupgrade: websocket\r\n"
        answer = await exchange(port, f"GET /health/live HTTP/1.1\r\n{extra}\r\n".encode())
    assert answer.status == 200


async def test_without_a_key_the_body_is_not_waited_for() -> None:
    head = wire(b"x" * 1000, path=f"{LOCKED.prefix}/chat/completions")[:-1000]
    async with serving(make_edge()) as port:
        assert (await exchange(port, head)).status == 401


async def test_too_many_connections_are_told() -> None:
    async with serving(make_edge(), max_connections=1) as port:
        _, held = await asyncio.open_connection("127.0.0.1", port)
        answer = await exchange(port)
        assert (answer.status, answer.error["type"]) == (503, "overloaded_error")
        assert answer.headers["retry-after"]
        held.close()


async def test_idle_connections_do_not_hold_up_others() -> None:
    async with serving(make_edge()) as port:
        idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(200)]
        assert (await exchange(port, wire(ASK))).status == 200
        for _, writer in idle:
            writer.close()
