"""Users and projects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import RowMapping, and_, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from causerie.accounts.people import (
    LinkedIdentity,
    Membership,
    PersonStatus,
    Project,
    ProjectMember,
    Role,
    User,
)
from causerie.store.repositories.rows import (
    insert,
    nouns_of,
    one_of,
    part_of,
    row_of,
    update,
    upsert,
)
from causerie.store.tables import departures, identities, memberships, projects, users

# The columns of a user and of their membership that :func:`person_status_of` reads.
PERSON_STATUS = (
    users.c.name.label("person_name"),
    users.c.operator.label("person_operator"),
    users.c.disabled_at.label("person_disabled_at"),
    memberships.c.role.label("person_role"),
)


def person_status_of(row: RowMapping) -> PersonStatus:
    """Of a row with the columns ``PERSON_STATUS``."""
    role = row["person_role"]
    return PersonStatus(
        name=row["person_name"],
        operator=row["person_operator"],
        disabled=row["person_disabled_at"] is not None,
        role=Role(role) if role else None,
    )


@dataclass(frozen=True, slots=True)
class SqlPeople:
    """Implements :class:`~causerie.accounts.ports.PeopleRepository`."""

    connection: AsyncConnection
    writing: bool

    async def add(self, user: User) -> None:
        await insert(self.connection, users, user)

    async def change(self, user: User) -> None:
        await update(self.connection, users, users.c.id == user.id, user)

    async def find(self, id: str) -> User | None:
        found = await self.connection.execute(one_of(users, id, writing=self.writing))
        row = found.mappings().first()
        return User(**row) if row else None

    async def by_email(self, email: str) -> User | None:
        found = await self.connection.execute(select(users).where(users.c.email == email))
        row = found.mappings().first()
        return User(**row) if row else None

    async def every(self) -> Sequence[User]:
        found = await self.connection.execute(select(users).order_by(users.c.email))
        return await nouns_of(found, lambda row: User(**row))

    async def person_status(self, user_id: str, project_id: str | None) -> PersonStatus | None:
        query = (
            select(*PERSON_STATUS)
            .select_from(users)
            .outerjoin(
                memberships,
                and_(memberships.c.user_id == users.c.id, memberships.c.project_id == project_id),
            )
            .where(users.c.id == user_id)
        )
        row = (await self.connection.execute(query)).mappings().first()
        return person_status_of(row) if row else None

    async def operators(self) -> int:
        active = users.c.operator, users.c.disabled_at.is_(None)
        query = select(users.c.id).where(*active).order_by(users.c.id)
        return len((await self.connection.execute(query.with_for_update())).all())

    async def link(self, identity: LinkedIdentity) -> None:
        await insert(self.connection, identities, identity)

    async def by_identity(self, issuer: str, subject: str) -> User | None:
        query = (
            select(users)
            .join(identities, identities.c.user_id == users.c.id)
            .where(identities.c.issuer == issuer, identities.c.subject == subject)
        )
        row = (await self.connection.execute(query)).mappings().first()
        return User(**row) if row else None

    async def identities(self, user_id: str) -> Sequence[LinkedIdentity]:
        query = (
            select(identities)
            .where(identities.c.user_id == user_id)
            .order_by(identities.c.linked_at, identities.c.issuer, identities.c.subject)
        )
        found = await self.connection.execute(query.with_for_update())
        return [LinkedIdentity(**row) for row in found.mappings()]

    async def unlink(self, identity: LinkedIdentity) -> None:
        await self.connection.execute(
            identities.delete().where(
                identities.c.issuer == identity.issuer,
                identities.c.subject == identity.subject,
                identities.c.user_id == identity.user_id,
            )
        )


@dataclass(frozen=True, slots=True)
class SqlProjects:
    """Implements :class:`~causerie.accounts.ports.ProjectRepository`."""

    connection: AsyncConnection
    writing: bool

    async def add(self, project: Project) -> None:
        await insert(self.connection, projects, project)

    async def change(self, project: Project) -> None:
        values = row_of(projects, project)
        del values["recording_days"]  # whoever renames it must not switch that on again
        await self.connection.execute(
            projects.update().where(projects.c.id == project.id).values(values)
        )

    async def set_recording(self, id: str, days: int | None) -> None:
        await self.connection.execute(
            projects.update().where(projects.c.id == id).values(recording_days=days)
        )

    async def find(self, id: str) -> Project | None:
        found = await self.connection.execute(one_of(projects, id, writing=self.writing))
        row = found.mappings().first()
        return Project(**row) if row else None

    async def every(self) -> Sequence[Project]:
        query = select(projects).order_by(func.lower(projects.c.name), projects.c.id)
        return await nouns_of(await self.connection.execute(query), lambda row: Project(**row))

    async def of(self, user_id: str) -> Sequence[tuple[Project, Membership]]:
        query = (
            select(projects, memberships.c.role, memberships.c.since, memberships.c.from_group)
            .join(memberships, memberships.c.project_id == projects.c.id)
            .where(memberships.c.user_id == user_id)
            .order_by(func.lower(projects.c.name), projects.c.id)
        )

        def joined(row: RowMapping) -> tuple[Project, Membership]:
            project = Project(**part_of(projects, row))
            role, since, group = Role(row["role"]), row["since"], row["from_group"]
            return project, Membership(project.id, user_id, role, since, group)

        return await nouns_of(await self.connection.execute(query), joined)

    async def membership(self, project_id: str, user_id: str) -> Membership | None:
        """Somebody's part in a project."""
        query = select(memberships).where(
            memberships.c.project_id == project_id, memberships.c.user_id == user_id
        )
        row = (await self.connection.execute(query)).mappings().first()
        return Membership(**{**row, "role": Role(row["role"])}) if row else None

    async def members(self, project_id: str) -> Sequence[ProjectMember]:
        query = (
            select(users, memberships.c.role, memberships.c.since, memberships.c.from_group)
            .join(memberships, memberships.c.user_id == users.c.id)
            .where(memberships.c.project_id == project_id)
            .order_by(func.lower(users.c.name), users.c.id)
        )
        return await nouns_of(await self.connection.execute(query), _member)

    async def join(self, membership: Membership) -> None:
        values = row_of(memberships, membership)
        given = {"role": membership.role, "from_group": membership.from_group}
        await upsert(self.connection, memberships, values, given)

    async def leave(self, project_id: str, user_id: str, at: datetime) -> None:
        values = {"project_id": project_id, "user_id": user_id, "at": at}
        await upsert(self.connection, departures, values)
        await self.connection.execute(
            memberships.delete().where(
                memberships.c.project_id == project_id, memberships.c.user_id == user_id
            )
        )

    async def left(self, project_id: str, user_id: str) -> datetime | None:
        found: datetime | None = await self.connection.scalar(
            select(departures.c.at).where(
                departures.c.project_id == project_id, departures.c.user_id == user_id
            )
        )
        return found

    async def owners(self, project_id: str) -> int:
        query = select(memberships.c.user_id).where(
            memberships.c.project_id == project_id, memberships.c.role == Role.OWNER
        )
        return len((await self.connection.execute(query.with_for_update())).all())


def _member(row: RowMapping) -> ProjectMember:
    user = User(**part_of(users, row))
    return ProjectMember(user, Role(row["role"]), row["since"], row["from_group"])
