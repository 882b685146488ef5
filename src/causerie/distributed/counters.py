"""Limits that replicas share: the windows of all scopes, in a Valkey or Redis server.

One script a request takes from all its scopes or from none, by the server's own clock. Running
requests are counted by process. While the server is away, each replica counts in its own memory, or
refuses, as configured; running requests are reported to the server when it is back.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence

from causerie.access.lease import Lease
from causerie.access.limits import needed
from causerie.access.quota import QuotaRefusal, RateScope, Tokens
from causerie.access.refusal import limited
from causerie.access.windows import MemoryCounters
from causerie.distributed.asking import PendingCommand
from causerie.distributed.counted import ScopeWindow, concurrency, read, refused
from causerie.distributed.leases import DistributedLease, LocalLease
from causerie.distributed.line import Argument, ConnectionLost, Reply
from causerie.distributed.replica import Replica
from causerie.distributed.scripts import RELEASE, TAKE


class DistributedCounters:
    """The counters of one replica.

    ``now`` gives microseconds and is for tests; unset, the server's clock counts.
    """

    def __init__(self, replica: Replica, *, now: Callable[[], int] | None = None) -> None:
        self.replica = replica
        self._now = now
        self._memory = MemoryCounters()
        self._running: Counter[str] = Counter()
        replica.holder(self._held)

    def take_now(self, scopes: Sequence[RateScope], estimate: Callable[[], Tokens]) -> Lease | None:
        """Return a lease at once if there are no limits, else ``None``: ask the server."""
        return None if scopes else Lease()

    async def take(
        self, scopes: Sequence[RateScope], estimate: Callable[[], Tokens]
    ) -> DistributedLease | LocalLease:
        """A lease on all scopes; see :meth:`causerie.access.limits.RateLimiter.take`.

        Raises :class:`StoreUnavailable`, too, where the server is away and that shall refuse.
        """
        need = needed(scopes, estimate)
        if self.replica.here:
            try:
                taken = await self._take(scopes, need)
            except ConnectionLost:
                pass
            else:
                if isinstance(taken, QuotaRefusal):
                    raise limited(taken)
                return taken
        self.replica.alone("limits")
        self._check_concurrent(scopes)
        lease = self._memory.take_now(scopes, lambda: need)
        self.count(scopes, 1)
        return LocalLease(self, scopes, lease)

    def _check_concurrent(self, scopes: Sequence[RateScope]) -> None:
        """Raise :class:`RateLimited` if requests that run here, also by the server, are the most
        that a scope may have.
        """
        full = [
            concurrency(scope, running)
            for scope in scopes
            if (running := self._running[scope.id]) >= scope.concurrent
        ]
        if full:
            raise limited(QuotaRefusal(tuple(full), (None, None)))

    async def _take(
        self, scopes: Sequence[RateScope], need: Tokens
    ) -> DistributedLease | QuotaRefusal:
        outputs = [min(need.output, each.output, each.tokens - need.input) for each in scopes]

        def told(reply: Reply) -> DistributedLease | QuotaRefusal:
            return self._told(scopes, need.input, outputs, reply)

        asked = PendingCommand(told, _undo)
        keys, arguments = self._taking(scopes, need.input, outputs)
        self.replica.send(TAKE, keys, arguments, asked.answered, asked.failed)
        return await asked.outcome()

    def _taking(
        self, scopes: Sequence[RateScope], input: int, outputs: Sequence[int]
    ) -> tuple[list[Argument], list[Argument]]:
        keys: list[Argument] = [self.replica.processes]
        arguments: list[Argument] = [self.replica.process, self.moment(), input]
        for scope, output in zip(scopes, outputs, strict=True):
            keys += self.keys(scope)
            arguments += [scope.requests, scope.tokens, scope.input, scope.output]
            arguments += [scope.concurrent, int(scope.counts_tokens), output]
        return keys, arguments

    def _told(
        self, scopes: Sequence[RateScope], input: int, outputs: Sequence[int], reply: Reply
    ) -> DistributedLease | QuotaRefusal:
        """Return the server's reply; raise :class:`ConnectionLost` if it does not know this
        process.
        """
        if isinstance(reply, int) or reply[0] < 0:
            raise ConnectionLost
        found = read(scopes, reply)
        if not reply[0]:
            return refused(found, input, outputs, reply[1])
        self.count(scopes, 1)
        return DistributedLease(self, found, input, outputs, reply[1], self.elapsed())

    # Called by leases.

    def count(self, scopes: Sequence[RateScope], more: int) -> None:
        """So many more run here."""
        for scope in scopes:
            self._running[scope.id] += more
            if not self._running[scope.id]:
                del self._running[scope.id]

    def release(
        self, found: Sequence[ScopeWindow], changes: Sequence[tuple[int, int]], requests: int
    ) -> None:
        """Tell the server of what has ended, in the background."""
        self.count([each.scope for each in found], -1)
        keys: list[Argument] = []
        arguments: list[Argument] = [self.replica.process, self.moment(), requests]
        for each, (input, output) in zip(found, changes, strict=True):
            keys += self.keys(each.scope)
            arguments += [each.tick, input, output]
        self.replica.tell(RELEASE, keys, arguments)

    def left(self, scopes: Sequence[RateScope]) -> None:
        """Release a lease from the time without the server, which may have learnt of it since."""
        self.count(scopes, -1)
        keys = [key for scope in scopes for key in self.keys(scope)]
        arguments: list[Argument] = [self.replica.process, self.moment(), 0]
        self.replica.tell(RELEASE, keys, arguments + [0, 0, 0] * len(scopes))

    def moment(self) -> str:
        """Return the time argument of the scripts."""
        return "" if self._now is None else str(self._now())

    def elapsed(self) -> int:
        """Microseconds, for how long ago something was."""
        return time.monotonic_ns() // 1000 if self._now is None else self._now()

    def keys(self, scope: RateScope) -> tuple[str, str, str]:
        """Of its window, its ticks, what runs."""
        key = self.replica.key
        return key(f"window:{scope.id}"), key(f"ticks:{scope.id}"), key(f"running:{scope.id}")

    def _held(self) -> dict[str, Argument]:
        return {self.replica.key(f"running:{id}"): count for id, count in self._running.items()}


def _undo(taken: DistributedLease | QuotaRefusal) -> None:
    if isinstance(taken, DistributedLease):
        taken.undo()
