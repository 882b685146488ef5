"""Budgets that replicas hold together: what is spent and what is held, in the server.

One script a request holds its estimate of all its budgets or of none; another gives it back and
counts what was spent. Holds are counted by process, so they end with a process that dies. The
database is the truth of what is spent: the server is told of it where it knows nothing, and
wherever a replica knows more. Nothing is counted twice, because a replica writes nothing into
the database before the server has counted it or never will; only what waited for a database
that was away is told right after it, and may be, where it is read in between.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from causerie.access.shared_budgets import HoldAnswer, HoldOutcome, HoldRequest
from causerie.distributed.connection import (
    HOLD,
    KEPT_MILLISECONDS,
    SETTLE,
    Argument,
    ConnectionLost,
    PendingCommand,
    Replica,
    Reply,
)

_UNKNOWN = -2


class DistributedBudgets:
    """The budgets of one replica."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._held: Counter[str] = Counter()  # by place
        replica.holder(self._tells)

    @property
    def joins(self) -> int:
        """Return the number of times that the server was joined."""
        return self._replica.joins

    async def hold(self, wants: Sequence[HoldRequest], *, read: bool) -> HoldAnswer | None:
        """Hold all of it, or nothing; ``None`` where the server is away.

        Raises :class:`StoreUnavailable` where it is, and that shall refuse.
        """
        if self._replica.here:
            try:
                return await self._hold(wants, read)
            except ConnectionLost:
                pass
        self._replica.alone("budgets")
        return None

    async def _hold(self, wants: Sequence[HoldRequest], read: bool) -> HoldAnswer:
        def told(reply: Reply) -> HoldAnswer:
            return self._told(wants, reply)

        def undo(answer: HoldAnswer) -> None:
            if answer.outcome is HoldOutcome.HELD:
                self.give_back(wants)

        asked = PendingCommand(told, undo)
        arguments: list[Argument] = [self._replica.process, int(read), KEPT_MILLISECONDS]
        for want in wants:
            arguments += [want.amount, want.estimate, want.spent]
        self._replica.send(HOLD, self._keys(wants), arguments, asked.answered, asked.failed)
        return await asked.outcome()

    def _told(self, wants: Sequence[HoldRequest], reply: Reply) -> HoldAnswer:
        if isinstance(reply, int) or reply[0] == -1:
            raise ConnectionLost
        if reply[0] == _UNKNOWN:
            return HoldAnswer(HoldOutcome.UNKNOWN)
        numbers = [int(each) for each in reply[1:]]
        stood = list(zip(numbers[::2], numbers[1::2], strict=True))
        if not reply[0]:
            return HoldAnswer(HoldOutcome.REFUSED, stood)
        self._count(wants, 1)
        return HoldAnswer(HoldOutcome.HELD, stood)

    def held_alone(self, wants: Sequence[HoldRequest]) -> None:
        """Told to the server when it is back."""
        self._count(wants, 1)

    def give_back(self, wants: Sequence[HoldRequest]) -> None:
        """In the background."""
        self._count(wants, -1)
        keys, arguments = self._settling(wants, [0] * len(wants), held=True)
        self._replica.tell(SETTLE, keys, arguments)

    async def settle(
        self, wants: Sequence[HoldRequest], spent: Sequence[int], *, held: bool
    ) -> None:
        """Returns when the server has counted it, or never will."""
        if held:
            self._count(wants, -1)
        asked = PendingCommand(_heard)
        keys, arguments = self._settling(wants, spent, held=held)
        self._replica.send(SETTLE, keys, arguments, asked.answered, asked.failed)
        try:
            await asked.outcome()
        except ConnectionLost:
            return

    def _settling(
        self, wants: Sequence[HoldRequest], spent: Sequence[int], *, held: bool
    ) -> tuple[list[Argument], list[Argument]]:
        arguments: list[Argument] = [self._replica.process, self._replica.waits_until()]
        arguments.append(KEPT_MILLISECONDS)
        for want, more in zip(wants, spent, strict=True):
            arguments += [want.estimate if held else 0, more]
        return self._keys(wants), arguments

    def _keys(self, wants: Sequence[HoldRequest]) -> list[Argument]:
        return [self._replica.processes, *(self._key(want.place) for want in wants)]

    def _key(self, place: str) -> str:
        return self._replica.key(f"budget:{place}")

    def _count(self, wants: Sequence[HoldRequest], times: int) -> None:
        for want in wants:
            self._held[want.place] += times * want.estimate
            if not self._held[want.place]:
                del self._held[want.place]

    def _tells(self) -> dict[str, Argument]:
        return {self._key(place): held for place, held in self._held.items()}


def _heard(reply: Reply) -> None:
    if reply == -1:
        raise ConnectionLost
