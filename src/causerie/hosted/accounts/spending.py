"""Spent amounts of budgets, for pages, operators and alerts; and budgets of tags and providers.

The amounts come from the same sums as the usage pages. Admission is decided by ``budgets``, which
count running requests in addition.

The budget of a tag is reserved like those of keys, because the tag is known before a request. Which
provider answers is known only at its end: the budget of a provider is settled after it, and once it
is spent the targets of the provider get no more requests. Other processes learn of the spending
from the database, every few seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal

import structlog
from msgspec import Struct

from causerie.access.limits import SpentProviders
from causerie.errors import InvalidRequest, StoreUnavailable
from causerie.hosted.accounts.authorization import (
    AccountService,
    Clock,
    existing,
    require,
    set_bounds,
)
from causerie.hosted.accounts.bounds import (
    SCOPES,
    Budget,
    BudgetPeriod,
    CreditBudget,
    LimitsAndBudgets,
    Unit,
    own_bounds,
)
from causerie.hosted.accounts.budgets import Claim
from causerie.hosted.accounts.keys import ApiKey, KeyState
from causerie.hosted.accounts.people import SYSTEM, Action, Actor, Project, User
from causerie.hosted.accounts.reports import Spending, UsageReports
from causerie.hosted.accounts.usage import By, Used, provider_of
from causerie.hosted.store.accounts import SqlStore, Transaction
from causerie.metering.ledger import UsageRecord


@dataclass(frozen=True, slots=True)
class ScopeSpending:
    """The budgets of a tag or a provider, and what is spent of them."""

    kind: str
    name: str
    spending: Sequence[Spending]


async def spendings(
    store: SqlStore, owner: str, budgets: Iterable[Budget], now: datetime
) -> Sequence[Spending]:
    """Return the state of the budgets of one owner, like ``user:ID`` or ``tag:NAME``."""
    states = []
    for budget in budgets:
        found = await store.usage.spent(owner, budget.model, budget.period.start(now))
        spent = found.amount if budget.unit is Unit.MONEY else Decimal(found.tokens)
        states.append(Spending(budget, spent, budget.period.end(now)))
    return states


class PersonBounds(AccountService):
    """Limits and budgets of people, over all keys that derive from them and all projects."""

    async def see(self, actor: Actor, user_id: str) -> LimitsAndBudgets:
        """Return a person's limits and budgets; raise :class:`NotFound`."""
        async with self._store.reading() as tx:
            if actor.kind != "user" or actor.id != user_id:
                await require(tx, actor, Action.USERS_SEE)
            existing(await tx.people.find(user_id), "user")
            return await tx.keys.bounds(f"user:{user_id}")

    async def set(self, actor: Actor, user_id: str, bounds: LimitsAndBudgets) -> LimitsAndBudgets:
        """Replace a person's limits and budgets; raise :class:`InvalidRequest`."""
        bounds.check()
        async with self._begin_write(actor, Action.BOUNDS_SET) as tx:
            existing(await tx.people.find(user_id), "user")
            await set_bounds(tx, actor, {f"user:{user_id}": bounds})
        return bounds

    async def spending(self, actor: Actor, user_id: str) -> Sequence[Spending]:
        budgets = (await self.see(actor, user_id)).budgets
        return await spendings(self._store, f"user:{user_id}", budgets, self._clock())


DAYS = 30
_UNUSED = Used()


@dataclass(frozen=True, slots=True)
class ProjectSummary:
    """A project with its cost and the day of its last request within 30 days.

    ``credits`` are those that are left; ``None``: it never had any.
    """

    project: Project
    keys: int
    cost: Decimal
    active_at: datetime | None
    credits: Decimal | None


@dataclass(frozen=True, slots=True)
class PersonSummary:
    """A person; ``active_at``: when they or a key of theirs last used the service.

    ``asked_at`` is the day of their last request within 30 days.
    """

    user: User
    keys: int
    cost: Decimal
    active_at: datetime | None
    asked_at: datetime | None


class Summaries(AccountService):
    """Summaries of all projects and people for operators, by one query for each fact."""

    async def projects(self, actor: Actor) -> Sequence[ProjectSummary]:
        """Return the summaries of all projects, by name."""
        async with self._begin_read(actor, Action.USERS_SEE) as tx:
            found, keys = await tx.projects.every(), await tx.keys.counts("project_id")
        used = await self._read_recent_usage(actor, By.PROJECT)
        balances = await Watching(self._store).balances()
        left = {each.project.id: each.left for each in balances}
        return [
            ProjectSummary(each, keys.get(each.id, 0), of.cost, of.day, left.get(each.id))
            for each in found
            for of in (used.get(each.id, _UNUSED),)
        ]

    async def people(self, actor: Actor) -> Sequence[PersonSummary]:
        """Return a summary of each person: keys, cost, last activity; sorted by e-mail address."""
        async with self._begin_read(actor, Action.USERS_SEE) as tx:
            found, keys = await tx.people.every(), await tx.keys.counts("person")
            seen = await tx.sessions.last_seen()
        used = await self._read_recent_usage(actor, By.USER)
        summaries = []
        for each in found:
            of = used.get(each.id, _UNUSED)
            times = [time for time in (seen.get(each.id), of.day) if time is not None]
            active_at = max(times, default=None)
            summaries.append(PersonSummary(each, keys.get(each.id, 0), of.cost, active_at, of.day))
        return summaries

    async def costs_of_keys(self, actor: Actor, project_id: str) -> Mapping[str, Decimal]:
        """Return the cost of a project's keys in 30 days; keys without requests are absent."""
        used = await self._read_recent_usage(actor, By.KEY, project_id)
        return {key: each.cost for key, each in used.items()}

    async def spending(
        self, actor: Actor, by: By, ids: Iterable[str]
    ) -> Mapping[str, Sequence[Spending]]:
        owners = {id: f"{by}:{id}" for id in ids}
        async with self._begin_read(actor, Action.USERS_SEE) as tx:
            bounds = await bounds_in_force(tx, tuple(owners.values()))
        budgets = {id: bounds[each].budgets for id, each in owners.items()}
        return await UsageReports(self._store).spending(actor, by, budgets)

    async def _read_recent_usage(
        self, actor: Actor, grouping: By, project_id: str | None = None
    ) -> Mapping[str, Used]:
        since = BudgetPeriod.DAY.start(self._clock()) - timedelta(days=DAYS - 1)
        return await UsageReports(self._store).used(actor, grouping, since, project_id)


@dataclass(frozen=True, slots=True)
class WatchedBudget:
    """State of a budget of a key, a project, a person, a tag or a provider."""

    owner: str
    """Its owner, like ``key:ID``, and the owner for people."""
    whose: str
    spending: Spending
    emails: tuple[str, ...] = field(default=(), repr=False)
    """Addresses of the person, and of the owners of the project."""


@dataclass(frozen=True, slots=True)
class WatchedBalance:
    """The balance of a project's credits, and the addresses of its owners."""

    project: Project
    left: Decimal
    emails: tuple[str, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class ExpiringKey:
    """A working key and the address of the person from whom it derives, if there is one."""

    project: Project
    key: ApiKey
    expires_at: datetime
    emails: tuple[str, ...] = field(repr=False)


class Watching(AccountService):
    """Budgets and keys of all accounts for alerts, by one query for each fact."""

    async def budgets(self) -> Sequence[WatchedBudget]:
        """Return the states of all budgets of working keys, active projects and enabled people."""
        async with self._store.reading() as tx:
            projects = await _read_active_projects(tx)
            users = await tx.people.every()
            people = {each.id: each for each in users if each.disabled_at is None}
            owners = [*(f"project:{id}" for id in projects), *(f"user:{id}" for id in people)]
            bounds = await bounds_in_force(tx, owners)
            keys = _select_active_keys(await tx.keys.budgeted(), projects, tx.now)
            owners_of = await tx.projects.owner_emails("budgets")
        usage, found = UsageReports(self._store), list[WatchedBudget]()
        budgets = {id: bounds[f"project:{id}"].budgets for id in projects}
        states = await usage.spending(SYSTEM, By.PROJECT, budgets)
        for id, project in projects.items():
            emails = tuple(owners_of.get(id, ()))
            whose = f"project:{id}", f"Project {project.name}"
            found += [WatchedBudget(*whose, one, emails) for one in states[id]]
        budgets = {id: bounds[f"user:{id}"].budgets for id in people}
        states = await usage.spending(SYSTEM, By.USER, budgets)
        for id, user in people.items():
            whose = f"user:{id}", f"{user.name} ({id})"
            found += [WatchedBudget(*whose, one, user.reminded_at("budgets")) for one in states[id]]
        budgets = {key.id: key.bounds.budgets for key in keys}
        states = await usage.spending(SYSTEM, By.KEY, budgets)
        for key in keys:
            project = projects[key.project_id]
            whose = f"key:{key.id}", f'Key "{key.name}" ({key.id}) of project {project.name}'
            holder = people[key.person].reminded_at("budgets") if key.person in people else ()
            emails = tuple(dict.fromkeys([*holder, *owners_of.get(key.project_id, ())]))
            found += [WatchedBudget(*whose, one, emails) for one in states[key.id]]
        return found

    async def balances(self) -> Sequence[WatchedBalance]:
        """Return the balances of active projects that have credits."""
        async with self._store.reading() as tx:
            totals = await tx.credits.totals()
            projects = await _read_active_projects(tx) if totals else {}
            owners_of = await tx.projects.owner_emails("credits") if totals else {}
        credits = {
            id: (CreditBudget(total, BudgetPeriod.NEVER),)
            for id, total in totals.items()
            if id in projects
        }
        states = await UsageReports(self._store).spending(SYSTEM, By.PROJECT, credits)
        return [
            WatchedBalance(
                projects[id], one.budget.amount - one.spent, tuple(owners_of.get(id, ()))
            )
            for id, [one] in states.items()
        ]

    async def expiring(self, until: datetime) -> Sequence[ExpiringKey]:
        """Return the working keys that expire by ``until``."""
        found: list[ExpiringKey] = []
        async with self._store.reading() as tx:
            keys = await tx.keys.expiring(until)
            if not keys:
                return ()
            projects = await _read_active_projects(tx)
            emails: dict[str, tuple[str, ...]] = {}
            for key in _select_active_keys(keys, projects, tx.now):
                if key.person and key.person not in emails:
                    user = await tx.people.find(key.person)
                    emails[key.person] = user.reminded_at("keys") if user is not None else ()
                assert key.expires_at is not None
                to = emails.get(key.person, ())
                found.append(ExpiringKey(projects[key.project_id], key, key.expires_at, to))
        return found


async def bounds_in_force(tx: Transaction, owners: Sequence[str]) -> Mapping[str, LimitsAndBudgets]:
    """Return the bounds of owners; a project's are tightened by those that its owners have set."""
    own = {each: own_bounds(each.removeprefix("project:")) for each in owners}
    found = await tx.keys.bounds_of([*owners, *own.values()])
    return {each: found[each].tightened(found[own[each]]) for each in owners}


async def _read_active_projects(tx: Transaction) -> Mapping[str, Project]:
    every = await tx.projects.every()
    return {each.id: each for each in every if each.archived_at is None}


def _select_active_keys(
    keys: Sequence[ApiKey], projects: Mapping[str, Project], now: datetime
) -> Sequence[ApiKey]:
    return [key for key in keys if key.project_id in projects and key.state(now) is KeyState.ACTIVE]


log = structlog.get_logger(__name__)

_LONGEST_NAME = 80  # of a tag, as requests are read
_REFRESH_SECONDS = 5.0


class ScopeBudgets(AccountService):
    """Budgets of tags and providers, as operators see and set them."""

    async def every(self, actor: Actor = SYSTEM) -> Sequence[ScopeSpending]:
        """Return the states of all budgets of tags and providers, by kind and name."""
        async with self._begin_read(actor, Action.USAGE_SEE_ALL) as tx:
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
        """Replace the budgets of a tag or provider; return those of all tags and providers."""
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
        async with self._begin_write(actor, Action.BOUNDS_SET) as tx:
            await set_bounds(tx, actor, {f"{kind}:{name}": bounds})
        return await self.every(actor)


class LiveScopeBudgets(Struct):
    """The budgets of tags and providers that one process enforces."""

    _scope_budgets: ScopeBudgets
    _clock: Clock
    _spent_by_provider_budget: dict[tuple[str, Budget, datetime | None], Decimal] = {}
    tags: Mapping[str, tuple[Claim, ...]] = {}
    """What requests with a tag claim in addition."""
    spent: SpentProviders = {}

    async def follow(self, changed: asyncio.Event) -> None:
        """Call :meth:`refresh` after a change, and every few seconds, until cancelled."""
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
        tags: dict[str, tuple[Claim, ...]] = {}
        providers: dict[tuple[str, Budget, datetime | None], Decimal] = {}
        for each in await self._scope_budgets.every():
            hard = [one for one in each.spending if not one.budget.soft]
            if each.kind == "tag" and hard:
                claim = Claim(f"tag:{each.name}", tuple(one.budget for one in hard))
                tags[each.name] = (claim,)
            elif each.kind == "provider":
                for one in hard:
                    place = each.name, one.budget, one.resets_at
                    # What was counted here may not be in the database yet.
                    counted = self._spent_by_provider_budget.get(place, one.spent)
                    providers[place] = max(one.spent, counted)
        self.tags, self._spent_by_provider_budget = tags, providers
        self._update_spent_providers()

    def count(self, usage: UsageRecord) -> None:
        """Add the use of an ended request to the budgets of the provider that answered it."""
        if not self._spent_by_provider_budget or not usage.charged:
            return
        provider, tokens = provider_of(usage.served_by), usage.prompt + usage.completion
        for name, budget, resets_at in self._spent_by_provider_budget:
            if name == provider:
                more = usage.amount if budget.unit is Unit.MONEY else tokens
                self._spent_by_provider_budget[name, budget, resets_at] += more
        self._update_spent_providers()

    def _update_spent_providers(self) -> None:
        now = self._clock()
        self.spent = {
            name: resets_at
            for (name, budget, resets_at), spent in self._spent_by_provider_budget.items()
            if spent >= budget.amount and (resets_at is None or now < resets_at)
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
        """Replace the bounds of all given users and projects, or of none; return how many changed.

        With ``keep``, former ones stay which no new one replaces. Raises :class:`InvalidRequest`
        for wrong bounds or an unknown id.
        """
        bounds.check()
        owners = {f"user:{id}": id for id in users} | {f"project:{id}": id for id in projects}
        async with self._begin_write(actor, Action.BOUNDS_SET) as tx:
            known = {f"user:{each.id}" for each in await tx.people.every()}
            known |= {f"project:{each.id}" for each in await tx.projects.every()}
            if unknown := [owners[owner] for owner in owners if owner not in known]:
                raise InvalidRequest(f"There is no user or project {unknown[0][:64]}.", param="ids")
            before = await tx.keys.bounds_of([*owners])
            after = {owner: bounds.added_to(before[owner]) if keep else bounds for owner in owners}
            changed = {owner: new for owner, new in after.items() if new != before[owner]}
            if changed:
                await set_bounds(tx, actor, changed)
            return len(changed)
