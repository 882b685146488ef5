"""Users, projects, roles in projects, and the table of rights, the only place that defines them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from enum import IntEnum, StrEnum
from typing import Literal, Self


class Role(StrEnum):
    """Role of a user in a project."""

    OWNER = "owner"
    ADMIN = "admin"
    MEMBER = "member"
    VIEWER = "viewer"


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


@dataclass(frozen=True, slots=True)
class LinkedIdentity:
    """An identity at an OpenID provider that belongs to a user."""

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
    """A user's role in a project."""

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
        """User from whom everything that this actor creates derives; empty for nobody."""
        return self.id if self.kind == "user" else self.holder

    @property
    def label(self) -> str:
        """Name of the actor in the audit log."""
        return f"{self.kind}:{self.id}"


SYSTEM = Actor("system", "cli", "command line", operator=True)


def actor_of(user: User) -> Actor:
    """Return the actor of a user."""
    return Actor("user", user.id, user.name, operator=user.operator)


class Extent(IntEnum):
    """Extent of a right."""

    NO = 0
    OWN = 1
    ALL = 2


class RoleColumn(StrEnum):
    """A column of the table of rights: a role in the project, or a part without one."""

    OPERATOR = "operator"
    OWNER = Role.OWNER
    ADMIN = Role.ADMIN
    MEMBER = Role.MEMBER
    VIEWER = Role.VIEWER
    MANAGEMENT_KEY = "management key"
    OUTSIDER = "outsider"


class Action(StrEnum):
    """A row of the table of rights: the name, and a letter for each :class:`RoleColumn`.

    ``X`` is :attr:`Extent.ALL`, ``o`` :attr:`Extent.OWN` and ``_`` :attr:`Extent.NO`. A person has
    the rights of their role in the project, and an operator those of operators in addition.
    ``docs/reference/rights.md`` is generated from it.
    """

    extents: str

    def __new__(cls, name: str, extents: str = "") -> Self:
        action = str.__new__(cls, name)
        action._value_ = name
        action.extents = extents
        return action

    # Columns: operator, owner, admin, member, viewer, management key, outsider.

    PROJECT_SEE = "project.see", "XXXXXX_"
    PROJECT_RENAME = "project.rename", "XXX____"
    PROJECT_ARCHIVE = "project.archive", "XX_____"
    MEMBERS_SEE = "members.see", "XXXXX__"
    MEMBERS_INVITE = "members.invite", "XXX____"
    MEMBERS_CHANGE = "members.change", "XXX____"
    MEMBERS_REMOVE = "members.remove", "XXXoo__"
    OWNERS_CHANGE = "owners.change", "XX_____"
    KEYS_SEE = "keys.see", "XXXXXX_"
    KEYS_CREATE = "keys.create", "_XXX_X_"
    KEYS_EDIT = "keys.edit", "_XXo_X_"
    KEYS_DISABLE = "keys.disable", "XXXo_X_"
    KEYS_ROTATE = "keys.rotate", "_XXo_X_"
    KEYS_DELETE = "keys.delete", "XXXo_X_"
    KEYS_TRANSFER = "keys.transfer", "XXX____"
    MANAGEMENT_KEYS = "management_keys.change", "XXX____"
    BOUNDS_SET = "bounds.set", "X______"
    CREDITS_PUT = "credits.put", "X______"
    MODELS_ASK = "models.ask", "_XXX___"
    USAGE_SEE = "usage.see", "XXXXXX_"
    ACTIVITY_SEE = "activity.see", "XXXXXX_"
    RECORDING_SET = "recording.set", "_XX__X_"
    CONTENTS_SEE = "contents.see", "_XXo___"
    AUDIT_SEE = "audit.see", "XXX____"
    USERS_SEE = "users.see", "X______"
    USERS_INVITE = "users.invite", "X______"
    USERS_CHANGE = "users.change", "X______"
    PROJECTS_CREATE = "projects.create", "X______"
    SERVICE_SEE = "service.see", "X______"
    PROVIDERS_SEE = "providers.see", "X______"
    PROVIDERS_PROBE = "providers.probe", "X______"
    CONFIGURATION_CHANGE = "configuration.change", "X______"
    ALERTS_TEST = "alerts.test", "X______"


WORDS = {
    Action.PROJECT_SEE: "see the project, its limits and budgets",
    Action.PROJECT_RENAME: "rename the project",
    Action.PROJECT_ARCHIVE: "archive the project and bring it back",
    Action.MEMBERS_SEE: "see members and open invitations",
    Action.MEMBERS_INVITE: "invite people and withdraw invitations",
    Action.MEMBERS_CHANGE: "change the role of a member",
    Action.MEMBERS_REMOVE: "remove a member (own: leave the project)",
    Action.OWNERS_CHANGE: "invite or remove an owner, or change who is an owner",
    Action.KEYS_SEE: "see keys (never their secrets)",
    Action.KEYS_CREATE: "create a key",
    Action.KEYS_EDIT: "change a key: name, expiry, doors, models, limits, budgets",
    Action.KEYS_DISABLE: "disable and enable a key",
    Action.KEYS_ROTATE: "give a key a new secret",
    Action.KEYS_DELETE: "delete a key",
    Action.KEYS_TRANSFER: "transfer a key to a member, also one of a removed member",
    Action.MANAGEMENT_KEYS: "do any of this with management keys",
    Action.BOUNDS_SET: "set limits and budgets of the project, and of users",
    Action.CREDITS_PUT: "add credits to the project",
    Action.MODELS_ASK: "send requests from the playground, which the project pays for",
    Action.USAGE_SEE: "see usage and cost",
    Action.ACTIVITY_SEE: "see single requests (never prompts and replies)",
    Action.RECORDING_SET: "turn request logging of the project on and off",
    Action.CONTENTS_SEE: "see logged prompts and replies",
    Action.AUDIT_SEE: "see the audit log of the project",
    Action.USERS_SEE: "see all users and projects",
    Action.USERS_INVITE: "invite people to the service and create links for new passwords",
    Action.USERS_CHANGE: "disable and enable users, remove two-factor authentication, and "
    "appoint operators",
    Action.PROJECTS_CREATE: "create a project",
    Action.SERVICE_SEE: "see usage, requests, alerts and audit log of the whole service",
    Action.PROVIDERS_SEE: "see providers, their capabilities, and routing explanations",
    Action.PROVIDERS_PROBE: "probe providers and apply the results",
    Action.CONFIGURATION_CHANGE: "try providers; create, change and delete configuration entries",
    Action.ALERTS_TEST: "send a test by a channel of alerts",
}

RIGHTS: dict[Action, dict[RoleColumn, Extent]] = {
    action: {
        column: {"X": Extent.ALL, "o": Extent.OWN, "_": Extent.NO}[letter]
        for column, letter in zip(RoleColumn, action.extents, strict=True)
    }
    for action in Action
}


def extent(action: Action, parts: Iterable[RoleColumn]) -> Extent:
    """Return the extent to which somebody in these columns may do this."""
    return max((RIGHTS[action][part] for part in parts), default=Extent.NO)


def columns(person_status: PersonStatus | None) -> frozenset[RoleColumn]:
    """Return the columns that apply to a user; a disabled user is an outsider."""
    found = {RoleColumn.OUTSIDER}
    if person_status is not None and not person_status.disabled:
        if person_status.operator:
            found.add(RoleColumn.OPERATOR)
        if person_status.role is not None:
            found.add(RoleColumn(person_status.role))
    return frozenset(found)
