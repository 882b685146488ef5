"""The connection of this process to the Valkey server that several processes share."""

from __future__ import annotations

import asyncio
import random
import ssl
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
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
    """A script, and the name under which the server knows it once it was loaded."""

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
PUBLISH = _script("publish")
ALL = (TAKE, RELEASE, JOIN, BEAT, HOLD, SETTLE, PUBLISH)


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


Answer = TypeVar("Answer")


class PendingCommand(Generic[Answer]):
    """``read`` makes the answer of a reply, or raises :class:`ConnectionLost` to begin anew.

    ``undo`` is called with an answer that nobody was there to take.
    """

    __slots__ = ("_outcome", "_read", "_undo")

    def __init__(
        self, read: Callable[[Reply], Answer], undo: Callable[[Answer], None] | None = None
    ) -> None:
        self._read = read
        self._undo = undo
        self._outcome: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

    async def outcome(self) -> Answer:
        """Raises :class:`ConnectionLost`. Cancelled, it leaves nothing done."""
        try:
            return await self._outcome
        except asyncio.CancelledError:
            if not self._outcome.cancelled() and self._outcome.exception() is None:
                self._forget(self._outcome.result())
            raise

    def answered(self, reply: Reply) -> None:
        """The server has answered; raises :class:`ConnectionLost` where it does not know us."""
        answer = self._read(reply)
        if self._outcome.done():
            self._forget(answer)  # whoever asked has left meanwhile
        else:
            self._outcome.set_result(answer)

    def failed(self, failure: ConnectionLost) -> None:
        """There will be no answer."""
        if not self._outcome.done():
            self._outcome.set_exception(failure)

    def _forget(self, answer: Answer) -> None:
        if self._undo is not None:
            self._undo(answer)


KEPT_MILLISECONDS = 86_400_000  # longer than any request runs
_MILLION = 1_000_000

Held = Mapping[str, Argument]  # by key


@dataclass(frozen=True, slots=True)
class DistributedOptions:
    """Options of a replica."""

    away: Literal["memory", "refuse"] = "memory"
    """While the server is away, count in memory, or refuse callers with limits."""
    life_seconds: float = 15.0
    """After this time without a sign of a process, its running requests count no more."""
    prefix: str = "causerie"
    """Beginning of all keys."""
    line: ConnectionOptions = field(default_factory=ConnectionOptions)


class Replica:
    """One of those that share, while :meth:`running` runs."""

    def __init__(self, url: str, options: DistributedOptions | None = None) -> None:
        """Raises :class:`ValueError` for an address that is none; connects later only."""
        options = options or DistributedOptions()
        self._options = options
        self._line = ValkeyConnection(
            url, options.line, join=self._join, joined=self._joined, beat=self._beat
        )
        self._holders: list[Callable[[], Held]] = []
        self._told: Held = {}  # what was held when this process joined
        self._place = f"{{{options.prefix}}}"  # braces: one slot of a cluster for all keys
        self._ahead = 0  # microseconds of the server's clock before ours, at least
        self.process = ""
        self.joins = 0

    @property
    def here(self) -> bool:
        """Return true if the server is connected; otherwise each replica counts for itself."""
        return self._line.here

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Keep the line to the server while the block runs. Does not wait for it."""
        task = asyncio.get_running_loop().create_task(self._line.run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])
            if not task.cancelled() and (failure := task.exception()) is not None:
                raise failure

    async def wait(self) -> None:
        """Return when the server is there."""
        await self._line.ready.wait()

    def holder(self, held: Callable[[], Held]) -> None:
        """A part of this process, and what it holds whenever it is asked."""
        self._holders.append(held)

    def alone(self, what: str) -> None:
        """The server is away: count in memory, or raise :class:`StoreUnavailable`."""
        if self._options.away == "refuse":
            raise StoreUnavailable(
                f"The service cannot reach the store of its {what} now, so it lets nobody in "
                f"who has {what}. Try again."
            )

    def key(self, name: str) -> str:
        """The name of something in the server."""
        return f"{self._place}:{name}"

    @property
    def processes(self) -> str:
        return self.key("processes")

    def send(
        self,
        script: LuaScript,
        keys: Sequence[Argument],
        arguments: Sequence[Argument],
        answered: Callable[[Reply], None],
        failed: Callable[[ConnectionLost], None],
    ) -> None:
        """After everything that was sent before; see :class:`Command`."""
        self._line.send(Command(script, keys, arguments, answered, failed))

    def tell(
        self, script: LuaScript, keys: Sequence[Argument], arguments: Sequence[Argument]
    ) -> None:
        """The same, where nobody waits; what is lost with the line is told anew with the next."""
        self.send(script, keys, arguments, _nothing, _nothing)

    def waits_until(self) -> int:
        """When the server is late with what is sent now: microseconds, by its clock."""
        return _now() + self._ahead + int(self._options.line.reply_seconds * _MILLION)

    # Called by the line.

    def _held(self) -> dict[str, Argument]:
        return {key: value for held in self._holders for key, value in held().items()}

    def _join(self) -> Command:
        former, self.process = self.process, token_hex(8)
        self.joins += 1
        self._told = self._held()
        return self._tell(former, self._told, self._in_time)

    def _in_time(self, reply: Reply) -> None:
        # Again and again: the server's clock may be put forward or back.
        if isinstance(reply, int):
            self._ahead = reply - _now()

    def _joined(self) -> None:
        held = self._held()
        changed = {
            key: held.get(key, 0)
            for key in {*self._told, *held}
            if self._told.get(key, 0) != held.get(key, 0)
        }
        if changed:
            self._line.send(self._tell("", changed, _nothing))

    def _tell(self, former: str, held: Held, answered: Callable[[Reply], None]) -> Command:
        life = int(1000 * self._options.life_seconds)
        arguments: list[Argument] = [former, self.process, life, KEPT_MILLISECONDS]
        return Command(
            JOIN, [self.processes, *held], arguments + list(held.values()), answered, _nothing
        )

    def _beat(self) -> Command:
        life = int(1000 * self._options.life_seconds)

        def answered(reply: Reply) -> None:
            if not reply:
                raise ConnectionLost
            self._in_time(reply)

        return Command(BEAT, [self.processes], [self.process, life], answered, _nothing)


def _now() -> int:
    return time.monotonic_ns() // 1000


def _nothing(outcome: object) -> None:
    del outcome
