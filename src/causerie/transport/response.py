"""A response whose body arrives piece by piece, from the moment it was asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Protocol

from causerie.transport.errors import TransportFailed

_MAX_UNREAD = 1024 * 1024


class Source(Protocol):
    """The connection that a body arrives on."""

    def pause(self) -> None:
        """Read no more for now."""
        ...

    def read_on(self) -> None:
        """Read again."""
        ...

    def drop(self) -> None:
        """Close at once."""
        ...

    @property
    def loop(self) -> asyncio.AbstractEventLoop: ...


class HttpResponse:
    """``head`` is done when ``status``, 0 until then, and ``lines`` are there.

    Those are the headers as they came. ``due`` is when it must be complete, on
    the loop's clock; infinite where nobody but the caller says so.
    """

    __slots__ = (
        "_end", "_pieces", "_size", "_source", "_waiting", "due", "head", "lines",
        "status",
    )  # fmt: skip

    lines: Sequence[tuple[bytes, bytes]]

    def __init__(self, source: Source, due: float) -> None:
        self.status = 0
        self.due = due
        self.head: asyncio.Future[bytes] = source.loop.create_future()
        self._source = source
        self._pieces: list[bytes] = []  # that nobody waited for
        self._size = 0
        self._end: TransportFailed | bool = False  # nothing more comes: it is complete, or broken
        self._waiting = self.head  # then for a piece; done, where nobody waits

    @property
    def headers(self) -> Mapping[str, str]:
        """By lower-case name; of one that came twice, the values are joined."""
        headers: dict[str, str] = {}
        for line in self.lines:
            name, value = line[0].decode("latin-1").lower(), line[1].decode("latin-1")
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
        return headers

    @property
    def waits(self) -> bool:
        """Whether nothing is there: the next piece must be waited for."""
        return not self._pieces and not self._end

    @property
    def awaited(self) -> bool:
        """Whether somebody waits for the next piece now."""
        return not self._waiting.done()

    def piece(self) -> asyncio.Future[bytes]:
        """Whatever has arrived together; ``b""`` at the end. To be awaited at once.

        Raises :class:`TransportFailed`. Cancelled while it is waited for, it may be lost.
        """
        piece: asyncio.Future[bytes] = self._source.loop.create_future()
        if not self._end and not self._pieces:
            self._waiting = piece
            return piece
        if not self._pieces and isinstance(self._end, TransportFailed):
            raise self._end
        piece.set_result(b"".join(self._pieces))
        self._pieces.clear()
        if self._size > _MAX_UNREAD and not self._end:
            self._source.read_on()
        self._size = 0
        return piece

    def at_hand(self) -> bytes:
        """The whole body where it has come before somebody read, else ``b""``; it stays there."""
        return b"".join(self._pieces) if self._end is True else b""

    async def read(self, max_bytes: int) -> bytes:
        """The whole body. Raises :class:`TransportFailed`, for a larger one too."""
        pieces: list[bytes] = []
        size = 0
        while piece := await self.piece():
            size += len(piece)
            if size > max_bytes:
                self.close()
                raise TransportFailed(
                    "too_large", f"the response has more than {max_bytes} bytes", sent=True
                )
            pieces.append(piece)
        return b"".join(pieces)

    def take_over(self) -> None:
        """From here the caller says when the body has taken too long."""
        self.due = float("inf")

    def close(self) -> None:
        """Give up what has not come: a connection in the middle of a body is closed at once."""
        if not self._end:
            self._source.drop()

    # What the connection calls.

    def feed(self, piece: bytes) -> None:
        """A piece has arrived."""
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
