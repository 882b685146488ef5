"""One request and its response, as handlers see them, apart from sockets."""

from __future__ import annotations

import asyncio
import random
import re
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING

import msgspec
from msgspec import UNSET, Struct, structs

from causerie.access.networks import Network, client_address
from causerie.errors import Error, ErrorDetails, InternalError, InvalidRequest, ServiceError
from causerie.http.decoding import DECODERS, Undecodable, decoded_body
from causerie.http.event_loop import offload
from causerie.http.head import Headers, RequestHead
from causerie.observe.logging import request_id
from causerie.protocol.response import CompletionIdentity
from causerie.shapes.shape import Shape

if TYPE_CHECKING:
    from causerie.http.connection import Connection


_SAFE_ID = re.compile(r"[A-Za-z0-9._:/+=@-]{1,128}", re.ASCII)


_random_bytes = random.Random(secrets.randbits(256)).randbytes
_TOKENS_AT_ONCE = 64  # tokens, which costs a quarter of one after the other
_TOKEN_BYTES = 16
_drawn_tokens: list[str] = []


# Generated types of typed clients of the well-known router demand `code` to be the status as an
# integer. They name themselves in `User-Agent`; the word stays readable in `metadata`.

_TYPED_KINDS: Mapping[str, str] = {
    "invalid_request_error": "invalid_request",
    "authentication_error": "authentication",
    "billing_error": "payment_required",
    "permission_error": "permission_denied",
    "not_found_error": "not_found",
    "rate_limit_error": "rate_limit_exceeded",
    "server_error": "server",
    "upstream_error": "provider_unavailable",
    "overloaded_error": "provider_overloaded",
}
_TYPED_CODES: Mapping[str, str] = {
    "context_length_exceeded": "context_length_exceeded",
    "upstream_timeout": "timeout",
}


def error_details_for(failure: ServiceError, headers: Headers) -> ErrorDetails:
    """Return a failure's ``error`` object in the form for the client that sent these headers."""
    error = failure.error()
    if not headers.get("user-agent", "").startswith("speakeasy-sdk/"):
        return error
    kind = _TYPED_CODES.get(failure.code, _TYPED_KINDS.get(failure.type, "unmapped"))
    known = {} if error.metadata is UNSET else error.metadata
    metadata = {**known, "error_type": kind, "code": failure.code}
    return structs.replace(error, code=failure.status, metadata=metadata)


def internal(request_id: str) -> InternalError:
    return InternalError(
        f"Something went wrong on our side. Please try again; request id {request_id}."
    )


_encoder = msgspec.json.Encoder()
_NO_CONTENT = HTTPStatus.NO_CONTENT.value
_STATUS_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}" for status in HTTPStatus}
_BEGINNING = b"HTTP/1.1 "  # of every response
_INTERIM = _BEGINNING + b"100 Continue\r\n\r\n"
_USUAL_CHUNK = 1024  # bytes: a token of a stream has fewer, and its size is not written anew
_CHUNK_SIZES = [b"%x\r\n" % size for size in range(_USUAL_CHUNK)]
_LARGE_BODY = 64 * 1024  # bytes of a body; to copy more takes longer than to write twice


class ClientGone(Exception):
    """The client has left or stopped reading, so nobody can be answered."""


class Exchange(msgspec.Struct, eq=False):
    """One request and its response.

    A connection feeds it the request and takes the bytes of the response. Writing never waits;
    :meth:`drained` does, if the client reads too slowly.
    """

    wire: Connection
    head: RequestHead
    keep_alive: bool = True  # the connection stays open after the response
    token: str = ""  # 128 random bits in hexadecimal: unique, but not secret
    request_id: str = ""
    status: int | None = None  # status of the response once it has started
    complete: bool = False  # the whole request has arrived
    ended: bool = False
    gone: bool = False
    metered: bool = False  # the pipeline counts the outcome
    filler: bytes = b""  # bytes without meaning, allowed between pieces of the response's body
    on_gone: Callable[[], None] | None = None  # called once when the client disconnects
    task: asyncio.Task[None] | None = None  # the task that answers it
    id_header: str = ""  # a further header that carries the request's id
    cross_origin: Mapping[str, str] | None = None  # CORS headers for a page of another origin
    unread: int = 0  # bytes of the body that arrived and were not read
    _has_client_request_id: bool = False
    _unread_pieces: list[bytes] = []
    _body_arrival_future: asyncio.Future[None] | None = None
    _is_chunked: bool = False
    _unsent_head: bytes = b""  # the head, until something goes out with it
    _interim_bytes_sent: int = 0  # bytes of an interim response that were sent

    def __post_init__(self) -> None:
        if not _drawn_tokens:
            digits, size = _random_bytes(_TOKENS_AT_ONCE * _TOKEN_BYTES).hex(), 2 * _TOKEN_BYTES
            _drawn_tokens.extend([digits[at : at + size] for at in range(0, len(digits), size)])
        self.token = token = _drawn_tokens.pop()
        self.request_id = f"req-{token}"
        headers = self.head.headers
        if "x-request-id" in headers:
            named = headers["x-request-id"]
            if _SAFE_ID.fullmatch(named):
                self.request_id, self._has_client_request_id = named, True

    def begin_completion(self, shape: Shape) -> CompletionIdentity:
        """Return a new completion's identity; its id is the request's if the client sent none."""
        completion = shape.id_prefix + self.token
        if not self._has_client_request_id:
            self.request_id = completion
        request_id.set(self.request_id)
        if shape.id_header:
            self.id_header = shape.id_header
        created = time.time_ns() // 1_000_000_000
        return CompletionIdentity(completion, created, self.request_id, shape.name)

    def client(self, proxies: Sequence[Network]) -> str:
        """Return the IP address of the client, as far as trusted proxies name it."""
        return client_address(self.wire.peer, self.headers.every("x-forwarded-for"), proxies)

    @property
    def method(self) -> str:
        return self.head.method

    @property
    def path(self) -> str:
        return self.head.path

    @property
    def headers(self) -> Headers:
        return self.head.headers

    def feed(self, piece: bytes) -> None:
        if self.ended:
            return
        self._unread_pieces.append(piece)
        self.unread += len(piece)
        self._wake_reader()

    def feed_end(self) -> None:
        self.complete = True
        self._wake_reader()

    def leave(self) -> None:
        if self.gone:
            return
        self.gone = True
        self._wake_reader()
        if self.on_gone is not None:
            self.on_gone()

    async def piece(self) -> bytes:
        """Return the next bytes of the body; ``b""`` at its end. Raises :class:`ClientGone`."""
        while not self._unread_pieces:
            if self.complete:
                return b""
            if self.gone:
                raise ClientGone
            self.wire.read_on()
            self._body_arrival_future = asyncio.get_running_loop().create_future()
            await self._body_arrival_future
        return self.at_hand()

    def at_hand(self) -> bytes:
        body, self._unread_pieces = self._unread_pieces, []
        self.unread = 0
        return b"".join(body)

    def _wake_reader(self) -> None:
        if self._body_arrival_future is not None and not self._body_arrival_future.done():
            self._body_arrival_future.set_result(None)

    def start(
        self, status: int, content_type: str, headers: Mapping[str, str], length: int | None = None
    ) -> None:
        """Start the response; the head is sent with the first piece of the body.

        Names of ``headers`` are in lower case. Without ``length`` the body is sent in chunks.
        """
        self._unsent_head = self._set_status_and_encode_head(status, content_type, headers, length)

    def write(self, piece: bytes) -> bool:
        """Send a piece of the response's body; return false if the client reads too slowly."""
        if self._is_chunked and piece:
            size = len(piece)
            begun = _CHUNK_SIZES[size] if size < _USUAL_CHUNK else b"%x\r\n" % size
            piece = b"".join((begun, piece, b"\r\n"))
        elif self.head.method == "HEAD":
            piece = b""
        if self._unsent_head:
            piece, self._unsent_head = self._unsent_head + piece, b""
        return self.wire.write(piece)

    def end(self, piece: bytes = b"") -> None:
        self.ended = True
        if self._is_chunked:
            piece = b"%x\r\n%b\r\n0\r\n\r\n" % (len(piece), piece) if piece else b"0\r\n\r\n"
        elif self.head.method == "HEAD":
            piece = b""
        self.wire.finish(self, self._unsent_head + piece)

    def probe(self) -> None:
        """Send bytes without meaning: a client that has closed answers them by a reset.

        Before the response that is the next byte of an interim response (RFC 9110, 15.2), which
        begins like every response. HTTP/1.0 has none, so only the beginning is sent.
        """
        if self.status is None:
            whole = _INTERIM if self.head.version == "1.1" else _BEGINNING
            if self._interim_bytes_sent < len(whole):
                self.wire.write(whole[self._interim_bytes_sent : self._interim_bytes_sent + 1])
                self._interim_bytes_sent += 1
            if self._interim_bytes_sent == len(_INTERIM):
                self._interim_bytes_sent = 0
        elif (self._unsent_head or self.filler) and not self.blocked:
            self.write(self.filler)

    def _set_status_and_encode_head(
        self, status: int, content_type: str, headers: Mapping[str, str], length: int | None
    ) -> bytes:
        self.status = status
        if self.cross_origin is not None:
            vary = ", ".join(filter(None, (headers.get("vary"), self.cross_origin["vary"])))
            headers = {**headers, **self.cross_origin, "vary": vary}
        if self.wire.closes():
            self.keep_alive = False
        if status == _NO_CONTENT:  # whose head ends it (RFC 9110, section 8.6)
            framing = ""
        elif length is not None:
            framing = f"content-length: {length}\r\n"
        elif self.head.version == "1.1":
            framing = "transfer-encoding: chunked\r\n"
            self._is_chunked = self.head.method != "HEAD"
        else:
            framing, self.keep_alive = "", False
        if "connection" in headers:
            self.keep_alive = self.keep_alive and headers["connection"].lower() != "close"
        elif not self.keep_alive:
            framing = "connection: close\r\n" + framing
        elif self.head.version == "1.0":
            framing = "connection: keep-alive\r\n" + framing
        values = "".join(headers.values())
        if "\n" in values or "\r" in values:  # one would begin another line
            headers = {name: " ".join(value.split()) for name, value in headers.items()}
        line = _STATUS_LINES.get(status) or f"HTTP/1.1 {status} "
        line = self._rest_of_interim_and_status_line(line) if self._interim_bytes_sent else line
        id_line = f"{self.id_header}: {self.request_id}\r\n" if self.id_header else ""
        head = [
            line,
            *map(": ".join, headers.items()),
            f"content-type: {content_type}",
            f"x-request-id: {self.request_id}\r\n{id_line}{framing}\r\n",
        ]
        return "\r\n".join(head).encode("latin-1", "replace")

    def _rest_of_interim_and_status_line(self, line: str) -> str:
        # A part of an interim response may have been sent already.
        sent, self._interim_bytes_sent = self._interim_bytes_sent, 0
        return line[sent:] if sent <= len(_BEGINNING) else _INTERIM[sent:].decode() + line

    @property
    def blocked(self) -> bool:
        """Return true while the client reads more slowly than the service writes."""
        return self.wire.full is not None

    def drained(self) -> asyncio.Future[None]:
        """Return a future that ends when a blocked client reads again, or has left."""
        assert self.wire.full is not None
        return asyncio.shield(self.wire.full)

    def respond(
        self,
        status: int,
        body: bytes,
        *,
        content_type: str = "application/json",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        head = self._set_status_and_encode_head(status, content_type, headers or {}, len(body))
        self.ended = True
        if self.head.method == "HEAD":
            self.wire.finish(self, head)
        elif len(body) <= _LARGE_BODY:
            self.wire.finish(self, head + body)
        else:
            self.wire.write(head)
            self.wire.finish(self, memoryview(body))  # a slice of which is no copy

    def json(self, value: object, headers: Mapping[str, str] | None = None) -> None:
        self.respond(200, _encoder.encode(value), headers=headers)

    def refuse(self, failure: ServiceError, status: int | None = None, body: object = None) -> None:
        """Respond with a failure; ``body``, if given, replaces the usual error object."""
        headers = {name.lower(): value for name, value in failure.headers.items()}
        if body is None:
            body = Error(error_details_for(failure, self.headers))
        self.respond(status or failure.status, _encoder.encode(body), headers=headers)


_CLOSE_HEADER = {"Connection": "close"}
_DIGITS = 20  # of a length; one that has more is larger than any bound
_BYTES_A_SECOND = 64 * 1024  # a client at least this fast is never cut off
_CODINGS = ", ".join(sorted(DECODERS.keys() - {"x-gzip"}))
_DECODED_AT_ONCE = 4096  # bytes of a compressed body; what they hold takes milliseconds


class BodyLimits(Struct, frozen=True):
    """Bounds on a body; each 64 KiB that arrive add one second to ``seconds``."""

    max_bytes: int = 16 * 1024 * 1024
    seconds: float = 30.0


def check_json_type(headers: Headers) -> None:
    sent = headers.get("content-type", "")
    media, *parameters = [part.strip().lower() for part in sent.split(";")]
    if media != "application/json" and not (
        media.startswith("application/") and media.endswith("+json")
    ):
        raise _media_type_error(
            f"The content type is {sent[:100] or 'missing'}; "
            "send the header `Content-Type: application/json`."
        )
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name == "charset" and value.strip('"') not in ("utf-8", "utf8", "us-ascii"):
            raise _media_type_error("JSON is sent as UTF-8; leave the charset out.")
    if (coding := _get_content_coding_or_empty(headers)) and coding not in DECODERS:
        raise _media_type_error(
            f"The content coding is {coding[:100]}; send the body as it is, or compressed by one "
            f"of {_CODINGS}.",
            headers={"Accept-Encoding": _CODINGS},  # RFC 9110, section 15.5.16
        )


def _get_content_coding_or_empty(headers: Headers) -> str:
    sent = ",".join(headers.every("content-encoding")).strip().lower()
    return "" if sent == "identity" else sent


async def read_body(exchange: Exchange, limits: BodyLimits) -> bytes:
    """Return the body; raise :class:`InvalidRequest` (413, or 408 if slow), :class:`ClientGone`."""
    announced = exchange.headers.get("content-length", "")
    if len(announced) > _DIGITS:
        announced = announced.lstrip("0")[:_DIGITS] or "0"
    if announced.isascii() and announced.isdigit() and int(announced) > limits.max_bytes:
        raise _build_body_size_error(limits)
    pieces: list[bytes] = []
    loop = asyncio.get_running_loop()
    start, size = loop.time(), 0
    try:
        async with asyncio.timeout_at(start + limits.seconds) as deadline:
            while piece := await exchange.piece():
                size += len(piece)
                if size > limits.max_bytes:
                    raise _build_body_size_error(limits)
                pieces.append(piece)
                deadline.reschedule(start + limits.seconds + size / _BYTES_A_SECOND)
    except TimeoutError:
        raise InvalidRequest(
            f"The body did not arrive in time ({size} bytes did); send it without pauses.",
            code="request_timeout",
            status=408,
            headers=_CLOSE_HEADER,
        ) from None
    return b"".join(pieces)


async def read_json(exchange: Exchange, limits: BodyLimits) -> bytes:
    """Check the content type and return the decompressed body; raise like :func:`read_body`."""
    check_json_type(exchange.headers)
    return await decompressed(exchange.headers, await read_body(exchange, limits), limits)


async def decompressed(headers: Headers, body: bytes, limits: BodyLimits) -> bytes:
    """Return a body decompressed as its headers say; raise :class:`InvalidRequest` (413, 400)."""
    coding = _get_content_coding_or_empty(headers)
    if not coding:
        return body
    try:
        if len(body) <= _DECODED_AT_ONCE:
            return decoded_body(body, coding, limits.max_bytes)
        return await offload(decoded_body, body, coding, limits.max_bytes)
    except Undecodable as error:
        if error.too_large:
            raise InvalidRequest(
                f"The body is {len(body)} bytes, and decodes to more than {limits.max_bytes} "
                "bytes or to far more than compression of JSON explains; send a smaller one.",
                code="body_too_large",
                status=413,
            ) from error
        raise InvalidRequest(
            f"The body is not whole and compressed as `Content-Encoding: {coding}` says; compress "
            "it so, or send it as it is without this header.",
            code="invalid_http",
        ) from error


def json_at_hand(exchange: Exchange, limits: BodyLimits) -> bytes:
    """Return an uncompressed JSON body if it has arrived and is not too large, else ``b""``."""
    plain = exchange.head.hints.plain_json
    if plain and exchange.complete and exchange.unread <= limits.max_bytes:
        return exchange.at_hand()
    return b""


def _build_body_size_error(limits: BodyLimits) -> InvalidRequest:
    return InvalidRequest(
        f"The body is larger than {limits.max_bytes} bytes; send a smaller one.",
        code="body_too_large",
        status=413,
        headers=_CLOSE_HEADER,
    )


def _media_type_error(message: str, headers: Mapping[str, str] | None = None) -> InvalidRequest:
    return InvalidRequest(message, code="unsupported_media_type", status=415, headers=headers)
