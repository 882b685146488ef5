"""Sends one request and records what comes back, within limits of time and size.

Any behaviour of a server ends in a :class:`ProbeReply`: one that hangs, sends without end or
breaks off is recorded as such. The key is cut out of every reply, so that nothing behind this
can show it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self
from urllib.parse import quote, urlsplit

import msgspec

from causerie.http.client import HttpClient, Reach
from causerie.http.client_connection import TransportFailed
from causerie.probe.question import Ended, ProbeReply, ProbeRequest

_KEPT = (
    "content-type",
    "retry-after",
    "server",
    "www-authenticate",
    "x-request-changes",
    "x-request-id",
)
_MAX_HEADER = 300
_SHORTEST_SECRET = 8  # shorter is a placeholder, which may be any word of a reply


@dataclass(frozen=True, slots=True)
class ProbeBounds:
    """Limits of one request: its duration, and the bytes of its reply."""

    seconds: float = 60.0
    bytes: int = 1024 * 1024
    listing_bytes: int = 16 * 1024 * 1024


@dataclass(slots=True)
class _PartialReply:
    status: int = 0
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytearray = field(default_factory=bytearray)
    ended: Ended = "whole"
    trouble: str = ""


class ProbeClient:
    """Asks one server, one request at a time. Use as an async context manager."""

    def __init__(
        self,
        base_url: str,
        key: str | None,
        reach: Reach | None = None,
        bounds: ProbeBounds = ProbeBounds(),
    ) -> None:
        self._key = key
        self._secrets: Sequence[str] = ()
        if key and len(key) >= _SHORTEST_SECRET:
            escaped = msgspec.json.encode(key).decode()[1:-1]
            spelled = {key, escaped, quote(key, safe=""), quote(key)}
            self._secrets = sorted(spelled, key=len, reverse=True)
        self._bounds = bounds
        reach = reach or Reach()
        self._client = HttpClient(base_url, reach)
        parts = urlsplit(base_url)
        self._root = HttpClient(f"{parts.scheme}://{parts.netloc}", reach)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()
        await self._root.close()

    async def put(self, ask: ProbeRequest, seconds: float | None = None) -> ProbeReply:
        """Return the reply to ``ask``, in at most ``seconds`` (unset: the bounds' own)."""
        await asyncio.sleep(ask.wait_seconds)
        limit = min(seconds or self._bounds.seconds, self._bounds.seconds)
        patience = limit if ask.leave_after is None else min(limit, ask.leave_after)
        partial = _PartialReply()
        began = time.monotonic()
        try:
            async with asyncio.timeout(patience):
                await self._exchange(ask, partial)
        except TimeoutError:
            partial.ended = "late" if ask.leave_after is None else "left"
            what = "the answer had not ended after" if partial.status else "no answer within"
            partial.trouble = f"{what} {patience:g} s"
        except TransportFailed as failure:
            partial.ended, partial.trouble = "broken", str(failure)
        return self._reply(partial, time.monotonic() - began)

    async def _exchange(self, ask: ProbeRequest, partial: _PartialReply) -> None:
        client = self._root if ask.at_root else self._client
        response = await client.send(ask.method, ask.path, self._headers(ask), ask.body)
        most = self._bounds.bytes if ask.method == "POST" else self._bounds.listing_bytes
        try:
            partial.status, partial.headers = response.status, response.headers
            while piece := await response.piece():
                partial.body += piece
                if ask.leave_at_data and b"data:" in partial.body:
                    partial.ended = "left"
                    return
                if len(partial.body) > most:
                    partial.ended = "large"
                    partial.trouble = f"did not end: more than {most} bytes came"
                    return
        finally:
            response.close()

    def _headers(self, ask: ProbeRequest) -> list[tuple[str, str]]:
        headers = [("accept", "*/*"), ("user-agent", "causerie-probe")]
        if ask.body:
            headers.append(("content-type", "application/json"))
        if ask.credential == "ours" and self._key is not None:
            headers.append(("authorization", f"Bearer {self._key}"))
        if ask.credential == "wrong":
            headers.append(("authorization", "Bearer not-a-key-of-this-server"))
        return headers

    def _reply(self, partial: _PartialReply, seconds: float) -> ProbeReply:
        body, came = bytes(partial.body), partial.headers.items()
        headers = {name: value[:_MAX_HEADER] for name, value in came if name in _KEPT}
        for secret in self._secrets:
            body = body.replace(secret.encode(), b"***")
            headers = {name: value.replace(secret, "***") for name, value in headers.items()}
            partial.trouble = partial.trouble.replace(secret, "***")
        return ProbeReply(partial.status, headers, body, partial.ended, partial.trouble, seconds)
