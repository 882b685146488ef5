"""Listening, signals, and a stop that lets answers finish."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial

from causerie.http.application import Edge
from causerie.http.connection import ConnectionLimits, Connections
from causerie.http.tasks import owned

_SWEEP_SECONDS = 0.5
_LAST_BYTES_SECONDS = 5.0
_HURRIED_SECONDS = 0.2
_HANDLERS_SECONDS = 5.0
BACKLOG = 2048
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True, slots=True)
class Listen:
    """Options of the listener. Times are in seconds, sizes in bytes; port 0 takes a free one."""

    host: str = "127.0.0.1"
    port: int = 8000
    drain_seconds: float = 30.0
    shutdown_delay_seconds: float = 0.0
    head_seconds: float = 15.0
    keep_alive_seconds: float = 75.0
    stuck_seconds: float = 60.0
    max_head_bytes: int = 64 * 1024
    max_connections: int = 4096
    busy_poll_seconds: float = 0.0

    @property
    def bounds(self) -> ConnectionLimits:
        return ConnectionLimits(
            head_seconds=self.head_seconds,
            idle_seconds=self.keep_alive_seconds,
            stuck_seconds=self.stuck_seconds,
            max_head_bytes=self.max_head_bytes,
            max_connections=self.max_connections,
        )


@dataclass(frozen=True, slots=True)
class Bound:
    """Sockets that are bound: of the service, and of its metrics where they are apart."""

    service: socket.socket
    metrics: socket.socket | None = None


def listening_socket(listen: Listen) -> socket.socket:
    """A bound socket; raises :class:`OSError` where the address is taken or not ours."""
    family = socket.AF_INET6 if ":" in listen.host else socket.AF_INET
    return socket.create_server((listen.host, listen.port), family=family, backlog=BACKLOG)


def reserved_socket(listen: Listen) -> socket.socket:
    """Return a socket that is bound and does not listen; :func:`socket_beside` makes those that do.

    Raises :class:`OSError` where the address is taken or not ours.
    """
    try:
        return _bound((listen.host, listen.port))
    except OSError:  # it may be in use by connections of a service that has ended
        return _bound((listen.host, listen.port), socket.SO_REUSEADDR)


def socket_beside(reserved: socket.socket) -> socket.socket:
    """Return one more socket at an address, for another process; it is bound and does not listen.

    Linux divides connections evenly among the sockets at one address. Elsewhere all processes
    accept at the same socket.
    """
    if sys.platform != "linux":
        return reserved.dup()
    # Only now: nobody else can have been bound there before.
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    return _bound(reserved.getsockname()[:2], socket.SO_REUSEADDR, socket.SO_REUSEPORT)


def _bound(address: tuple[str, int], *options: int) -> socket.socket:
    made = socket.socket(socket.AF_INET6 if ":" in address[0] else socket.AF_INET)
    try:
        if made.family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        for option in options:
            made.setsockopt(socket.SOL_SOCKET, option, 1)
        made.bind(address)
    except OSError:
        made.close()
        raise
    return made


async def serve(
    edge: Edge,
    listen: Listen,
    *,
    stop: asyncio.Event | None = None,
    on_ready: Callable[[str, int], None] | None = None,
    bound: Bound | None = None,
) -> None:
    """Serve until ``stop`` is set or a signal comes, then end gracefully.

    At a stop the service says for ``shutdown_delay_seconds`` that it is not ready, and still
    answers. Then nothing new is started, running answers may finish within ``drain_seconds`` and
    are ended then; a second signal ends them at once. Other requests that are being answered
    (pages, say) hold the stop for some seconds at most. ``on_ready`` is told the address. Raises
    :class:`OSError` where it cannot listen.
    """
    stop = stop or asyncio.Event()
    bound = bound or Bound(listening_socket(listen))
    hurry = asyncio.Event()
    with bound.service as listener, stop_signals(asyncio.get_running_loop(), stop, hurry):
        host, port = listener.getsockname()[:2]
        ready = None if on_ready is None else partial(on_ready, host, port)
        async with _scraped(edge, listen.bounds, bound.metrics):
            await _answer(edge, listen, listener, stop, hurry, ready)


async def _answer(
    edge: Edge,
    listen: Listen,
    listener: socket.socket,
    stop: asyncio.Event,
    hurry: asyncio.Event,
    on_ready: Callable[[], None] | None = None,
) -> None:
    connections = Connections(edge.answer, listen.bounds)
    connections.traffic.busy_poll_seconds = listen.busy_poll_seconds
    try:
        async with owned(_sweep(connections)):
            loop = asyncio.get_running_loop()
            server = await loop.create_server(connections, sock=listener, backlog=BACKLOG)
            try:
                if on_ready is not None:
                    on_ready()
                await stop.wait()
                await _announce(edge, connections, listen.shutdown_delay_seconds, hurry)
                await _drain(edge, listen.drain_seconds, hurry)
            finally:
                server.close()
            await _last_bytes(connections, hurry)
    finally:
        connections.abort()
        await connections.workers.end(_HANDLERS_SECONDS)


@asynccontextmanager
async def _scraped(
    edge: Edge, bounds: ConnectionLimits, listener: socket.socket | None
) -> AsyncIterator[None]:
    """Serve the metrics at an address of their own, if they have one; also while answers finish."""
    if listener is None:
        yield
        return
    connections = Connections(edge.scrape, bounds)
    with listener:
        server = await asyncio.get_running_loop().create_server(connections, sock=listener)
        try:
            async with owned(_sweep(connections)):
                yield
        finally:
            server.close()
            connections.abort()
            await connections.workers.end(_HANDLERS_SECONDS)


async def _announce(
    edge: Edge, connections: Connections, delay_seconds: float, hurry: asyncio.Event
) -> None:
    """Say that the service is stopping, and answer until balancers send requests elsewhere."""
    if not delay_seconds:
        return
    edge.drain.announced = True
    connections.leave()
    with suppress(TimeoutError):
        async with asyncio.timeout(delay_seconds):
            await hurry.wait()


async def _drain(edge: Edge, drain_seconds: float, hurry: asyncio.Event) -> None:
    """Let what runs finish; ``hurry`` cuts it short."""
    async with owned(edge.drain.finish(drain_seconds)) as draining, owned(_set(hurry)) as hurried:
        await asyncio.wait([draining, hurried], return_when=asyncio.FIRST_COMPLETED)
    if hurry.is_set():
        await edge.drain.finish(0)


async def _last_bytes(connections: Connections, hurry: asyncio.Event) -> None:
    """Close every connection when its client has what it was answered, if that is soon."""
    connections.close()
    async with owned(_left(connections)) as left, owned(_set(hurry)) as hurried:
        either = asyncio.FIRST_COMPLETED
        await asyncio.wait([left, hurried], timeout=_LAST_BYTES_SECONDS, return_when=either)
        await asyncio.wait([left], timeout=_HURRIED_SECONDS)


async def _left(connections: Connections) -> None:
    await connections.ended()
    await connections.left()


async def _set(event: asyncio.Event) -> None:
    await event.wait()


async def _sweep(connections: Connections) -> None:
    while True:
        await asyncio.sleep(_SWEEP_SECONDS)
        connections.sweep()


@contextmanager
def stop_signals(
    loop: asyncio.AbstractEventLoop, stop: asyncio.Event, hurry: asyncio.Event
) -> Iterator[None]:
    """A first signal begins the stop, a second one hurries it."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may have signals; whoever runs it there handles them
        return

    def handle() -> None:
        if stop.is_set():
            hurry.set()
        stop.set()

    before = {number: signal.getsignal(number) for number in _SIGNALS}
    for number in _SIGNALS:
        try:
            loop.add_signal_handler(number, handle)
        except NotImplementedError:  # an event loop without them (Windows)
            signal.signal(number, lambda *_: loop.call_soon_threadsafe(handle))
    try:
        yield
    finally:
        for number, old in before.items():
            with suppress(NotImplementedError):
                loop.remove_signal_handler(number)
            signal.signal(number, old)
