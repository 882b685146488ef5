"""Reads what a cache of a member publishes, over ZeroMQ, and asks again for what it missed.

Batches come to a SUB socket: topic, number, payload. A ROUTER at the server's replay port answers a
number with all batches from there that it still keeps, and then with the number -1. Before number
and payload an answer has an empty frame, and since some version the topic too.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Any

import structlog

from causerie.engines.pool.kv_events import UnreadableEvents, decoded
from causerie.engines.pool.kv_view import KvView

if TYPE_CHECKING:
    from zmq.asyncio import Context, Socket

log = structlog.get_logger(__name__)

_REPLAY_SECONDS = 5.0  # for each batch that is sent again
_PAUSE_SECONDS = 5.0  # after events that cannot be read
_FRAMES = (3, 4)  # of a message: what stands before number and payload says nothing
_MOST_BYTES = 1024 * 1024  # of a batch, decoded in one piece; a step of 64,000 tokens is half of it
_HEARTBEAT_MS = 5_000
_MISSING = "pyzmq is not installed; in a clone of Causerie: pip install '.[pool]'"


@dataclass(frozen=True, slots=True)
class KvEndpoint:
    """Place where a cache publishes: addresses of ZeroMQ, such as ``tcp://10.0.0.7:5557``."""

    events: str
    replay: str | None = None


class KvSubscriber:
    """Keeps a view up to date. Raises nothing: without events there are other ways to choose.

    ``changed`` is called when the view has changed, or can be used no more.
    """

    def __init__(self, endpoint: KvEndpoint, view: KvView, changed: Callable[[], None]) -> None:
        self.view = view
        self._changed = changed
        self.failure = "no KV events yet"
        """The reason the view says nothing; empty where it says something."""
        self.heard = 0.0
        """The time of the last batch, on the monotonic clock."""
        self._endpoint = endpoint
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Subscribe in a task that ``stop`` ends."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Have no more to do with it."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def fail(self, why: str) -> None:
        """Forget what is known, until events come again."""
        log.warning("KV events of a member cannot be used", cache=self.view.name, why=why)
        self.failure = why
        self.view.forget()
        self._changed()

    async def _run(self) -> None:
        try:
            from zmq import ZMQError  # noqa: PLC0415 - few pools have events
            from zmq.asyncio import Context  # noqa: PLC0415 - see above
        except ImportError:
            self.fail(_MISSING)
            return
        while True:
            try:
                await self._follow(Context.instance())
            except UnreadableEvents as error:
                self.fail(str(error))
            except ZMQError as error:
                self.fail(f"{self._endpoint.events}: {error}")
            await asyncio.sleep(_PAUSE_SECONDS)

    async def _follow(self, context: Context) -> None:
        from zmq import SUB  # noqa: PLC0415 - see above

        with _socket(context, SUB, self._endpoint.events) as socket:
            watch = asyncio.get_running_loop().create_task(self._watch(socket))
            try:
                socket.subscribe(b"")
                await self._replay(context, 0)  # what is published meanwhile waits at the socket
                while True:
                    await self._receive(context, await _frames(socket))
            finally:
                watch.cancel()
                await asyncio.gather(watch, return_exceptions=True)

    async def _watch(self, socket: Socket) -> None:
        """Notice the end of a connection: whoever publishes next may be another server.

        Numbers that go on do not say that it is the same one.
        """
        from zmq import EVENT_DISCONNECTED  # noqa: PLC0415 - few pools have events

        monitor: Any = socket.get_monitor_socket(EVENT_DISCONNECTED)
        try:
            while True:
                await monitor.recv_multipart()
                self.fail("the connection to its KV events has ended")
        finally:
            socket.disable_monitor()
            monitor.close(0)

    async def _receive(self, context: Context, frames: Sequence[bytes]) -> None:
        number, payload = frames
        batch = decoded(payload)
        at = int.from_bytes(number, "big")
        first = self.view.missing(at, batch)
        if first is not None:
            await self._replay(context, first)
        self.view.receive(at, batch)
        self._noticed()

    async def _replay(self, context: Context, first: int) -> None:
        """Receive what was published from batch ``first`` on, as far as the server keeps it."""
        if self._endpoint.replay is None:
            return
        with suppress(TimeoutError):
            async with aclosing(_replayed(context, self._endpoint.replay, first)) as batches:
                async for at, payload in batches:
                    self.view.receive(at, decoded(payload))
                    self._noticed()
            if first == 0:
                self.view.begin()
                self.failure = ""
                self._changed()

    def _noticed(self) -> None:
        self.failure, self.heard = "", monotonic()
        self._changed()


async def _replayed(
    context: Context, address: str, first: int
) -> AsyncGenerator[tuple[int, bytes], None]:
    """Yield batches with their numbers; raise :class:`TimeoutError`."""
    from zmq import DEALER  # noqa: PLC0415 - few pools have events

    with _socket(context, DEALER, address) as socket:
        await socket.send_multipart([b"", first.to_bytes(8, "big")])
        while True:
            async with asyncio.timeout(_REPLAY_SECONDS):
                number, payload = await _frames(socket)
            at = int.from_bytes(number, "big", signed=True)
            if at < 0:
                return
            yield at, payload


def _socket(context: Context, kind: int, address: str) -> Any:
    """Return a socket that connects, and again whenever the connection breaks."""
    from zmq import HEARTBEAT_IVL, IPV6, LINGER, MAXMSGSIZE, RCVHWM  # noqa: PLC0415 - see above

    socket: Socket = context.socket(kind)
    for option, value in (
        (IPV6, 1),
        (LINGER, 0),
        (RCVHWM, 100_000),  # as many as vLLM itself keeps for a slow reader
        (MAXMSGSIZE, _MOST_BYTES),
        (HEARTBEAT_IVL, _HEARTBEAT_MS),
    ):
        socket.setsockopt(option, value)
    socket.connect(address)
    return socket


async def _frames(socket: Socket) -> Sequence[bytes]:
    """Return number and payload of the next batch."""
    await asyncio.sleep(0)  # what waits at a socket is received without a turn for anybody else
    frames: list[bytes] = await socket.recv_multipart()
    if len(frames) not in _FRAMES:
        raise UnreadableEvents(f"a message of {len(frames)} frames is none of KV events")
    return frames[-2:]
