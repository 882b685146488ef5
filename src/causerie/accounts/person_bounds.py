"""Limits and budgets of a person: over all keys that derive from them, and all projects."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from causerie.accounts.audit import difference, entry
from causerie.accounts.authorization import Clock, no_such, require
from causerie.accounts.bounds import Budget, LimitsAndBudgets, Unit
from causerie.accounts.people import Actor, User
from causerie.accounts.ports import AccountStore, Repositories
from causerie.accounts.rights import Action
from causerie.accounts.spending import Spending
from causerie.accounts.usage import UsageReader


class PersonBounds:
    """Operators set them; the person sees them too."""

    def __init__(self, store: AccountStore, reader: UsageReader, clock: Clock) -> None:
        self._store = store
        self._reader = reader
        self._clock = clock

    async def see(self, actor: Actor, user_id: str) -> LimitsAndBudgets:
        """Return a person's limits and budgets; raise :class:`NotFound`."""
        async with self._store.reading() as repositories:
            if actor.kind != "user" or actor.id != user_id:
                await require(repositories, actor, Action.USERS_SEE)
            await _person(repositories, user_id)
            return await repositories.keys.bounds(f"user:{user_id}")

    async def set(self, actor: Actor, user_id: str, bounds: LimitsAndBudgets) -> None:
        """Set all of a person's limits and budgets; raises :class:`InvalidRequest`."""
        bounds.check()
        now = self._clock()
        async with self._store.writing() as repositories:
            await require(repositories, actor, Action.BOUNDS_SET)
            await _person(repositories, user_id)
            owner = f"user:{user_id}"
            before = await repositories.keys.bounds(owner)
            await repositories.keys.set_bounds(owner, bounds)
            await repositories.keys.announce(owner, now)
            words = difference(before.words(), bounds.words())
            await repositories.audit.add(entry(now, actor, "user.bounds", user_id, bounds=words))

    async def spending(self, actor: Actor, user_id: str) -> Sequence[Spending]:
        """Return the state of a person's budgets."""
        bounds = await self.see(actor, user_id)
        return [await self._spending(user_id, each) for each in bounds.budgets]

    async def _spending(self, user_id: str, budget: Budget) -> Spending:
        now = self._clock()
        found = await self._reader.spent(f"user:{user_id}", budget.model, budget.period.start(now))
        spent = found.cost if budget.unit is Unit.MONEY else Decimal(found.tokens)
        return Spending(budget, spent, budget.period.end(now))


async def _person(repositories: Repositories, user_id: str) -> User:
    user = await repositories.people.find(user_id)
    if user is None:
        raise no_such("user")
    return user
