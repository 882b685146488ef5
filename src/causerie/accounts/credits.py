"""Credits: money that was put in for a project, in a list that only grows.

The balance is the amount paid in less all that the project has ever spent. A project for which
money was put in cannot spend more than that; one for which none ever was is bounded by its budgets
only. A budget of nothing a month, as people who signed up have it, ends with the first credit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal

from causerie.accounts.audit import difference, entry
from causerie.accounts.authorization import Clock, visible_project
from causerie.accounts.bounds import Budget
from causerie.accounts.credit import Balance, Credit
from causerie.accounts.names import new_id
from causerie.accounts.people import Actor
from causerie.accounts.ports import AccountStore, Repositories
from causerie.accounts.rights import Action
from causerie.accounts.usage import UsageReader
from causerie.errors import InvalidRequest

NOTHING_FOR_NEWCOMERS = Budget(Decimal(0))
"""A budget of nothing a month, which ends when money is put in."""
BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)
_MOST = Decimal(9_000_000_000)
_SMALLEST = Decimal("0.000000001")
_LONGEST_NOTE = 200


class Credits:
    """Puts money in, and tells what is left."""

    def __init__(self, store: AccountStore, reader: UsageReader, clock: Clock) -> None:
        self._store = store
        self._reader = reader
        self._clock = clock

    async def put(self, actor: Actor, project_id: str, amount: Decimal, note: str = "") -> Credit:
        """Put money in, or with a minus take it out; raises :class:`InvalidRequest`."""
        if not amount.is_finite() or not 0 < amount.copy_abs() <= _MOST:
            raise InvalidRequest(f"An amount is above 0, up to {_MOST:,}.", param="amount")
        if amount != amount.quantize(_SMALLEST):
            raise InvalidRequest("An amount has at most nine decimals.", param="amount")
        if len(note) > _LONGEST_NOTE:
            raise InvalidRequest(f"A note has at most {_LONGEST_NOTE} characters.", param="note")
        now = self._clock()
        made = Credit(new_id("cr"), project_id, amount, now, actor.label, note.strip())
        async with self._store.writing() as repositories:
            await visible_project(repositories, actor, project_id, Action.CREDITS_PUT)
            in_all = (await repositories.credits.total(project_id) or 0) + amount
            if abs(in_all) > _MOST:
                raise InvalidRequest(
                    f"It would be {in_all:,f} in all; at most {_MOST:,} are kept.", param="amount"
                )
            await repositories.credits.add(made)
            if amount > 0:
                await self._end_newcomers_budget(repositories, actor, project_id)
            await repositories.keys.announce(f"project:{project_id}", now)
            details = {"amount": f"{amount:f}", "note": made.note}
            await repositories.audit.add(
                entry(now, actor, "credits.put", made.id, project_id, **details)
            )
        return made

    async def _end_newcomers_budget(
        self, repositories: Repositories, actor: Actor, project_id: str
    ) -> None:
        owner = f"project:{project_id}"
        before = await repositories.keys.bounds(owner)
        after = replace(
            before, budgets=tuple(one for one in before.budgets if one != NOTHING_FOR_NEWCOMERS)
        )
        if after == before:
            return
        await repositories.keys.set_bounds(owner, after)
        details = {"bounds": difference(before.words(), after.words())}
        await repositories.audit.add(
            entry(self._clock(), actor, "project.bounds", project_id, project_id, **details)
        )

    async def of(self, actor: Actor, project_id: str) -> Sequence[Credit]:
        """Every amount that was put in, newest first."""
        async with self._store.reading() as repositories:
            await visible_project(repositories, actor, project_id, Action.USAGE_SEE)
            return await repositories.credits.of(project_id)

    async def balance(self, actor: Actor, project_id: str) -> Balance:
        async with self._store.reading() as repositories:
            await visible_project(repositories, actor, project_id, Action.USAGE_SEE)
            put_in = await repositories.credits.total(project_id)
        spent = await self._reader.spent(f"project:{project_id}", "", BEGINNING)
        return Balance(put_in or Decimal(0), spent.cost)
