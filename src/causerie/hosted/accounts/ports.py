"""The store as accounts use it: repositories of one transaction, and their records of requests and
of the configuration.

Leaving a writing block without an exception commits everything; an exception rolls everything back.
In a writing block, what ``find``, ``operators``, ``owners`` and ``identities`` read is locked until
its end. Entering a block and every method raise :class:`~causerie.errors.StoreUnavailable`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Literal, Protocol

from causerie.access.allowed import Access
from causerie.hosted.accounts.audit import AuditEntry, AuditFilter
from causerie.hosted.accounts.bounds import Credit, LimitsAndBudgets
from causerie.hosted.accounts.keys import ApiKey, Grant, KeySecret, OneTimeLink, OperatorKey
from causerie.hosted.accounts.passwords import Authenticator, Failures
from causerie.hosted.accounts.people import (
    IdentityGroup,
    LinkedIdentity,
    Membership,
    PersonStatus,
    Project,
    ProjectMember,
    User,
)
from causerie.hosted.accounts.tokens import Session

LONGEST_DAYS = 90


@dataclass(frozen=True, slots=True)
class Recording:
    """Contents of one request; ``id`` is the id of its usage record."""

    id: str
    project_id: str
    user_id: str
    """User who created the key, or used the playground."""
    at: datetime
    request: str = field(repr=False)
    """JSON, or its beginning if ``request_cut``."""
    request_cut: bool
    reply: str = field(repr=False)
    """JSON, or its beginning if ``reply_cut``; empty without a reply."""
    reply_cut: bool


CHANGED = "configuration"
"""Subject of the announcements of configuration changes to all processes."""

EntryKind = Literal[
    "provider", "alias", "catalog_model", "model", "door", "policy", "webhook", "email"
]


@dataclass(frozen=True, slots=True)
class StoredEntry:
    """A stored configuration entry; ``version`` counts its changes."""

    id: str
    kind: EntryKind
    name: str
    body: Mapping[str, Any]
    enabled: bool
    version: int
    created_at: datetime
    created_by: str
    updated_at: datetime
    updated_by: str
    credential: str | None = field(default=None, repr=False)
    unreadable: bool = False
    """The key that encrypted its credential is missing."""

    @property
    def label(self) -> str:
        """Return its subject in the audit log."""
        return f"{self.kind}:{self.name}"


@dataclass(frozen=True, slots=True)
class EntryDraft:
    """Wanted state of an entry; ``credential``: ``None`` keeps the stored one, empty removes it."""

    kind: EntryKind
    name: str
    body: Mapping[str, Any]
    credential: str | None = field(default=None, repr=False)
    enabled: bool = True


class Taken(Exception):
    """A unique value exists already."""


class PeopleRepository(Protocol):
    """Users and their identities; ``add`` and ``link`` raise :class:`Taken` for what is known."""

    async def add(self, user: User, /) -> None: ...
    async def change(self, user: User, /) -> None: ...
    async def find(self, id: str) -> User | None: ...
    async def by_email(self, email: str) -> User | None: ...
    async def every(self) -> Sequence[User]: ...  # by address
    # Number and part of the users who fit, oldest first, without those whom a directory deleted.
    async def search(
        self, where: Mapping[str, str], start: int, count: int
    ) -> tuple[int, Sequence[User]]: ...
    # The status is read without a lock.
    async def person_status(self, user_id: str, project_id: str | None) -> PersonStatus | None: ...
    async def operators(self) -> int: ...  # number of enabled ones
    async def link(self, identity: LinkedIdentity) -> None: ...
    async def by_identity(self, issuer: str, subject: str) -> User | None: ...
    async def identities(self, user_id: str) -> Sequence[LinkedIdentity]: ...
    async def unlink(self, identity: LinkedIdentity) -> None: ...


class ProjectRepository(Protocol):
    """Projects and memberships."""

    async def add(self, project: Project, /) -> None: ...
    async def change(self, project: Project, /) -> None: ...  # but for the recording days
    async def set_recording(self, id: str, days: int | None) -> None: ...  # None keeps nothing
    async def find(self, id: str) -> Project | None: ...
    async def every(self) -> Sequence[Project]: ...  # by name
    async def of(self, user_id: str) -> Sequence[tuple[Project, Membership]]: ...
    async def membership(self, project_id: str, user_id: str) -> Membership | None: ...
    async def members(self, project_id: str) -> Sequence[ProjectMember]: ...  # by name
    async def join(self, membership: Membership) -> None: ...  # or change the role
    async def leave(self, project_id: str, user_id: str, at: datetime) -> None: ...
    async def left(self, project_id: str, user_id: str) -> datetime | None: ...  # last time
    async def owners(self, project_id: str) -> int: ...  # number
    # Addresses of the enabled owners of each project.
    async def owner_emails(self) -> Mapping[str, Sequence[str]]: ...


class GroupRepository(Protocol):
    """Groups of directories; ``join`` raises :class:`Taken` for an unknown user."""

    async def add(self, group: IdentityGroup, /) -> None: ...
    async def change(self, group: IdentityGroup, /) -> None: ...
    async def find(self, id: str) -> IdentityGroup | None: ...
    async def remove(self, id: str) -> None: ...  # one without members
    async def search(
        self, provider: str, where: Mapping[str, str], start: int, count: int
    ) -> tuple[int, Sequence[IdentityGroup]]: ...
    async def members(self, group_ids: Collection[str]) -> Mapping[str, Sequence[User]]: ...
    async def join(self, group_id: str, user_ids: Collection[str]) -> None: ...
    async def leave(self, group_id: str, user_ids: Collection[str]) -> None: ...
    async def leave_all(self, user_id: str) -> None: ...
    # Names and external ids of a user's groups.
    async def names(self, provider: str, user_id: str) -> frozenset[str]: ...


class LinkRepository(Protocol):
    """One-time links; several are those that are neither used nor expired, oldest first."""

    async def add(self, link: OneTimeLink, /) -> None: ...
    async def by_digest(self, digest: bytes) -> OneTimeLink | None: ...
    async def find(self, id: str) -> OneTimeLink | None: ...
    async def use(self, id: str, at: datetime) -> bool: ...  # false if another use was first
    async def withdraw(self, *ids: str) -> None: ...
    async def open(self, project_id: str | None, now: datetime) -> Sequence[OneTimeLink]: ...
    async def derived(self, user_id: str, now: datetime) -> Sequence[OneTimeLink]: ...
    # Unused links by this creator that are for this address or expired before.
    async def forget(self, created_by: str, email: str, before: datetime) -> None: ...
    async def resets(self, user_id: str, now: datetime) -> Sequence[OneTimeLink]: ...


class SessionRepository(Protocol):
    """Sessions."""

    async def add(self, session: Session, /) -> None: ...
    async def by_digest(self, digest: bytes) -> Session | None: ...
    async def seen(self, id: str, at: datetime) -> None: ...
    async def of(self, user_id: str, now: datetime) -> Sequence[Session]: ...
    async def last_seen(self) -> Mapping[str, datetime]: ...  # by user id
    async def end(self, user_id: str, id: str) -> bool: ...
    async def end_all(self, user_id: str, *, but: str | None = None) -> None: ...
    async def forget(self, before: datetime) -> None: ...  # those that expired


class FactorRepository(Protocol):
    """Two-factor authentication; ``find`` raises :class:`StoreUnavailable` for an unknown key."""

    async def find(self, user_id: str) -> Authenticator | None: ...
    async def put(self, authenticator: Authenticator) -> None: ...
    async def step(self, user_id: str, step: int) -> bool: ...  # false if used, or a later one
    async def remove(self, user_id: str) -> None: ...  # with the recovery codes
    async def users(self) -> frozenset[str]: ...  # ids of those with a confirmed factor
    async def put_recovery(self, user_id: str, digests: Sequence[bytes]) -> None: ...
    async def use_recovery(self, user_id: str, digest: bytes) -> bool: ...  # false if there is none


class AttemptRepository(Protocol):
    """Failed attempts to sign in, by scope; ``lock`` keeps those scopes until the block ends."""

    async def lock(self, scopes: Sequence[str], at: datetime) -> Sequence[Failures]: ...
    # The count starts anew if the last failure was before ``forget_before``.
    async def failed(self, scope: str, at: datetime, forget_before: datetime) -> None: ...
    async def forgive(self, scope: str) -> None: ...  # subtract a failure
    async def clear(self, scope: str) -> None: ...
    async def forget(self, before: datetime) -> None: ...


class KeyRepository(Protocol):
    """API keys, their secrets and bounds, and announcements of changes.

    Several keys are those that are not deleted, newest first. Bounds are of ``key:ID``, ``user:ID``
    or ``project:ID``, and announcements tell all processes that one of these has changed.
    """

    async def add(self, key: ApiKey, secret: KeySecret) -> None: ...  # without its bounds
    async def change(self, key: ApiKey) -> None: ...  # but for its bounds
    async def find(self, id: str) -> ApiKey | None: ...  # also if it is deleted
    async def of(self, project_id: str) -> Sequence[ApiKey]: ...
    async def derived(self, user_id: str, project_id: str | None = None) -> Sequence[ApiKey]: ...
    async def budgeted(self) -> Sequence[ApiKey]: ...
    async def any_budget(self) -> bool: ...  # in money, of anybody
    async def expiring(self, after: datetime, until: datetime) -> Sequence[ApiKey]: ...
    # Numbers of keys by project and person (empty: of nobody).
    async def counts(self) -> Sequence[tuple[str, str, int]]: ...
    async def withdraw(self, ids: Sequence[str], at: datetime) -> None: ...
    # Older secrets expire at ``old_until`` at the latest.
    async def rotate(self, secret: KeySecret, old_until: datetime) -> None: ...
    async def set_bounds(self, owner: str, bounds: LimitsAndBudgets) -> None: ...
    async def set_bounds_of(self, bounds: Mapping[str, LimitsAndBudgets]) -> None: ...
    async def scoped(self) -> Mapping[str, LimitsAndBudgets]: ...  # of `tag:` and `provider:`
    async def bounds(self, owner: str) -> LimitsAndBudgets: ...
    async def bounds_of(self, owners: Sequence[str]) -> Mapping[str, LimitsAndBudgets]: ...
    async def set_access(self, owner: str, access: Access) -> None: ...
    # The rules of these that restrict something; of a member: `member:PROJECT/USER`.
    async def access(self, owners: Sequence[str]) -> Mapping[str, Access]: ...
    async def announce(self, subject: str, at: datetime) -> None: ...
    async def announce_all(self, subjects: Sequence[str], at: datetime) -> None: ...
    async def grant(self, digest: bytes) -> Grant | None: ...
    # The number of the latest change, and the subjects of those after ``after``, if all are stored.
    async def changes(self, after: int) -> tuple[int, Sequence[str] | None]: ...


class OperatorKeyRepository(Protocol):
    """Keys of operators."""

    async def add(self, key: OperatorKey, /) -> None: ...
    async def change(self, key: OperatorKey, /) -> None: ...
    async def every(self) -> Sequence[OperatorKey]: ...  # not deleted, newest first
    async def by_digest(self, digest: bytes) -> OperatorKey | None: ...  # also if it is deleted


class AuditRepository(Protocol):
    """Audit log of actions by actor; append-only."""

    async def add(self, *entries: AuditEntry) -> None: ...
    async def find(self, filter: AuditFilter) -> Sequence[AuditEntry]: ...  # newest first


class CreditRepository(Protocol):
    """Amounts paid in for projects."""

    async def add(self, credit: Credit, /) -> None: ...
    async def find(self, id: str) -> Credit | None: ...
    async def totals(self) -> Mapping[str, Decimal]: ...  # of all projects with credits
    async def of(self, project_id: str) -> Sequence[Credit]: ...  # newest first
    async def total(self, project_id: str) -> Decimal | None: ...  # None without credits


class RecordingRepository(Protocol):
    """Contents of requests, only of projects that keep them, for as long as they keep them.

    ``find`` raises :class:`NotFound` for a recording that no key decrypts; ``several`` leaves it
    out.
    """

    async def put(self, recordings: Sequence[Recording]) -> None: ...
    async def find(self, id: str, now: datetime) -> Recording | None: ...
    async def several(
        self, project_id: str, ids: Sequence[str], now: datetime
    ) -> Sequence[Recording]: ...
    # The users of the stored recordings of these ids, by id.
    async def users(
        self, project_id: str, ids: Sequence[str], now: datetime
    ) -> Mapping[str, str]: ...
    async def forget(self, project_id: str) -> None: ...
    async def shorten(self, project_id: str, kept: timedelta) -> None: ...  # and no longer
    # Those after an id, by id, and the last id that was looked at; none at the end.
    async def page(
        self, project_id: str, now: datetime, after: str, most: int
    ) -> tuple[Sequence[Recording], str | None]: ...


class EntryRepository(Protocol):
    """Entries of the configuration, with their credentials.

    ``add`` raises :class:`Taken` if an entry of the kind and name exists.
    """

    async def every(self) -> Sequence[StoredEntry]: ...  # oldest first
    async def add(self, entries: Sequence[StoredEntry]) -> None: ...
    # False without a change if one has not the version before.
    async def change(self, entries: Sequence[StoredEntry]) -> bool: ...
    async def remove(self, id: str) -> bool: ...  # false if there is none


@dataclass(frozen=True, slots=True)
class Transaction:
    """All repositories of one transaction."""

    people: PeopleRepository
    projects: ProjectRepository
    groups: GroupRepository
    links: LinkRepository
    sessions: SessionRepository
    factors: FactorRepository
    attempts: AttemptRepository
    keys: KeyRepository
    operator_keys: OperatorKeyRepository
    audit: AuditRepository
    credits: CreditRepository
    recordings: RecordingRepository
    entries: EntryRepository


class AccountStore(Protocol):
    """Begins transactions."""

    def reading(self) -> AbstractAsyncContextManager[Transaction]: ...
    def writing(self) -> AbstractAsyncContextManager[Transaction]: ...
