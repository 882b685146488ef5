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
from causerie.accounts.usage import By, Step, UsageQuery, UsageReports

DAYS = 30
_NOTHING = Decimal(0)


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


@dataclass(frozen=True, slots=True)
class _Used:
    cost: Decimal = _NOTHING
    day: datetime | None = None


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
            for of in (used.get(each.id, _Used()),)
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
            PersonSummary(
                each,
                keys.get(each.id, 0),
                of.cost,
                max(filter(None, [seen.get(each.id), of.day]), default=None),
            )
            for each in found
            for of in (used.get(each.id, _Used()),)
        ]

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

    async def _used(self, actor: Actor, by: By) -> Mapping[str, _Used]:
        midnight = self._clock().astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        since, until = midnight - timedelta(days=DAYS - 1), midnight + timedelta(days=1)
        found: dict[str, _Used] = {}
        for each in await self._usage.of_all(actor, UsageQuery(since, until, Step.DAY, (by,))):
            before = found.get(each.group[by], _Used())
            day = max(filter(None, [before.day, each.start]), default=None)
            found[each.group[by]] = _Used(before.cost + each.cost, day)
        return found


def _sums(counts: Iterable[tuple[str, int]]) -> Mapping[str, int]:
    found: dict[str, int] = {}
    for id, count in counts:
        found[id] = found.get(id, 0) + count
    return found
