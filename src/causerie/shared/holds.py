"""What one request has taken: from the shared windows, or from those of this replica alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from causerie.access.quota import Scope, Standings
from causerie.access.windows import MemoryHold
from causerie.shared.counted import Counted, standings


class Keeper(Protocol):
    """Who is told of the end of a hold, and keeps the time."""

    def release(
        self, found: Sequence[Counted], changes: Sequence[tuple[int, int]], requests: int
    ) -> None:
        """It ended; of every scope how much input and output more was used than foreseen."""
        ...

    def left(self, scopes: Sequence[Scope]) -> None:
        """What was taken while the server was away has ended."""
        ...

    def elapsed(self) -> int:
        """Microseconds, for how long ago something was."""
        ...


class SharedHold:
    """What one request has taken from its windows in the server, at ``now`` microseconds there."""

    __slots__ = ("_at", "_found", "_input", "_keeper", "_now", "_outputs")

    def __init__(
        self,
        keeper: Keeper,
        found: Sequence[Counted],
        input: int,
        outputs: Sequence[int],
        now: int,
    ) -> None:
        self._keeper = keeper
        self._found = found
        self._input = input
        self._outputs = outputs
        self._now = now
        self._at = keeper.elapsed()

    def release(self, input: int, output: int) -> None:
        """The request has ended and has used this."""
        self._end(input, output, 0)

    def undo(self) -> None:
        """Nobody was ever told that it was taken."""
        self._end(0, 0, -1)

    def standings(self) -> Standings:
        """How the strictest limits stood when it was taken, with what is known since."""
        return standings(self._found, self._now + self._keeper.elapsed() - self._at)

    def _end(self, input: int, output: int, requests: int) -> None:
        changes = []
        for each, reserved in zip(self._found, self._outputs, strict=True):
            more = (0, 0)
            if each.scope.counts_tokens:
                more = input - self._input, output - reserved
                each.input += more[0]
                each.output += more[1]
            changes.append(more)
        self._keeper.release(self._found, changes, requests)


class LocalHold:
    """What one request has taken while the server was away."""

    __slots__ = ("_hold", "_keeper", "_scopes")

    def __init__(self, keeper: Keeper, scopes: Sequence[Scope], hold: MemoryHold) -> None:
        self._keeper = keeper
        self._scopes = scopes
        self._hold = hold

    def release(self, input: int, output: int) -> None:
        """The request has ended and has used this."""
        self._hold.release(input, output)
        self._keeper.left(self._scopes)

    def standings(self) -> Standings:
        """How the strictest limits of this replica stand now."""
        return self._hold.standings()
