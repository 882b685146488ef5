"""Users, projects, roles in projects, and rights, which only the table of them defines."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import IntEnum, StrEnum
from pathlib import Path
from typing import Literal

from causerie.access.networks import NetworkList


class Role(StrEnum):
    OWNER = "owner"
    ADMIN = "admin"
    MEMBER = "member"
    VIEWER = "viewer"


REMOVED = "(removed)"
REMINDERS = ("budgets", "credits", "keys")
"""Reminders by e-mail: used budgets, low balances of credits, and keys that expire soon."""


@dataclass(frozen=True, slots=True)
class User:
    """A person; ``password`` is a hash, or unset for those who sign in with another provider."""

    id: str
    email: str
    name: str
    password: str | None = field(repr=False)
    operator: bool
    created_at: datetime
    disabled_at: datetime | None = None
    operator_group: str = ""
    """``PROVIDER:GROUP`` of the group that makes them an operator, if a group does."""
    user_name: str = ""
    """Name at the directory that provisions the account by SCIM; empty: none does."""
    external_id: str = ""
    """Id at that directory; :data:`REMOVED` where it has deleted the person."""
    rights: frozenset[str] = frozenset()
    """Rights of a limited operator, of :data:`OPERATOR_RIGHTS`; an ``operator`` has all."""
    muted: frozenset[str] = frozenset()
    """Reminders that they do not want, of :data:`REMINDERS`."""

    def reminded_at(self, reminder: str) -> tuple[str, ...]:
        """Return the address for a reminder, or nothing if the user has switched it off."""
        return () if reminder in self.muted else (self.email,)

    @property
    def operates(self) -> bool:
        """Return whether the user has any right over the whole service."""
        return self.operator or bool(self.rights)


@dataclass(frozen=True, slots=True)
class LinkedIdentity:
    """An identity at an OpenID provider that belongs to a user."""

    issuer: str
    subject: str
    user_id: str
    linked_at: datetime


@dataclass(frozen=True, slots=True)
class IdentityGroup:
    """A group that a directory has provisioned; ``provider`` is its identity provider."""

    id: str
    provider: str
    name: str
    external_id: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class GroupGrant:
    """Right of the members of a group: a role in a project, that of an operator, or ``rights``."""

    group: str
    project_id: str = ""
    role: Role = Role.MEMBER
    operator: bool = False
    rights: frozenset[str] = frozenset()
    """Rights of a limited operator, of :data:`OPERATOR_RIGHTS`."""


@dataclass(frozen=True, slots=True)
class Project:
    """The owner of keys, usage and members. In an archived project no key works."""

    id: str
    name: str
    created_at: datetime
    archived_at: datetime | None = None
    recording_days: int | None = None
    """Number of days for which contents of requests are kept; ``None``: they are not."""
    networks: tuple[str, ...] | None = None
    """Networks from which its keys work; ``None``: all."""


@dataclass(frozen=True, slots=True)
class Membership:
    project_id: str
    user_id: str
    role: Role
    since: datetime
    from_group: str = ""
    """``PROVIDER:GROUP`` of the group that grants it; empty: given by hand."""


@dataclass(frozen=True, slots=True)
class ProjectMember:
    """A membership with its user."""

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
    rights: frozenset[str] = frozenset()


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
    networks: NetworkList | None = None
    """Networks from which a management key may be used; ``None`` for all."""
    rights: frozenset[str] = frozenset()
    """Rights of a limited operator, of :data:`OPERATOR_RIGHTS`."""

    @property
    def oversees(self) -> bool:
        """Return whether the actor may change the people and keys of all projects."""
        return self.operator or RoleColumn.PEOPLE in self.rights

    @property
    def person(self) -> str:
        """Return the user from whom all that this actor creates derives; empty for nobody."""
        return self.id if self.kind == "user" else self.holder

    @property
    def label(self) -> str:
        """Return the name of the actor in the audit log."""
        return f"{self.kind}:{self.id}"


SYSTEM = Actor("system", "cli", "command line", operator=True)


def actor_of(user: User) -> Actor:
    return Actor("user", user.id, user.name, operator=user.operator, rights=user.rights)


@dataclass(frozen=True, slots=True)
class GroupClaims:
    """The groups of a user at a provider, and the grants of the provider's groups."""

    provider: str
    groups: frozenset[str] = frozenset()
    grants: Sequence[GroupGrant] = ()
    provisioned: bool = False
    """The groups are those that the provider has provisioned."""

    @property
    def held(self) -> Sequence[GroupGrant]:
        """Return the grants of the user's groups."""
        return [each for each in self.grants if each.group in self.groups]

    def mark(self, grant: GroupGrant) -> str:
        """Return ``PROVIDER:GROUP``, with which a grant marks a membership or user."""
        return f"{self.provider}:{grant.group}"

    def gave(self, mark: str) -> bool:
        """Return whether a mark is of a grant of this provider."""
        return mark.startswith(f"{self.provider}:")

    @property
    def actor(self) -> Actor:
        """Return the provider as an actor for the audit log."""
        return Actor("system", self.provider, f"provider {self.provider}")


NO_GROUPS = GroupClaims("")


@dataclass(frozen=True, slots=True)
class Vouched:
    """Identity asserted by a provider; ``email``, in lower case, and ``name`` may be empty."""

    issuer: str
    subject: str
    email: str = ""
    email_verified: bool = False
    name: str = ""
    groups: GroupClaims = NO_GROUPS
    """:data:`NO_GROUPS` also where the provider refers to another place for them."""

    @property
    def identity(self) -> tuple[str, str]:
        return self.issuer, self.subject


class Extent(IntEnum):
    NO = 0
    OWN = 1
    ALL = 2


class RoleColumn(StrEnum):
    """A column of the table of rights: a role in the project, or another kind of actor."""

    OPERATOR = "operator"
    OWNER = Role.OWNER
    ADMIN = Role.ADMIN
    MEMBER = Role.MEMBER
    VIEWER = Role.VIEWER
    MANAGEMENT_KEY = "management key"
    OUTSIDER = "outsider"
    READ = "read"
    PEOPLE = "people"
    CONFIGURATION = "configuration"
    USAGE = "usage"
    OPERATOR_KEY = "operator key"
    """A key of operators with all rights or ``people``, in addition to those."""


OPERATOR_RIGHTS = RoleColumn.READ, RoleColumn.PEOPLE, RoleColumn.CONFIGURATION, RoleColumn.USAGE
"""Rights that an operator can be limited to."""


_TABLE: Mapping[str, tuple[str, str]] = tomllib.loads(
    Path(__file__).with_name("rights.toml").read_text("utf-8")
)


class Action(StrEnum):
    """An action: a row of the table of rights, with its words."""

    PROJECT_SEE = "project.see"
    PROJECT_RENAME = "project.rename"
    PROJECT_NETWORKS = "project.networks"
    PROJECT_ARCHIVE = "project.archive"
    MEMBERS_SEE = "members.see"
    MEMBERS_INVITE = "members.invite"
    MEMBERS_ADD = "members.add"
    MEMBERS_CHANGE = "members.change"
    MEMBERS_REMOVE = "members.remove"
    OWNERS_CHANGE = "owners.change"
    KEYS_SEE = "keys.see"
    KEYS_CREATE = "keys.create"
    KEYS_EDIT = "keys.edit"
    KEYS_DISABLE = "keys.disable"
    KEYS_ROTATE = "keys.rotate"
    KEYS_DELETE = "keys.delete"
    KEYS_TRANSFER = "keys.transfer"
    MANAGEMENT_KEYS = "management_keys.change"
    BOUNDS_SET = "bounds.set"
    BOUNDS_LOWER = "bounds.lower"
    CREDITS_PUT = "credits.put"
    CREDITS_BUY = "credits.buy"
    MODELS_ASK = "models.ask"
    USAGE_SEE = "usage.see"
    ACTIVITY_SEE = "activity.see"
    RECORDING_SET = "recording.set"
    CONTENTS_SEE = "contents.see"
    CONTENTS_EXPORT = "contents.export"
    AUDIT_SEE = "audit.see"
    USERS_SEE = "users.see"
    USERS_INVITE = "users.invite"
    USERS_CHANGE = "users.change"
    OPERATORS_CHANGE = "operators.change"
    PROJECTS_CREATE = "projects.create"
    USAGE_SEE_ALL = "usage.see_all"
    SERVICE_SEE = "service.see"
    PROVIDERS_SEE = "providers.see"
    PROVIDERS_PROBE = "providers.probe"
    CONFIGURATION_CHANGE = "configuration.change"
    ALERTS_TEST = "alerts.test"

    @property
    def words(self) -> str:
        return _TABLE[self][1]


RIGHTS: dict[Action, dict[RoleColumn, Extent]] = {
    action: {
        column: {"X": Extent.ALL, "o": Extent.OWN, "_": Extent.NO}[letter]
        for column, letter in zip(RoleColumn, _TABLE[action][0].replace(" ", ""), strict=True)
    }
    for action in Action
}


def extent(action: Action, parts: Iterable[RoleColumn]) -> Extent:
    """Return the extent to which somebody in these columns may do ``action``."""
    return max((RIGHTS[action][part] for part in parts), default=Extent.NO)


def columns(person_status: PersonStatus | None) -> frozenset[RoleColumn]:
    """Return the columns that apply to a user; a disabled user is an outsider."""
    found = {RoleColumn.OUTSIDER}
    if person_status is not None and not person_status.disabled:
        if person_status.operator:
            found.add(RoleColumn.OPERATOR)
        found.update(map(RoleColumn, person_status.rights))
        if person_status.role is not None:
            found.add(RoleColumn(person_status.role))
    return frozenset(found)
