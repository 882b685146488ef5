"""One request and its response.

Knows nothing of sockets: a connection feeds it the request and takes the bytes
of the response. Writing never waits; :meth:`Exchange.drained` does, where the
client reads too slowly.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Protocol

import msgspec

from causerie.edge import ids
from causerie.edge.headers import Headers
from causerie.edge.numbered import error_for
from causerie.errors import ServiceError

_encoder = msgspec.json.Encoder()
_STATUS_LINES = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n" for status in HTTPStatus
}


class ClientGone(Exception):
    """The client left, or stopped reading; nobody is there to be answered."""


class Wire(Protocol):
    """The connection that an exchange is on."""

    def write(self, data: bytes) -> None:
        """Send bytes; they are buffered where the client is slow."""
        ...

    def read_on(self) -> None:
        """There is room for more of the request's body."""
        ...

    def ended(self, exchange: Exchange) -> None:
        """The response is complete."""
        ...

    @property
    def full(self) -> asyncio.Future[None] | None:
        """Done when the client has read on; ``None`` while there is room."""
        ...

    @property
    def peer(self) -> str:
        """The address that the connection comes from, empty where it has none."""
        ...

    @property
    def closing(self) -> bool:
        """Whether no further request will be taken on this connection."""
        ...


class Exchange:
    """What a handler has in hand: the request's parts, and ways to answer.

    Every response carries the request's id. ``status`` is what was sent, or
    ``None``; once it is set, the response cannot be changed any more.
    ``query`` is what follows ``?``, as it was sent; ``complete``: the whole request
    has arrived. ``task`` is what answers it, where it is one of its own. ``on_gone``
    is called once when the client leaves.
    """

    __slots__ = (
        "_arrived", "_body", "_chunked", "_head", "_named", "_wire", "complete", "door", "ended",
        "gone", "headers", "keep_alive", "method", "on_gone", "path", "query", "received",
        "request_id", "status", "task", "token", "unread", "version",
    )  # fmt: skip

    def __init__(self, wire: Wire, method: str, path: str, version: str, headers: Headers) -> None:
        self.method = method
        self.path = path
        self.query = ""
        self.version = version
        self.headers = headers
        self.token = token = ids.token()
        named = "x-request-id" in headers and ids.taken_over(headers["x-request-id"])
        self._named = bool(named)
        self.request_id = named or f"req-{token}"
        self.door = ""
        self.status: int | None = None
        self.ended = False
        self.gone = False
        self.keep_alive = True
        self.on_gone: Callable[[], None] | None = None
        self.task: asyncio.Task[None] | None = None
        self.received = 0  # bytes of the body so far
        self._wire = wire
        self._body: list[bytes] = []
        self.unread = 0  # bytes of it that were not taken yet
        self.complete = False
        self._arrived: asyncio.Future[None] | None = None
        self._head: bytes | None = None
        self._chunked = False

    def name_completion(self) -> str:
        """The id of the completion, which is the request's id too if the caller sent none."""
        completion = f"chatcmpl-{self.token}"
        if not self._named:
            self._named = True
            self.request_id = completion
        return completion

    @property
    def peer(self) -> str:
        """The address that the request comes from, empty where it has none."""
        return self._wire.peer

    # The request's body.

    def feed(self, piece: bytes) -> None:
        """A piece of the body has arrived."""
        self.received += len(piece)
        self.unread += len(piece)
        self._body.append(piece)
        if self._arrived is not None:
            self._wake()

    def feed_end(self) -> None:
        """The body is complete."""
        self.complete = True
        if self._arrived is not None:
            self._wake()

    def leave(self) -> None:
        """The client has left."""
        if self.gone:
            return
        self.gone = True
        self._wake()
        if self.on_gone is not None:
            self.on_gone()

    async def piece(self) -> bytes:
        """What has arrived of the body; ``b""`` at its end. Raises :class:`ClientGone`."""
        while not self._body:
            if self.complete:
                return b""
            if self.gone:
                raise ClientGone
            self._wire.read_on()
            self._arrived = asyncio.get_running_loop().create_future()
            await self._arrived
        return self.at_hand()

    def at_hand(self) -> bytes:
        """What has arrived of the body and was not taken yet."""
        body, self._body = self._body, []
        self.unread = 0
        return body[0] if len(body) == 1 else b"".join(body)

    def _wake(self) -> None:
        if self._arrived is not None and not self._arrived.done():
            self._arrived.set_result(None)

    # The response.

    def start(
        self,
        status: int,
        content_type: str,
        headers: Mapping[str, str],
        length: int | None = None,
    ) -> None:
        """Begin the response; the head goes out with the first piece of the body.

        ``headers`` are by lower-case name. Without the ``length`` of the body in bytes its
        pieces are framed.
        """
        self.status = status
        lines = [f"{name}: {value}\r\n" for name, value in headers.items()]
        text = "".join(lines)
        if text.count("\n") != len(lines) or text.count("\r") != len(lines):
            text = "".join([" ".join(line.split()) + "\r\n" for line in lines])
        self._chunked = length is None and self.version == "1.1"
        if self._chunked:
            text += "transfer-encoding: chunked\r\n"
        elif length is not None:
            text += f"content-length: {length}\r\n"
        if self._wire.closing or not (self._chunked or length is not None):
            self.keep_alive = False
        if "connection" in headers:
            self.keep_alive = self.keep_alive and headers["connection"].lower() != "close"
        elif not self.keep_alive:
            text += "connection: close\r\n"
        elif self.version == "1.0":
            text += "connection: keep-alive\r\n"
        line = _STATUS_LINES.get(status) or f"HTTP/1.1 {status} \r\n"
        head = (
            f"{line}content-type: {content_type}\r\nx-request-id: {self.request_id}\r\n{text}\r\n"
        )
        self._head = head.encode("latin-1", "replace")

    def write(self, piece: bytes) -> None:
        """Send a piece of the response's body."""
        if self.method == "HEAD":
            piece = b""
        elif self._chunked and piece:
            piece = b"%x\r\n%b\r\n" % (len(piece), piece)
        if self._head is not None:
            piece, self._head = self._head + piece, None
        if piece:
            self._wire.write(piece)

    def end(self, piece: bytes = b"") -> None:
        """Send the last piece of the response's body."""
        self.ended = True
        if self._chunked and self.method != "HEAD":
            last = b"%x\r\n%b\r\n0\r\n\r\n" % (len(piece), piece) if piece else b"0\r\n\r\n"
            head, self._head = self._head or b"", None
            self._wire.write(head + last)
        else:
            self.write(piece)
        self._wire.ended(self)

    @property
    def blocked(self) -> bool:
        """Whether the client reads more slowly than we write."""
        return self._wire.full is not None

    async def drained(self) -> None:
        """Return when there is room for more, or the client has left."""
        while (full := self._wire.full) is not None and not self.gone:
            await asyncio.wait([full])

    def respond(
        self,
        status: int,
        body: bytes,
        *,
        content_type: str = "application/json",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Send a whole response; ``headers`` are by lower-case name."""
        self.start(status, content_type, headers or {}, len(body))
        self.end(body)

    def json(self, value: object, headers: Mapping[str, str] | None = None) -> None:
        """Send ``value`` with status 200."""
        self.respond(200, _encoder.encode(value), headers=headers)

    def refuse(self, failure: ServiceError) -> None:
        """Send a failure."""
        headers = {name.lower(): value for name, value in failure.headers.items()}
        body = {"error": error_for(failure, self.headers)}
        self.respond(failure.status, _encoder.encode(body), headers=headers)
