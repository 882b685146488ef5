"""A response whose body arrives piece by piece, from the moment it was asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from time import monotonic
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from causerie.transport.errors import TransportFailed

if TYPE_CHECKING:
    from causerie.transport.connection import ClientConnection

_MAX_UNREAD = 1024 * 1024
_NEVER = float("inf")


class HttpResponse(Struct, eq=False):
    """A response, as it arrives."""

    _source: ClientConnection
    due: float
    """Deadline of the whole response, on the monotonic clock and to a quarter of a second; infinite
    without one.
    """
    head: asyncio.Future[bytes]
    """Done when ``status`` and the headers are there."""
    _waiting: asyncio.Future[bytes]  # the head, then a piece; done, where nobody waits
    status: int = 0
    """0 until the head is complete."""
    opening: bytes = b""
    """Bytes that arrived until the head was complete."""
    late: float = _NEVER
    """When the awaited head or piece has taken too long."""
    unsent: bool = False  # whether it was given up before its request had been sent whole
    taker: Callable[[bytes], bool] | None = None
    """Offered a piece that is awaited in the moment in which it arrives; if it returns true, the
    piece is handled, and whoever awaits one is not woken.
    """
    _pieces: list[bytes] = []  # that nobody waited for
    _size: int = 0
    _end: TransportFailed | bool = False  # nothing more comes: it is complete, or broken

    @property
    def headers(self) -> Mapping[str, str]:
        """By lower-case name; of one that came twice, the values are joined."""
        headers: dict[str, str] = {}
        for line in _head(self.opening).split(b"\r\n")[1:]:
            name, _, value = line.decode("latin-1").partition(":")
            name, value = name.lower(), value.strip(" \t")
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
        return headers

    @property
    def media_type(self) -> bytes:
        """Of the body, in lower case and without its parameters; empty where it has none."""
        return self._header(b"content-type").partition(b";")[0].strip()

    @property
    def coding(self) -> bytes:
        """``Content-Encoding`` of the body, in lower case; empty where it has none."""
        return self._header(b"content-encoding").strip()

    def _header(self, name: bytes) -> bytes:
        _, _, value = _head(self.opening).lower().partition(b"\r\n" + name + b":")
        return value.partition(b"\r\n")[0]

    def piece(self, late: float = _NEVER) -> asyncio.Future[bytes]:
        """Return all bytes that have arrived; ``b""`` at the end. To be awaited at once.

        Raises :class:`TransportFailed`, also if nothing has come when it is ``late`` (on the clock
        of ``due``). If cancelled while waiting, the bytes may be lost.
        """
        source = self._source
        piece: asyncio.Future[bytes] = source.loop.create_future()
        if not self._end and not self._pieces:
            self.late = late
            self._waiting = piece
            return piece
        if not self._pieces and isinstance(self._end, TransportFailed):
            raise self._end
        piece.set_result(b"".join(self._pieces))
        self._pieces.clear()
        if self._size > _MAX_UNREAD and not self._end:
            source.read_on()
        self._size = 0
        return piece

    def at_hand(self) -> bytes:
        """The whole body where it has come before somebody read, else ``b""``; it stays there."""
        return b"".join(self._pieces) if self._end is True else b""

    async def beginning(self, enough: Callable[[bytes], bool] = bool) -> bytes:
        """Return what comes first until it is ``enough``; it stays there.

        Raises :class:`TransportFailed`.
        """
        begun = await self.piece()
        while begun and not enough(begun) and (piece := await self.piece()):
            begun += piece
        self._pieces.insert(0, begun)
        self._size += len(begun)
        return begun

    async def read(self, max_bytes: int) -> bytes:
        """The whole body. Raises :class:`TransportFailed`, for a larger one too."""
        return await read_whole(self, max_bytes)

    async def finish(self, seconds: float) -> None:
        """Pass over the rest, so that the connection can be used again; else it is closed.

        It is given so many ``seconds``.
        """
        try:
            if not self._end:
                self.due = monotonic() + seconds
            while not self._end:
                await self.piece()
        except TransportFailed:
            pass  # nobody wanted it
        finally:
            self.close()

    def close(self) -> None:
        """Give up what has not come: a connection in the middle of a body is closed at once."""
        if not self._end:
            self._source.drop()

    # Called by the connection.

    def is_late(self, now: float) -> bool:
        """Return true if the response, or the awaited piece, is overdue."""
        return now >= self.due or (now >= self.late and not self._waiting.done())

    def takes(self, piece: bytes) -> bool:
        """Return true if the taker has handled a piece that has arrived."""
        return self.taker is not None and not self._waiting.done() and self.taker(piece)

    def feed(self, piece: bytes) -> None:
        waiting = self._waiting
        if not waiting.done():
            waiting.set_result(piece)
            return
        self._pieces.append(piece)
        self._size += len(piece)
        if self._size > _MAX_UNREAD:
            self._source.pause()

    def end(self, piece: bytes) -> None:
        """The body is complete with this last piece, which may be empty."""
        self._end = True
        waiting = self._waiting
        if not waiting.done():
            waiting.set_result(piece)
        else:
            self._pieces.append(piece)
        if self._size > _MAX_UNREAD:
            self._source.read_on()  # for whoever asks next

    def fail(self, failure: TransportFailed) -> None:
        """The rest will not come."""
        if self._end:
            return
        self._end = failure
        if not self._waiting.done():
            self._waiting.set_exception(failure)
            self._waiting.exception()  # no complaint where who waits is cancelled just now


class BodyReader(Protocol):
    """A body that arrives."""

    def piece(self) -> Awaitable[bytes]:
        """Return what has arrived; ``b""`` at the end."""

    def close(self) -> None:
        """Give up what has not come."""


async def read_whole(body: BodyReader, max_bytes: int) -> bytes:
    """Return the whole body; raises :class:`TransportFailed`, for a larger one too."""
    pieces: list[bytes] = []
    size = 0
    while piece := await body.piece():
        size += len(piece)
        if size > max_bytes:
            body.close()
            raise TransportFailed(
                "too_large", f"the response has more than {max_bytes} bytes", sent=True
            )
        pieces.append(piece)
    return b"".join(pieces)


def _head(opening: bytes) -> bytes:
    """The status and header lines of a response, in the form that the parser insists on."""
    head, _, rest = opening.lstrip(b"\r\n").partition(b"\r\n\r\n")
    while head[9:10] == b"1":  # "HTTP/1.1 1…": an interim response came before (RFC 9110, 15.2)
        head, _, rest = rest.partition(b"\r\n\r\n")
    return head
