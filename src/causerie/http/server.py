"""Listen, handle signals, and stop gracefully."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress

from msgspec import Struct

from causerie.http.application import Edge
from causerie.http.connection import Connections, Listen
from causerie.http.tasks import happens, owned

_LAST_BYTES_SECONDS = 5.0
_HURRIED_SECONDS = 0.2
_HANDLERS_SECONDS = 5.0
BACKLOG = 2048
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Bound(Struct, frozen=True):
    """Bound sockets of the service, and of its metrics if these have an address of their own."""

    service: socket.socket
    metrics: socket.socket | None = None


def listening_socket(listen: Listen) -> socket.socket:
    """Return a listening socket; raise :class:`OSError` if the address is in use or not ours."""
    family = socket.AF_INET6 if ":" in listen.host else socket.AF_INET
    return socket.create_server((listen.host, listen.port), family=family, backlog=BACKLOG)


def reserved_socket(listen: Listen) -> socket.socket:
    """Return a bound socket that does not listen, for :func:`socket_beside`; raise ``OSError``."""
    try:
        return _bind_only_socket((listen.host, listen.port))
    except OSError:  # it may be in use by connections of a service that has ended
        return _bind_only_socket((listen.host, listen.port), socket.SO_REUSEADDR)


def socket_beside(reserved: socket.socket) -> socket.socket:
    """Return another bound socket at the same address, for another process."""
    if sys.platform != "linux":  # which divides connections evenly among sockets at one address
        return reserved.dup()
    # Only now: nobody else can have been bound there before.
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    return _bind_only_socket(reserved.getsockname()[:2], socket.SO_REUSEADDR, socket.SO_REUSEPORT)


def _bind_only_socket(host_and_port: tuple[str, int], *options: int) -> socket.socket:
    made = socket.socket(socket.AF_INET6 if ":" in host_and_port[0] else socket.AF_INET)
    try:
        if made.family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        for option in options:
            made.setsockopt(socket.SOL_SOCKET, option, 1)
        made.bind(host_and_port)
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

    At a stop health reports for ``shutdown_delay_seconds`` that the service is not ready, and
    requests are still answered. Then new completions are refused, and running ones are ended after
    ``drain_seconds`` or at a second signal. Other requests, like pages, delay the stop for some
    seconds at most. ``on_ready`` is called with the address. Raises :class:`OSError`.
    """
    stop, hurry = stop or asyncio.Event(), asyncio.Event()
    bound = bound or Bound(listening_socket(listen))
    connections = Connections(edge.answer, listen)
    connections.traffic.busy_poll_seconds = listen.busy_poll_seconds
    async with AsyncExitStack() as stack:
        stack.enter_context(stop_signals(asyncio.get_running_loop(), stop, hurry))
        if bound.metrics is not None:
            scraping = Connections(edge.scrape, listen)
            await stack.enter_async_context(_serve_during_block(scraping, bound.metrics))
        server = await stack.enter_async_context(_serve_during_block(connections, bound.service))
        if on_ready is not None:
            on_ready(*bound.service.getsockname()[:2])
        await stop.wait()
        if listen.shutdown_delay_seconds:
            edge.drain.announced = connections.leaving = True
            await happens(hurry, listen.shutdown_delay_seconds)
        draining = edge.drain.finish(listen.drain_seconds)
        async with owned(draining) as drained, owned(hurry.wait()) as hurried:
            await asyncio.wait([drained, hurried], return_when=asyncio.FIRST_COMPLETED)
        if hurry.is_set():
            await edge.drain.finish(0)
        server.close()
        await _close_connections_and_wait(connections, hurry)


@asynccontextmanager
async def _serve_during_block(
    connections: Connections, listener: socket.socket
) -> AsyncIterator[asyncio.Server]:
    try:
        with listener:
            async with owned(_sweep_periodically(connections)):
                loop = asyncio.get_running_loop()
                server = await loop.create_server(connections, sock=listener, backlog=BACKLOG)
                try:
                    yield server
                finally:
                    server.close()
    finally:
        connections.abort()
        await connections.workers.end(_HANDLERS_SECONDS)


async def _close_connections_and_wait(connections: Connections, hurry_event: asyncio.Event) -> None:
    connections.close()
    async with owned(connections.closed()) as closed, owned(hurry_event.wait()) as hurried:
        either = asyncio.FIRST_COMPLETED
        await asyncio.wait([closed, hurried], timeout=_LAST_BYTES_SECONDS, return_when=either)
        await asyncio.wait([closed], timeout=_HURRIED_SECONDS)


async def _sweep_periodically(connections: Connections) -> None:
    while True:
        await asyncio.sleep(0.5)
        connections.sweep()


@contextmanager
def stop_signals(
    loop: asyncio.AbstractEventLoop, stop: asyncio.Event, hurry: asyncio.Event
) -> Iterator[None]:
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
