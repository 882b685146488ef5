"""All projects and all people at once, for operators: spend, keys, budgets, last activity."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from causerie.accounts.authorization import Clock, require
from causerie.accounts.bounds import Budget
from causerie.accounts.people import Actor, Project, User
from causerie.accounts.ports import AccountStore
from causerie.accounts.rights import Action
from causerie.accounts.spending import Spending, SpendingReader
from causerie.accounts.usage import By, UsageReports, Used

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
