"""Decode compressed bodies, in small parts and within a bounded ratio."""

from __future__ import annotations

import asyncio
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

import brotli

from causerie.http.client_connection import HttpResponse, IncomingBody, TransportFailed

if sys.version_info >= (3, 14):
    from compression import zstd as zstd
else:
    from backports import zstd as zstd

_NEVER = float("inf")
_PART = 64 * 1024  # bytes that are decoded at once
_FREE = 1024 * 1024  # bytes without regard to the ratio
_MAX_RATIO = 200
_MOST_CODINGS = 2
_WINDOW_LOG = 23  # the largest window of zstd as a content coding: 8 MiB (RFC 9659)
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
TEXTS = (b'{"', b"{\r", b"{\n", b"{ ", b"[{", b"da", b"ev", b": ")  # of bodies not compressed
_UNREADABLE = "sent a compressed response that cannot be read"


class Decoder(Protocol):
    """Decodes one body; ``parts`` yields decoded data and raises the error of the format."""

    ended: bool

    def parts(self, data: bytes) -> Iterator[bytes]: ...


class _Inflate:
    def __init__(self) -> None:
        self.ended = False
        self._undecoded_first_bytes = b""
        self._inflater: zlib._Decompress | None = None

    def parts(self, data: bytes) -> Iterator[bytes]:
        data = self._undecoded_first_bytes + data
        while data:
            if self._inflater is None:
                if len(data) < 2:
                    self._undecoded_first_bytes = data
                    return
                self._undecoded_first_bytes = b""
                named = data[0] & 0x0F == 8 and int.from_bytes(data[:2]) % 31 == 0  # RFC 1950, 2.2
                window = zlib.MAX_WBITS if named else -zlib.MAX_WBITS
                gzipped = data.startswith(_GZIP)
                self._inflater = zlib.decompressobj(16 + zlib.MAX_WBITS if gzipped else window)
                self.ended = False
            inflate = self._inflater
            part = inflate.decompress(data, _PART)
            while part:
                yield part
                part = inflate.decompress(inflate.unconsumed_tail, _PART)
            if not inflate.eof:
                return
            self.ended, self._inflater = True, None
            data = inflate.unused_data.lstrip(b"\0")


class _Brotli:
    def __init__(self) -> None:
        self.ended = False
        self._decoder = brotli.Decompressor()

    def parts(self, data: bytes) -> Iterator[bytes]:
        part = self._decoder.process(data, output_buffer_limit=_PART)
        while part:
            yield part
            part = self._decoder.process(b"", output_buffer_limit=_PART)
        self.ended = self._decoder.is_finished()


class _Zstd:
    def __init__(self) -> None:
        self.ended = False
        self._decoder = _new_zstd_decoder()

    def parts(self, data: bytes) -> Iterator[bytes]:
        while data:
            decoder = self._decoder
            part = decoder.decompress(data, _PART)
            while part or not (decoder.needs_input or decoder.eof):
                yield part
                part = b"" if decoder.eof else decoder.decompress(b"", _PART)
            self.ended, data = decoder.eof, b""
            if decoder.eof:
                data, self._decoder = decoder.unused_data, _new_zstd_decoder()


def _new_zstd_decoder() -> zstd.ZstdDecompressor:
    return zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: _WINDOW_LOG})


DECODERS: Mapping[str, Callable[[], Decoder]] = {
    "gzip": _Inflate,
    "x-gzip": _Inflate,
    "deflate": _Inflate,
    "br": _Brotli,
    "zstd": _Zstd,
}
_ERRORS = (zlib.error, brotli.error, zstd.ZstdError)


class Undecodable(Exception):
    """A body that is not compressed as declared, or decodes to more than it may (``too_large``)."""

    def __init__(self, *, too_large: bool = False) -> None:
        self.too_large = too_large


def decoded_body(body: bytes, coding: str, max_bytes: int) -> bytes:
    """Return a whole body decoded by one of :data:`DECODERS`; raise :class:`Undecodable`.

    Blocks for at most ``max_bytes`` of output, and for less if the body is small.
    """
    decoder, parts, size = DECODERS[coding](), list[bytes](), 0
    most = min(max_bytes, max(_FREE, _MAX_RATIO * len(body)))
    try:
        for part in decoder.parts(body):
            size += len(part)
            if size > most:
                raise Undecodable(too_large=True)
            parts.append(part)
    except _ERRORS as error:
        raise Undecodable from error
    if not decoder.ended:
        raise Undecodable
    return b"".join(parts)


async def decoded(response: HttpResponse) -> HttpResponse | DecodedResponse:
    """Return a response with its body decoded if its first bytes and header say it is compressed.

    Raises :class:`TransportFailed` for an unknown coding.
    """
    start = await response.beginning(
        lambda start: len(start) >= (len(_ZSTD) if start[:1] in (b"\x1f", b"\x28") else 2)
    )
    codings = _detect_content_codings(response.coding, start)
    if not codings:
        return response
    if len(codings) > _MOST_CODINGS or not set(codings) <= DECODERS.keys():
        response.close()
        raise TransportFailed("compressed", _UNREADABLE, sent=True)
    return DecodedResponse(response, codings)


def _detect_content_codings(header: bytes, body_start: bytes) -> Sequence[str]:
    by_bytes = (
        "gzip" if body_start.startswith(_GZIP) else "zstd" if body_start.startswith(_ZSTD) else ""
    )
    names = [name.strip().decode("latin-1") for name in header.split(b",")]
    named = [name for name in names if name not in ("", "identity")]
    if not named or (len(named) == 1 and by_bytes):
        return [by_bytes] if by_bytes else []
    if named[-1] in ("gzip", "x-gzip", "zstd") and not by_bytes:
        return []
    return [] if not body_start or body_start.startswith(TEXTS) else named


class DecodedResponse(IncomingBody):
    """An :class:`HttpResponse` whose body is decoded as it arrives."""

    __slots__ = (
        "_compressed_byte_count",
        "_compressed_response",
        "_decoded_byte_count",
        "_decoded_pieces",
        "_decoders",
        "_undelivered_bytes",
        "late",
        "taker",
    )

    def __init__(self, response: HttpResponse, codings: Sequence[str]) -> None:
        self._compressed_response = response
        # Without effect: what arrives is not what is read.
        self.taker: Callable[[bytes], bool] | None = None
        self.late = _NEVER
        self._decoders = [DECODERS[name]() for name in reversed(codings)]
        self._decoded_pieces: Iterator[bytes] = iter(())  # of what has come
        self._undelivered_bytes = b""  # decoded, and not consumed
        self._compressed_byte_count = self._decoded_byte_count = 0

    @property
    def due(self) -> float:
        return self._compressed_response.due

    @due.setter
    def due(self, due: float) -> None:
        self._compressed_response.due = due

    async def piece(self, late: float = _NEVER) -> bytes:
        if self._undelivered_bytes:
            begun, self._undelivered_bytes = self._undelivered_bytes, b""
            return begun
        while (part := self._next_decoded_piece()) is None:
            data = await self._compressed_response.piece(late)
            if not data:
                if not all(decoder.ended for decoder in self._decoders):
                    raise self._close_and_build_failure()
                return b""
            self._compressed_byte_count += len(data)
            self._decoded_pieces = self._decode_pieces(data, self._decoders)
        await asyncio.sleep(0)  # other tasks run between two parts
        return part

    def unread(self, piece: bytes) -> None:
        self._undelivered_bytes = piece

    async def finish(self, seconds: float) -> None:
        await self._compressed_response.finish(seconds)

    def close(self) -> None:
        self._compressed_response.close()

    def _next_decoded_piece(self) -> bytes | None:
        try:
            part = next(self._decoded_pieces, None)
        except _ERRORS as error:
            raise self._close_and_build_failure() from error
        self._decoded_byte_count += len(part or b"")
        if self._decoded_byte_count > max(_FREE, _MAX_RATIO * self._compressed_byte_count):
            raise self._close_and_build_failure()
        return part

    def _decode_pieces(self, data: bytes, decoders: Sequence[Decoder]) -> Iterator[bytes]:
        first, *others = decoders
        for part in first.parts(data):
            if others:
                yield from self._decode_pieces(part, others)
            elif part:
                yield part

    def _close_and_build_failure(self) -> TransportFailed:
        self.close()
        return TransportFailed("compressed", _UNREADABLE, sent=True)
