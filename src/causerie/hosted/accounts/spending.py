"""Spent amounts of budgets: of people, of projects and of all at once, for pages, operators and
alerts. From the same sums as the usage pages.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from causerie.hosted.accounts.audit import difference, entry
from causerie.hosted.accounts.authorization import Clock, no_such, require
from causerie.hosted.accounts.bounds import Budget, BudgetPeriod, LimitsAndBudgets, Unit
from causerie.hosted.accounts.keys import ApiKey, KeyState
from causerie.hosted.accounts.people import SYSTEM, Action, Actor, Project, User
from causerie.hosted.accounts.ports import AccountStore, Repositories
from causerie.hosted.accounts.usage import (
    By,
    Step,
    UsageQuery,
    UsageReader,
    UsageReports,
    UsageSum,
    Used,
)


_NEARLY = Decimal("0.8")


@dataclass(frozen=True, slots=True)
class Spending:
    """State of a budget; ``resets_at`` is the start of its next period."""

    budget: Budget
    spent: Decimal
    resets_at: datetime | None

    @property
    def is_nothing(self) -> bool:
        """Return true for a budget of no money: what costs nothing is let in."""
        return self.budget.unit is Unit.MONEY and self.budget.amount == 0

    @property
    def share(self) -> Decimal:
        """Return the spent share, from 0; 1 is all."""
        if self.budget.amount == 0:
            return Decimal(1)
        return self.spent / self.budget.amount

    @property
    def percent(self) -> int:
        """For a bar, from 0 to 100."""
        return min(int(self.share * 100), 100)

    @property
    def level(self) -> str:
        """Return the level for display: ``good``, ``warn`` or ``bad``."""
        return "bad" if self.share >= 1 else "warn" if self.share >= _NEARLY else "good"


class SpendingReader:
    """Asks the usage of one project (``None``: of all), once for each period."""

    def __init__(
        self, usage: UsageReports, actor: Actor, project_id: str | None, now: datetime
    ) -> None:
        self._usage = usage
        self._actor = actor
        self._project_id = project_id
        self._now = now

    async def of_keys(
        self, budgets: Mapping[str, Iterable[Budget]]
    ) -> Mapping[str, list[Spending]]:
        return await self._each(By.KEY, budgets)

    async def of_projects(
        self, budgets: Mapping[str, Iterable[Budget]]
    ) -> Mapping[str, list[Spending]]:
        return await self._each(By.PROJECT, budgets)

    async def of_people(
        self, budgets: Mapping[str, Iterable[Budget]]
    ) -> Mapping[str, list[Spending]]:
        return await self._each(By.USER, budgets)

    async def of_project(self, budgets: Iterable[Budget]) -> list[Spending]:
        asked = tuple(budgets)
        sums = await self._sums(asked, By.MODEL)
        return [self._spending(each, sums[each.period]) for each in asked]

    async def _each(
        self, by: By, budgets: Mapping[str, Iterable[Budget]]
    ) -> Mapping[str, list[Spending]]:
        asked = {owner: tuple(each) for owner, each in budgets.items()}
        sums = await self._sums([each for every in asked.values() for each in every], by, By.MODEL)
        by_owner: dict[tuple[BudgetPeriod, str], list[UsageSum]] = {}
        for period, found in sums.items():
            for each in found:
                by_owner.setdefault((period, each.group[by]), []).append(each)
        return {
            owner: [self._spending(each, by_owner.get((each.period, owner), ())) for each in every]
            for owner, every in asked.items()
        }

    async def _sums(
        self, budgets: Iterable[Budget], *by: By
    ) -> dict[BudgetPeriod, Sequence[UsageSum]]:
        midnight = self._now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        found: dict[BudgetPeriod, Sequence[UsageSum]] = {}
        for period in {each.period for each in budgets}:
            question = UsageQuery(
                since=period.start(self._now),
                until=midnight + timedelta(days=1),
                step=Step.ALL,
                by=by,
            )
            found[period] = (
                await self._usage.of_all(self._actor, question)
                if self._project_id is None
                else await self._usage.of_project(self._actor, self._project_id, question)
            )
        return found

    def _spending(self, budget: Budget, sums: Iterable[UsageSum]) -> Spending:
        spent = Decimal(0)
        for each in sums:
            if budget.model in ("", each.group[By.MODEL]):
                spent += each.cost if budget.unit is Unit.MONEY else each.charged
        return Spending(budget, spent, budget.period.end(self._now))


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


DAYS = 30
_UNUSED = Used()


@dataclass(frozen=True, slots=True)
class ProjectSummary:
    """A project; ``cost`` and ``active_at`` (the day of its last request) are of 30 days."""

    project: Project
    keys: int
    cost: Decimal
    active_at: datetime | None


@dataclass(frozen=True, slots=True)
class PersonSummary:
    """A person; ``active_at`` is when they were last signed in or a key of theirs was used."""

    user: User
    keys: int
    cost: Decimal
    active_at: datetime | None


class Summaries:
    """Asks for each fact once for all, however many there are."""

    def __init__(self, store: AccountStore, usage: UsageReports, clock: Clock) -> None:
        self._store = store
        self._usage = usage
        self._clock = clock

    async def projects(self, actor: Actor) -> Sequence[ProjectSummary]:
        """All projects, by name."""
        async with self._store.reading() as repositories:
            await require(repositories, actor, Action.USERS_SEE)
            found = await repositories.projects.every()
            keys = _sums((project, count) for project, _, count in await repositories.keys.counts())
        used = await self._used(actor, By.PROJECT)
        return [
            ProjectSummary(each, keys.get(each.id, 0), of.cost, of.day)
            for each in found
            for of in (used.get(each.id, _UNUSED),)
        ]

    async def people(self, actor: Actor) -> Sequence[PersonSummary]:
        """All people, by address."""
        async with self._store.reading() as repositories:
            await require(repositories, actor, Action.USERS_SEE)
            found = await repositories.people.every()
            keys = _sums((person, count) for _, person, count in await repositories.keys.counts())
            seen = await repositories.sessions.last_seen()
        used = await self._used(actor, By.USER)
        return [
            PersonSummary(each, keys.get(each.id, 0), of.cost, _later(seen.get(each.id), of.day))
            for each in found
            for of in (used.get(each.id, _UNUSED),)
        ]

    async def costs_of_keys(self, actor: Actor, project_id: str) -> Mapping[str, Decimal]:
        """Return the cost of each key of a project in 30 days; keys without requests are absent."""
        used = await self._used(actor, By.KEY, project_id)
        return {key: each.cost for key, each in used.items()}

    async def spending(
        self, actor: Actor, projects: Iterable[str]
    ) -> Mapping[str, Sequence[Spending]]:
        """Budgets of these projects, and what is spent of them."""
        return await self._reader(actor).of_projects(
            await self._budgets(actor, "project", projects)
        )

    async def spending_of_people(
        self, actor: Actor, users: Iterable[str]
    ) -> Mapping[str, Sequence[Spending]]:
        """Budgets of these people, and what is spent of them in all projects."""
        return await self._reader(actor).of_people(await self._budgets(actor, "user", users))

    def _reader(self, actor: Actor) -> SpendingReader:
        return SpendingReader(self._usage, actor, None, self._clock())

    async def _budgets(
        self, actor: Actor, kind: str, ids: Iterable[str]
    ) -> Mapping[str, Sequence[Budget]]:
        owners = {id: f"{kind}:{id}" for id in ids}
        async with self._store.reading() as repositories:
            await require(repositories, actor, Action.USERS_SEE)
            bounds = await repositories.keys.bounds_of(tuple(owners.values()))
        return {id: bounds[owner].budgets for id, owner in owners.items()}

    async def _used(
        self, actor: Actor, by: By, project_id: str | None = None
    ) -> Mapping[str, Used]:
        midnight = self._clock().astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        return await self._usage.used(actor, by, midnight - timedelta(days=DAYS - 1), project_id)


def _later(one: datetime | None, other: datetime | None) -> datetime | None:
    if one is None or other is None:
        return one or other
    return max(one, other)


def _sums(counts: Iterable[tuple[str, int]]) -> Mapping[str, int]:
    found: dict[str, int] = {}
    for id, count in counts:
        found[id] = found.get(id, 0) + count
    return found


@dataclass(frozen=True, slots=True)
class WatchedKey:
    """A key that works, and its project."""

    project: Project
    key: ApiKey


@dataclass(frozen=True, slots=True)
class WatchedBudget:
    """A budget of a key, a project or a person, and what is spent of it."""

    owner: WatchedKey | Project | User
    spending: Spending


@dataclass(frozen=True, slots=True)
class ExpiringKey:
    """A key that works, and the address of the person it derives from (empty: nobody)."""

    project: Project
    key: ApiKey
    expires_at: datetime
    email: str = field(repr=False)


class Watching:
    """Asks for each fact once for all accounts."""

    def __init__(self, store: AccountStore, usage: UsageReports, clock: Clock) -> None:
        self._store = store
        self._usage = usage
        self._clock = clock

    async def budgets(self) -> Sequence[WatchedBudget]:
        """Every budget of keys that work, projects in use, and people who may sign in."""
        now = self._clock()
        async with self._store.reading() as repositories:
            projects = await _projects(repositories)
            users = await repositories.people.every()
            people = {each.id: each for each in users if each.disabled_at is None}
            owners = [*(f"project:{id}" for id in projects), *(f"user:{id}" for id in people)]
            bounds = await repositories.keys.bounds_of(owners)
            keys = _working(await repositories.keys.budgeted(), projects, now)
        reader = SpendingReader(self._usage, SYSTEM, None, now)
        of_projects = await reader.of_projects(
            {id: found for id in projects if (found := bounds[f"project:{id}"].budgets)}
        )
        of_people = await reader.of_people(
            {id: found for id in people if (found := bounds[f"user:{id}"].budgets)}
        )
        of_keys = await reader.of_keys({key.id: key.bounds.budgets for key in keys})
        return [
            *(WatchedBudget(projects[id], one) for id in of_projects for one in of_projects[id]),
            *(WatchedBudget(people[id], one) for id in of_people for one in of_people[id]),
            *(
                WatchedBudget(WatchedKey(projects[key.project_id], key), one)
                for key in keys
                for one in of_keys[key.id]
            ),
        ]

    async def expiring(self, until: datetime) -> Sequence[ExpiringKey]:
        """Every key that works now and expires until then."""
        now = self._clock()
        found: list[ExpiringKey] = []
        async with self._store.reading() as repositories:
            keys = await repositories.keys.expiring(now, until)
            if not keys:
                return ()
            projects = await _projects(repositories)
            emails: dict[str, str] = {}
            for key in _working(keys, projects, now):
                if key.person and key.person not in emails:
                    user = await repositories.people.find(key.person)
                    emails[key.person] = user.email if user is not None else ""
                assert key.expires_at is not None
                email = emails.get(key.person, "")
                found.append(ExpiringKey(projects[key.project_id], key, key.expires_at, email))
        return found


async def _projects(repositories: Repositories) -> Mapping[str, Project]:
    every = await repositories.projects.every()
    return {each.id: each for each in every if each.archived_at is None}


def _working(
    keys: Sequence[ApiKey], projects: Mapping[str, Project], now: datetime
) -> Sequence[ApiKey]:
    return [key for key in keys if key.project_id in projects and key.state(now) is KeyState.ACTIVE]
