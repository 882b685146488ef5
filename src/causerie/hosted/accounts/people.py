"""Users, projects, and the role of each user in a project; and the ONE table of who may do what."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from enum import IntEnum, StrEnum
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


class Extent(IntEnum):
    """Extent of a right."""

    NO = 0
    OWN = 1
    ALL = 2


class RoleColumn(StrEnum):
    """A column of the table: a role in the project, or a part that has none."""

    OPERATOR = "operator"
    OWNER = Role.OWNER
    ADMIN = Role.ADMIN
    MEMBER = Role.MEMBER
    VIEWER = Role.VIEWER
    MANAGEMENT_KEY = "management key"
    OUTSIDER = "outsider"


class Action(StrEnum):
    """A row of the table."""

    PROJECT_SEE = "project.see"
    PROJECT_RENAME = "project.rename"
    PROJECT_ARCHIVE = "project.archive"
    MEMBERS_SEE = "members.see"
    MEMBERS_INVITE = "members.invite"
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
    CREDITS_PUT = "credits.put"
    MODELS_ASK = "models.ask"
    USAGE_SEE = "usage.see"
    ACTIVITY_SEE = "activity.see"
    RECORDING_SET = "recording.set"
    CONTENTS_SEE = "contents.see"
    AUDIT_SEE = "audit.see"
    USERS_SEE = "users.see"
    USERS_INVITE = "users.invite"
    USERS_CHANGE = "users.change"
    PROJECTS_CREATE = "projects.create"
    SERVICE_SEE = "service.see"
    PROVIDERS_SEE = "providers.see"
    PROVIDERS_PROBE = "providers.probe"
    CONFIGURATION_CHANGE = "configuration.change"
    ALERTS_TEST = "alerts.test"


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

_ = Extent.NO
o = Extent.OWN
X = Extent.ALL

# Columns: operator, owner, admin, member, viewer, management key, outsider.
_ROWS: dict[Action, tuple[Extent, ...]] = {
    Action.PROJECT_SEE: (X, X, X, X, X, X, _),
    Action.PROJECT_RENAME: (X, X, X, _, _, _, _),
    Action.PROJECT_ARCHIVE: (X, X, _, _, _, _, _),
    Action.MEMBERS_SEE: (X, X, X, X, X, _, _),
    Action.MEMBERS_INVITE: (X, X, X, _, _, _, _),
    Action.MEMBERS_CHANGE: (X, X, X, _, _, _, _),
    Action.MEMBERS_REMOVE: (X, X, X, o, o, _, _),
    Action.OWNERS_CHANGE: (X, X, _, _, _, _, _),
    Action.KEYS_SEE: (X, X, X, X, X, X, _),
    Action.KEYS_CREATE: (_, X, X, X, _, X, _),
    Action.KEYS_EDIT: (_, X, X, o, _, X, _),
    Action.KEYS_DISABLE: (X, X, X, o, _, X, _),
    Action.KEYS_ROTATE: (_, X, X, o, _, X, _),
    Action.KEYS_DELETE: (X, X, X, o, _, X, _),
    Action.KEYS_TRANSFER: (X, X, X, _, _, _, _),
    Action.MANAGEMENT_KEYS: (X, X, X, _, _, _, _),
    Action.BOUNDS_SET: (X, _, _, _, _, _, _),
    Action.CREDITS_PUT: (X, _, _, _, _, _, _),
    Action.MODELS_ASK: (_, X, X, X, _, _, _),
    Action.USAGE_SEE: (X, X, X, X, X, X, _),
    Action.ACTIVITY_SEE: (X, X, X, X, X, X, _),
    Action.RECORDING_SET: (_, X, X, _, _, X, _),
    Action.CONTENTS_SEE: (_, X, X, o, _, _, _),
    Action.AUDIT_SEE: (X, X, X, _, _, _, _),
    Action.USERS_SEE: (X, _, _, _, _, _, _),
    Action.USERS_INVITE: (X, _, _, _, _, _, _),
    Action.USERS_CHANGE: (X, _, _, _, _, _, _),
    Action.PROJECTS_CREATE: (X, _, _, _, _, _, _),
    Action.SERVICE_SEE: (X, _, _, _, _, _, _),
    Action.PROVIDERS_SEE: (X, _, _, _, _, _, _),
    Action.PROVIDERS_PROBE: (X, _, _, _, _, _, _),
    Action.CONFIGURATION_CHANGE: (X, _, _, _, _, _, _),
    Action.ALERTS_TEST: (X, _, _, _, _, _, _),
}

RIGHTS: dict[Action, dict[RoleColumn, Extent]] = {
    action: dict(zip(RoleColumn, row, strict=True)) for action, row in _ROWS.items()
}


def extent(action: Action, parts: Iterable[RoleColumn]) -> Extent:
    """Return the extent to which somebody with these parts may do this."""
    return max((RIGHTS[action][part] for part in parts), default=Extent.NO)


def columns(person_status: PersonStatus | None) -> frozenset[RoleColumn]:
    """Return the columns that apply to a user; a disabled account is an outsider's."""
    found = {RoleColumn.OUTSIDER}
    if person_status is not None and not person_status.disabled:
        if person_status.operator:
            found.add(RoleColumn.OPERATOR)
        if person_status.role is not None:
            found.add(RoleColumn(person_status.role))
    return frozenset(found)
