"""The connection of this process to the Valkey server that several processes share."""

from __future__ import annotations

import asyncio
import random
import ssl
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from hashlib import sha1
from importlib.resources import files
from secrets import token_hex
from typing import Any, Generic, Literal, TypeVar

import structlog
from valkey.asyncio.connection import AbstractConnection, ConnectionPool, SSLConnection
from valkey.exceptions import ValkeyError

from causerie.errors import StoreUnavailable


@dataclass(frozen=True, slots=True)
class LuaScript:
    """A script, and its name in the server once it is loaded."""

    text: bytes
    name: bytes


def _script(*parts: str) -> LuaScript:
    folder = files(__package__)
    text = b"\n".join(folder.joinpath(f"{part}.lua").read_bytes() for part in parts)
    return LuaScript(text, sha1(text, usedforsecurity=False).hexdigest().encode())


TAKE = _script("window", "take")
RELEASE = _script("window", "release")
JOIN = _script("join")
BEAT = _script("beat")
HOLD = _script("amounts", "hold")
SETTLE = _script("amounts", "settle")
ALL = (TAKE, RELEASE, JOIN, BEAT, HOLD, SETTLE)


_BATCH = 256
_FIRST_PAUSE = 0.2
_LONGEST_PAUSE = 5.0
_log = structlog.get_logger(__name__)

Argument = str | bytes | int
Reply = Sequence[int] | int


def _ignore(outcome: object) -> None:
    del outcome


class ConnectionLost(Exception):
    """No reply will come; the server may have executed the command or not."""


@dataclass(frozen=True, slots=True)
class ConnectionOptions:
    """Options of the connection to the server."""

    reply_seconds: float = 0.25
    """Time limit for the replies to commands that were sent together."""
    connect_seconds: float = 2.0
    beat_seconds: float = 3.0
    """Interval of the commands that keep a connection alive."""
    ca_file: str | None = None
    """Certificates to trust in addition to the system's."""


@dataclass(frozen=True, slots=True)
class Command:
    """A script with its keys and arguments, and the callbacks for its reply or failure.

    ``answered`` raises :class:`ConnectionLost` to begin anew on another connection.
    """

    script: LuaScript
    keys: Sequence[Argument]
    arguments: Sequence[Argument]
    answered: Callable[[Reply], None]
    failed: Callable[[ConnectionLost], None]


class ValkeyConnection:
    """A connection that sends commands in order, and reconnects after any failure.

    Commands that wait for a reply to earlier ones are sent together. All commands without a reply
    fail with the connection.
    """

    def __init__(
        self,
        url: str,
        options: ConnectionOptions,
        *,
        join: Callable[[], Command],
        joined: Callable[[], None],
        beat: Callable[[], Command],
    ) -> None:
        """Raise :class:`ValueError` for a wrong address.

        ``join`` is sent first on every new connection, ``beat`` every few seconds. ``joined`` is
        called before any other command is sent.
        """
        tls: dict[str, Any] = {}
        if url.startswith(("valkeys:", "rediss:")):
            tls = {"ssl_check_hostname": True, "ssl_ca_certs": options.ca_file}
        self._pool = ConnectionPool.from_url(url, socket_timeout=None, lib_name=None, **tls)
        self._options = options
        self._join = join
        self._joined = joined
        self._beat = beat
        self._waiting: deque[Command] = deque()
        self._work = asyncio.Event()
        self._random = random.Random()
        self._loss_logged = False
        self.here = False
        self.ready = asyncio.Event()  # set while it is connected

    def send(self, command: Command) -> None:
        """Send a command after the earlier ones; it fails at once without a connection."""
        if not self.here:
            command.failed(ConnectionLost())
            return
        self._waiting.append(command)
        self._work.set()

    async def run(self) -> None:
        """Keep a connection and send the commands, until cancelled."""
        pause = _FIRST_PAUSE
        try:
            while True:
                connection: AbstractConnection = self._pool.make_connection()  # type: ignore[no-untyped-call]  # untyped there
                try:
                    await self._connect(connection)
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

    async def _connect(self, connection: AbstractConnection) -> None:
        async with asyncio.timeout(self._options.connect_seconds):
            if isinstance(connection, SSLConnection):  # reads many certificates: not in the loop
                await asyncio.to_thread(connection.ssl_context.get)
            await connection.connect()  # type: ignore[no-untyped-call]  # untyped there
            for script in ALL:
                await connection.send_command("SCRIPT LOAD", script.text)
                await connection.read_response()
            await self._exchange(connection, [self._join()])
        self._loss_logged = False
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
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(beat_at):
                        await self._work.wait()
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
        packed = connection.pack_commands(
            ("EVALSHA", each.script.name, len(each.keys), *each.keys, *each.arguments)
            for each in batch
        )
        await connection.send_packed_command(packed, check_health=False)
        while batch:
            reply: Any = await connection.read_response()
            batch[0].answered(reply)
            del batch[0]

    def _lost(self, failure: Exception | None) -> None:
        if failure is not None and not self._loss_logged:
            self._loss_logged = True
            reason = {} if (why := _tls_failure(failure)) is None else {"reason": why}
            _log.warning("limits.store_away", failure=type(failure).__name__, **reason)
        self.here = False
        self.ready.clear()
        while self._waiting:
            self._waiting.popleft().failed(ConnectionLost())


def _tls_failure(failure: BaseException | None) -> str | None:
    # The library wraps the exception that has the reason.
    while failure is not None:
        if isinstance(failure, ssl.SSLCertVerificationError):
            return f"the certificate is not trusted: {failure.verify_message}"
        if isinstance(failure, ssl.SSLError):
            return "the server does not speak TLS as it should"
        failure = failure.__cause__ or failure.__context__
    return None


Answer = TypeVar("Answer")


class PendingCommand(Generic[Answer]):
    """A caller that waits for the answer to a command, and may leave before it comes.

    ``read`` makes the answer of a reply, or raises :class:`ConnectionLost` to reconnect. ``undo``
    is called with an answer whose caller has left.
    """

    __slots__ = ("_outcome", "_read", "_undo")

    def __init__(
        self, read: Callable[[Reply], Answer], undo: Callable[[Answer], None] = _ignore
    ) -> None:
        self._read = read
        self._undo = undo
        self._outcome: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

    async def outcome(self) -> Answer:
        """Return the answer; raise :class:`ConnectionLost`. If cancelled, the answer is undone."""
        try:
            return await self._outcome
        except asyncio.CancelledError:
            if not self._outcome.cancelled() and self._outcome.exception() is None:
                self._undo(self._outcome.result())
            raise

    def answered(self, reply: Reply) -> None:
        """Set the answer of a reply; raise :class:`ConnectionLost` to reconnect."""
        answer = self._read(reply)
        if self._outcome.done():
            self._undo(answer)  # the caller has left meanwhile
        else:
            self._outcome.set_result(answer)

    def failed(self, failure: ConnectionLost) -> None:
        """Let the caller fail."""
        if not self._outcome.done():
            self._outcome.set_exception(failure)


KEPT_MILLISECONDS = 86_400_000  # longer than any request runs
_MILLION = 1_000_000

Held = Mapping[str, Argument]  # by key


@dataclass(frozen=True, slots=True)
class DistributedOptions:
    """Options of a replica."""

    away: Literal["memory", "refuse"] = "memory"
    """Without the server, count in memory, or refuse callers with limits."""
    life_seconds: float = 15.0
    """After this time without a command of a process, its running requests do not count."""
    prefix: str = "causerie"
    """Prefix of all keys."""
    line: ConnectionOptions = field(default_factory=ConnectionOptions)


class Replica:
    """This process among those that share a server, while :meth:`running` runs.

    Its running requests are counted under its name in the server. On every new connection it takes
    a new name, because nobody knows which commands of the former one were executed, and reports
    what it really holds.
    """

    def __init__(self, url: str, options: DistributedOptions | None = None) -> None:
        """Raise :class:`ValueError` for a wrong address; connects in :meth:`running` only."""
        options = options or DistributedOptions()
        self._options = options
        self._connection = ValkeyConnection(
            url, options.line, join=self._join, joined=self._joined, beat=self._beat
        )
        self._holders: list[Callable[[], Held]] = []
        self._reported: Held = {}  # what was held when this process joined
        self._place = f"{{{options.prefix}}}"  # braces: one slot of a cluster for all keys
        self._ahead = 0  # microseconds of the server's clock before ours, at least
        self.process = ""
        self.joins = 0

    @property
    def here(self) -> bool:
        """Return whether the server is connected; otherwise each replica counts for itself."""
        return self._connection.here

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Keep a connection to the server during the block, without waiting for it."""
        task = asyncio.get_running_loop().create_task(self._connection.run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])
            if not task.cancelled() and (failure := task.exception()) is not None:
                raise failure

    async def wait(self) -> None:
        """Wait until the server is connected."""
        await self._connection.ready.wait()

    def holder(self, held: Callable[[], Held]) -> None:
        """Add a callback that returns what a part of this process holds."""
        self._holders.append(held)

    def alone(self, what: str) -> None:
        """Raise :class:`StoreUnavailable` if callers are refused without the server."""
        if self._options.away == "refuse":
            raise StoreUnavailable(
                f"The service cannot reach the store of its {what} now, so it lets nobody in "
                f"who has {what}. Try again."
            )

    def key(self, name: str) -> str:
        """Return the key of a name in the server."""
        return f"{self._place}:{name}"

    @property
    def processes(self) -> str:
        return self.key("processes")

    def send(
        self,
        script: LuaScript,
        keys: Sequence[Argument],
        arguments: Sequence[Argument],
        answered: Callable[[Reply], None] = _ignore,
        failed: Callable[[ConnectionLost], None] = _ignore,
    ) -> None:
        """Send a :class:`Command` after all earlier ones.

        What is lost with a connection is part of what this process reports on the next one.
        """
        self._connection.send(Command(script, keys, arguments, answered, failed))

    def waits_until(self) -> int:
        """Return the time limit of a command sent now, in microseconds of the server's clock."""
        return _now() + self._ahead + int(self._options.line.reply_seconds * _MILLION)

    def _held(self) -> dict[str, Argument]:
        return {key: value for held in self._holders for key, value in held().items()}

    def _join(self) -> Command:
        former, self.process = self.process, token_hex(8)
        self.joins += 1
        self._reported = self._held()
        return self._report(former, self._reported, self._set_clock)

    def _set_clock(self, reply: Reply) -> None:
        # Again and again: the server's clock may be put forward or back.
        if isinstance(reply, int):
            self._ahead = reply - _now()

    def _joined(self) -> None:
        # Counts may have changed while the reply to the first report was on its way.
        held = self._held()
        changed = {
            key: held.get(key, 0)
            for key in {*self._reported, *held}
            if self._reported.get(key, 0) != held.get(key, 0)
        }
        if changed:
            self._connection.send(self._report("", changed, _ignore))

    def _report(self, former: str, held: Held, answered: Callable[[Reply], None]) -> Command:
        life = int(1000 * self._options.life_seconds)
        arguments: list[Argument] = [former, self.process, life, KEPT_MILLISECONDS]
        return Command(
            JOIN, [self.processes, *held], arguments + list(held.values()), answered, _ignore
        )

    def _beat(self) -> Command:
        life = int(1000 * self._options.life_seconds)

        def answered(reply: Reply) -> None:
            if not reply:
                raise ConnectionLost
            self._set_clock(reply)

        return Command(BEAT, [self.processes], [self.process, life], answered, _ignore)


def _now() -> int:
    return time.monotonic_ns() // 1000
