"""A receiver of webhooks on loopback, which checks each signature with another HMAC than ours."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.hmac import HMAC

KEY = bytes(range(32))
SECRET = "whsec_" + base64.b64encode(KEY).decode()


@dataclass(frozen=True)
class Posted:
    """One request, whose signature holds."""

    path: str
    id: str
    body: dict[str, Any]


@dataclass
class Receiver:
    """What came to ``url``; ``answers`` are statuses of the next answers, then 204."""

    url: str = ""
    posted: asyncio.Queue[Posted] = field(default_factory=asyncio.Queue)
    answers: list[int] = field(default_factory=list)
    words: str = ""
    wrong: list[str] = field(default_factory=list)

    async def next(self) -> Posted:
        """The next request."""
        return await asyncio.wait_for(self.posted.get(), 60)

    def take(self, path: str, headers: dict[str, str], body: bytes) -> int:
        """Check one request and return the status of the answer."""
        if not proven(headers, body):
            self.wrong.append(headers.get("webhook-signature", "none"))
            return 401
        status = self.answers.pop(0) if self.answers else 204
        self.posted.put_nowait(Posted(path, headers["webhook-id"], json.loads(body)))
        return status


def proven(headers: dict[str, str], body: bytes) -> bool:
    """Whether one of the signatures is right, and the time is about now."""
    stamp = headers.get("webhook-timestamp", "")
    if not stamp.isdigit() or abs(int(stamp) - time.time()) > 300:
        return False
    digest = HMAC(KEY, hashes.SHA256())
    digest.update(b".".join([headers.get("webhook-id", "").encode(), stamp.encode(), body]))
    expected = "v1," + base64.b64encode(digest.finalize()).decode()
    return expected in headers.get("webhook-signature", "").split(" ")


@asynccontextmanager
async def webhook_receiver(tls: ssl.SSLContext | None = None) -> AsyncIterator[Receiver]:
    """On loopback, by HTTP or with ``tls``."""
    receiver = Receiver()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            first, *lines = head.strip().split("\r\n")
            headers = {
                name.lower(): value for name, value in (line.split(": ", 1) for line in lines)
            }
            body = await reader.readexactly(int(headers["content-length"]))
            status = receiver.take(first.split()[1], headers, body)
            said = receiver.words.encode() if status != 204 else b""
            size = f"content-length: {len(said)}\r\n" if status != 204 else ""
            writer.write(f"HTTP/1.1 {status} X\r\n{size}connection: close\r\n\r\n".encode() + said)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=tls)
    scheme = "https" if tls else "http"
    receiver.url = f"{scheme}://127.0.0.1:{server.sockets[0].getsockname()[1]}/hook?team=a"
    try:
        yield receiver
    finally:
        server.close()
