"""The connection of this process to the Valkey server that several processes share."""

from __future__ import annotations

import asyncio
import random
import ssl
import struct
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from hashlib import sha1
from importlib.resources import files
from secrets import token_urlsafe
from typing import Any, Literal, TypeVar

import structlog
from msgspec import Struct
from valkey.asyncio.connection import AbstractConnection, ConnectionPool, SSLConnection
from valkey.exceptions import ValkeyError

from causerie.errors import StoreUnavailable

_PARTS = ("replica", "windows", "budgets", "batch")
SCRIPT = b"\n".join(files(__package__).joinpath(f"{part}.lua").read_bytes() for part in _PARTS)
"""The script that carries out operations; its name in the server is its digest."""
_NAME = sha1(SCRIPT, usedforsecurity=False).hexdigest()

_BATCH = 256
_FIRST_PAUSE = 0.2
_LONGEST_PAUSE = 5.0
_log = structlog.get_logger(__name__)


def _ignore(*_: object) -> None:
    pass


class ConnectionLost(Exception):
    """No reply will come; the server may have executed the command or not."""


class SharedOperation(Struct, frozen=True, eq=False):
    """A command for the server, and the callbacks for its answer or failure."""

    words: bytes
    """They begin with a letter that the script knows."""
    keys: Sequence[str]
    answered: Callable[[bytes], None] = _ignore
    failed: Callable[[], None] = _ignore


Answer = TypeVar("Answer")
Held = Mapping[str, int]  # by key
Report = Callable[[Held], bytes]
"""The words that tell the server what a part of this process holds of some keys."""
_CLOCK = struct.Struct("<q")
_LENGTH = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class DistributedOptions:
    away: Literal["memory", "refuse"] = "memory"
    """Without the server, count in memory, or refuse callers with limits."""
    life_seconds: float = 15.0
    """After this time without a command of a process, its running requests do not count."""
    prefix: str = "causerie"
    """Prefix of all keys."""
    reply_seconds: float = 0.25
    """Time limit for the replies to commands that were sent together."""
    connect_seconds: float = 2.0
    beat_seconds: float = 3.0
    """Interval of the commands that keep a connection alive."""
    ca_file: str | None = None
    """Certificates to trust in addition to the system's."""


class Replica:
    """The connection of this process to a shared server, and its name among the replicas there.

    Its running requests are counted under its name in the server. On every new connection it takes
    a new name, because nobody knows which commands of the former one were executed, and reports
    what it really holds.

    Operations are carried out in order. Those that come while the server answers earlier ones are
    sent together, as one command: so the busier the server is, the less it has to do for each.
    All operations without an answer fail with the connection.
    """

    def __init__(self, url: str, options: DistributedOptions | None = None) -> None:
        """Prepare the connection for :meth:`running`; raise :class:`ValueError` for a wrong URL."""
        self._options = options = options or DistributedOptions()
        tls: dict[str, Any] = {}
        if url.startswith(("valkeys:", "rediss:")):
            tls = {"ssl_check_hostname": True, "ssl_ca_certs": options.ca_file}
        self._pool = ConnectionPool.from_url(url, socket_timeout=None, lib_name=None, **tls)
        self._operations: deque[SharedOperation] = deque()
        self._operations_queued_event = asyncio.Event()
        self._random = random.Random()
        self._is_connection_loss_logged = self._is_operation_failure_logged = False
        self._connected_event = asyncio.Event()
        self._held_report_pairs: list[tuple[Callable[[], Held], Report]] = []
        self._key_prefix = f"{{{options.prefix}}}"  # braces: one slot of a cluster for all keys
        self._clock_offset_microseconds = 0  # of the server's clock before ours, at least
        self.process = ""
        self.joins = 0

    @property
    def here(self) -> bool:
        """Return whether the server is connected; otherwise each replica counts for itself."""
        return self._connected_event.is_set()

    @property
    def untold_join(self) -> int:
        """Return the number of the present join to the server, or -1 while the server is away.

        Until the next join the server does not know what begins now without it.
        """
        return self.joins if self.here else -1

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Keep a connection to the server during the block, without waiting for it."""
        task = asyncio.get_running_loop().create_task(self._keep_connected())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])
            if not task.cancelled() and (failure := task.exception()) is not None:
                raise failure

    async def wait(self) -> None:
        await self._connected_event.wait()

    def holder(self, held: Callable[[], Held], report: Report) -> None:
        """Add callbacks: ``held`` gives held amounts by key, ``report`` the message of them."""
        self._held_report_pairs.append((held, report))

    def alone(self, what: str) -> None:
        """Raise ``StoreUnavailable`` if the options refuse callers while the server is away."""
        if self._options.away == "refuse":
            raise StoreUnavailable(
                f"The service cannot reach the store of its {what} now, so it lets nobody in "
                f"who has {what}. Try again."
            )

    def key(self, name: str) -> str:
        return f"{self._key_prefix}:{name}"

    def send(self, operation: SharedOperation) -> None:
        """Send an operation after all earlier ones; it fails at once without a connection.

        What is lost with a connection is part of what this process reports on the next one.
        """
        if self.here:
            self._operations.append(operation)
            self._operations_queued_event.set()
        else:
            operation.failed()

    async def ask(
        self,
        words: bytes,
        keys: Sequence[str],
        read: Callable[[bytes], Answer],
        undo: Callable[[Answer], None] = _ignore,
    ) -> Answer:
        """Send an operation, and return what ``read`` makes of its answer.

        Raises :class:`ConnectionLost`. ``undo`` is called with an answer whose caller was
        cancelled.
        """
        outcome: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

        def answered(told: bytes) -> None:
            answer = read(told)
            if outcome.done():
                undo(answer)
            else:
                outcome.set_result(answer)

        def failed() -> None:
            if not outcome.done():
                outcome.set_exception(ConnectionLost())

        self.send(SharedOperation(words, keys, answered, failed))
        try:
            return await outcome
        except asyncio.CancelledError:
            if not outcome.cancelled() and outcome.exception() is None:
                undo(outcome.result())
            raise

    def waits_until(self) -> int:
        """Return the deadline of an operation sent now, in microseconds of the server's clock."""
        reply_microseconds = int(self._options.reply_seconds * 1_000_000)
        return _monotonic_microseconds() + self._clock_offset_microseconds + reply_microseconds

    async def _keep_connected(self) -> None:
        pause = _FIRST_PAUSE
        try:
            while True:
                connection: AbstractConnection = self._pool.make_connection()  # type: ignore[no-untyped-call]  # untyped there
                try:
                    await self._connect_join_and_report(connection)
                    pause = _FIRST_PAUSE
                    await self._send_queued_operations(connection)
                except (ValkeyError, OSError, TimeoutError, ConnectionLost) as failure:
                    self._handle_connection_loss(failure)
                finally:
                    await connection.disconnect(nowait=True)
                await asyncio.sleep(pause * self._random.uniform(0.5, 1.0))
                pause = min(2 * pause, _LONGEST_PAUSE)
        finally:
            self._handle_connection_loss(None)

    async def _connect_join_and_report(self, connection: AbstractConnection) -> None:
        async with asyncio.timeout(self._options.connect_seconds):
            if isinstance(connection, SSLConnection):  # reads many certificates: not in the loop
                await asyncio.to_thread(connection.ssl_context.get)
            await connection.connect()  # type: ignore[no-untyped-call]  # untyped there
            await connection.send_command("SCRIPT LOAD", SCRIPT)
            await connection.read_response()
            former, self.process = self.process, token_urlsafe(6)
            self.joins += 1
            old = [dict(held()) for held, _ in self._held_report_pairs]
            reports = self._list_held_changes([{} for _ in old], old)
            await self._exchange_batch(connection, reports, former)
        self._is_connection_loss_logged = self._is_operation_failure_logged = False
        self._connected_event.set()
        for report in self._list_held_changes(old, [held() for held, _ in self._held_report_pairs]):
            self.send(report)  # changed while the reply to the first report was on its way
        _log.info("limits.shared")

    async def _send_queued_operations(self, connection: AbstractConnection) -> None:
        beat_seconds = self._options.beat_seconds
        loop = asyncio.get_running_loop()
        beat_at = loop.time() + beat_seconds
        while True:
            if not self._operations:
                self._operations_queued_event.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(beat_at):
                        await self._operations_queued_event.wait()
            batch = [self._operations.popleft() for _ in range(min(len(self._operations), _BATCH))]
            try:
                async with asyncio.timeout(self._options.reply_seconds):
                    await self._exchange_batch(connection, batch)  # an empty one says that we live
            finally:
                for operation in batch:  # those that have no answer; the others are gone from it
                    operation.failed()
            beat_at = loop.time() + beat_seconds

    async def _exchange_batch(
        self, connection: AbstractConnection, batch: list[SharedOperation], *joining: str
    ) -> None:
        places: dict[str, int] = {}
        parts: list[bytes] = []
        for operation in batch:
            parts.append(len(operation.words).to_bytes(3, "little"))
            parts.append(len(operation.keys).to_bytes(2, "little"))
            for key in operation.keys:
                parts.append(places.setdefault(key, len(places) + 2).to_bytes(3, "little"))
            parts.append(operation.words)
        life = int(1000 * self._options.life_seconds)
        command: list[str | int | bytes] = ["EVALSHA", _NAME, 1 + len(places)]
        command += [self.key("processes"), *places, self.process, life, b"".join(parts), *joining]
        packed = connection.pack_command(*command)
        await connection.send_packed_command(packed, check_health=False)
        reply: Any = await connection.read_response()
        if not reply:
            raise ConnectionLost  # the server does not know this process any more
        # Again and again: its clock may be put forward or back.
        self._clock_offset_microseconds = _CLOCK.unpack_from(reply)[0] - _monotonic_microseconds()
        at = _CLOCK.size
        while batch:
            begins = at + _LENGTH.size
            at = begins + _LENGTH.unpack_from(reply, at)[0]
            operation = batch.pop(0)
            if begins < at:
                operation.answered(reply[begins:at])
            else:  # it alone, and nothing of it was done
                if not self._is_operation_failure_logged:
                    self._is_operation_failure_logged = True
                    _log.error("limits.operation_failed")
                operation.failed()

    def _handle_connection_loss(self, failure: Exception | None) -> None:
        if failure is not None and not self._is_connection_loss_logged:
            self._is_connection_loss_logged = True
            reason = {} if (why := _explain_tls_failure(failure)) is None else {"reason": why}
            _log.warning("limits.store_away", failure=type(failure).__name__, **reason)
        self._connected_event.clear()
        while self._operations:
            self._operations.popleft().failed()

    def _list_held_changes(self, old: Sequence[Held], new: Sequence[Held]) -> list[SharedOperation]:
        found = []
        for (_, report), was, held in zip(self._held_report_pairs, old, new, strict=True):
            keys = [key for key in {*was, *held} if was.get(key, 0) != held.get(key, 0)]
            if keys:
                changed = {key: held.get(key, 0) for key in keys}
                found.append(SharedOperation(report(changed), keys))
        return found


def _monotonic_microseconds() -> int:
    return time.monotonic_ns() // 1000


def _explain_tls_failure(failure: BaseException | None) -> str | None:
    # The library wraps the exception that has the reason.
    while failure is not None:
        if isinstance(failure, ssl.SSLCertVerificationError):
            return f"the certificate is not trusted: {failure.verify_message}"
        if isinstance(failure, ssl.SSLError):
            return "the server does not speak TLS as it should"
        failure = failure.__cause__ or failure.__context__
    return None
