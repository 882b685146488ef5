"""Users and their sign-in, provisioned groups, projects, and the audit log, which only grows."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import cast

from sqlalchemy import ColumnElement, RowMapping, and_, case, func, not_, or_, select

from causerie.errors import StoreUnavailable
from causerie.hosted.accounts.encryption import WrongKey
from causerie.hosted.accounts.keys import OneTimeLink
from causerie.hosted.accounts.passwords import FORGET_FAILURES_AFTER, Authenticator, Failures
from causerie.hosted.accounts.people import (
    Actor,
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
    entry,
)
from causerie.hosted.accounts.tokens import Session
from causerie.hosted.store.encrypted import totp_purpose
from causerie.hosted.store.repository import SqlRepository, SqlRows, equal, part_of, row_of, upsert
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
    """Return the status of a person from a row with the columns ``PERSON_STATUS``."""
    return PersonStatus(
        name=row["person_name"],
        operator=row["person_operator"],
        disabled=row["person_disabled_at"] is not None,
        role=row["person_role"],
        rights=row["person_rights"],
    )


class SqlPeople(SqlRows[User]):
    """Users and their identities; ``link`` raises :class:`Taken` if the identity is linked."""

    table, kind = users, User

    async def every(self) -> Sequence[User]:
        return await self._read_records(select(users).order_by(users.c.email))

    async def search(
        self, where: Mapping[str, str], start: int, count: int
    ) -> tuple[int, Sequence[User]]:
        """Return the number of matching users, without deleted ones, and one page, oldest first."""
        gone = and_(users.c.disabled_at.is_not(None), users.c.user_name == "")
        query = select(users).where(not_(gone), *(_user_field_is(*each) for each in where.items()))
        return await self._count_and_read_page(query, start, count)

    async def person_status(self, user_id: str, project_id: str | None) -> PersonStatus | None:
        """Return the status of a user, with the role in the project, read without a lock."""
        query = (
            select(*PERSON_STATUS)
            .select_from(users)
            .outerjoin(
                memberships,
                and_(memberships.c.user_id == users.c.id, memberships.c.project_id == project_id),
            )
            .where(users.c.id == user_id)
        )
        return await self._find_one(query, person_status_of)

    async def operators(self) -> int:
        """Count the enabled operators, and lock their rows until the transaction ends."""
        active = users.c.operator, users.c.disabled_at.is_(None)
        query = select(users.c.id).where(*active).order_by(users.c.id)
        return len((await self._execute(query.with_for_update())).all())

    async def link(self, identity: LinkedIdentity) -> None:
        await self._insert(identities, identity)

    async def by_identity(self, issuer: str, subject: str) -> User | None:
        query = select(users).join(identities, identities.c.user_id == users.c.id)
        return await self._read_record(
            query.where(*equal(identities, issuer=issuer, subject=subject))
        )

    async def identities(self, user_id: str) -> Sequence[LinkedIdentity]:
        query = (
            select(identities)
            .where(identities.c.user_id == user_id)
            .order_by(identities.c.linked_at, identities.c.issuer, identities.c.subject)
        )
        found = await self._execute(query.with_for_update())
        return [LinkedIdentity(**row) for row in found.mappings()]

    async def unlink(self, identity: LinkedIdentity) -> None:
        await self._delete_matching(identities, issuer=identity.issuer, subject=identity.subject)


def _user_field_is(name: str, value: str) -> ColumnElement[bool]:
    if name == "user_name":  # not case-exact; without one it is the address (RFC 7643, section 4.1)
        own = func.lower(users.c.user_name) == value.lower()
        return or_(own, and_(users.c.user_name == "", users.c.email == value.lower()))
    return users.c[name] == (value.lower() if name == "email" else value)


class SqlProjects(SqlRows[Project]):
    """Projects and memberships; lists of projects and members are sorted by name."""

    table, kind = projects, Project

    async def change(self, project: Project, /) -> None:
        """Change all of a project except the recording days."""
        values = row_of(projects, project)
        del values["recording_days"]  # whoever renames it must not switch that on again
        await self._execute(projects.update().where(projects.c.id == project.id).values(values))

    async def set_recording(self, id: str, days: int | None) -> None:
        statement = projects.update().where(projects.c.id == id)
        await self._execute(statement.values(recording_days=days))

    async def every(self) -> Sequence[Project]:
        query = select(projects).order_by(func.lower(projects.c.name), projects.c.id)
        return await self._read_records(query)

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

        return await self._read_all(query, joined)

    async def membership(self, project_id: str, user_id: str) -> Membership | None:
        member = equal(memberships, project_id=project_id, user_id=user_id)
        return await self._find_one(
            select(memberships).where(*member), lambda row: Membership(**row)
        )

    async def members(self, project_id: str) -> Sequence[ProjectMember]:
        query = (
            select(users, memberships.c.role, memberships.c.since, memberships.c.from_group)
            .join(memberships, memberships.c.user_id == users.c.id)
            .where(memberships.c.project_id == project_id)
            .order_by(func.lower(users.c.name), users.c.id)
        )
        return await self._read_all(
            query,
            lambda row: ProjectMember(
                User(**part_of(users, row)), row["role"], row["since"], row["from_group"]
            ),
        )

    async def join(self, membership: Membership) -> None:
        """Add a membership, or change the role of the existing one."""
        values = row_of(memberships, membership)
        given = {"role": membership.role, "from_group": membership.from_group}
        await upsert(self.connection, memberships, values, given)

    async def leave(self, project_id: str, user_id: str) -> None:
        member = {"project_id": project_id, "user_id": user_id}
        await upsert(self.connection, departures, {**member, "at": self.now})
        await self._delete_matching(memberships, **member)

    async def left(self, project_id: str, user_id: str) -> datetime | None:
        """Return when a user left a project for the last time."""
        member = equal(departures, project_id=project_id, user_id=user_id)
        return cast(datetime | None, await self._scalar(select(departures.c.at).where(*member)))

    async def owners(self, project_id: str) -> int:
        """Count a project's owners, and lock their memberships until the transaction ends."""
        owned = equal(memberships, project_id=project_id, role=Role.OWNER)
        query = select(memberships.c.user_id).where(*owned).with_for_update()
        return len((await self._execute(query)).all())

    async def owner_emails(self, reminder: str) -> Mapping[str, Sequence[str]]:
        """Return the addresses of each project's enabled owners who did not mute ``reminder``."""
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

    async def record(
        self,
        actor: Actor,
        action: str,
        subject: str,
        project_id: str | None = None,
        **details: str,
    ) -> None:
        """Add an audit entry of what an actor does now."""
        await self.add(entry(self.now, actor, action, subject, project_id, **details))

    async def find(self, filter: AuditFilter) -> Sequence[AuditEntry]:
        """Return the audit entries that match the filter, newest first."""
        query = select(audit).order_by(audit.c.id.desc()).limit(filter.count)
        for name in ("project_id", "actor", "action", "subject"):
            if (wanted := getattr(filter, name)) is not None:
                query = query.where(audit.c[name] == wanted)
        if filter.before is not None:
            query = query.where(audit.c.id < filter.before)
        if filter.kind is not None:
            labels = [label for label, kind in ENTRY_KINDS.items() if kind is filter.kind]
            entries = [audit.c.subject.startswith(f"{each}:", autoescape=True) for each in labels]
            configured = and_(audit.c.action.startswith(CONFIGURATION), or_(False, *entries))
            own = audit.c.action.startswith(f"{filter.kind}.", autoescape=True)
            query = query.where(or_(own, configured))
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
        return await self._read_all(named, lambda row: AuditEntry(**row))


class SqlGroups(SqlRows[IdentityGroup]):
    """Groups that directories provision; ``join`` raises :class:`Taken` for unknown users."""

    table, kind = groups, IdentityGroup

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
        return await self._count_and_read_page(query, start, count)

    async def members(self, group_ids: Collection[str]) -> Mapping[str, Sequence[User]]:
        found: dict[str, list[User]] = {id: [] for id in group_ids}
        query = (
            select(members.c.group_id, users)
            .join(users, users.c.id == members.c.user_id)
            .where(members.c.group_id.in_(found))
            .order_by(users.c.created_at, users.c.id)
        )
        for row in await self._read_all(query, dict):
            found[row.pop("group_id")].append(User(**row))
        return found

    async def join(self, group_id: str, user_ids: Collection[str]) -> None:
        rows = [{"group_id": group_id, "user_id": id} for id in sorted(user_ids)]
        await self._insert_rows(members, rows)

    async def leave(self, group_id: str, user_ids: Collection[str]) -> None:
        of_group = members.c.group_id == group_id, members.c.user_id.in_(user_ids)
        await self._execute(members.delete().where(*of_group))

    async def leave_all(self, user_id: str) -> None:
        await self._delete_matching(members, user_id=user_id)

    async def names(self, provider: str, user_id: str) -> frozenset[str]:
        """Return the names and external ids of a user's groups at a provider, as one set."""
        query = (
            select(groups.c.name, groups.c.external_id)
            .join(members, members.c.group_id == groups.c.id)
            .where(members.c.user_id == user_id, groups.c.provider == provider)
        )
        return frozenset(each for row in await self._execute(query) for each in row if each)


class SqlLinks(SqlRows[OneTimeLink]):
    """One-time links; ``open`` returns those that are neither used nor expired, oldest first."""

    table, kind = one_time_links, OneTimeLink

    async def use(self, id: str) -> bool:
        """Mark a link as used; return false if it was used before."""
        unused = one_time_links.update().where(*equal(one_time_links, id=id, used_at=None))
        return await self._changes_one_row(unused.values(used_at=self.now))

    async def withdraw(self, links: Iterable[OneTimeLink]) -> int:
        """Delete the given links; return their number."""
        ids = [link.id for link in links]
        await self._execute(one_time_links.delete().where(one_time_links.c.id.in_(ids)))
        return len(ids)

    async def forget(self, created_by: str, email: str) -> None:
        """Delete unused links by this creator that are for this address or have expired."""
        old = or_(one_time_links.c.email == email, one_time_links.c.expires_at <= self.now)
        unused = equal(one_time_links, created_by=created_by, used_at=None)
        await self._execute(one_time_links.delete().where(*unused, old))

    async def open(self, **values: str | None) -> Sequence[OneTimeLink]:
        """Return the open links with these values of ``project_id``, ``person`` or ``user_id``."""
        query = select(one_time_links).where(
            *equal(one_time_links, **values, used_at=None),
            one_time_links.c.expires_at > self.now,
        )
        return await self._read_records(query.order_by(one_time_links.c.created_at))


class SqlSessions(SqlRows[Session]):
    table, kind = sessions, Session

    async def seen(self, id: str) -> None:
        await self._execute(sessions.update().where(sessions.c.id == id).values(seen_at=self.now))

    async def of(self, user_id: str) -> Sequence[Session]:
        query = select(sessions).where(
            sessions.c.user_id == user_id, sessions.c.expires_at > self.now
        )
        return await self._read_records(query.order_by(sessions.c.seen_at.desc(), sessions.c.id))

    async def last_seen(self) -> Mapping[str, datetime]:
        """Return when each user was last seen in a stored session, by user id."""
        of = sessions.c
        query = select(of.user_id, func.max(of.seen_at)).group_by(of.user_id)
        return {row[0]: row[1] for row in await self._execute(query)}

    async def end_all(self, user_id: str, *, but: str | None = None) -> None:
        statement = sessions.delete().where(sessions.c.user_id == user_id)
        if but is not None:
            statement = statement.where(sessions.c.id != but)
        await self._execute(statement)

    async def forget(self) -> None:
        """Delete the expired sessions."""
        await self._execute(sessions.delete().where(sessions.c.expires_at < self.now))


class SqlFactors(SqlRepository):
    async def find(self, user_id: str) -> Authenticator | None:
        """Return a user's second factor; raise :class:`StoreUnavailable` if no key decrypts it."""
        row = await self._read_first_row(select(totp).where(totp.c.user_id == user_id))
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
        """Mark a user's TOTP time step as used; return false if this or a later step was used."""
        earlier = totp.c.user_id == user_id, totp.c.last_step < step
        return await self._changes_one_row(totp.update().where(*earlier).values(last_step=step))

    async def remove(self, user_id: str) -> None:
        """Delete a user's second factor and recovery codes."""
        await self.put_recovery(user_id, [])
        await self._delete_matching(totp, user_id=user_id)

    async def users(self) -> frozenset[str]:
        """Return the ids of the users with a confirmed second factor."""
        found = await self._execute(select(totp.c.user_id).where(totp.c.confirmed_at.is_not(None)))
        return frozenset(found.scalars())

    async def put_recovery(self, user_id: str, digests: Sequence[bytes]) -> None:
        await self._delete_matching(recovery_codes, user_id=user_id)
        rows = [{"user_id": user_id, "digest": digest} for digest in digests]
        await self._insert_rows(recovery_codes, rows)

    async def use_recovery(self, user_id: str, digest: bytes) -> bool:
        """Delete a recovery code; return false if the user does not have it."""
        return await self._delete_matching(recovery_codes, user_id=user_id, digest=digest)


class SqlAttempts(SqlRows[Failures]):
    table, kind = attempts, Failures

    async def lock(self, scopes: Sequence[str]) -> Sequence[Failures]:
        """Lock the failures of these scopes until the block ends, and return their counts."""
        for scope in scopes:  # a row that is not there cannot be locked, so it is made first
            values = {"scope": scope, "failures": 0, "last_at": self.now}
            await upsert(self.connection, attempts, values, {"scope": scope})
        query = select(attempts).where(attempts.c.scope.in_(scopes)).with_for_update()
        return [Failures(**row) for row in (await self._execute(query)).mappings()]

    async def failed(self, scope: str) -> None:
        """Count a scope's failure; the count starts anew after :data:`FORGET_FAILURES_AFTER`."""
        forgotten = attempts.c.last_at < self.now - FORGET_FAILURES_AFTER
        count = case((forgotten, 1), else_=attempts.c.failures + 1)
        values = {"scope": scope, "failures": 1, "last_at": self.now}
        await upsert(self.connection, attempts, values, {"failures": count, "last_at": self.now})

    async def forgive(self, scope: str) -> None:
        """Subtract one from the failures of a scope, but not below zero."""
        failed = attempts.c.scope == scope, attempts.c.failures > 0
        values = {"failures": attempts.c.failures - 1}
        await self._execute(attempts.update().where(*failed).values(values))

    async def forget(self) -> None:
        before = self.now - FORGET_FAILURES_AFTER
        await self._execute(attempts.delete().where(attempts.c.last_at < before))
