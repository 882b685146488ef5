"""Users, groups that directories provision, projects, and the audit log, which only grows."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import cast

from sqlalchemy import ColumnElement, RowMapping, Table, and_, func, not_, or_, select
from sqlalchemy.exc import IntegrityError

from causerie.hosted.accounts.audit import (
    CONFIGURATION,
    ENTRY_KINDS,
    AuditEntry,
    AuditFilter,
    AuditKind,
)
from causerie.hosted.accounts.people import (
    IdentityGroup,
    LinkedIdentity,
    Membership,
    PersonStatus,
    Project,
    ProjectMember,
    Role,
    User,
)
from causerie.hosted.accounts.records import Taken
from causerie.hosted.store.repository import SqlRepository, SqlRows, part_of, row_of, upsert
from causerie.hosted.store.tables import (
    api_keys,
    audit,
    departures,
    identities,
    memberships,
    operator_keys,
    projects,
    users,
)
from causerie.hosted.store.tables import identity_group_members as members
from causerie.hosted.store.tables import identity_groups as groups

# The columns of a user and of their membership that :func:`person_status_of` reads.
PERSON_STATUS = (
    users.c.name.label("person_name"),
    users.c.operator.label("person_operator"),
    users.c.rights.label("person_rights"),
    users.c.disabled_at.label("person_disabled_at"),
    memberships.c.role.label("person_role"),
)


def person_status_of(row: RowMapping) -> PersonStatus:
    """Return the status in a row with the columns ``PERSON_STATUS``."""
    return PersonStatus(
        name=row["person_name"],
        operator=row["person_operator"],
        disabled=row["person_disabled_at"] is not None,
        role=row["person_role"],
        rights=row["person_rights"],
    )


class SqlPeople(SqlRows[User]):
    """Users and their identities; ``link`` raises :class:`Taken` for a known one."""

    table, kind = users, User

    async def by_email(self, email: str) -> User | None:
        return await self._row(select(users).where(users.c.email == email))

    async def every(self) -> Sequence[User]:
        return await self._rows(select(users).order_by(users.c.email))

    async def search(
        self, where: Mapping[str, str], start: int, count: int
    ) -> tuple[int, Sequence[User]]:
        """Return number and part of those who fit, oldest first, without deleted ones."""
        gone = and_(users.c.disabled_at.is_not(None), users.c.user_name == "")
        query = select(users).where(not_(gone), *(_fits(*each) for each in where.items()))
        return await self._page(query, start, count)

    async def person_status(self, user_id: str, project_id: str | None) -> PersonStatus | None:
        """Return the status of a user, read without a lock."""
        query = (
            select(*PERSON_STATUS)
            .select_from(users)
            .outerjoin(
                memberships,
                and_(memberships.c.user_id == users.c.id, memberships.c.project_id == project_id),
            )
            .where(users.c.id == user_id)
        )
        return await self._one(query, person_status_of)

    async def operators(self) -> int:
        """Return the number of enabled ones."""
        active = users.c.operator, users.c.disabled_at.is_(None)
        query = select(users.c.id).where(*active).order_by(users.c.id)
        return len((await self._execute(query.with_for_update())).all())

    async def link(self, identity: LinkedIdentity) -> None:
        await self._insert(identities, identity)

    async def by_identity(self, issuer: str, subject: str) -> User | None:
        query = (
            select(users)
            .join(identities, identities.c.user_id == users.c.id)
            .where(identities.c.issuer == issuer, identities.c.subject == subject)
        )
        return await self._row(query)

    async def identities(self, user_id: str) -> Sequence[LinkedIdentity]:
        query = (
            select(identities)
            .where(identities.c.user_id == user_id)
            .order_by(identities.c.linked_at, identities.c.issuer, identities.c.subject)
        )
        found = await self._execute(query.with_for_update())
        return [LinkedIdentity(**row) for row in found.mappings()]

    async def unlink(self, identity: LinkedIdentity) -> None:
        names = ("issuer", "subject", "user_id")
        where = (identities.c[name] == getattr(identity, name) for name in names)
        await self._execute(identities.delete().where(*where))


def _fits(name: str, value: str) -> ColumnElement[bool]:
    if name == "user_name":  # not case-exact; without one it is the address (RFC 7643, section 4.1)
        own = func.lower(users.c.user_name) == value.lower()
        return or_(own, and_(users.c.user_name == "", users.c.email == value.lower()))
    return users.c[name] == (value.lower() if name == "email" else value)


class SqlProjects(SqlRows[Project]):
    """Projects and memberships; several are by name."""

    table, kind = projects, Project

    async def change(self, project: Project, /) -> None:
        """Change all but the recording days."""
        values = row_of(projects, project)
        del values["recording_days"]  # whoever renames it must not switch that on again
        await self._execute(projects.update().where(projects.c.id == project.id).values(values))

    async def set_recording(self, id: str, days: int | None) -> None:
        statement = projects.update().where(projects.c.id == id)
        await self._execute(statement.values(recording_days=days))

    async def every(self) -> Sequence[Project]:
        query = select(projects).order_by(func.lower(projects.c.name), projects.c.id)
        return await self._rows(query)

    async def of(self, user_id: str) -> Sequence[tuple[Project, Membership]]:
        query = (
            select(projects, memberships.c.role, memberships.c.since, memberships.c.from_group)
            .join(memberships, memberships.c.project_id == projects.c.id)
            .where(memberships.c.user_id == user_id)
            .order_by(func.lower(projects.c.name), projects.c.id)
        )

        def joined(row: RowMapping) -> tuple[Project, Membership]:
            project = Project(**part_of(projects, row))
            given = row["role"], row["since"], row["from_group"]
            return project, Membership(project.id, user_id, *given)

        return await self._all(query, joined)

    async def membership(self, project_id: str, user_id: str) -> Membership | None:
        query = select(memberships).where(*_of_member(memberships, project_id, user_id))
        return await self._one(query, lambda row: Membership(**row))

    async def members(self, project_id: str) -> Sequence[ProjectMember]:
        query = (
            select(users, memberships.c.role, memberships.c.since, memberships.c.from_group)
            .join(memberships, memberships.c.user_id == users.c.id)
            .where(memberships.c.project_id == project_id)
            .order_by(func.lower(users.c.name), users.c.id)
        )
        return await self._all(query, _member_of)

    async def join(self, membership: Membership) -> None:
        """Add a member, or change the role of one."""
        values = row_of(memberships, membership)
        given = {"role": membership.role, "from_group": membership.from_group}
        await upsert(self.connection, memberships, values, given)

    async def leave(self, project_id: str, user_id: str, at: datetime) -> None:
        values = {"project_id": project_id, "user_id": user_id, "at": at}
        await upsert(self.connection, departures, values)
        await self._execute(
            memberships.delete().where(*_of_member(memberships, project_id, user_id))
        )

    async def left(self, project_id: str, user_id: str) -> datetime | None:
        """Return when a user left a project for the last time."""
        query = select(departures.c.at).where(*_of_member(departures, project_id, user_id))
        return cast(datetime | None, await self._scalar(query))

    async def owners(self, project_id: str) -> int:
        """Return the number of owners."""
        query = select(memberships.c.user_id).where(
            memberships.c.project_id == project_id, memberships.c.role == Role.OWNER
        )
        return len((await self._execute(query.with_for_update())).all())

    async def owner_emails(self) -> Mapping[str, Sequence[str]]:
        """Return the addresses of the enabled owners of each project."""
        query = (
            select(memberships.c.project_id, users.c.email)
            .join(users, users.c.id == memberships.c.user_id)
            .where(memberships.c.role == Role.OWNER, users.c.disabled_at.is_(None))
            .order_by(memberships.c.project_id, users.c.email)
        )
        found: dict[str, list[str]] = {}
        for project_id, email in await self._execute(query):
            found.setdefault(project_id, []).append(email)
        return found


def _of_member(table: Table, project_id: str, user_id: str) -> tuple[ColumnElement[bool], ...]:
    return table.c.project_id == project_id, table.c.user_id == user_id


def _member_of(row: RowMapping) -> ProjectMember:
    user = User(**part_of(users, row))
    return ProjectMember(user, row["role"], row["since"], row["from_group"])


_NAMED = (api_keys, users, projects, operator_keys)


@dataclass(frozen=True, slots=True)
class SqlAudit(SqlRepository):
    """The audit log, which only grows; ``added`` are the entries of this transaction."""

    added: list[AuditEntry] = field(default_factory=list)

    async def add(self, *entries: AuditEntry) -> None:
        self.added.extend(entries)
        rows = [row_of(audit, entry) for entry in entries]
        for row in rows:
            del row["id"]
        if rows:
            await self._execute(audit.insert(), rows)

    async def find(self, filter: AuditFilter) -> Sequence[AuditEntry]:
        """Return the entries that fit, newest first."""
        query = select(audit).order_by(audit.c.id.desc()).limit(filter.count)
        for name in ("project_id", "actor", "action", "subject"):
            wanted = getattr(filter, name)
            if wanted is not None:
                query = query.where(audit.c[name] == wanted)
        if filter.before is not None:
            query = query.where(audit.c.id < filter.before)
        if filter.kind is not None:
            query = query.where(_has_audit_kind(filter.kind))
        page = query.subquery()
        named = (
            select(
                page,
                func.coalesce(*(each.c.name for each in _NAMED)).label("subject_name"),
                func.coalesce(api_keys.c.deleted_at, operator_keys.c.deleted_at)
                .is_not(None)
                .label("subject_deleted"),
            )
            .select_from(page)
            .order_by(page.c.id.desc())
        )
        for each in _NAMED:
            named = named.outerjoin(each, each.c.id == page.c.subject)
        return await self._all(named, lambda row: AuditEntry(**row))


def _has_audit_kind(kind: AuditKind) -> ColumnElement[bool]:
    labels = [label for label, of in ENTRY_KINDS.items() if of is kind]
    entries = [audit.c.subject.startswith(f"{label}:", autoescape=True) for label in labels]
    configured = and_(audit.c.action.startswith(CONFIGURATION), or_(False, *entries))
    return or_(audit.c.action.startswith(f"{kind}.", autoescape=True), configured)


class SqlGroups(SqlRows[IdentityGroup]):
    """Groups of directories; ``join`` raises :class:`Taken` for an unknown user."""

    table, kind = groups, IdentityGroup

    async def remove(self, id: str) -> None:
        """Remove a group without members."""
        await self._execute(groups.delete().where(groups.c.id == id))

    async def search(
        self, provider: str, where: Mapping[str, str], start: int, count: int
    ) -> tuple[int, Sequence[IdentityGroup]]:
        query = select(groups).where(groups.c.provider == provider)
        for name, value in where.items():
            if name == "member":
                held = select(members.c.group_id).where(members.c.user_id == value)
                query = query.where(groups.c.id.in_(held))
            elif name == "name":  # which is not case-exact (RFC 7643, section 4.2)
                query = query.where(func.lower(groups.c.name) == value.lower())
            else:
                query = query.where(groups.c[name] == value)
        return await self._page(query, start, count)

    async def members(self, group_ids: Collection[str]) -> Mapping[str, Sequence[User]]:
        found: dict[str, list[User]] = {id: [] for id in group_ids}
        query = (
            select(members.c.group_id, users)
            .join(users, users.c.id == members.c.user_id)
            .where(members.c.group_id.in_(found))
            .order_by(users.c.created_at, users.c.id)
        )
        for row in await self._all(query, dict):
            found[row.pop("group_id")].append(User(**row))
        return found

    async def join(self, group_id: str, user_ids: Collection[str]) -> None:
        if user_ids:
            rows = [{"group_id": group_id, "user_id": id} for id in sorted(user_ids)]
            try:
                await self._execute(members.insert(), rows)
            except IntegrityError as failure:
                raise Taken(members.name) from failure

    async def leave(self, group_id: str, user_ids: Collection[str]) -> None:
        of_group = members.c.group_id == group_id, members.c.user_id.in_(user_ids)
        await self._execute(members.delete().where(*of_group))

    async def leave_all(self, user_id: str) -> None:
        await self._execute(members.delete().where(members.c.user_id == user_id))

    async def names(self, provider: str, user_id: str) -> frozenset[str]:
        """Return the names and external ids of a user's groups."""
        query = (
            select(groups.c.name, groups.c.external_id)
            .join(members, members.c.group_id == groups.c.id)
            .where(members.c.user_id == user_id, groups.c.provider == provider)
        )
        return frozenset(each for row in await self._execute(query) for each in row if each)
