"""Compressed bodies: read however they are cut, bounded, and clear where they cannot be read."""

from __future__ import annotations

import asyncio
import gzip
import itertools
import zlib
from collections.abc import Callable, Sequence
from typing import cast

import brotli
import pytest
from casekit import each_of, examples, first_of
from hypothesis import given, settings
from hypothesis import strategies as st

from causerie.http.client_connection import HttpResponse, IncomingBody, TransportFailed
from causerie.http.decoding import decoded, zstd

TEXT = b'{"choices":[{"message":{"content":"' + b"fine " * 50 + b'"}}]}'


def raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "deflate ": raw_deflate,
    "br": brotli.compress,
    "zstd": zstd.compress,
    "gzip, br": lambda data: brotli.compress(gzip.compress(data)),
}


class Arrived(IncomingBody):
    """A response whose body comes in these pieces."""

    due = late = float("inf")

    def __init__(self, pieces: Sequence[bytes], coding: str) -> None:
        self._pieces = [piece for piece in pieces if piece]
        self.coding = coding.strip().encode()
        self.closed = False

    async def piece(self, late: float = 0.0) -> bytes:
        del late
        return self._pieces.pop(0) if self._pieces else b""

    def unread(self, piece: bytes) -> None:
        self._pieces.insert(0, piece)

    def close(self) -> None:
        self.closed = True


def read(pieces: Sequence[bytes], coding: str, most: int = 1 << 24) -> bytes:
    async def body() -> bytes:
        response = cast(HttpResponse, Arrived(pieces, coding))
        return await (await decoded(response)).read(most)

    return asyncio.run(body())


def cut(data: bytes, places: Sequence[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[start:end] for start, end in itertools.pairwise(edges)]


@pytest.mark.parametrize("coding", first_of(PACKERS))
@given(st.binary(max_size=300) | st.just(TEXT), st.lists(st.integers(0, 999), max_size=6))
@settings(deadline=None, max_examples=examples(40))
def test_every_cut_of_a_compressed_body_is_read(
    coding: str, data: bytes, places: list[int]
) -> None:
    packed = PACKERS[coding](data)
    assert read(cut(packed, places), coding) == data
    assert read([bytes([byte]) for byte in packed], coding) == data


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_the_bytes_decide_and_not_the_header(coding: str) -> None:
    packed = PACKERS[coding](TEXT)
    assert read([packed], "") == read([packed], "identity") == TEXT
    assert read([TEXT], coding) == TEXT
    assert read([b"data: x\n\n"], "deflate") == b"data: x\n\n"


def test_members_of_gzip_follow_each_other() -> None:
    assert read([gzip.compress(TEXT) + gzip.compress(b"more")], "gzip") == TEXT + b"more"


@each_of("coding", PACKERS)
def test_a_body_that_is_cut_off_or_damaged_fails(coding: str) -> None:
    packed = PACKERS[coding](TEXT * 3)
    with pytest.raises(TransportFailed, match="compressed"):
        read([packed[:-6]], coding)
    with pytest.raises(TransportFailed, match="compressed"):
        read([packed[:9] + b"\xff" * 20 + packed[29:]], coding)


def test_an_unknown_coding_fails() -> None:
    with pytest.raises(TransportFailed, match="compressed"):
        read([b"\x01\x02\x03\x04"], "compress")
    with pytest.raises(TransportFailed, match="compressed"):
        read([gzip.compress(TEXT)], "gzip, gzip, gzip")


@pytest.mark.parametrize("coding", first_of(["gzip", "br", "zstd"]))
def test_a_small_body_does_not_become_a_large_one(coding: str) -> None:
    async def largest() -> int:
        body = await decoded(cast(HttpResponse, Arrived([PACKERS[coding](bytes(1 << 26))], coding)))
        size = 0
        with pytest.raises(TransportFailed, match="compressed"):
            while piece := await body.piece():
                size += len(piece)
                assert len(piece) <= 1 << 17
        return size

    assert asyncio.run(largest()) < 16 << 20
