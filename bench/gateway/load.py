"""The load: connections that are kept, each with one request after the other.

Prints one JSON object. A second's start is left out of the figures.

    python -m gateway.load ROOT PATH MODEL --connections 64 --seconds 3 [--stream] …
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
from array import array
from itertools import count
from time import perf_counter
from typing import cast
from urllib.parse import urlsplit

import httptools
import uvloop

from gateway.mock import WORD

_BODY_BYTES = 1536
_MARK = WORD.strip().encode()


def body(model: str, stream: bool) -> bytes:
    """A conversation of 1.5 KB."""
    document = {
        "model": model,
        "messages": [
            {"role": "system", "content": "You answer in one sentence."},
            {"role": "user", "content": ""},
        ],
        "temperature": 0.7,
        "max_tokens": 4096,
    }
    if stream:
        document |= {"stream": True, "stream_options": {"include_usage": True}}
    filling = "Why did the fox go home? " * 80
    left = _BODY_BYTES - len(json.dumps(document))
    cast(list[dict[str, str]], document["messages"])[1]["content"] = filling[:left]
    return json.dumps(document).encode()


class Load:
    """Shared state of all connections: the request, the end, the measurements."""

    def __init__(self, options: argparse.Namespace) -> None:
        address = urlsplit(options.root)
        self.host, self.port = address.hostname or "", address.port or 80
        raw = body(options.model, options.stream)
        self._head = (
            f"POST {options.path}/chat/completions HTTP/1.1\r\nHost: {address.netloc}\r\n"
            f"Authorization: Bearer {options.key}\r\nContent-Type: application/json\r\n"
            f"Accept: */*\r\nContent-Length: {len(raw)}\r\n"
        ).encode()
        self._end = b"\r\n" + raw
        self._request = self._head + self._end
        self._ids = count() if options.ids else None
        self.stream = options.stream
        self.left = options.count or (1 << 60)
        self.latency = array("d")
        self.first = array("d")
        self.chunks = 0
        self.errors: dict[str, int] = {}
        self.busy = 0
        self.idle = asyncio.Event()

    def request(self) -> bytes:
        """The next one, which is the same each time but for its id, where it has one."""
        if self._ids is None:
            return self._request
        return b"%bx-request-id: %020d\r\n%b" % (self._head, next(self._ids), self._end)

    def restart(self) -> None:
        """Forget what was measured."""
        self.latency, self.first, self.chunks = array("d"), array("d"), 0

    def failed(self, what: str) -> None:
        self.errors[what] = self.errors.get(what, 0) + 1

    async def connect(self, later: float = 0.0) -> None:
        await asyncio.sleep(later)
        loop = asyncio.get_running_loop()
        kind = Stream if self.stream else Plain
        await loop.create_connection(lambda: kind(self), self.host, self.port)


class Plain(asyncio.Protocol):
    """A connection that waits for whole replies."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._parser = httptools.HttpResponseParser(self)
        self._asking = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._load.busy += 1
        self._ask()

    def _ask(self) -> None:
        load = self._load
        if load.left <= 0:
            self._asking = False
            self._transport.close()
            return
        load.left -= 1
        self._asking = True
        self._begun = perf_counter()
        self._transport.write(load.request())

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_complete(self) -> None:
        load = self._load
        if self._parser.get_status_code() != 200:
            load.failed(f"status {self._parser.get_status_code()}")
        else:
            load.latency.append(perf_counter() - self._begun)
        self._ask()

    def connection_lost(self, exc: Exception | None) -> None:
        load = self._load
        if self._asking:
            load.failed("connection lost")
        load.busy -= 1
        if not load.busy:
            load.idle.set()


class Stream(Plain):
    """A connection that reads streams; counts chunks and notes when the first one came."""

    def __init__(self, load: Load) -> None:
        super().__init__(load)
        self._end = b""
        self._waiting = True

    def on_body(self, piece: bytes) -> None:
        text = self._end + piece
        count = text.count(_MARK)
        self._end = text[1 - len(_MARK) :]
        if count:
            self._load.chunks += count
            if self._waiting:
                self._waiting = False
                self._load.first.append(perf_counter() - self._begun)

    def on_message_complete(self) -> None:
        if self._waiting and self._parser.get_status_code() == 200:
            self._load.failed("a stream without content")
        self._end, self._waiting = b"", True
        super().on_message_complete()


def quantile(values: array[float], share: float) -> float:
    """In milliseconds; 0 of nothing."""
    if not values:
        return 0.0
    ordered = sorted(values)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)] * 1000


async def run(options: argparse.Namespace) -> dict[str, object]:
    """The measurement."""
    load = Load(options)
    spread = options.spread / options.connections
    async with asyncio.TaskGroup() as group:
        for number in range(options.connections):
            group.create_task(load.connect(number * spread))
    started = perf_counter()
    if not options.count:
        await asyncio.sleep(options.warm)
        load.restart()
        started = perf_counter()
        await asyncio.sleep(options.seconds)
    else:
        async with asyncio.timeout(options.seconds):
            await load.idle.wait()
    seconds = perf_counter() - started
    result = {
        "rate": len(load.latency) / seconds,
        "count": len(load.latency),
        "p50": quantile(load.latency, 0.5),
        "p99": quantile(load.latency, 0.99),
        "first_p50": quantile(load.first, 0.5),
        "first_p99": quantile(load.first, 0.99),
        "chunks": load.chunks / seconds,
        "errors": dict(load.errors),
    }
    load.left = 0
    return result


def main() -> None:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root")
    parser.add_argument("path")
    parser.add_argument("model")
    parser.add_argument("--key", default="none")
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=3.0, help="with --count: at most")
    parser.add_argument("--count", type=int, default=0, help="so many requests, no time")
    parser.add_argument("--warm", type=float, default=0.5)
    parser.add_argument("--spread", type=float, default=0.0, help="seconds the starts are spread")
    parser.add_argument("--stream", action="store_true")
    parser.add_argument("--ids", action="store_true", help="each request names itself")
    parser.add_argument("--core", type=int, default=-1)
    options = parser.parse_args()
    if options.core >= 0:
        os.sched_setaffinity(0, {options.core})
    print(json.dumps(uvloop.run(run(options))))


if __name__ == "__main__":
    main()
