"""API keys, ``ck_<public id>_<secret>``, and one-time links. Only digests of their secrets are
kept.

The public id names a key everywhere; the secret is shown once. A key that is being rotated has
an old secret that works until its end. A key carries the person it derives from, and works
while that person may have it. A link lets its bearer in once, to make an account or a new
password.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

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
from causerie.hosted.accounts.tokens import digest, letters, new_id, new_token

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


INVITATION_LIFE = timedelta(days=7)
OWNER_LIFE = timedelta(days=1)
RESET_LIFE = timedelta(hours=2)


class LinkKind(StrEnum):
    """Purpose of a one-time link."""

    OWNER = "owner"
    INVITATION = "invitation"
    RESET = "reset"


@dataclass(frozen=True, slots=True)
class OneTimeLink:
    """A link without its secret."""

    id: str
    kind: LinkKind
    digest: bytes = field(repr=False)
    email: str | None
    """Binds an invitation to an address."""
    project_id: str | None
    """Project that its bearer joins."""
    role: Role | None
    """Role of its bearer in the project."""
    operator: bool
    user_id: str | None
    """User whose password it resets."""
    created_by: str
    created_at: datetime
    expires_at: datetime
    used_at: datetime | None = None
    person: str = ""
    """User from whom it derives, empty for nobody: it works while that user may create such a link.
    """


# Creator of the links of people that ask for an account themselves: a sign-up, whose link goes to
# its address alone, and an operator who gives one by hand.
SIGN_UP = Actor("system", "sign-up", "sign-up")
APPROVED = Actor("system", "sign-up-approved", "sign-up")


@dataclass(frozen=True, slots=True)
class NewLink:
    """A link that was just made; ``token`` is shown once."""

    link: OneTimeLink
    token: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class LinkGrant:
    """Rights that a link gives to its user; the fields are those of :class:`OneTimeLink`."""

    email: str | None = None
    project_id: str | None = None
    role: Role | None = None
    operator: bool = False
    user_id: str | None = None


def new_link(kind: LinkKind, now: datetime, actor: Actor, grant: LinkGrant) -> NewLink:
    """Make one, with the life of its kind."""
    token = new_token()
    life = {
        LinkKind.OWNER: OWNER_LIFE,
        LinkKind.INVITATION: INVITATION_LIFE,
        LinkKind.RESET: RESET_LIFE,
    }[kind]
    link = OneTimeLink(
        id=new_id("lnk"),
        kind=kind,
        digest=digest(token),
        email=grant.email,
        project_id=grant.project_id,
        role=grant.role,
        operator=grant.operator,
        user_id=grant.user_id,
        created_by=actor.label,
        created_at=now,
        expires_at=now + life,
        person=actor.person,
    )
    return NewLink(link, token)


def still_good(link: OneTimeLink | None, now: datetime) -> OneTimeLink:
    """The link, if it works; one answer for unknown, used and ended ones: :class:`NotFound`."""
    if link is None or link.used_at is not None or link.expires_at <= now:
        raise no_such_link()
    return link


def no_such_link() -> NotFound:
    """Return the error for every link that does not work."""
    return NotFound(
        "This link does not work any more: it was used, withdrawn, or is too old. "
        "Ask for a new one.",
        code="link_spent",
    )
