"""Users, projects, and the role of each user in a project."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Literal


class Role(StrEnum):
    """Role of a user in a project."""

    OWNER = "owner"
    ADMIN = "admin"
    MEMBER = "member"
    VIEWER = "viewer"


@dataclass(frozen=True, slots=True)
class User:
    """A person. ``password`` is its hash; without one they sign in elsewhere."""

    id: str
    email: str
    name: str
    password: str | None = field(repr=False)
    operator: bool
    created_at: datetime
    disabled_at: datetime | None = None
    operator_group: str = ""
    """``PROVIDER:GROUP`` of the identity provider's group that makes them an operator."""


@dataclass(frozen=True, slots=True)
class LinkedIdentity:
    """A user as an OpenID provider knows them."""

    issuer: str
    subject: str
    user_id: str
    linked_at: datetime


@dataclass(frozen=True, slots=True)
class Project:
    """The owner of keys, usage and members. In an archived project no key works."""

    id: str
    name: str
    created_at: datetime
    archived_at: datetime | None = None
    recording_days: int | None = None
    """Number of days for which contents of requests are kept; ``None``: they are not."""


@dataclass(frozen=True, slots=True)
class Membership:
    """A user's part in a project."""

    project_id: str
    user_id: str
    role: Role
    since: datetime
    from_group: str = ""
    """``PROVIDER:GROUP`` of the identity provider's group that gives it; empty: by hand."""


@dataclass(frozen=True, slots=True)
class ProjectMember:
    """A membership, with the person it is of."""

    user: User
    role: Role
    since: datetime
    from_group: str = ""


@dataclass(frozen=True, slots=True)
class PersonStatus:
    """A user's present account and role in a project; the role is ``None`` outside of it."""

    name: str
    operator: bool
    disabled: bool
    role: Role | None = None


@dataclass(frozen=True, slots=True)
class Actor:
    """The person, key or machine that does something."""

    kind: Literal["user", "key", "system"]
    """``system`` is the machine's owner at the command line."""
    id: str
    name: str
    operator: bool = False
    project: str | None = None
    """Project of a management key."""
    holder: str = ""
    """User from whom a management key derives, if any."""

    @property
    def person(self) -> str:
        """The user that everything which this actor creates derives from; empty for nobody."""
        return self.id if self.kind == "user" else self.holder

    @property
    def label(self) -> str:
        """As the audit log names it."""
        return f"{self.kind}:{self.id}"


SYSTEM = Actor("system", "cli", "command line", operator=True)


def actor_of(user: User) -> Actor:
    """The user, as somebody who does something."""
    return Actor("user", user.id, user.name, operator=user.operator)
