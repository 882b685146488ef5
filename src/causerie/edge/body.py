"""Reading a request body: of the right type, in bounded size and time."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from causerie.edge.exchange import Exchange
from causerie.edge.headers import Headers
from causerie.errors import InvalidRequest

_CLOSE = {"Connection": "close"}
_DIGITS = 20  # of a length; one that has more is larger than any bound
_BYTES_A_SECOND = 64 * 1024  # a client at least this fast is never cut off


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """``max_bytes`` of a body; ``seconds`` for it, and more for each 64 KiB that arrived."""

    max_bytes: int = 16 * 1024 * 1024
    seconds: float = 30.0


def check_type(headers: Headers) -> None:
    """Refuse a body that is not declared as JSON in UTF-8, as it stands."""
    sent = headers.get("content-type", "")
    media, *parameters = [part.strip().lower() for part in sent.split(";")]
    if media != "application/json" and not (
        media.startswith("application/") and media.endswith("+json")
    ):
        raise _unsupported(
            f"The content type is {sent[:100] or 'missing'}; "
            "send the header `Content-Type: application/json`."
        )
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name == "charset" and value.strip('"') not in ("utf-8", "utf8", "us-ascii"):
            raise _unsupported("JSON is sent as UTF-8; leave the charset out.")
    if headers.get("content-encoding", "identity").lower() != "identity":
        raise _unsupported(
            "The body must not be compressed; leave out `Content-Encoding`.",
            headers={"Accept-Encoding": "identity"},  # RFC 9110, section 15.5.16
        )


async def read_body(exchange: Exchange, limits: BodyLimits) -> bytes:
    """The whole body.

    Raises :class:`InvalidRequest` (413 where it is too large, 408 where it
    comes too slowly) and :class:`ClientGone`.
    """
    announced = exchange.headers.get("content-length", "")
    if len(announced) > _DIGITS:
        announced = announced.lstrip("0")[:_DIGITS] or "0"
    if announced.isascii() and announced.isdigit() and int(announced) > limits.max_bytes:
        raise _too_large(limits)
    return await _arriving(exchange, limits)


async def read_json(exchange: Exchange, limits: BodyLimits) -> bytes:
    """The whole body, of the right type; raises as :func:`check_type` and :func:`read_body`."""
    check_type(exchange.headers)
    return await read_body(exchange, limits)


def json_at_hand(exchange: Exchange, limits: BodyLimits) -> bytes:
    """The whole body where it is there already, plainly JSON and not too large, else ``b""``."""
    headers = exchange.head.headers
    plain = headers.plain_json
    if plain is None:
        plain = headers.plain_json = _is_plain(headers)
    if plain and exchange.complete and exchange.unread <= limits.max_bytes:
        return exchange.at_hand()
    return b""


def _is_plain(headers: Headers) -> bool:
    return headers.get("content-type") == "application/json" and "content-encoding" not in headers


async def _arriving(exchange: Exchange, limits: BodyLimits) -> bytes:
    """A body that is still on its way."""
    pieces: list[bytes] = []
    loop = asyncio.get_running_loop()
    start, size = loop.time(), 0
    try:
        async with asyncio.timeout_at(start + limits.seconds) as deadline:
            while piece := await exchange.piece():
                size += len(piece)
                if size > limits.max_bytes:
                    raise _too_large(limits)
                pieces.append(piece)
                deadline.reschedule(start + limits.seconds + size / _BYTES_A_SECOND)
    except TimeoutError:
        raise InvalidRequest(
            f"The body did not arrive in time ({size} bytes did); send it without pauses.",
            code="request_timeout",
            status=408,
            headers=_CLOSE,
        ) from None
    return b"".join(pieces)


def _too_large(limits: BodyLimits) -> InvalidRequest:
    return InvalidRequest(
        f"The body is larger than {limits.max_bytes} bytes; send a smaller one.",
        code="body_too_large",
        status=413,
        headers=_CLOSE,
    )


def _unsupported(message: str, headers: Mapping[str, str] | None = None) -> InvalidRequest:
    return InvalidRequest(message, code="unsupported_media_type", status=415, headers=headers)
