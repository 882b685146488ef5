"""Lease of one request: from the shared windows, or from those of this replica alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from causerie.access.lease import Lease
from causerie.access.quota import LimitStatuses, RateScope
from causerie.access.windows import MemoryLease
from causerie.distributed.counted import ScopeWindow, limit_statuses

if TYPE_CHECKING:
    from causerie.distributed.counters import DistributedCounters


class DistributedLease(Lease):
    """Taken from windows in the server, at ``now`` microseconds there and ``at`` here."""

    keeper: DistributedCounters
    found: Sequence[ScopeWindow]
    input: int
    outputs: Sequence[int]
    now: int
    at: int

    def release(self, input: int, output: int) -> None:
        """The request has ended and has used this."""
        self._end(input, output, 0)

    def undo(self) -> None:
        """Nothing was taken after all."""
        self._end(0, 0, -1)

    def limit_statuses(self) -> LimitStatuses:
        """Return the state of the strictest limits at the grant, corrected by later knowledge."""
        return limit_statuses(self.found, self.now + self.keeper.elapsed() - self.at)

    def _end(self, input: int, output: int, requests: int) -> None:
        changes = []
        for each, reserved in zip(self.found, self.outputs, strict=True):
            more = (0, 0)
            if each.scope.counts_tokens:
                more = input - self.input, output - reserved
                each.input += more[0]
                each.output += more[1]
            changes.append(more)
        self.keeper.release(self.found, changes, requests)


class LocalLease(Lease):
    """Taken while the server was away."""

    keeper: DistributedCounters
    scopes: Sequence[RateScope]
    lease: MemoryLease

    def release(self, input: int, output: int) -> None:
        """The request has ended and has used this."""
        self.lease.release(input, output)
        self.keeper.left(self.scopes)

    def undo(self) -> None:
        """Nothing was taken after all."""
        self.lease.undo()
        self.keeper.left(self.scopes)

    def limit_statuses(self) -> LimitStatuses:
        """Return the current state of the strictest limits of this replica."""
        return self.lease.limit_statuses()
