"""One-time links: a secret that lets its bearer in once, to make an account or a new password.

Only a digest is kept. Any holder of the link may use it: it is sent to one person, ends soon, and
works once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from causerie.accounts.names import digest, new_id, new_token
from causerie.accounts.people import Actor, Role
from causerie.errors import NotFound

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
