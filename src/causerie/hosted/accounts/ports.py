"""Interfaces of the store that accounts need: repositories, used in one transaction each; and what
they keep of requests and of the configuration.

Leaving a writing block without an exception commits everything done in it at once; an exception
rolls all of it back. A user, project or key that ``find`` returns in a writing block is locked
until its end. Entering and everything inside raises :class:`~causerie.errors.StoreUnavailable`
if the store cannot be used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Literal, Protocol

from causerie.hosted.accounts.audit import AuditEntry, AuditFilter
from causerie.hosted.accounts.bounds import Credit, LimitsAndBudgets
from causerie.hosted.accounts.keys import ApiKey, Grant, KeySecret, OneTimeLink
from causerie.hosted.accounts.passwords import Authenticator, Failures
from causerie.hosted.accounts.people import (
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
    """Contents of one request, by the id of its usage record."""

    id: str
    project_id: str
    user_id: str
    """User who created the key, or used the playground."""
    at: datetime
    request: str = field(repr=False)
    """JSON, or its beginning if it is cut."""
    request_cut: bool
    reply: str = field(repr=False)
    """JSON, or its beginning if it is cut; empty if there was none."""
    reply_cut: bool


CHANGED = "configuration"
"""The subject under which every process hears of a change."""

EntryKind = Literal["provider", "alias", "catalog_model", "model", "door", "webhook", "email"]


@dataclass(frozen=True, slots=True)
class StoredEntry:
    """An entry as it is kept; ``version`` counts its changes."""

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
    """Its credential was encrypted with a key that is not here any more."""

    @property
    def label(self) -> str:
        """Return what the audit log calls it."""
        return f"{self.kind}:{self.name}"


@dataclass(frozen=True, slots=True)
class EntryDraft:
    """Wanted state of an entry.

    Without a ``credential`` one that is kept stays; an empty one removes it.
    """

    kind: EntryKind
    name: str
    body: Mapping[str, Any]
    credential: str | None = field(default=None, repr=False)
    enabled: bool = True


class Taken(Exception):
    """A value that has to be unique exists already."""


class PeopleRepository(Protocol):
    """Users and their identities."""

    async def add(self, user: User) -> None:
        """Raises :class:`Taken` where the address has an account."""

    async def change(self, user: User) -> None: ...
    async def find(self, id: str) -> User | None: ...
    async def by_email(self, email: str) -> User | None: ...
    async def every(self) -> Sequence[User]: ...  # by address
    async def person_status(self, user_id: str, project_id: str | None) -> PersonStatus | None:
        """As it is now, without a lock; ``None`` for somebody unknown."""

    async def operators(self) -> int:
        """Count the operators that are not disabled; locked until the end of a writing block."""

    async def link(self, identity: LinkedIdentity) -> None:
        """Raises :class:`Taken`."""

    async def by_identity(self, issuer: str, subject: str) -> User | None: ...
    async def identities(self, user_id: str) -> Sequence[LinkedIdentity]:
        """Oldest first; locked until the end of a writing block."""

    async def unlink(self, identity: LinkedIdentity) -> None: ...


class ProjectRepository(Protocol):
    """Projects and memberships."""

    async def add(self, project: Project) -> None: ...
    async def change(self, project: Project) -> None:
        """Everything but the id and what it keeps."""

    async def set_recording(self, id: str, days: int | None) -> None:
        """Set the number of days for which the project keeps contents; ``None``: not at all."""

    async def find(self, id: str) -> Project | None: ...
    async def every(self) -> Sequence[Project]: ...  # by name
    async def of(self, user_id: str) -> Sequence[tuple[Project, Membership]]: ...
    async def membership(self, project_id: str, user_id: str) -> Membership | None: ...
    async def members(self, project_id: str) -> Sequence[ProjectMember]: ...  # by name
    async def join(self, membership: Membership) -> None:
        """Add it, or change its role."""

    async def leave(self, project_id: str, user_id: str, at: datetime) -> None:
        """Remove the membership, and remember when it ended."""

    async def left(self, project_id: str, user_id: str) -> datetime | None:
        """When somebody was last removed or left."""

    async def owners(self, project_id: str) -> int:
        """Count the owners; locked until the end of a writing block."""


class LinkRepository(Protocol):
    """One-time links."""

    async def add(self, link: OneTimeLink) -> None: ...
    async def by_digest(self, digest: bytes) -> OneTimeLink | None: ...
    async def find(self, id: str) -> OneTimeLink | None: ...
    async def use(self, id: str, at: datetime) -> bool:
        """Mark it as used; false where it was used already, also by somebody at the same time."""

    async def withdraw(self, id: str) -> None: ...
    async def open(self, project_id: str | None, now: datetime) -> Sequence[OneTimeLink]:
        """Those that are neither used nor expired, of a project or of none."""

    async def derived(self, user_id: str, now: datetime) -> Sequence[OneTimeLink]:
        """Those that are neither used nor expired and derive from this user."""

    async def forget(self, created_by: str, email: str, before: datetime) -> None:
        """Remove unused ones by this maker, for this address or expired before."""

    async def resets(self, user_id: str, now: datetime) -> Sequence[OneTimeLink]:
        """Those that are neither used nor expired and choose this user's password."""


class SessionRepository(Protocol):
    """Sessions."""

    async def add(self, session: Session) -> None: ...
    async def by_digest(self, digest: bytes) -> Session | None: ...
    async def seen(self, id: str, at: datetime) -> None: ...
    async def of(self, user_id: str, now: datetime) -> Sequence[Session]: ...
    async def last_seen(self) -> Mapping[str, datetime]:
        """When each user's last session was used."""

    async def end(self, user_id: str, id: str) -> bool: ...
    async def end_all(self, user_id: str, *, but: str | None = None) -> None: ...
    async def forget(self, before: datetime) -> None:
        """Remove those that ended before."""


class FactorRepository(Protocol):
    """Two-factor authentication."""

    async def find(self, user_id: str) -> Authenticator | None:
        """Raises :class:`StoreUnavailable` where no key decrypts it."""

    async def put(self, authenticator: Authenticator) -> None: ...
    async def step(self, user_id: str, step: int) -> bool:
        """Take note of a step that was used; false where it, or a later one, was used before."""

    async def remove(self, user_id: str) -> None:
        """With its recovery codes."""

    async def users(self) -> frozenset[str]:
        """Return the ids of users whose factor is in force."""

    async def put_recovery(self, user_id: str, digests: Sequence[bytes]) -> None: ...
    async def use_recovery(self, user_id: str, digest: bytes) -> bool: ...


class AttemptRepository(Protocol):
    """Failed attempts to sign in, by scope."""

    async def lock(self, scopes: Sequence[str], at: datetime) -> Sequence[Failures]:
        """Return the failures in each scope, locked until the end of the writing block."""

    async def failed(self, scope: str, at: datetime, forget_before: datetime) -> None:
        """Count one more; the count begins anew where the last was before ``forget_before``."""

    async def forgive(self, scope: str) -> None:
        """Count one less."""

    async def clear(self, scope: str) -> None: ...
    async def forget(self, before: datetime) -> None: ...


class KeyRepository(Protocol):
    """API keys, their secrets, bounds, and word of their changes."""

    async def add(self, key: ApiKey, secret: KeySecret) -> None: ...  # without its bounds
    async def change(self, key: ApiKey) -> None:
        """Everything but its bounds."""

    async def find(self, id: str) -> ApiKey | None: ...  # also if it is deleted
    async def of(self, project_id: str) -> Sequence[ApiKey]:
        """Those that are not deleted, newest first."""

    async def derived(self, user_id: str, project_id: str | None = None) -> Sequence[ApiKey]:
        """Those that derive from this user and are not deleted, of one project or of all."""

    async def budgeted(self) -> Sequence[ApiKey]:
        """Those that are not deleted and have budgets."""

    async def expiring(self, after: datetime, until: datetime) -> Sequence[ApiKey]:
        """Those that are not deleted and expire then."""

    async def counts(self) -> Sequence[tuple[str, str, int]]:
        """Count those that are not deleted, by project and person (empty: of nobody)."""

    async def withdraw(self, ids: Sequence[str], at: datetime) -> None:
        """Mark them as withdrawn."""

    async def rotate(self, secret: KeySecret, old_until: datetime) -> None:
        """A new secret; older ones end then, or earlier where they already did."""

    async def set_bounds(self, owner: str, bounds: LimitsAndBudgets) -> None:
        """Of ``key:ID``, ``user:ID`` or ``project:ID``."""

    async def bounds(self, owner: str) -> LimitsAndBudgets: ...
    async def bounds_of(self, owners: Sequence[str]) -> Mapping[str, LimitsAndBudgets]: ...
    async def announce(self, subject: str, at: datetime) -> None:
        """Let every process know that ``key:ID``, ``project:ID`` or ``user:ID`` has changed."""

    async def grant(self, digest: bytes) -> Grant | None:
        """Return the grant of this secret; ``None`` if nobody has it."""

    async def changes(self, after: int) -> tuple[int, Sequence[str] | None]:
        """The latest change's number, and whose changes came after another.

        ``None`` where that is too long ago to be known.
        """


class AuditRepository(Protocol):
    """Audit log of actions by actor; append-only."""

    async def add(self, entry: AuditEntry) -> None: ...
    async def add_all(self, entries: Sequence[AuditEntry]) -> None: ...
    async def find(self, filter: AuditFilter) -> Sequence[AuditEntry]:
        """Newest first."""


class CreditRepository(Protocol):
    """Money that was put in."""

    async def add(self, credit: Credit) -> None: ...
    async def of(self, project_id: str) -> Sequence[Credit]:
        """Newest first."""

    async def total(self, project_id: str) -> Decimal | None:
        """``None`` where nothing was ever put in."""


class RecordingRepository(Protocol):
    """Contents of requests, of projects that keep them; never of one that does not (any more)."""

    async def put(self, recordings: Sequence[Recording]) -> None:
        """Keep those whose projects keep what is said now, for as long as they say now."""

    async def find(self, id: str, now: datetime) -> Recording | None:
        """Raises :class:`NotFound` where it can not be decrypted any more."""

    async def several(
        self, project_id: str, ids: Sequence[str], now: datetime
    ) -> Sequence[Recording]:
        """Of these ids those that are kept and can be decrypted."""

    async def users(self, project_id: str, ids: Sequence[str], now: datetime) -> Mapping[str, str]:
        """Of these ids those that are kept, with whose requests they are."""

    async def forget(self, project_id: str) -> None: ...
    async def shorten(self, project_id: str, kept: timedelta) -> None:
        """None of the project's is kept for longer."""

    async def expire(self, now: datetime, most: int) -> int:
        """Remove up to so many whose time is over; how many there were."""


class EntryRepository(Protocol):
    """Entries of the configuration, with their credentials."""

    async def every(self) -> Sequence[StoredEntry]:
        """Oldest first."""

    async def add(self, entries: Sequence[StoredEntry]) -> None:
        """Raises :class:`Taken` where there is one of such a kind and name."""

    async def change(self, entries: Sequence[StoredEntry]) -> bool:
        """Change the entries; false, and no change, if one has not the version before by now."""

    async def remove(self, id: str) -> bool:
        """Forget it; false where it is gone already."""


class Repositories(Protocol):
    """All books of one transaction."""

    @property
    def people(self) -> PeopleRepository: ...
    @property
    def projects(self) -> ProjectRepository: ...
    @property
    def links(self) -> LinkRepository: ...
    @property
    def sessions(self) -> SessionRepository: ...
    @property
    def factors(self) -> FactorRepository: ...
    @property
    def attempts(self) -> AttemptRepository: ...
    @property
    def keys(self) -> KeyRepository: ...
    @property
    def audit(self) -> AuditRepository: ...
    @property
    def credits(self) -> CreditRepository: ...
    @property
    def recordings(self) -> RecordingRepository: ...
    @property
    def entries(self) -> EntryRepository: ...


class AccountStore(Protocol):
    """Storage of the repositories."""

    def reading(self) -> AbstractAsyncContextManager[Repositories]: ...
    def writing(self) -> AbstractAsyncContextManager[Repositories]: ...
