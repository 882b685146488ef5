"""API keys with secrets and bounds, operator keys, credits, and the numbered list of changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Literal, cast

from msgspec import structs
from sqlalchemy import RowMapping, Select, and_, func, or_, select

from causerie.access.allowed import ALL, Access, AccessRule
from causerie.hosted.accounts.bounds import (
    SCOPES,
    UNBOUNDED,
    Budget,
    Credit,
    Limit,
    LimitsAndBudgets,
    Unit,
    bounded,
    own_bounds,
)
from causerie.hosted.accounts.keys import ApiKey, Grant, KeySecret, OperatorKey
from causerie.hosted.store.people import PERSON_STATUS, person_status_of
from causerie.hosted.store.repository import SqlRepository, SqlRows, part_of
from causerie.hosted.store.tables import access as access_rules
from causerie.hosted.store.tables import (
    api_keys,
    budgets,
    change_counter,
    changes,
    credits,
    key_secrets,
    limits,
    memberships,
    operator_keys,
    projects,
    users,
)
from causerie.protocol.money import amount_of


class SqlCredits(SqlRows[Credit]):
    table, kind = credits, Credit

    async def of(self, project_id: str) -> Sequence[Credit]:
        query = select(credits).where(credits.c.project_id == project_id)
        return await self._read_records(query.order_by(credits.c.at.desc(), credits.c.id))

    async def totals(self) -> Mapping[str, Decimal]:
        query = select(credits.c.project_id, func.sum(credits.c.amount))
        found = await self._execute(query.group_by(credits.c.project_id))
        return {project: total for project, total in found}  # noqa: C416 - rows, not pairs

    async def total(self, project_id: str) -> Decimal | None:
        """Return the sum of a project's credits; ``None`` without any."""
        query = select(func.sum(credits.c.amount)).where(credits.c.project_id == project_id)
        return cast(Decimal | None, await self._scalar(query))


class SqlOperatorKeys(SqlRows[OperatorKey]):
    table, kind = operator_keys, OperatorKey

    async def every(self) -> Sequence[OperatorKey]:
        """Return the operator keys that are not deleted, newest first."""
        query = select(operator_keys).where(operator_keys.c.deleted_at.is_(None))
        query = query.order_by(operator_keys.c.created_at.desc(), operator_keys.c.id)
        return await self._read_records(query)


_CHANGES_KEPT = timedelta(hours=1)
_OWNERS_AT_ONCE = 500  # in one statement: a database takes some 32,000 values, each costs time


class SqlKeys(SqlRepository):
    """API keys, their secrets and bounds, and announcements of changes.

    Several keys are those that are not deleted, newest first. Bounds are of ``key:ID``,
    ``user:ID``, ``project:ID``, ``tag:NAME`` and ``provider:NAME``; announcements tell all
    processes that one of these has changed.
    """

    async def add(self, key: ApiKey, secret: KeySecret) -> None:
        """Insert a key and its secret, but not its bounds."""
        await self._insert(api_keys, key)
        await self._insert(key_secrets, secret)

    async def change(self, key: ApiKey) -> None:
        """Change all of a key except its bounds."""
        await self._overwrite_row_of(api_keys, key)

    async def find(self, id: str) -> ApiKey | None:
        """Return a key with its bounds, also a deleted one."""
        if self.writing:  # a row is locked by itself, without those that are joined to it
            await self._read_first_row(self._build_locking_select_by_id(api_keys, id))
        row = await self._read_first_row(_select_keys_and_people().where(api_keys.c.id == id))
        return replace(_build_bare_key(row), bounds=await self.bounds(f"key:{id}")) if row else None

    async def of(self, project_id: str) -> Sequence[ApiKey]:
        query = _select_keys_and_people().where(api_keys.c.project_id == project_id)
        return await self._read_undeleted_keys(query)

    async def derived(self, user_id: str, project_id: str | None = None) -> Sequence[ApiKey]:
        query = _select_keys_and_people().where(api_keys.c.person == user_id)
        if project_id is not None:
            query = query.where(api_keys.c.project_id == project_id)
        return await self._read_undeleted_keys(query)

    async def any_budget(self) -> bool:
        """Return whether anybody has a budget in money."""
        query = select(budgets.c.owner).where(budgets.c.unit == Unit.MONEY).limit(1)
        return await self._scalar(query) is not None

    async def budgeted(self) -> Sequence[ApiKey]:
        owners = select(budgets.c.owner)
        query = _select_keys_and_people().where(("key:" + api_keys.c.id).in_(owners))
        return await self._read_undeleted_keys(query)

    async def expiring(self, until: datetime) -> Sequence[ApiKey]:
        ends = api_keys.c.expires_at
        query = _select_keys_and_people().where(ends > self.now, ends <= until)
        return await self._read_undeleted_keys(query)

    async def _read_undeleted_keys(self, query: Select[Any]) -> Sequence[ApiKey]:
        query = query.where(api_keys.c.deleted_at.is_(None)).order_by(
            api_keys.c.created_at.desc(), api_keys.c.id
        )
        keys = await self._read_all(query, _build_bare_key)
        bounds = await self.bounds_of([f"key:{key.id}" for key in keys])
        return [replace(key, bounds=bounds[f"key:{key.id}"]) for key in keys]

    async def counts(self, by: Literal["project_id", "person"]) -> Mapping[str, int]:
        """Count undeleted keys by project or person id; keys of nobody count under the empty id."""
        place = api_keys.c[by]
        query = select(place, func.count()).where(api_keys.c.deleted_at.is_(None)).group_by(place)
        return {row[0]: row[1] for row in await self._execute(query)}

    async def withdraw(self, keys: Sequence[ApiKey]) -> None:
        withdrawn = api_keys.update().where(api_keys.c.id.in_(key.id for key in keys))
        await self._execute(withdrawn.values(withdrawn_at=self.now))

    async def rotate(self, secret: KeySecret, old_until: datetime) -> None:
        """Add a secret to its key, whose older secrets expire at ``old_until`` at the latest."""
        of = key_secrets.c
        later = of.key_id == secret.key_id, or_(of.expires_at.is_(None), of.expires_at > old_until)
        await self._execute(key_secrets.update().where(*later).values(expires_at=old_until))
        await self._insert(key_secrets, secret)

    async def set_bounds(self, bounds: Mapping[str, LimitsAndBudgets]) -> None:
        """Replace the limits and budgets of the owners, which are the keys of ``bounds``."""
        owners = [*bounds]
        for first in range(0, len(owners), _OWNERS_AT_ONCE):
            some = owners[first : first + _OWNERS_AT_ONCE]
            for table in (limits, budgets):
                await self._execute(table.delete().where(table.c.owner.in_(some)))
        limited, budgeted = list[dict[str, Any]](), list[dict[str, Any]]()
        for owner, both in bounds.items():
            limited += [{"owner": owner, **structs.asdict(one)} for one in both.limits]
            for one in both.budgets:
                budgeted.append({"owner": owner, **structs.asdict(one), "amount": one.whole})
        await self._insert_rows(limits, limited)
        await self._insert_rows(budgets, budgeted)

    async def scoped(self) -> Mapping[str, LimitsAndBudgets]:
        """Return the limits and budgets of all tags and providers with a budget, by owner."""
        of = budgets.c.owner
        query = select(of).where(or_(*(of.startswith(f"{kind}:") for kind in SCOPES))).distinct()
        return await self.bounds_of([*(await self._execute(query)).scalars()])

    async def bounds(self, owner: str) -> LimitsAndBudgets:
        return (await self.bounds_of([owner]))[owner]

    async def bounds_of(self, owners: Sequence[str]) -> Mapping[str, LimitsAndBudgets]:
        found_limits: dict[str, list[Limit]] = {owner: [] for owner in owners}
        found_budgets: dict[str, list[Budget]] = {owner: [] for owner in owners}
        for first in range(0, len(owners), _OWNERS_AT_ONCE):
            some = owners[first : first + _OWNERS_AT_ONCE]
            query = select(limits).where(limits.c.owner.in_(some)).order_by(limits.c.model)
            for values in map(dict, (await self._execute(query)).mappings()):
                found_limits[values.pop("owner")].append(Limit(**values))
            query = select(budgets).where(budgets.c.owner.in_(some))
            query = query.order_by(budgets.c.model, budgets.c.unit, budgets.c.period)
            for values in map(dict, (await self._execute(query)).mappings()):
                count = values["amount"]
                money = values["unit"] is Unit.MONEY
                values["amount"] = amount_of(count) if money else Decimal(count)
                found_budgets[values.pop("owner")].append(Budget(**values))
        return {
            owner: LimitsAndBudgets(tuple(found_limits[owner]), tuple(found_budgets[owner]))
            for owner in owners
        }

    async def set_access(self, owner: str, access: Access) -> None:
        await self._delete_matching(access_rules, owner=owner)
        if access != ALL:
            await self._execute(access_rules.insert().values(owner=owner, **structs.asdict(access)))

    async def access(self, owners: Sequence[str]) -> Mapping[str, Access]:
        """Return restrictions of access by owner, where any; a member is `member:PROJECT/USER`."""
        query = select(access_rules).where(access_rules.c.owner.in_(owners))
        found = (await self._execute(query)).mappings()
        return {values.pop("owner"): Access(**values) for values in map(dict, found)}

    async def access_rules(self, project_id: str, user_id: str) -> tuple[AccessRule, ...]:
        """Return the access rules of a project, and of a user in general and as its member."""
        whose = {f"project:{project_id}": "project"}
        if user_id:
            whose |= {f"user:{user_id}": "person", own_bounds(project_id, user_id): "member"}
        found = await self.access([*whose])
        return tuple(AccessRule(whose[owner], rule) for owner, rule in found.items())

    async def announce(self, *subjects: str) -> None:
        number = await self._scalar(
            change_counter.update()
            .values(number=change_counter.c.number + len(subjects))
            .returning(change_counter.c.number)
        )
        first = number - len(subjects) + 1
        rows = [
            {"number": number, "subject": subject, "at": self.now}
            for number, subject in enumerate(subjects, first)
        ]
        await self._execute(changes.insert(), rows)
        await self._execute(changes.delete().where(changes.c.at < self.now - _CHANGES_KEPT))

    async def changes(self, after: int) -> tuple[int, Sequence[str] | None]:
        """Return the number of the latest change, and the subjects of changes since ``after``.

        They are ``None`` if not all of them are stored.
        """
        latest = await self._scalar(select(change_counter.c.number)) or 0
        if latest == after:
            return latest, ()
        query = select(changes.c.subject).where(
            changes.c.number > after, changes.c.number <= latest
        )
        found = list((await self._execute(query)).scalars())
        return latest, found if len(found) == latest - after else None

    async def grant(self, digest: bytes) -> Grant | None:
        query = (
            _select_keys_and_people()
            .add_columns(
                key_secrets.c.expires_at.label("secret_until"),
                projects.c.archived_at.label("archived_at"),
                projects.c.recording_days.label("recording_days"),
                projects.c.networks.label("project_networks"),
            )
            .join(key_secrets, key_secrets.c.key_id == api_keys.c.id)
            .join(projects, projects.c.id == api_keys.c.project_id)
            .where(key_secrets.c.digest == digest)
        )
        row = await self._read_first_row(query)
        if row is None:
            return None
        key = _build_bare_key(row)
        stopped = (key.disabled_at, key.deleted_at, row["archived_at"])
        works = all(each is None for each in stopped) and not key.withdrawn
        ends = [end for end in (row["secret_until"], key.expires_at) if end is not None]
        found = await self.granted(
            key, networks=row["project_networks"], recorded=row["recording_days"] is not None
        )
        return replace(found, works=works, until=min(ends, default=None))

    async def granted(
        self, key: ApiKey, *, networks: tuple[str, ...] | None, recorded: bool
    ) -> Grant:
        """Return the grant of a working key: bounds, access rules, and the project's networks."""
        project, person = key.project_id, key.person
        names = [f"key:{key.id}", f"project:{project}", own_bounds(project)]
        names += [f"user:{person}", own_bounds(project, person)] if person else []
        bounds = await self.bounds_of(names)
        paid = SqlCredits(self.connection, self.cipher, self.now, self.writing)
        put_in = await paid.total(project)
        return Grant(
            key=replace(key, bounds=bounds[names[0]]),
            works=True,
            until=None,
            project_bounds=bounded(bounds[names[1]].tightened(bounds[names[2]]), put_in),
            person_bounds=bounds.get(f"user:{person}", UNBOUNDED),
            member_bounds=bounds.get(own_bounds(project, person), UNBOUNDED),
            access=await self.access_rules(project, person),
            recorded=recorded,
            project_networks=networks,
        )


def _select_keys_and_people() -> Select[Any]:
    of_person = and_(
        memberships.c.project_id == api_keys.c.project_id, memberships.c.user_id == users.c.id
    )
    return (
        select(api_keys, *PERSON_STATUS)
        .select_from(api_keys)
        .outerjoin(users, users.c.id == api_keys.c.person)
        .outerjoin(memberships, of_person)
    )


def _build_bare_key(row: RowMapping) -> ApiKey:
    status = person_status_of(row) if row["person"] else None
    return ApiKey(**part_of(api_keys, row), person_status=status)
