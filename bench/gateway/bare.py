"""The floor: the least that a proxy of asyncio's protocols can do. No key, no limits, no care.

python -m gateway.bare PORT UPSTREAM_HOST:UPSTREAM_PORT
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from typing import cast

import httptools
import uvloop

_HEAD = (
    b"POST %b HTTP/1.1\r\nhost: mock\r\ncontent-type: application/json\r\n"
    b"content-length: %d\r\n\r\n"
)


class Upstream(asyncio.Protocol):
    """A connection to the mock; what comes goes on as it is."""

    def __init__(self, idle: deque[Upstream]) -> None:
        self._idle = idle

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def ask(self, client: asyncio.Transport, request: bytes) -> None:
        """Send a request whose reply is for that client."""
        self._client = client
        self._parser = httptools.HttpResponseParser(self)
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        self._client.write(data)
        self._parser.feed_data(data)

    def on_message_complete(self) -> None:
        self._idle.append(self)


class Client(asyncio.Protocol):
    """A connection of the load."""

    def __init__(self, host: str, port: int, idle: deque[Upstream]) -> None:
        self._place = host, port
        self._idle = idle
        self._parser = httptools.HttpRequestParser(self)
        self._body = b""
        self._dialing: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_url(self, url: bytes) -> None:
        self._url = url

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        body, self._body = self._body, b""
        request = _HEAD % (self._url, len(body)) + body
        if self._idle:
            self._idle.pop().ask(self._transport, request)
        else:
            self._dialing = asyncio.ensure_future(self._dial(request))

    async def _dial(self, request: bytes) -> None:
        loop = asyncio.get_running_loop()
        _, upstream = await loop.create_connection(lambda: Upstream(self._idle), *self._place)
        upstream.ask(self._transport, request)


async def _serve(port: int, host: str, upstream: int) -> None:
    idle: deque[Upstream] = deque()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: Client(host, upstream, idle), "127.0.0.1", port, backlog=4096
    )
    await server.serve_forever()


if __name__ == "__main__":
    place = sys.argv[2].rpartition(":")
    uvloop.run(_serve(int(sys.argv[1]), place[0], int(place[2])))
