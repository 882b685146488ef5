"""Budgets of tags and providers, over all projects.

The budget of a tag is reserved like those of keys, because the tag is known before a request. Which
provider answers is known only at its end: the budget of a provider is settled after it, and once it
is spent the targets of the provider get no more requests. Other processes learn of the spending
from the database, every few seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime

import structlog
from msgspec import Struct

from causerie.access.limits import SpentProviders
from causerie.errors import InvalidRequest, StoreUnavailable
from causerie.hosted.accounts.authorization import Clock
from causerie.hosted.accounts.bounds import SCOPES, Budget, LimitsAndBudgets
from causerie.hosted.accounts.budgets import Claim
from causerie.hosted.accounts.people import SYSTEM, Action, Actor
from causerie.hosted.accounts.ports import AccountStore
from causerie.hosted.accounts.service import AccountService
from causerie.hosted.accounts.spending import ScopeSpending, spending_of
from causerie.hosted.accounts.usage import UsageReader, provider_of
from causerie.metering.ledger import UsageRecord

log = structlog.get_logger(__name__)

_LONGEST_NAME = 80  # of a tag, as requests are read
_REFRESH_SECONDS = 5.0


class _Account(Struct):
    budget: Budget
    since: datetime
    spent: int = 0  # in billionths of money, or tokens; never more than the truth


class LiveScopeBudgets:
    """The budgets of tags and providers that one process enforces."""

    def __init__(self, store: AccountStore, reader: UsageReader, clock: Clock) -> None:
        self._store = store
        self._reader = reader
        self._clock = clock
        self._providers: dict[str, list[_Account]] = {}
        self.tags: Mapping[str, tuple[Claim, ...]] = {}
        """What requests with a tag claim in addition."""
        self.spent: SpentProviders = {}
        """Providers whose budget is spent, and when it begins anew."""

    async def follow(self, changed: asyncio.Event) -> None:
        """Read the budgets when they have ``changed``, and what is spent, until cancelled."""
        while True:
            try:
                if changed.is_set():
                    changed.clear()
                    await self.load()
                await self.refresh()
            except StoreUnavailable:
                log.warning("budgets of tags and providers wait for the database")
                await asyncio.sleep(_REFRESH_SECONDS)
                changed.set()
            try:
                async with asyncio.timeout(_REFRESH_SECONDS):
                    await changed.wait()
            except TimeoutError:
                continue

    async def load(self) -> None:
        """Read the budgets; raise :class:`StoreUnavailable`."""
        async with self._store.reading() as tx:
            found = await tx.keys.scoped()
        hard: dict[tuple[str, str], tuple[Budget, ...]] = {}
        for owner, bounds in found.items():
            kind, _, name = owner.partition(":")
            if kept := tuple(each for each in bounds.budgets if not each.soft):
                hard[kind, name] = kept
        self.tags = {
            name: (Claim(f"tag:{name}", kept),)
            for (kind, name), kept in hard.items()
            if kind == "tag"
        }
        now = self._clock()
        self._providers = {
            name: [_Account(each, each.period.start(now)) for each in kept]
            for (kind, name), kept in hard.items()
            if kind == "provider"
        }

    async def refresh(self) -> None:
        """Read what all processes have spent; raise :class:`StoreUnavailable`."""
        now = self._clock()
        for provider, accounts in self._providers.items():
            for each in accounts:
                since = each.budget.period.start(now)
                found = await self._reader.spent(f"provider:{provider}", "", since)
                spent = each.budget.counted(found.cost, found.tokens)
                each.spent = max(each.spent, spent) if since == each.since else spent
                each.since = since
        self._judge()

    def count(self, usage: UsageRecord) -> None:
        """Count an ended request for the provider that answered it."""
        accounts = self._providers.get(provider_of(usage.served_by)) if self._providers else None
        if not accounts or not usage.charged:
            return
        for each in accounts:
            each.spent += each.budget.counted(usage.cost, usage.prompt + usage.completion)
        self._judge()

    def _judge(self) -> None:
        now, spent = self._clock(), dict[str, datetime | None]()
        for provider, accounts in self._providers.items():
            for each in accounts:
                current = each.since == each.budget.period.start(now)
                if current and each.spent >= each.budget.whole:
                    spent[provider] = each.budget.period.end(now)
        self.spent = spent


class ScopeBudgets(AccountService):
    """Budgets of tags and providers, as operators see and set them."""

    def __init__(self, store: AccountStore, reader: UsageReader, clock: Clock) -> None:
        super().__init__(store, clock)
        self._reader = reader

    async def every(self, actor: Actor = SYSTEM) -> Sequence[ScopeSpending]:
        """Return all budgets of tags and providers, by kind and name."""
        async with self._reading(actor, Action.USAGE_SEE_ALL) as tx:
            found = await tx.keys.scoped()
        every, now = [], self._clock()
        for owner in sorted(found):
            kind, _, name = owner.partition(":")
            spending = await spending_of(self._reader, owner, found[owner].budgets, now)
            every.append(ScopeSpending(kind, name, spending))
        return every

    async def set(self, actor: Actor, kind: str, name: str, budgets: Sequence[Budget]) -> None:
        """Replace the budgets of a tag or a provider; raise :class:`InvalidRequest`."""
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
            await self._set_bounds(tx, actor, f"{kind}.bounds", name, bounds)


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
                        self._noted(actor, owner, before[owner], new)
                        for owner, new in changed.items()
                    )
                )
            return len(changed)
