"""Interface of the storage in which replicas hold budgets together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

from msgspec import Struct


class HoldRequest(Struct, frozen=True):
    """Reservation of one request in one budget and period; amounts are whole units."""

    place: str
    """Name of the budget and the period."""
    amount: int
    estimate: int
    spent: int
    """Use that this process knows of; never more than the truth."""


class HoldAnswer(Struct, frozen=True):
    """Answer to a hold; ``stood``: what all had spent and held of each budget before it."""

    outcome: Literal["held", "refused", "spent unknown"]
    stood: Sequence[tuple[int, int]] = ()


class SharedBudgetStore(Protocol):
    """Budgets that replicas share; an estimate of 0 reserves nothing."""

    @property
    def joins(self) -> int:
        """Return how often this process joined the others; in between it missed their updates."""

    async def hold(self, wants: Sequence[HoldRequest], *, read: bool) -> HoldAnswer | None:
        """Reserve all amounts or none; ``None`` if this process has to decide alone.

        ``read``: every ``spent`` was just read from the database. Raises
        :class:`StoreUnavailable` if no request may be admitted.
        """

    def held_alone(self, wants: Sequence[HoldRequest]) -> None:
        """Record an admission that this process decided alone, to be reported later."""

    def give_back(self, wants: Sequence[HoldRequest]) -> None:
        """Release the reservation of a request that spent nothing."""

    async def settle(
        self, wants: Sequence[HoldRequest], spent: Sequence[int], *, held: bool
    ) -> None:
        """Record what a request spent; ``held`` unless its reservation was released before.

        Returns when the others count it, or can learn of it from the database only.
        """
