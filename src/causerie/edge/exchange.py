"""One request and its response.

Knows nothing of sockets: a connection feeds it the request and takes the bytes
of the response. Writing never waits; :meth:`Exchange.drained` does, where the
client reads too slowly.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING

import msgspec

from causerie.access.credential import Credential
from causerie.edge import ids
from causerie.edge.error_ids import error_for
from causerie.edge.head import RequestHead
from causerie.edge.headers import Headers
from causerie.errors import Error, ServiceError

if TYPE_CHECKING:
    from causerie.edge.connection import Connection

_encoder = msgspec.json.Encoder()
_STATUS_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}" for status in HTTPStatus}
_MAX_FORMS = 512
_BEGINNING = b"HTTP/1.1 "  # of every response
_INTERIM = _BEGINNING + b"100 Continue\r\n\r\n"
_LARGE = 64 * 1024  # bytes of a body; to copy more takes longer than to write twice


class _HeaderForms(dict[tuple[str, ...], str]):
    """Forms of header lines, by the names of the headers; most responses have the same ones."""

    def __missing__(self, names: tuple[str, ...]) -> str:
        if len(self) >= _MAX_FORMS:
            self.clear()
        form = self[names] = "".join([f"{name.replace('%', '%%')}: %s\r\n" for name in names])
        return form


_forms = _HeaderForms()


class ClientGone(Exception):
    """The client left, or stopped reading; nobody is there to be answered."""


class Exchange(msgspec.Struct, eq=False):
    """One request and its response, which carries the request's id, as a handler sees them."""

    wire: Connection
    head: RequestHead
    keep_alive: bool = True
    """The connection stays open after the response."""
    token: str = ""
    request_id: str = ""
    status: int | None = None
    """Status that was sent, or ``None``; once it is set, the response is final."""
    complete: bool = False
    """The whole request has arrived."""
    ended: bool = False
    gone: bool = False
    metered: bool = False
    """The outcome is counted behind the edge."""
    filler: bytes = b""
    """May be written between pieces of the response's body, without meaning."""
    on_gone: Callable[[], None] | None = None
    """Called once when the client disconnects."""
    task: asyncio.Task[None] | None = None
    """The task that answers it, if it has one of its own."""
    cross_origin: Mapping[str, str] | None = None
    """Headers of every response to a page of another origin that may call."""
    unread: int = 0
    """Bytes of the body that arrived and were not read."""
    _named: bool = False
    _body: list[bytes] = []
    _arrived: asyncio.Future[None] | None = None
    _chunked: bool = False
    _opening: bytes = b""  # the head, until something goes out with it
    _interim: int = 0  # bytes of an interim response that were sent

    def __post_init__(self) -> None:
        self.token = token = ids.token()
        self.request_id = "req-" + token
        headers, self.keep_alive = self.head.headers, self.head.keep_alive
        if "x-request-id" in headers:
            named = ids.taken_over(headers["x-request-id"])
            self.request_id, self._named = named or self.request_id, named is not None

    def name_completion(self) -> str:
        """The id of the completion, which is the request's id too if the caller sent none."""
        completion = "chatcmpl-" + self.token
        if not self._named:
            self.request_id = completion
        return completion

    @property
    def peer(self) -> str:
        """The address that the request comes from, empty where it has none."""
        return self.wire.peer

    # Parts of its head.

    @property
    def method(self) -> str:
        return self.head.method

    @property
    def path(self) -> str:
        return self.head.path

    @property
    def query(self) -> str:
        return self.head.query

    @property
    def headers(self) -> Headers:
        return self.head.headers

    @property
    def credential(self) -> Credential | None:
        return self.head.credential

    # The request's body.

    def feed(self, piece: bytes) -> None:
        """A piece of the body has arrived; it is dropped where the response has ended."""
        if self.ended:
            return
        self._body.append(piece)
        self.unread += len(piece)
        if self._arrived is not None:
            self._wake()

    def feed_end(self) -> None:
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
        """Return the next bytes of the body; ``b""`` at its end. Raises :class:`ClientGone`."""
        while not self._body:
            if self.complete:
                return b""
            if self.gone:
                raise ClientGone
            self.wire.read_on()
            self._arrived = asyncio.get_running_loop().create_future()
            await self._arrived
        return self.at_hand()

    def at_hand(self) -> bytes:
        """Return the bytes of the body that arrived and were not read."""
        body, self._body = self._body, []
        self.unread = 0
        return b"".join(body)

    def _wake(self) -> None:
        if self._arrived is not None and not self._arrived.done():
            self._arrived.set_result(None)

    # The response.

    def start(
        self, status: int, content_type: str, headers: Mapping[str, str], length: int | None = None
    ) -> None:
        """Begin the response; the head goes out with the first piece of the body.

        ``headers`` are by lower-case name. Without the ``length`` of the body in bytes its
        pieces are framed.
        """
        self._opening = self._head(status, content_type, headers, length)

    def write(self, piece: bytes) -> bool:
        """Send a piece of the response's body; False where the client reads too slowly."""
        if self._chunked and piece:
            piece = b"%x\r\n%b\r\n" % (len(piece), piece)
        elif self.head.method == "HEAD":
            piece = b""
        if self._opening:
            piece, self._opening = self._opening + piece, b""
        return self.wire.write(piece)

    def end(self, piece: bytes = b"") -> None:
        """Send the last piece of the response's body."""
        self.ended = True
        if self._chunked:
            piece = b"%x\r\n%b\r\n0\r\n\r\n" % (len(piece), piece) if piece else b"0\r\n\r\n"
        elif self.head.method == "HEAD":
            piece = b""
        self.wire.finish(self, self._opening + piece)

    def probe(self) -> None:
        """Send something without meaning: a client that has closed answers it by a reset.

        Before the response, that is the next byte of an interim response (RFC 9110, section 15.2),
        which begins like every response. HTTP/1.0 has none, so its beginning alone is sent.
        """
        if self.status is None:
            whole = _INTERIM if self.head.version == "1.1" else _BEGINNING
            if self._interim < len(whole):
                self.wire.write(whole[self._interim : self._interim + 1])
                self._interim += 1
            if self._interim == len(_INTERIM):
                self._interim = 0
        elif (self._opening or self.filler) and not self.blocked:
            self.write(self.filler)

    def abandon(self) -> None:
        """Close the connection: a response that cannot be finished is seen to be cut."""
        self.wire.abort()

    def _head(
        self, status: int, content_type: str, headers: Mapping[str, str], length: int | None
    ) -> bytes:
        self.status = status
        if self.cross_origin is not None:
            headers = {**headers, **self.cross_origin}
        if self.wire.closes():
            self.keep_alive = False
        if status == HTTPStatus.NO_CONTENT:  # whose head ends it (RFC 9110, section 8.6)
            framing = ""
        elif length is not None:
            framing = f"content-length: {length}\r\n"
        elif self.head.version == "1.1":
            framing = "transfer-encoding: chunked\r\n"
            self._chunked = self.head.method != "HEAD"
        else:
            framing, self.keep_alive = "", False
        if "connection" in headers:
            self.keep_alive = self.keep_alive and headers["connection"].lower() != "close"
        elif not self.keep_alive:
            framing = "connection: close\r\n" + framing
        elif self.head.version == "1.0":
            framing = "connection: keep-alive\r\n" + framing
        line = _STATUS_LINES.get(status) or f"HTTP/1.1 {status} "
        if self._interim:
            line = self._behind_interim(line)
        head = (
            f"{line}\r\n{_forms[tuple(headers)] % _in_one_line(headers)}"
            f"content-type: {content_type}\r\nx-request-id: {self.request_id}\r\n{framing}\r\n"
        )
        return head.encode("latin-1", "replace")

    def _behind_interim(self, line: str) -> str:
        """Return the status line behind what was sent of an interim response."""
        sent, self._interim = self._interim, 0
        if sent <= len(_BEGINNING):
            return line[sent:]
        return _INTERIM[sent:].decode() + line

    @property
    def blocked(self) -> bool:
        """Return true while the client reads more slowly than the service writes."""
        return self.wire.full is not None

    async def drained(self) -> None:
        """Return when there is room for more, or the client has left."""
        while (full := self.wire.full) is not None and not self.gone:
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
        head = self._head(status, content_type, headers or {}, len(body))
        self.ended = True
        if self.head.method == "HEAD":
            self.wire.finish(self, head)
        elif len(body) <= _LARGE:
            self.wire.finish(self, head + body)
        else:
            self.wire.write(head)
            self.wire.finish(self, memoryview(body))  # a slice of which is no copy

    def json(self, value: object, headers: Mapping[str, str] | None = None) -> None:
        """Send ``value`` with status 200."""
        self.respond(200, _encoder.encode(value), headers=headers)

    def refuse(self, failure: ServiceError) -> None:
        headers = {name.lower(): value for name, value in failure.headers.items()}
        body = _encoder.encode(Error(error_for(failure, self.headers)))
        self.respond(failure.status, body, headers=headers)


def _in_one_line(headers: Mapping[str, str]) -> tuple[str, ...]:
    """The values, without what would end the line of one."""
    values = tuple(headers.values())
    joined = "".join(values)
    if "\n" in joined or "\r" in joined:
        return tuple([" ".join(value.split()) for value in values])
    return values
