"""The HTTP server: uvicorn, with bounds on what a connection may cost.

uvicorn leaves a connection that sends no request, or half of its head, open
for ever, and holds a head of any size. Here both are bounded, and what is not
HTTP gets the same kind of error as everything else.
"""

from __future__ import annotations

import asyncio
import socket
from asyncio.events import TimerHandle
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType

import msgspec
import uvicorn
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from causerie.edge.application import Edge
from causerie.errors import InvalidRequest, Overloaded, ServiceError


@dataclass(frozen=True, slots=True)
class Listen:
    """Where and how to listen. Times are in seconds, sizes in bytes; port 0 takes a free one."""

    host: str = "127.0.0.1"
    port: int = 8000
    drain_seconds: float = 30.0
    head_seconds: float = 15.0
    keep_alive_seconds: int = 75
    max_head_bytes: int = 64 * 1024
    max_connections: int = 4096


def listening_socket(listen: Listen) -> socket.socket:
    """A bound socket; raises :class:`OSError` where the address is taken or not ours."""
    family = socket.AF_INET6 if ":" in listen.host else socket.AF_INET
    return socket.create_server((listen.host, listen.port), family=family, backlog=2048)


async def serve(
    edge: Edge,
    listen: Listen,
    *,
    stop: asyncio.Event | None = None,
    on_ready: Callable[[str, int], None] | None = None,
    bound: socket.socket | None = None,
) -> None:
    """Serve until ``stop`` is set or a signal comes, then end gracefully.

    At a stop nothing new is begun, running answers may finish within
    ``drain_seconds`` and are ended then; a second signal ends them at once.
    ``on_ready`` is told the address. Raises :class:`OSError` where it cannot
    listen.
    """
    stop = stop or asyncio.Event()
    listener = bound or listening_socket(listen)
    host, port = listener.getsockname()[:2]
    server = _Server(_config(edge, listen), edge, stop)
    with listener:
        async with asyncio.TaskGroup() as group:
            serving = group.create_task(server.serve(sockets=[listener]))
            stopping = group.create_task(server.end_gracefully(listen.drain_seconds))
            serving.add_done_callback(lambda _: stopping.cancel())
            if on_ready is not None:
                await server.accepts()
                on_ready(host, port)


def _config(edge: Edge, listen: Listen) -> Config:
    def protocol(**kwargs: object) -> asyncio.Protocol:
        return _Connection(listen, **kwargs)

    return Config(
        edge,
        http=protocol,  # type: ignore[arg-type]  # any callable that makes a protocol will do
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=listen.keep_alive_seconds,
        timeout_graceful_shutdown=5,
    )


class _Server(uvicorn.Server):
    """uvicorn, whose stop begins with ours."""

    def __init__(self, config: Config, edge: Edge, stop: asyncio.Event) -> None:
        super().__init__(config)
        self._edge = edge
        self._stop = stop
        self._accepting = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._accepting.set()

    async def accepts(self) -> None:
        """Return when connections are accepted."""
        await self._accepting.wait()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """A first signal begins the stop, a second one hurries it."""
        if self._stop.is_set():
            self.should_exit = True
        self._loop.call_soon_threadsafe(self._stop.set)

    async def end_gracefully(self, seconds: float) -> None:
        """Wait for the stop, let answers finish, then end the server."""
        await self._stop.wait()
        await self._edge.drain.finish(seconds)
        self.should_exit = True


class _Connection(HttpToolsProtocol):
    """One connection, with a bound on the size of a request's head and the time it takes."""

    def __init__(self, listen: Listen, **kwargs: object) -> None:
        super().__init__(**kwargs)  # type: ignore[arg-type]  # what uvicorn hands to any protocol
        self._listen = listen
        self._head_bytes = 0
        self._in_head = True
        self._head_timer: TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self._listen.max_connections:
            self._refuse(Overloaded("Too many connections are open; please try again."))
            return
        self._start_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._in_head:
            self._head_bytes += len(data)
            self._start_timer()
        super().data_received(data)
        if self._in_head and self._head_bytes > self._listen.max_head_bytes:
            self._refuse(
                InvalidRequest(
                    f"The request's head is larger than {self._listen.max_head_bytes} bytes.",
                    code="head_too_large",
                    status=431,
                )
            )

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._stop_timer()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._in_head = True
        self._head_bytes = 0

    def send_400_response(self, msg: str) -> None:
        self._refuse(InvalidRequest("This is not a valid HTTP/1.1 request.", code="invalid_http"))

    def _refuse(self, failure: ServiceError) -> None:
        if self.transport.is_closing():
            return
        body = msgspec.json.encode(failure.body())
        head = f"content-type: application/json\r\ncontent-length: {len(body)}\r\n"
        for name, value in failure.headers.items():
            head += f"{name.lower()}: {value}\r\n"
        status = STATUS_LINE[failure.status]
        self.transport.write(status + head.encode() + b"connection: close\r\n\r\n" + body)
        self.transport.close()

    def _start_timer(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(self._listen.head_seconds, self._too_slow)

    def _stop_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _too_slow(self) -> None:
        self._head_timer = None
        if not self.transport.is_closing():
            self.transport.close()
