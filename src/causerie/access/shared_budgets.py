"""Interface of the storage in which replicas hold budgets together."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, auto
from typing import Protocol

from msgspec import Struct


class HoldRequest(Struct, frozen=True):
    """Hold of one request on one budget in one period; amounts are whole numbers of its unit."""

    place: str
    """Name of the budget and the period."""
    amount: int
    estimate: int
    spent: int
    """Use that this process knows of; never more than the truth."""


class HoldOutcome(Enum):
    """Outcome of a hold: held, refused, or the spent amount is unknown there."""

    HELD = auto()
    REFUSED = auto()
    UNKNOWN = auto()


class HoldAnswer(Struct, frozen=True):
    """``stood`` is what was spent and what was held of each budget before, by all replicas."""

    outcome: HoldOutcome
    stood: Sequence[tuple[int, int]] = ()


class SharedBudgetStore(Protocol):
    """Budgets that replicas hold together; nothing is held of a budget of estimate 0."""

    @property
    def joins(self) -> int:
        """Return how often this process joined the others; in between it missed their updates."""

    async def hold(self, wants: Sequence[HoldRequest], *, read: bool) -> HoldAnswer | None:
        """Hold all of it, or nothing; ``None`` where this process has to decide alone.

        ``read`` says that every ``spent`` was read from the database just now.
        Cancelled, it leaves nothing held. Raises :class:`StoreUnavailable`
        where nobody shall be let in.
        """

    def held_alone(self, wants: Sequence[HoldRequest]) -> None:
        """This process has let a request in alone; it is told to the others when they are there."""

    def give_back(self, wants: Sequence[HoldRequest]) -> None:
        """The request has ended, and spent nothing."""

    async def settle(
        self, wants: Sequence[HoldRequest], spent: Sequence[int], *, held: bool
    ) -> None:
        """The request has ended, and spent this; ``held`` unless it was given back before.

        Returns when the others count it, or can learn of it from the database only.
        """
