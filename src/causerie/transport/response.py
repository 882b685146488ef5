"""A response whose head has come and whose body arrives piece by piece."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
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

    due: float


class HttpResponse:
    """``headers`` are by lower-case name; of one that came twice, the values are joined."""

    __slots__ = (
        "_ended",
        "_failure",
        "_pieces",
        "_size",
        "_source",
        "_waiting",
        "headers",
        "status",
    )

    def __init__(self, status: int, headers: Mapping[str, str], source: Source) -> None:
        self.status = status
        self.headers = headers
        self._source: Source | None = source
        self._pieces: list[bytes] = []
        self._size = 0
        self._ended = False
        self._failure: TransportFailed | None = None
        self._waiting: asyncio.Future[None] | None = None

    @property
    def waits(self) -> bool:
        """Whether nothing is there: the next piece must be waited for."""
        return not self._pieces and not self._ended and self._failure is None

    async def piece(self) -> bytes:
        """Whatever has arrived together; ``b""`` at the end. Raises :class:`TransportFailed`."""
        while not self._pieces:
            if self._failure is not None:
                raise self._failure
            if self._ended:
                return b""
            self._waiting = asyncio.get_running_loop().create_future()
            await self._waiting
        taken = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        self._pieces.clear()
        if self._size > _MAX_UNREAD and self._source is not None:
            self._source.read_on()
        self._size = 0
        return taken

    def at_hand(self, max_bytes: int) -> bytes:
        """The whole body where it has come and is not larger, else ``b""``."""
        if not self._ended or self._size > max_bytes:
            return b""
        pieces, self._pieces = self._pieces, []
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

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
        if self._source is not None:
            self._source.due = float("inf")

    def close(self) -> None:
        """Give up what has not come: a connection in the middle of a body is closed at once."""
        source, self._source = self._source, None
        if source is not None and not self._ended:
            source.drop()

    # What the connection calls.

    def feed(self, piece: bytes) -> None:
        """A piece has arrived."""
        self._pieces.append(piece)
        self._size += len(piece)
        if self._size > _MAX_UNREAD and self._source is not None:
            self._source.pause()
        if self._waiting is not None:
            self._wake()

    def end(self) -> None:
        """The body is complete."""
        self._ended = True
        self._source = None
        if self._waiting is not None:
            self._wake()

    def fail(self, failure: TransportFailed) -> None:
        """The rest will not come."""
        self._failure = failure
        self._source = None
        self._wake()

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)
