"""API keys: ``ck_<public id>_<secret>``.

The public id names a key everywhere; the secret is shown once. Kept is a digest
of the whole key, by which it is found. A key that is being rotated has an old
secret that works until its end.

A key carries the person it derives from: whoever created it, also through other keys, or
whom it was transferred to. It works while that person may have it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from causerie.accounts.bounds import UNBOUNDED, LimitsAndBudgets
from causerie.accounts.names import letters, new_token
from causerie.accounts.people import PersonStatus
from causerie.accounts.rights import Action, Extent, columns, extent

_PUBLIC_LENGTH = 12


class Purpose(StrEnum):
    """Purpose of a key; no key is for both."""

    INFERENCE = "inference"
    MANAGEMENT = "management"


class KeyState(StrEnum):
    """State of a key: active, or the reason why it does not work; shown to its owners only."""

    ACTIVE = "active"
    DISABLED = "disabled"
    EXPIRED = "expired"
    DELETED = "deleted"
    WITHDRAWN = "withdrawn"
    """The person from whom it derives may not have it any more."""


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key without its secret."""

    id: str
    project_id: str
    created_by: str
    name: str
    purpose: Purpose
    doors: frozenset[str] | None
    """``None``: all that the project has; empty: none."""
    models: frozenset[str] | None
    """``None``: all that the project has; empty: none."""
    created_at: datetime
    expires_at: datetime | None = None
    disabled_at: datetime | None = None
    disabled_by: str | None = None
    """This actor, or one with more rights, has to enable it again."""
    deleted_at: datetime | None = None
    bounds: LimitsAndBudgets = UNBOUNDED
    person: str = ""
    """User from whom it derives; empty for a key of the project itself."""
    withdrawn_at: datetime | None = None
    """Time at which the person left the project: coming back does not revive the key."""
    person_status: PersonStatus | None = None
    """Present status of the person."""

    @property
    def withdrawn(self) -> bool:
        """Return true if the person from whom it derives may not have it any more."""
        if self.withdrawn_at is not None:
            return True
        return bool(self.person) and not may_hold(self.person_status, self.purpose)

    def state(self, now: datetime) -> KeyState:
        if self.deleted_at is not None:
            return KeyState.DELETED
        if self.withdrawn:
            return KeyState.WITHDRAWN
        if self.disabled_at is not None:
            return KeyState.DISABLED
        if self.expires_at is not None and self.expires_at <= now:
            return KeyState.EXPIRED
        return KeyState.ACTIVE


def may_hold(person_status: PersonStatus | None, purpose: Purpose) -> bool:
    """Return whether a key of this purpose works for somebody with this status.

    A management key works for every member; what it may do, their role says.
    """
    action = Action.KEYS_CREATE if purpose is Purpose.INFERENCE else Action.KEYS_SEE
    member = person_status is not None and person_status.role is not None
    return member and extent(action, columns(person_status)) is Extent.ALL


@dataclass(frozen=True, slots=True)
class KeySecret:
    """A secret of a key, as it is kept. One that ends has been replaced."""

    digest: bytes
    key_id: str
    expires_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Grant:
    """Permissions of one secret: everything that the request path has to know of it."""

    key: ApiKey
    works: bool
    """False for revoked keys, which are cached too, so that asking again costs nothing."""
    until: datetime | None
    """First moment at which the grant no longer applies."""
    project_bounds: LimitsAndBudgets
    person_bounds: LimitsAndBudgets = UNBOUNDED
    """Of the person from whom the key derives, over all their keys and projects."""
    recorded: bool = False
    """The project logs the contents of requests."""


def new_key_id() -> str:
    return f"ck_{letters(_PUBLIC_LENGTH)}"


def new_secret(key_id: str) -> str:
    """A whole new key with this public id."""
    return f"{key_id}_{new_token()}"
