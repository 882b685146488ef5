"""Budgets of one process or of several, over a database that says what the test says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from secrets import token_hex
from typing import Any

from limitkit import replica
from valkeyserver import ValkeyServer

from causerie.distributed.connection import Replica
from causerie.distributed.limits import DistributedBudgets
from causerie.errors import StoreUnavailable
from causerie.hosted.accounts.bounds import Budget
from causerie.hosted.accounts.budgets import Budgets, Claim, Reservation
from causerie.hosted.accounts.usage import Spent
from causerie.protocol.money import billionths

START = datetime(2026, 11, 21, 12, tzinfo=UTC)


def money(amount: Decimal | int | str) -> int:
    """An amount in billionths."""
    return billionths(Decimal(amount))


@dataclass
class Books:
    """A stand-in for the database, with its answers and its clock."""

    known: dict[str, Spent] = field(default_factory=dict)
    asked: list[tuple[str, str, datetime]] = field(default_factory=list)
    now: datetime = START
    seconds: float = 0.0
    away: bool = False

    async def spent(self, owner: str, model: str, since: datetime) -> Spent:
        self.asked.append((owner, model, since))
        await asyncio.sleep(0)
        if self.away:
            raise StoreUnavailable()
        return self.known.get(owner, Spent())

    def clock(self) -> int:
        return int(self.now.timestamp()) * 10**9


@dataclass
class Services:
    """Holders of budgets: one process or several."""

    server: ValkeyServer | None
    stack: AsyncExitStack
    prefix: str
    how: dict[str, Any]
    replicas: list[Replica] = field(default_factory=list)

    async def budgets(self, books: Books, **options: Any) -> Budgets:
        """Of one more process."""
        seconds = {"seconds": lambda: books.seconds, **options}
        if self.server is None:
            return Budgets(books.spent, books.clock, **seconds)
        made = replica(self.server, prefix=self.prefix, **self.how)
        self.replicas.append(await self.stack.enter_async_context(made))
        together = DistributedBudgets(self.replicas[-1])
        return Budgets(books.spent, books.clock, together, **seconds)


@asynccontextmanager
async def services(server: ValkeyServer | None, **how: Any) -> AsyncIterator[Services]:
    """A place of its own in the server, or with ``None`` in memory; see ``limitkit.replica``."""
    async with AsyncExitStack() as stack:
        yield Services(server, stack, token_hex(8), how)


@contextmanager
def releasing(reservation: Reservation) -> Iterator[Reservation]:
    """Release at the end what was not settled."""
    try:
        yield reservation
    finally:
        reservation.release()


def claim(amount: str | int | Decimal, **budget: Any) -> list[Claim]:
    return [Claim("key:ck_a", (Budget(Decimal(amount), **budget),))]


def billionth(count: int) -> Decimal:
    return Decimal(count) / 10**9
