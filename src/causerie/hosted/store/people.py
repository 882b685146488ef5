"""Users and their sign-in, groups that directories provision, projects, and the audit log, which
only grows.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import cast

from sqlalchemy import ColumnElement, RowMapping, Table, and_, case, func, not_, or_, select

from causerie.errors import StoreUnavailable
from causerie.hosted.accounts.encryption import WrongKey
from causerie.hosted.accounts.keys import OneTimeLink
from causerie.hosted.accounts.passwords import Authenticator, Failures
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
from causerie.hosted.accounts.records import (
    CONFIGURATION,
    ENTRY_KINDS,
    AuditEntry,
    AuditFilter,
    AuditKind,
)
from causerie.hosted.accounts.tokens import Session
from causerie.hosted.store.encrypted import totp_purpose
from causerie.hosted.store.repository import SqlRepository, SqlRows, part_of, row_of, upsert
from causerie.hosted.store.tables import (
    api_keys,
    attempts,
    audit,
    departures,
    identities,
    memberships,
    one_time_links,
    operator_keys,
    projects,
    recovery_codes,
    sessions,
    totp,
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
        query = select(users).where(not_(gone), *(_matches_value(*each) for each in where.items()))
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


def _matches_value(name: str, value: str) -> ColumnElement[bool]:
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

    async def owner_emails(self, reminder: str) -> Mapping[str, Sequence[str]]:
        """Return the addresses of each project's enabled owners who want a reminder."""
        query = (
            select(memberships.c.project_id, users.c.email, users.c.muted)
            .join(users, users.c.id == memberships.c.user_id)
            .where(memberships.c.role == Role.OWNER, users.c.disabled_at.is_(None))
            .order_by(memberships.c.project_id, users.c.email)
        )
        found: dict[str, list[str]] = {}
        for project_id, email, muted in await self._execute(query):
            if reminder not in muted:
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
        await self._insert_rows(audit, rows)

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
        rows = [{"group_id": group_id, "user_id": id} for id in sorted(user_ids)]
        await self._insert_rows(members, rows)

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


class SqlLinks(SqlRows[OneTimeLink]):
    """One-time links; several are those that are neither used nor expired, oldest first."""

    table, kind = one_time_links, OneTimeLink

    async def by_digest(self, digest: bytes) -> OneTimeLink | None:
        return await self._row(select(one_time_links).where(one_time_links.c.digest == digest))

    async def use(self, id: str, at: datetime) -> bool:
        """Use a link up; return false if another use was first."""
        unused = one_time_links.c.id == id, one_time_links.c.used_at.is_(None)
        return await self._wrote_one(one_time_links.update().where(*unused).values(used_at=at))

    async def withdraw(self, *ids: str) -> None:
        await self._execute(one_time_links.delete().where(one_time_links.c.id.in_(ids)))

    async def open(self, project_id: str | None, now: datetime) -> Sequence[OneTimeLink]:
        return await self._open(one_time_links.c.project_id == project_id, now)

    async def derived(self, user_id: str, now: datetime) -> Sequence[OneTimeLink]:
        return await self._open(one_time_links.c.person == user_id, now)

    async def forget(self, created_by: str, email: str, before: datetime) -> None:
        """Delete unused links by this creator that are for this address or expired before."""
        old = or_(one_time_links.c.email == email, one_time_links.c.expires_at <= before)
        await self._execute(
            one_time_links.delete().where(
                one_time_links.c.created_by == created_by, one_time_links.c.used_at.is_(None), old
            )
        )

    async def resets(self, user_id: str, now: datetime) -> Sequence[OneTimeLink]:
        return await self._open(one_time_links.c.user_id == user_id, now)

    async def _open(self, where: ColumnElement[bool], now: datetime) -> Sequence[OneTimeLink]:
        query = (
            select(one_time_links)
            .where(where, one_time_links.c.used_at.is_(None), one_time_links.c.expires_at > now)
            .order_by(one_time_links.c.created_at)
        )
        return await self._rows(query)


class SqlSessions(SqlRows[Session]):
    table, kind = sessions, Session

    async def by_digest(self, digest: bytes) -> Session | None:
        return await self._row(select(sessions).where(sessions.c.digest == digest))

    async def seen(self, id: str, at: datetime) -> None:
        await self._execute(sessions.update().where(sessions.c.id == id).values(seen_at=at))

    async def of(self, user_id: str, now: datetime) -> Sequence[Session]:
        query = (
            select(sessions)
            .where(sessions.c.user_id == user_id, sessions.c.expires_at > now)
            .order_by(sessions.c.seen_at.desc(), sessions.c.id)
        )
        return await self._rows(query)

    async def last_seen(self) -> Mapping[str, datetime]:
        """Return when each user was seen last, by their ids."""
        of = sessions.c
        query = select(of.user_id, func.max(of.seen_at)).group_by(of.user_id)
        return {row[0]: row[1] for row in await self._execute(query)}

    async def end(self, user_id: str, id: str) -> bool:
        return await self._wrote_one(
            sessions.delete().where(sessions.c.user_id == user_id, sessions.c.id == id)
        )

    async def end_all(self, user_id: str, *, but: str | None = None) -> None:
        statement = sessions.delete().where(sessions.c.user_id == user_id)
        if but is not None:
            statement = statement.where(sessions.c.id != but)
        await self._execute(statement)

    async def forget(self, before: datetime) -> None:
        await self._execute(sessions.delete().where(sessions.c.expires_at < before))


class SqlFactors(SqlRepository):
    async def find(self, user_id: str) -> Authenticator | None:
        """Return a user's factor; raise :class:`StoreUnavailable` for one by an unknown key."""
        row = await self._first(select(totp).where(totp.c.user_id == user_id))
        if row is None:
            return None
        try:
            secret = self.cipher.open(row["secret"], totp_purpose(user_id))
        except WrongKey as failure:
            raise StoreUnavailable(
                "Two-factor authentication cannot be read: it was encrypted with a key that this "
                "service does not have. Whoever runs it has to name that key in "
                "`store.secret_keys`."
            ) from failure
        return Authenticator(**{**row, "secret": secret})

    async def put(self, authenticator: Authenticator) -> None:
        sealed = self.cipher.seal(authenticator.secret, totp_purpose(authenticator.user_id))
        await upsert(self.connection, totp, {**asdict(authenticator), "secret": sealed})

    async def step(self, user_id: str, step: int) -> bool:
        """Use a step up; return false if it or a later one was used."""
        earlier = totp.c.user_id == user_id, totp.c.last_step < step
        return await self._wrote_one(totp.update().where(*earlier).values(last_step=step))

    async def remove(self, user_id: str) -> None:
        """Remove a user's factor with its recovery codes."""
        await self.put_recovery(user_id, [])
        await self._execute(totp.delete().where(totp.c.user_id == user_id))

    async def users(self) -> frozenset[str]:
        """Return the ids of those with a confirmed factor."""
        found = await self._execute(select(totp.c.user_id).where(totp.c.confirmed_at.is_not(None)))
        return frozenset(found.scalars())

    async def put_recovery(self, user_id: str, digests: Sequence[bytes]) -> None:
        await self._execute(recovery_codes.delete().where(recovery_codes.c.user_id == user_id))
        rows = [{"user_id": user_id, "digest": digest} for digest in digests]
        await self._insert_rows(recovery_codes, rows)

    async def use_recovery(self, user_id: str, digest: bytes) -> bool:
        """Use a code up; return false if there is none."""
        code = recovery_codes.c.user_id == user_id, recovery_codes.c.digest == digest
        return await self._wrote_one(recovery_codes.delete().where(*code))


class SqlAttempts(SqlRepository):
    async def lock(self, scopes: Sequence[str], at: datetime) -> Sequence[Failures]:
        """Return the failures of some scopes, which are locked until the block ends."""
        for scope in scopes:  # a row that is not there cannot be locked, so it is made first
            values = {"scope": scope, "failures": 0, "last_at": at}
            await upsert(self.connection, attempts, values, {"scope": scope})
        query = select(attempts).where(attempts.c.scope.in_(scopes)).with_for_update()
        return [Failures(**row) for row in (await self._execute(query)).mappings()]

    async def failed(self, scope: str, at: datetime, forget_before: datetime) -> None:
        """Count a failure; the count starts anew if the last one was before ``forget_before``."""
        count = case((attempts.c.last_at < forget_before, 1), else_=attempts.c.failures + 1)
        values = {"scope": scope, "failures": 1, "last_at": at}
        await upsert(self.connection, attempts, values, {"failures": count, "last_at": at})

    async def forgive(self, scope: str) -> None:
        """Subtract a failure."""
        failed = attempts.c.scope == scope, attempts.c.failures > 0
        values = {"failures": attempts.c.failures - 1}
        await self._execute(attempts.update().where(*failed).values(values))

    async def clear(self, scope: str) -> None:
        await self._execute(attempts.delete().where(attempts.c.scope == scope))

    async def forget(self, before: datetime) -> None:
        await self._execute(attempts.delete().where(attempts.c.last_at < before))
