"""One connection to the server, on which commands are sent in the order they are given.

Commands that wait while a reply is on its way go out together, so many requests share a round trip.
The line is lost with the first thing that goes wrong: every command that has no answer fails, and a
new one is made, after longer and longer pauses. Knows nothing of what is counted.
"""

from __future__ import annotations

import asyncio
import random
import ssl
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import structlog
from valkey.asyncio.connection import AbstractConnection, ConnectionPool, SSLConnection
from valkey.exceptions import ValkeyError

from causerie.distributed.scripts import ALL, LuaScript

_BATCH = 256
_FIRST_PAUSE = 0.2
_LONGEST_PAUSE = 5.0
_log = structlog.get_logger(__name__)

Argument = str | bytes | int
Reply = Sequence[int] | int


class ConnectionLost(Exception):
    """No answer will come; whether the command was carried out is not known."""


@dataclass(frozen=True, slots=True)
class ConnectionOptions:
    """Options of the connection to the server."""

    reply_seconds: float = 0.25
    """Longest time for the replies to commands that were sent together."""
    connect_seconds: float = 2.0
    beat_seconds: float = 3.0
    """Interval at which a silent connection is tried."""
    ca_file: str | None = None
    """Certificates that are trusted in addition to the system's."""


@dataclass(frozen=True, slots=True)
class Command:
    """A script with its keys and arguments, and who is told of the answer or of its failure."""

    script: LuaScript
    keys: Sequence[Argument]
    arguments: Sequence[Argument]
    answered: Callable[[Reply], None]  # raising LineLost: begin anew on another connection
    failed: Callable[[ConnectionLost], None]

    def parts(self) -> tuple[Argument, ...]:
        return ("EVALSHA", self.script.name, len(self.keys), *self.keys, *self.arguments)


def connection_pool(url: str, options: ConnectionOptions) -> ConnectionPool:
    """Return what makes connections to ``url``; raise :class:`ValueError` if it is no address."""
    tls: dict[str, Any] = {}
    if url.startswith(("valkeys:", "rediss:")):
        tls = {"ssl_check_hostname": True, "ssl_ca_certs": options.ca_file}
    pool: ConnectionPool = ConnectionPool.from_url(url, socket_timeout=None, lib_name=None, **tls)
    return pool


class ValkeyConnection:
    """The connection to ``url``. Raises :class:`ValueError` for an address that is none."""

    def __init__(
        self,
        url: str,
        options: ConnectionOptions,
        *,
        join: Callable[[], Command],
        joined: Callable[[], None],
        beat: Callable[[], Command],
    ) -> None:
        """``join`` is sent first on every new connection, ``beat`` every few seconds.

        ``joined`` is called when commands may be given, before anybody gives one.
        """
        self._pool = connection_pool(url, options)
        self._options = options
        self._join = join
        self._joined = joined
        self._beat = beat
        self._waiting: deque[Command] = deque()
        self._work = asyncio.Event()
        self._random = random.Random()
        self._said_away = False
        self.here = False
        self.ready = asyncio.Event()  # set while the line is there

    def send(self, command: Command) -> None:
        """Send it as soon as what was given before is answered; fails at once where it is lost."""
        if not self.here:
            command.failed(ConnectionLost())
            return
        self._waiting.append(command)
        self._work.set()

    async def run(self) -> None:
        """Until cancelled: keep a connection, and send what there is to send."""
        pause = _FIRST_PAUSE
        try:
            while True:
                connection: AbstractConnection = self._pool.make_connection()  # type: ignore[no-untyped-call]  # untyped there
                try:
                    await self._begin(connection)
                    pause = _FIRST_PAUSE
                    await self._serve(connection)
                except (ValkeyError, OSError, TimeoutError, ConnectionLost) as failure:
                    self._lost(failure)
                finally:
                    await connection.disconnect(nowait=True)
                await asyncio.sleep(pause * self._random.uniform(0.5, 1.0))
                pause = min(2 * pause, _LONGEST_PAUSE)
        finally:
            self._lost(None)

    async def _begin(self, connection: AbstractConnection) -> None:
        async with asyncio.timeout(self._options.connect_seconds):
            if isinstance(connection, SSLConnection):  # reads many certificates: not in the loop
                await asyncio.to_thread(connection.ssl_context.get)
            await connection.connect()  # type: ignore[no-untyped-call]  # untyped there
            for script in ALL:
                await connection.send_command("SCRIPT LOAD", script.text)
                await connection.read_response()
            await self._exchange(connection, [self._join()])
        self._said_away = False
        self.here = True
        self._joined()
        self.ready.set()
        _log.info("limits.shared")

    async def _serve(self, connection: AbstractConnection) -> None:
        beat_seconds = self._options.beat_seconds
        loop = asyncio.get_running_loop()
        beat_at = loop.time() + beat_seconds
        while True:
            if not self._waiting:
                self._work.clear()
                await _until(self._work.wait(), beat_at)
            if loop.time() >= beat_at:
                self._waiting.append(self._beat())
                beat_at = loop.time() + beat_seconds
            batch = [self._waiting.popleft() for _ in range(min(len(self._waiting), _BATCH))]
            try:
                async with asyncio.timeout(self._options.reply_seconds):
                    await self._exchange(connection, batch)
            finally:
                for command in batch:  # those that have no answer; the others are gone from it
                    command.failed(ConnectionLost())

    async def _exchange(self, connection: AbstractConnection, batch: list[Command]) -> None:
        """Send them all, then read their answers; answered ones leave the batch."""
        packed = connection.pack_commands([command.parts() for command in batch])
        await connection.send_packed_command(packed, check_health=False)
        while batch:
            reply: Any = await connection.read_response()
            batch[0].answered(reply)
            del batch[0]

    def _lost(self, failure: Exception | None) -> None:
        if failure is not None and not self._said_away:
            self._said_away = True
            told = {} if (why := _distrust(failure)) is None else {"reason": why}
            _log.warning("limits.store_away", failure=type(failure).__name__, **told)
        self.here = False
        self.ready.clear()
        while self._waiting:
            self._waiting.popleft().failed(ConnectionLost())


def _distrust(failure: BaseException | None) -> str | None:
    """Why TLS came to nothing, where that is why; the library wraps what says it."""
    while failure is not None:
        if isinstance(failure, ssl.SSLCertVerificationError):
            return f"the certificate is not trusted: {failure.verify_message}"
        if isinstance(failure, ssl.SSLError):
            return "the server does not speak TLS as it should"
        failure = failure.__cause__ or failure.__context__
    return None


async def _until(something: Awaitable[object], when: float) -> None:
    try:
        async with asyncio.timeout_at(when):
            await something
    except TimeoutError:
        return
