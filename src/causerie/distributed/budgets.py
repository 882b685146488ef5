"""Budgets that replicas share: spent and held amounts in the server.

One script holds the estimate of a request in all its budgets or in none; another releases it and
adds the spent amount. Holds are counted by process, so they end with a process that dies. The
database is the truth of spent amounts: a replica reports them where the server knows less. Nothing
is counted twice, because a replica writes into the database only after the server has counted it or
never will. The exception is use that waited for an unavailable database, if it is read in between.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from causerie.access.shared_budgets import HoldAnswer, HoldOutcome, HoldRequest
from causerie.distributed.connection import (
    HOLD,
    KEPT_MILLISECONDS,
    SETTLE,
    Argument,
    ConnectionLost,
    Replica,
    Reply,
    ScriptCall,
)

_UNKNOWN = -2


class DistributedBudgets:
    """The budgets of one replica."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._held: Counter[str] = Counter()  # by place
        replica.holder(self._held_by_key)

    @property
    def joins(self) -> int:
        """Number of times that this process has joined the server."""
        return self._replica.joins

    async def hold(self, wants: Sequence[HoldRequest], *, read: bool) -> HoldAnswer | None:
        """Hold all amounts or none; return ``None`` without a server.

        Raises :class:`StoreUnavailable` if callers are refused then.
        """
        if self._replica.here:
            with suppress(ConnectionLost):
                return await self._hold(wants, read)
        self._replica.alone("budgets")
        return None

    async def _hold(self, wants: Sequence[HoldRequest], read: bool) -> HoldAnswer:
        def undo(answer: HoldAnswer) -> None:
            if answer.outcome is HoldOutcome.HELD:
                self.give_back(wants)

        arguments: list[Argument] = [self._replica.process, int(read), KEPT_MILLISECONDS]
        for want in wants:
            arguments += [want.amount, want.estimate, want.spent]
        answer = partial(self._answer, wants)
        return await self._replica.ask(HOLD, self._keys(wants), arguments, answer, undo)

    def _answer(self, wants: Sequence[HoldRequest], reply: Reply) -> HoldAnswer:
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
        """Count holds while the server is unavailable."""
        self._count(wants, 1)

    def give_back(self, wants: Sequence[HoldRequest]) -> None:
        """Release holds without waiting for the server."""
        self._count(wants, -1)
        keys, arguments = self._settling(wants, [0] * len(wants), held=True)
        self._replica.send(ScriptCall(SETTLE, keys, arguments))

    async def settle(
        self, wants: Sequence[HoldRequest], spent: Sequence[int], *, held: bool
    ) -> None:
        """Add spent amounts; return when the server has counted them or never will."""
        if held:
            self._count(wants, -1)
        keys, arguments = self._settling(wants, spent, held=held)
        with suppress(ConnectionLost):
            await self._replica.ask(SETTLE, keys, arguments, _require_joined)

    def _settling(
        self, wants: Sequence[HoldRequest], spent: Sequence[int], *, held: bool
    ) -> tuple[list[Argument], list[Argument]]:
        replica = self._replica
        arguments: list[Argument] = [replica.process, replica.waits_until(), KEPT_MILLISECONDS]
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

    def _held_by_key(self) -> dict[str, Argument]:
        return {self._key(place): held for place, held in self._held.items()}


def _require_joined(reply: Reply) -> None:
    if reply == -1:
        raise ConnectionLost
