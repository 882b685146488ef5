"""Messages that each replica sends to all others, through the server.

A message is lost where the server is away or a replica does not listen just then. So it is for what
is good to know and nothing that must be exact.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from secrets import token_bytes

import structlog
from valkey.asyncio import Valkey
from valkey.asyncio.client import PubSub
from valkey.exceptions import ValkeyError

from causerie.distributed.line import ConnectionOptions, connection_pool
from causerie.distributed.replica import Replica
from causerie.distributed.scripts import PUBLISH

_SENDER_BYTES = 8
_FIRST_PAUSE = 0.2
_LONGEST_PAUSE = 5.0
_SILENT_SECONDS = 15.0  # a replica hears its own messages, so silence means that nothing arrives
_log = structlog.get_logger(__name__)


class Broadcast:
    """The channel of all replicas with the server at ``url``, as one of them sees it."""

    def __init__(self, replica: Replica, url: str, options: ConnectionOptions) -> None:
        self._replica = replica
        self._pool = connection_pool(url, options)
        self._sender = token_bytes(_SENDER_BYTES)
        self._said_silent = False

    def send(self, message: bytes) -> None:
        """Send it to the others, without waiting."""
        self._replica.tell(PUBLISH, [self._channel], [self._sender + message])

    async def listen(self, received: Callable[[bytes], None]) -> None:
        """Call ``received`` with each message of another replica, until cancelled."""
        pause = _FIRST_PAUSE
        client = Valkey(connection_pool=self._pool)
        try:
            while True:
                channel = client.pubsub()
                try:
                    await channel.subscribe(self._channel)
                    while (data := await _next(channel)) is not None:
                        pause, self._said_silent = _FIRST_PAUSE, False
                        if data[:_SENDER_BYTES] != self._sender:
                            received(data[_SENDER_BYTES:])
                except (ValkeyError, OSError) as failure:
                    self._silent(type(failure).__name__)
                finally:
                    await channel.aclose()  # type: ignore[no-untyped-call]  # untyped there
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
        finally:
            await client.aclose()
            await self._pool.aclose()

    @property
    def _channel(self) -> str:
        return self._replica.key("replicas")

    def _silent(self, failure: str) -> None:
        if not self._said_silent:
            self._said_silent = True
            _log.warning("replicas.not_heard", failure=failure)


async def _next(channel: PubSub) -> bytes | None:
    """Return the next message; ``None`` where none came for too long."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _SILENT_SECONDS
    while (left := deadline - loop.time()) > 0:
        message = await channel.get_message(ignore_subscribe_messages=True, timeout=left)
        if message is not None:
            data: bytes = message["data"]
            return data
    return None
