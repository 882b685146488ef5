"""Limits that replicas share: the windows of all scopes, in a Valkey or Redis server.

One script a request takes from all its scopes or from none, by the server's own
clock. What runs is counted by process; a process that has not been heard of for
some seconds counts no more. Where the server is away, each replica counts in
its own memory, or refuses, as it was told; what runs is told to the server when
it is back.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from secrets import token_hex
from typing import Literal

from causerie.access.quota import Refused, Scope, Tokens
from causerie.access.windows import MemoryCounters
from causerie.errors import StoreUnavailable
from causerie.shared.counted import Counted, read, refused
from causerie.shared.holds import LocalHold, SharedHold
from causerie.shared.line import Argument, Command, Line, LineLost, LineOptions, Reply
from causerie.shared.scripts import BEAT, JOIN, RELEASE, TAKE

_KEPT_MILLISECONDS = 86_400_000


@dataclass(frozen=True, slots=True)
class SharedOptions:
    """``away``: count in memory while the server is away, or refuse whoever has limits.

    ``life_seconds`` after a process was last heard of, what ran in it counts no
    more. All keys begin with ``prefix``.
    """

    away: Literal["memory", "refuse"] = "memory"
    life_seconds: float = 15.0
    prefix: str = "causerie"
    line: LineOptions = field(default_factory=LineOptions)


class SharedCounters:
    """The counters of one replica, while :meth:`running` runs.

    ``now`` gives microseconds and is for tests; unset, the server's clock counts.
    """

    def __init__(
        self,
        url: str,
        options: SharedOptions | None = None,
        *,
        now: Callable[[], int] | None = None,
    ) -> None:
        """Raises :class:`ValueError` for an address that is none; connects later only."""
        options = options or SharedOptions()
        self._options = options
        self._now = now
        self._memory = MemoryCounters()
        self._line = Line(url, options.line, join=self._join, joined=self._joined, beat=self._beat)
        self._process = ""
        self._running: Counter[str] = Counter()
        self._told: Counter[str] = Counter()  # of what runs, when this process joined
        self._place = f"{{{options.prefix}}}"  # braces: one slot of a cluster for all keys

    @property
    def here(self) -> bool:
        """Whether the server is there; else each replica counts for itself."""
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

    async def take(self, scopes: Sequence[Scope], need: Tokens) -> SharedHold | LocalHold | Refused:
        """Take from all scopes, which differ, or from none.

        Raises :class:`StoreUnavailable` where the server is away and that shall refuse.
        """
        if self._line.here:
            try:
                return await self._take(scopes, need)
            except LineLost:
                pass
        if self._options.away == "refuse":
            raise StoreUnavailable(
                "The service cannot reach the store of its limits now, so it lets nobody in "
                "who has limits. Try again."
            )
        taken = await self._memory.take(scopes, need)
        if isinstance(taken, Refused):
            return taken
        self.count(scopes, 1)
        return LocalHold(self, scopes, taken)

    async def _take(self, scopes: Sequence[Scope], need: Tokens) -> SharedHold | Refused:
        asked = _Asked(self, scopes, need)
        keys, arguments = self._taking(scopes, need.input, asked.outputs)
        self._line.send(Command(TAKE, keys, arguments, asked.answered, asked.failed))
        return await asked.outcome()

    def _taking(
        self, scopes: Sequence[Scope], input: int, outputs: Sequence[int]
    ) -> tuple[list[Argument], list[Argument]]:
        keys: list[Argument] = [self._key("processes")]
        arguments: list[Argument] = [self._process, self.moment(), input]
        for scope, output in zip(scopes, outputs, strict=True):
            keys += self.keys(scope)
            arguments += [scope.requests, scope.tokens, scope.input, scope.output]
            arguments += [scope.concurrent, int(scope.counts_tokens), output]
        return keys, arguments

    # What holds call.

    def count(self, scopes: Sequence[Scope], more: int) -> None:
        """So many more run here."""
        for scope in scopes:
            self._running[scope.id] += more
            if not self._running[scope.id]:
                del self._running[scope.id]

    def release(
        self, found: Sequence[Counted], changes: Sequence[tuple[int, int]], requests: int
    ) -> None:
        """Tell the server of what has ended, in the background."""
        self.count([each.scope for each in found], -1)
        keys: list[Argument] = []
        arguments: list[Argument] = [self._process, self.moment(), requests]
        for each, (input, output) in zip(found, changes, strict=True):
            keys += self.keys(each.scope)
            arguments += [each.tick, input, output]
        self._line.send(Command(RELEASE, keys, arguments, _done, _done))

    def left(self, scopes: Sequence[Scope]) -> None:
        """What began while the server was away has ended; it may have been told of it since."""
        self.count(scopes, -1)
        keys = [key for scope in scopes for key in self.keys(scope)]
        arguments: list[Argument] = [self._process, self.moment(), 0]
        self._line.send(Command(RELEASE, keys, arguments + [0, 0, 0] * len(scopes), _done, _done))

    def moment(self) -> str:
        """What the scripts are told of the time."""
        return "" if self._now is None else str(self._now())

    def elapsed(self) -> int:
        """Microseconds, for how long ago something was."""
        return time.monotonic_ns() // 1000 if self._now is None else self._now()

    def keys(self, scope: Scope) -> tuple[str, str, str]:
        """Of its window, its ticks, what runs."""
        return (
            self._key(f"window:{scope.id}"),
            self._key(f"ticks:{scope.id}"),
            self._key(f"running:{scope.id}"),
        )

    # What the line calls.

    def _join(self) -> Command:
        """A new name: nobody knows which commands under the former one were carried out."""
        former, self._process = self._process, token_hex(8)
        self._told = self._running.copy()
        return self._tell(former, self._told)

    def _joined(self) -> None:
        """What began or ended while the server was joined."""
        changed = {
            id: self._running[id]
            for id in {*self._told, *self._running}
            if self._running[id] != self._told[id]
        }
        if changed:
            self._line.send(self._tell("", changed))

    def _tell(self, former: str, running: Mapping[str, int]) -> Command:
        life = int(1000 * self._options.life_seconds)
        keys = [self._key("processes"), *(self._key(f"running:{id}") for id in running)]
        arguments: list[Argument] = [former, self._process, life, _KEPT_MILLISECONDS]
        arguments += running.values()
        return Command(JOIN, keys, arguments, _done, _done)

    def _beat(self) -> Command:
        life = int(1000 * self._options.life_seconds)

        def answered(reply: Reply) -> None:
            if not reply:
                raise LineLost

        return Command(BEAT, [self._key("processes")], [self._process, life], answered, _done)

    def _key(self, name: str) -> str:
        return f"{self._place}:{name}"


class _Asked:
    """What one request wants, until the server has said whether it may."""

    __slots__ = ("_counters", "_input", "_outcome", "_scopes", "outputs")

    def __init__(self, counters: SharedCounters, scopes: Sequence[Scope], need: Tokens) -> None:
        self._counters = counters
        self._scopes = scopes
        self._input = need.input
        self._outcome: asyncio.Future[SharedHold | Refused]
        self._outcome = asyncio.get_running_loop().create_future()
        self.outputs = [min(need.output, each.output, each.tokens - need.input) for each in scopes]

    async def outcome(self) -> SharedHold | Refused:
        """Raises :class:`LineLost`. Cancelled, it leaves nothing taken."""
        try:
            return await self._outcome
        except asyncio.CancelledError:
            if not self._outcome.cancelled() and self._outcome.exception() is None:
                taken = self._outcome.result()
                if isinstance(taken, SharedHold):
                    taken.undo()
            raise

    def answered(self, reply: Reply) -> None:
        """The server has answered; raises :class:`LineLost` where it does not know us."""
        if isinstance(reply, int) or reply[0] < 0:
            raise LineLost
        found = read(self._scopes, reply)
        if reply[0]:
            self._counters.count(self._scopes, 1)
            hold = SharedHold(self._counters, found, self._input, self.outputs, reply[1])
            if self._outcome.done():
                hold.undo()  # whoever asked has left meanwhile
            else:
                self._outcome.set_result(hold)
        elif not self._outcome.done():
            self._outcome.set_result(refused(found, self._input, self.outputs, reply[1]))

    def failed(self, failure: LineLost) -> None:
        """There will be no answer."""
        if not self._outcome.done():
            self._outcome.set_exception(failure)


def _done(outcome: object) -> None:
    """Nobody waits for it; what is lost with the line is told anew with the next."""
    del outcome
