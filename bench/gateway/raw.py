"""The base line: the least that a proxy of ASGI and aiohttp can do. No key, no limits, no care.

UPSTREAM=http://127.0.0.1:9000 uvicorn gateway.raw:application
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp

_UPSTREAM = os.environ.get("UPSTREAM", "")
_sessions: list[aiohttp.ClientSession] = []


def _session() -> aiohttp.ClientSession:
    if not _sessions:
        _sessions.append(aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)))
    return _sessions[0]


async def application(
    scope: dict[str, Any],
    receive: Callable[[], Awaitable[dict[str, Any]]],
    send: Callable[[dict[str, Any]], Awaitable[None]],
) -> None:
    """Pass a request on, and what comes back as it comes."""
    if scope["type"] != "http":
        return
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message.get("body", b""), message.get("more_body", False)
    url = _UPSTREAM + scope["path"]
    headers = {"content-type": "application/json"}
    async with _session().request(scope["method"], url, data=body, headers=headers) as response:
        kept = [
            (name.lower().encode(), value.encode())
            for name, value in response.headers.items()
            if name.lower() in ("content-type", "content-length")
        ]
        await send({"type": "http.response.start", "status": response.status, "headers": kept})
        async for piece in response.content.iter_any():
            await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body", "body": b"", "more_body": False})
