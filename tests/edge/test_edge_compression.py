"""Compressed requests, within bounds, and compressed replies for clients that take them."""

from __future__ import annotations

import gzip
import json
import threading
import zlib
from collections.abc import Callable, Mapping
from dataclasses import replace

import brotli
import pytest
from casekit import each_of
from edgekit import ASK, HELLO, OPEN, Response, ScriptedPipeline, call, make_edge

from causerie.http import exchange as exchanges
from causerie.http.api import RequestLimits
from causerie.http.decoding import decoded_body, zstd
from causerie.http.doors import DoorTable, Origins
from causerie.http.exchange import BodyLimits
from causerie.protocol.events import Event, TextDelta

CHAT = "/v1/chat/completions"
PACKERS: Mapping[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "X-GZIP": gzip.compress,
    "deflate": zlib.compress,
    "br": brotli.compress,
    "zstd": zstd.compress,
}
LIMIT = 4 << 20
LARGE = {**ASK, "user": "".join(f"{number:x} " for number in range(200_000))}


async def sent(body: bytes, coding: str, pipeline: ScriptedPipeline | None = None) -> Response:
    edge = make_edge(pipeline, limits=RequestLimits(body=BodyLimits(max_bytes=LIMIT)))
    headers = {"content-type": "application/json", "content-encoding": coding}
    return await call(edge, CHAT, body, headers=headers)


@each_of("coding", PACKERS)
async def test_a_compressed_request_is_the_same_request(coding: str) -> None:
    pipeline = ScriptedPipeline()
    for body in (ASK, LARGE):
        packed = PACKERS[coding](json.dumps(body).encode())
        assert (await sent(packed, coding, pipeline)).status == 200
    small, large = pipeline.requests
    assert [each.messages[0].content for each in (small, large)] == ["Hi", "Hi"]


async def test_a_large_one_is_decoded_beside_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[str] = []
    decode = decoded_body

    def noting(body: bytes, coding: str, max_bytes: int) -> bytes:
        threads.append(threading.current_thread().name)
        return decode(body, coding, max_bytes)

    monkeypatch.setattr(exchanges, "decoded_body", noting)
    for body in (ASK, LARGE):
        assert (await sent(zstd.compress(json.dumps(body).encode()), "zstd")).status == 200
    assert threads[0] == threading.current_thread().name
    assert threads[1].startswith("offload")


@each_of("coding", [name for name in PACKERS if name != "X-GZIP"])
async def test_what_grows_too_large_is_refused(coding: str) -> None:
    """By the bound of bodies, and by a ratio that no JSON has."""
    for body in (bytes(LIMIT + 1), bytes(2 << 20)):
        reply = await sent(PACKERS[coding](body), coding)
        assert (reply.status, reply.error["code"]) == (413, "body_too_large")
        assert "decodes to more" in reply.error["message"]


@each_of("coding", PACKERS)
async def test_a_damaged_body_is_refused(coding: str) -> None:
    packed = PACKERS[coding](json.dumps(ASK).encode())
    for body in (packed[:-3], b"", packed[:6] + b"\xff" * 9 + packed[15:]):
        reply = await sent(body, coding)
        assert (reply.status, reply.error["code"]) == (400, "invalid_http")
        assert f"`Content-Encoding: {coding.lower()}`" in reply.error["message"]


async def test_a_window_larger_than_the_standard_allows_is_refused() -> None:
    wide = {zstd.CompressionParameter.window_log: 27}
    packer = zstd.ZstdCompressor(options=wide)
    packed = packer.compress(json.dumps(ASK).encode()) + packer.flush()
    assert (await sent(packed, "zstd")).status == 400


@each_of("coding", ["compress", "gzip, gzip", "identity, gzip", "\x80"])
async def test_an_unknown_coding_is_refused_with_those_that_are_known(coding: str) -> None:
    reply = await sent(gzip.compress(json.dumps(ASK).encode()), coding)
    assert (reply.status, reply.error["code"]) == (415, "unsupported_media_type")
    assert reply.headers["accept-encoding"] == "br, deflate, gzip, zstd"
    assert "gzip, zstd" in reply.error["message"]


def script(length: int) -> tuple[Event, ...]:
    return (TextDelta("a word " * (length // 7)), *HELLO[2:])


async def answered(length: int, taken: str, *, stream: bool = False) -> Response:
    edge = make_edge(ScriptedPipeline(script(length)))
    headers = {"content-type": "application/json", "accept-encoding": taken}
    return await call(edge, CHAT, ASK | {"stream": stream}, headers=headers)


@each_of(
    ("taken", "coding"),
    [
        ("gzip, deflate", "gzip"),
        ("gzip, deflate, br, zstd", "zstd"),
        ("gzip;q=1.0, zstd;q=0", "gzip"),
        ("gzip;q=0", None),
        ("identity", None),
        ("*", None),
        ("", None),
    ],
)
async def test_a_reply_is_compressed_if_the_client_takes_it(taken: str, coding: str | None) -> None:
    for length in (3000, 100_000):
        reply = await answered(length, taken)
        assert reply.headers.get("content-encoding") == coding
        unpack = {"gzip": gzip.decompress, "zstd": zstd.decompress, None: bytes}[coding]
        whole = json.loads(unpack(reply.body))
        assert whole["choices"][0]["message"]["content"] == "a word " * (length // 7)
        assert reply.headers["vary"] == "accept-encoding"
        assert int(reply.headers["content-length"]) == len(reply.body)


async def test_small_replies_and_streams_are_never_compressed() -> None:
    for reply in (await answered(700, "gzip, zstd"), await answered(9000, "gzip", stream=True)):
        assert reply.status == 200
        assert not {"content-encoding", "vary"} & reply.headers.keys()


async def test_what_depends_on_coding_and_origin_says_both() -> None:
    edge = make_edge()
    page = "https://app.example"
    door = replace(OPEN, origins=Origins.of([page]))
    edge.replace(DoorTable([door], default="open"), ScriptedPipeline(script(3000)))
    reply = await call(edge, CHAT, ASK, headers={"origin": page, "accept-encoding": "gzip"})
    assert reply.headers["vary"] == "accept-encoding, Origin"
