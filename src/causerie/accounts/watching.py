"""Budgets and keys of all accounts, for the service itself: it notifies people of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from causerie.accounts.authorization import Clock
from causerie.accounts.keys import ApiKey, KeyState
from causerie.accounts.people import SYSTEM, Project, User
from causerie.accounts.ports import AccountStore, Repositories
from causerie.accounts.spending import Spending, SpendingReader
from causerie.accounts.usage import UsageReports


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
    """Those that are not archived, by their ids."""
    every = await repositories.projects.every()
    return {each.id: each for each in every if each.archived_at is None}


def _working(
    keys: Sequence[ApiKey], projects: Mapping[str, Project], now: datetime
) -> Sequence[ApiKey]:
    return [key for key in keys if key.project_id in projects and key.state(now) is KeyState.ACTIVE]
