"""API keys, ``ck_<public id>_<secret>``, and one-time links; only digests of secrets are stored.

A key that is being rotated has an old secret that works until its end. A key derives from a person
and works while that person may have it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from causerie.access.allowed import AccessRule
from causerie.access.networks import NetworkList
from causerie.errors import NotFound
from causerie.hosted.accounts.bounds import UNBOUNDED, LimitsAndBudgets
from causerie.hosted.accounts.people import (
    Action,
    Actor,
    Extent,
    PersonStatus,
    Role,
    columns,
    extent,
)
from causerie.hosted.accounts.tokens import letters, new_token


class Purpose(StrEnum):
    INFERENCE = "inference"
    MANAGEMENT = "management"


class KeyState(StrEnum):
    """State of a key: active, or why it does not work; shown to its owners only."""

    ACTIVE = "active"
    DISABLED = "disabled"
    EXPIRED = "expired"
    DELETED = "deleted"
    WITHDRAWN = "withdrawn"
    """The person from whom it derives may not have it."""


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key without its secret."""

    id: str
    project_id: str
    created_by: str
    name: str
    purpose: Purpose
    doors: frozenset[str] | None
    """Doors that it may use; ``None``: all."""
    models: frozenset[str] | None
    """Models that it may use; ``None``: all."""
    created_at: datetime
    expires_at: datetime | None = None
    disabled_at: datetime | None = None
    disabled_by: str | None = None
    """This actor or one with more rights may enable it."""
    deleted_at: datetime | None = None
    bounds: LimitsAndBudgets = UNBOUNDED
    person: str = ""
    """User from whom it derives; empty for a key of the project itself."""
    withdrawn_at: datetime | None = None
    """When the person left the project; coming back does not revive the key."""
    person_status: PersonStatus | None = None
    """Present status of the person."""
    networks: tuple[str, ...] | None = None
    """Networks from which it works, of those of its project; ``None``: all."""

    @property
    def withdrawn(self) -> bool:
        """Return whether the key was withdrawn, or the person it derives from may not have it."""
        unheld = bool(self.person) and not may_hold(self.person_status, self.purpose)
        return self.withdrawn_at is not None or unheld

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
    """Return whether somebody with this status may have a key of this purpose.

    Every member may have a management key, which has the rights of their role.
    """
    action = Action.KEYS_CREATE if purpose is Purpose.INFERENCE else Action.KEYS_SEE
    member = person_status is not None and person_status.role is not None
    return member and extent(action, columns(person_status)) is Extent.ALL


@dataclass(frozen=True, slots=True)
class KeySecret:
    """The digest of a key's secret; one with an end has been replaced by a newer one."""

    digest: bytes
    key_id: str
    expires_at: datetime | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Grant:
    """Permissions of one secret: all that the request path needs of it."""

    key: ApiKey
    works: bool
    """False for revoked keys, which are cached too."""
    until: datetime | None
    """End of the grant, if there is one."""
    project_bounds: LimitsAndBudgets
    person_bounds: LimitsAndBudgets = UNBOUNDED
    """Bounds of the person, over all their keys and projects."""
    member_bounds: LimitsAndBudgets = UNBOUNDED
    """Bounds of the person in the project, which its owners set."""
    access: tuple[AccessRule, ...] = ()
    """What project, person and membership allow, where they restrict something."""
    recorded: bool = False
    """Whether the project keeps the contents of requests."""
    project_networks: tuple[str, ...] | None = None

    @property
    def networks(self) -> NetworkList | None:
        """Return the networks from which requests are accepted, by both the key and the project."""
        return NetworkList.of(self.key.networks, self.project_networks)


@dataclass(frozen=True, slots=True)
class OperatorKey:
    """A key of operators without its secret."""

    id: str
    digest: bytes = field(repr=False)
    name: str
    rights: frozenset[str]
    """Rights that it is limited to; empty: all rights of operators."""
    created_by: str
    created_at: datetime
    expires_at: datetime | None = None
    deleted_at: datetime | None = None

    def good(self, now: datetime) -> bool:
        ended = self.expires_at is not None and self.expires_at <= now
        return self.deleted_at is None and not ended


def new_key_id() -> str:
    return f"ck_{letters(12)}"


def new_secret(key_id: str) -> str:
    """Return a new key with this public id and a new secret."""
    return f"{key_id}_{new_token()}"


class LinkKind(StrEnum):
    OWNER = "owner"
    INVITATION = "invitation"
    RESET = "reset"
    ADDRESS = "address"
    """It gives the account of ``user_id`` the address that it was sent to."""


LINK_LIVES = {
    LinkKind.OWNER: timedelta(days=1),
    LinkKind.INVITATION: timedelta(days=7),
    LinkKind.RESET: timedelta(hours=2),
    LinkKind.ADDRESS: timedelta(days=1),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class OneTimeLink:
    """A link without its secret."""

    id: str
    kind: LinkKind
    digest: bytes = field(repr=False)
    email: str | None = None
    """Only address that may use an invitation."""
    project_id: str | None = None
    """Project that its bearer joins."""
    role: Role | None = None
    """Role of its bearer in the project."""
    operator: bool = False
    user_id: str | None = None
    """User whose password it resets."""
    created_by: str
    created_at: datetime
    expires_at: datetime
    used_at: datetime | None = None
    person: str = ""
    """User from whom it derives (empty: nobody), while they may create such a link."""


# Creators of the links of sign-ups: one sent to its address, and one that an operator passes on.
SIGN_UP = Actor("system", "sign-up", "sign-up")
APPROVED = Actor("system", "sign-up-approved", "sign-up")
ADDRESS = Actor("system", "address-change", "change of address")
FORGOTTEN = Actor("system", "password-reset", "password reset")


@dataclass(frozen=True, slots=True)
class NewLink:
    """A new link; ``token`` is shown once."""

    link: OneTimeLink
    token: str = field(repr=False)


def no_such_link() -> NotFound:
    """Return the error for every link that does not work."""
    return NotFound(
        "This link does not work any more: it was used, withdrawn, or is too old. "
        "Ask for a new one.",
        code="link_spent",
    )
