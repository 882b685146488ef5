"""Responses on a connection: heads, chunks of the transfer, whole bodies."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from faultkit.connection import Connection
from faultkit.frames import encoded

STREAM = "text/event-stream"
JSON = "application/json"
_REASONS = {200: "OK", 307: "Temporary Redirect", 429: "Too Many Requests"}


def head(status: int, headers: Mapping[str, str]) -> bytes:
    """Status line and headers."""
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {status} {_REASONS.get(status, 'Status')}\r\n{lines}\r\n".encode("latin-1")


def stream_head(content_type: str = STREAM) -> bytes:
    """The head of a body in chunks."""
    return head(200, {"content-type": content_type, "transfer-encoding": "chunked"})


def chunk(data: bytes) -> bytes:
    """A chunk of the transfer."""
    return b"%x\r\n%b\r\n" % (len(data), data)


LAST_CHUNK = b"0\r\n\r\n"


def plain(
    body: bytes,
    *,
    status: int = 200,
    content_type: str = JSON,
    headers: Mapping[str, str] | None = None,
) -> bytes:
    """A whole response."""
    fields = {"content-type": content_type, "content-length": str(len(body)), **(headers or {})}
    return head(status, fields) + body


def error(status: int, message: str, headers: Mapping[str, str] | None = None) -> bytes:
    """A refusal in the usual shape."""
    body = encoded({"error": {"message": message, "type": "upstream", "code": status}})
    return plain(body, status=status, headers=headers)


async def drip(connection: Connection, data: bytes, pause: float) -> None:
    """A byte at a time, ``pause`` seconds between them."""
    for at in range(len(data)):
        await connection.write(data[at : at + 1])
        await asyncio.sleep(pause)
