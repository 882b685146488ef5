"""This process among all that share a server: its line to it, its name there, and what it holds.

Running requests of a process are counted under its name, and a process that has not been heard of
for some seconds counts no more. On every new connection it takes a new name, because nobody knows
which commands under the former one were carried out, and tells what it really holds. Its parts know
what that is.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from secrets import token_hex
from typing import Literal

from causerie.distributed.line import (
    Argument,
    Command,
    ConnectionLost,
    ConnectionOptions,
    Reply,
    ValkeyConnection,
)
from causerie.distributed.scripts import BEAT, JOIN, LuaScript
from causerie.errors import StoreUnavailable

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
        """Learn the server's time, again and again: its clock may be put forward or back."""
        if isinstance(reply, int):
            self._ahead = reply - _now()

    def _joined(self) -> None:
        """Report the counts that changed while the connection was being joined."""
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
    """Nobody waits for it."""
    del outcome
