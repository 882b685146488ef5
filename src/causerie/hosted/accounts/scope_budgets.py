"""Budgets of tags and providers, over all projects.

The budget of a tag is reserved like those of keys, because the tag is known before a request. Which
provider answers is known only at its end: the budget of a provider is settled after it, and once it
is spent the targets of the provider get no more requests. Other processes learn of the spending
from the database, every few seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

import structlog

from causerie.access.limits import SpentProviders
from causerie.errors import InvalidRequest, StoreUnavailable
from causerie.hosted.accounts.authorization import Clock
from causerie.hosted.accounts.bounds import SCOPES, Budget, LimitsAndBudgets, Unit
from causerie.hosted.accounts.budgets import Claim
from causerie.hosted.accounts.people import SYSTEM, Action, Actor
from causerie.hosted.accounts.service import AccountService
from causerie.hosted.accounts.spending import ScopeSpending, Spending, spendings
from causerie.hosted.accounts.usage import provider_of
from causerie.metering.ledger import UsageRecord

log = structlog.get_logger(__name__)

_LONGEST_NAME = 80  # of a tag, as requests are read
_REFRESH_SECONDS = 5.0


class ScopeBudgets(AccountService):
    """Budgets of tags and providers, as operators see and set them."""

    async def every(self, actor: Actor = SYSTEM) -> Sequence[ScopeSpending]:
        """Return all budgets of tags and providers, by kind and name."""
        async with self._reading(actor, Action.USAGE_SEE_ALL) as tx:
            found = await tx.keys.scoped()
        now, every = self._clock(), list[ScopeSpending]()
        for owner in sorted(found):
            kind, _, name = owner.partition(":")
            states = await spendings(self._store, owner, found[owner].budgets, now)
            every.append(ScopeSpending(kind, name, states))
        return every

    async def set(
        self, actor: Actor, kind: str, name: str, budgets: Sequence[Budget]
    ) -> Sequence[ScopeSpending]:
        """Replace the budgets of a tag or a provider, and return those of all.

        Raises :class:`InvalidRequest`.
        """
        if kind not in SCOPES:
            raise InvalidRequest("A budget is of a tag or a provider.", param="kind")
        if not 0 < len(name) <= _LONGEST_NAME or name != name.strip() or not name.isprintable():
            words = f"A name has 1 to {_LONGEST_NAME} visible characters."
            raise InvalidRequest(words, param="name")
        if kind == "provider" and any(each.model for each in budgets):
            raise InvalidRequest(
                "A budget of a provider is for all of its models; leave `model` out.",
                param="budgets",
            )
        bounds = LimitsAndBudgets(budgets=tuple(budgets))
        bounds.check()
        async with self._writing(actor, Action.BOUNDS_SET) as tx:
            await self._set_bounds(tx, actor, f"{kind}:{name}", bounds)
        return await self.every(actor)


class LiveScopeBudgets:
    """The budgets of tags and providers that one process enforces."""

    def __init__(self, rules: ScopeBudgets, clock: Clock) -> None:
        self._rules = rules
        self._clock = clock
        self._providers: dict[str, list[Spending]] = {}  # never more than the truth
        self.tags: Mapping[str, tuple[Claim, ...]] = {}
        """What requests with a tag claim in addition."""
        self.spent: SpentProviders = {}

    async def follow(self, changed: asyncio.Event) -> None:
        """Refresh after a change, and every few seconds, until cancelled."""
        while True:
            changed.clear()
            try:
                await self.refresh()
            except StoreUnavailable:
                log.warning("budgets of tags and providers wait for the database")
            with suppress(TimeoutError):
                async with asyncio.timeout(_REFRESH_SECONDS):
                    await changed.wait()

    async def refresh(self) -> None:
        """Read the budgets and what all processes have spent; raise :class:`StoreUnavailable`."""
        hard = [
            (each.kind, each.name, [one for one in each.spending if not one.budget.soft])
            for each in await self._rules.every()
        ]
        self.tags = {
            name: (Claim(f"tag:{name}", tuple(one.budget for one in states)),)
            for kind, name, states in hard
            if kind == "tag" and states
        }
        known = {
            (name, one.budget, one.resets_at): one.spent
            for name, states in self._providers.items()
            for one in states
        }
        self._providers = {
            name: [
                replace(one, spent=max(one.spent, known.get(place, one.spent)))
                for one in states
                for place in ((name, one.budget, one.resets_at),)
            ]
            for kind, name, states in hard
            if kind == "provider"
        }
        self._find_spent()

    def count(self, usage: UsageRecord) -> None:
        """Count an ended request for the provider that answered it."""
        if not self._providers or not usage.charged:
            return
        provider, tokens = provider_of(usage.served_by), usage.prompt + usage.completion
        if (states := self._providers.get(provider)) is not None:
            self._providers[provider] = [
                replace(one, spent=one.spent + (usage.amount if money else tokens))
                for one in states
                for money in (one.budget.unit is Unit.MONEY,)
            ]
            self._find_spent()

    def _find_spent(self) -> None:
        now = self._clock()
        self.spent = {
            provider: one.resets_at
            for provider, states in self._providers.items()
            for one in states
            if one.share >= 1 and (one.resets_at is None or now < one.resets_at)
        }


class BulkBounds(AccountService):
    """Limits and budgets of many people and projects at once."""

    async def set(
        self,
        actor: Actor,
        bounds: LimitsAndBudgets,
        *,
        users: Sequence[str] = (),
        projects: Sequence[str] = (),
        keep: bool = False,
    ) -> int:
        """Replace the limits and budgets of all, or of none; return how many have changed.

        With ``keep``, former ones stay which no new one replaces. Raises :class:`InvalidRequest`
        for wrong bounds or an unknown id.
        """
        bounds.check()
        owners = {f"user:{id}": id for id in users} | {f"project:{id}": id for id in projects}
        async with self._writing(actor, Action.BOUNDS_SET) as tx:
            known = {f"user:{each.id}" for each in await tx.people.every()}
            known |= {f"project:{each.id}" for each in await tx.projects.every()}
            if unknown := [owners[owner] for owner in owners if owner not in known]:
                raise InvalidRequest(f"There is no user or project {unknown[0][:64]}.", param="ids")
            before = await tx.keys.bounds_of([*owners])
            after = {owner: bounds.added_to(before[owner]) if keep else bounds for owner in owners}
            changed = {owner: new for owner, new in after.items() if new != before[owner]}
            if changed:
                now = self._clock()
                await tx.keys.set_bounds_of(changed)
                await tx.keys.announce_all([*changed], now)
                await tx.audit.add(
                    *(
                        self._bounds_audit_entry(actor, owner, before[owner], new)
                        for owner, new in changed.items()
                    )
                )
            return len(changed)
