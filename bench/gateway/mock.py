"""An upstream that costs next to nothing: replies are bytes made beforehand.

The model's name says what comes back: ``plain`` (a reply of some 400 bytes),
``stream-CHUNKS-MICROSECONDS-BURST`` (a stream, with so long between bursts of
so many chunks), or ``think-…`` (the same, as reasoning under another field's
name, so that a gateway has to rewrite it).

    python -m gateway.mock PORT CORE
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from functools import cache
from typing import Any, cast

import httptools
import uvloop

WORD = "fox "  # the load counts these; nothing else of a stream holds that word
_KIND = re.compile(rb'"model": ?"(plain|stream|think)(?:-(\d+)-(\d+)-(\d+))?')
_TEXT = "A fox went down to the river, looked at the other bank for a while, and went home again."


def _encoded(document: dict[str, Any]) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()


def _head(*lines: str) -> bytes:
    return "\r\n".join(("HTTP/1.1 200 OK", *lines, "", "")).encode()


def _plain() -> bytes:
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": _TEXT},
        "finish_reason": "stop",
    }
    usage = {"prompt_tokens": 350, "completion_tokens": 20, "total_tokens": 370}
    body = _encoded(
        {
            "id": "chatcmpl-0123456789abcdef",
            "object": "chat.completion",
            "created": 1_760_000_000,
            "model": "plain",
            "choices": [choice],
            "usage": usage,
        }
    )
    return _head("content-type: application/json", f"content-length: {len(body)}") + body


def _event(delta: dict[str, str], finish: str | None = None, **more: Any) -> bytes:
    document = {
        "id": "chatcmpl-0123456789abcdef",
        "object": "chat.completion.chunk",
        "created": 1_760_000_000,
        "model": "stream",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
        **more,
    }
    return _chunk(b"data: " + _encoded(document) + b"\n\n")


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


PLAIN = _plain()
OPENING = _head("content-type: text/event-stream", "transfer-encoding: chunked") + _event(
    {"role": "assistant", "content": ""}
)
USAGE = {"prompt_tokens": 350, "completion_tokens": 20, "total_tokens": 370}
CLOSING = (
    _event({}, "stop")
    + _event({}, choices=[], usage=USAGE)
    + _chunk(b"data: [DONE]\n\n")
    + b"0\r\n\r\n"
)
MODELS = _encoded({"object": "list", "data": [{"id": "plain", "object": "model"}]})
LISTED = _head("content-type: application/json", f"content-length: {len(MODELS)}") + MODELS


@cache
def burst(kind: bytes, count: int) -> bytes:
    """So many chunks."""
    field = "reasoning" if kind == b"think" else "content"
    return _event({field: WORD}) * count


class Mock(asyncio.Protocol):
    """One connection."""

    def __init__(self) -> None:
        self._parser = httptools.HttpRequestParser(self)
        self._loop = asyncio.get_running_loop()
        self._body = b""
        self._left = 0
        self._kind = b""
        self._size = 0
        self._pause = 0.0
        self._due = 0.0
        self._flowing = True
        self._gone = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._gone = True

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_body(self, body: bytes) -> None:
        self._body = self._body + body if self._body else body

    def on_message_complete(self) -> None:
        body, self._body = self._body, b""
        if not body:
            self._transport.write(LISTED)
            return
        found = _KIND.search(body)
        if found is None or found[1] == b"plain":
            self._transport.write(PLAIN)
            return
        self._left, self._size = int(found[2]), int(found[4])
        self._pause = int(found[3]) / 1e6
        self._kind = found[1]
        self._transport.write(OPENING)
        self._due = self._loop.time() + self._pause
        self._step()  # at once: the loop's clock, in milliseconds, would hide what is measured

    def pause_writing(self) -> None:
        self._flowing = False

    def resume_writing(self) -> None:
        self._flowing = True
        if self._left and not self._pause:
            self._loop.call_soon(self._step)

    def _step(self) -> None:
        if self._gone or not self._left:
            return
        count = min(self._size, self._left)
        self._left -= count
        self._transport.write(burst(self._kind, count))
        if not self._left:
            self._transport.write(CLOSING)
            return
        self._next()

    def _next(self) -> None:
        if self._pause:
            self._loop.call_at(self._due, self._step)
            self._due += self._pause
        elif self._flowing:
            self._loop.call_soon(self._step)


async def _serve(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(Mock, "127.0.0.1", port, backlog=4096)
    await server.serve_forever()


if __name__ == "__main__":
    os.sched_setaffinity(0, {int(sys.argv[2])})
    uvloop.run(_serve(int(sys.argv[1])))
