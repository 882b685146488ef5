"""Users, projects, roles in projects, and the table of rights, the only place that defines them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from enum import IntEnum, StrEnum
from typing import Literal, Self

from causerie.access.networks import NetworkList


class Role(StrEnum):
    """Role of a user in a project."""

    OWNER = "owner"
    ADMIN = "admin"
    MEMBER = "member"
    VIEWER = "viewer"


REMOVED = "(removed)"


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

    @property
    def operates(self) -> bool:
        """Return whether they have a right over the whole service."""
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
        """Return whether it changes people and keys of all projects."""
        return self.operator or RoleColumn.PEOPLE in self.rights

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
    return Actor("user", user.id, user.name, operator=user.operator, rights=user.rights)


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
    READ = "read"
    PEOPLE = "people"
    CONFIGURATION = "configuration"
    USAGE = "usage"
    OPERATOR_KEY = "operator key"
    """A key of operators with all rights or ``people``, in addition to those."""


OPERATOR_RIGHTS = RoleColumn.READ, RoleColumn.PEOPLE, RoleColumn.CONFIGURATION, RoleColumn.USAGE
"""Rights that an operator can be limited to."""


class Action(StrEnum):
    """A row of the table of rights: name, a letter for each :class:`RoleColumn`, and words.

    ``X`` is :attr:`Extent.ALL`, ``o`` :attr:`Extent.OWN` and ``_`` :attr:`Extent.NO`. A person has
    the rights of their role in the project, and an operator those of operators in addition.
    ``docs/reference/rights.md`` is generated from it.
    """

    extents: str
    words: str

    def __new__(cls, name: str, extents: str = "", words: str = "") -> Self:
        action = str.__new__(cls, name)
        action._value_ = name
        action.extents, action.words = extents, words
        return action

    # Columns: operator, owner, admin, member, viewer, management key, outsider; limited operators
    # with read, people, configuration, usage; operator key.

    PROJECT_SEE = "project.see", "XXXXXX_ XX_X_", "see the project, its limits and budgets"
    PROJECT_RENAME = "project.rename", "XXX____ _X___", "rename the project"
    PROJECT_NETWORKS = (
        "project.networks",
        "XXX____ _X___",
        "set the networks from which keys of the project work",
    )
    PROJECT_ARCHIVE = "project.archive", "XX_____ _X___", "archive the project and bring it back"
    MEMBERS_SEE = "members.see", "XXXXX__ XX___", "see members and open invitations"
    MEMBERS_INVITE = "members.invite", "XXX____ _X___", "invite people and withdraw invitations"
    MEMBERS_ADD = "members.add", "X______ _X___", "make a user a member without an invitation"
    MEMBERS_CHANGE = (
        "members.change",
        "XXX____ _X___",
        "change the role of a member, and which models and doors they may use",
    )
    MEMBERS_REMOVE = "members.remove", "XXXoo__ _X___", "remove a member (own: leave the project)"
    OWNERS_CHANGE = (
        "owners.change",
        "XX_____ _X___",
        "invite or remove an owner, or change who is an owner",
    )
    KEYS_SEE = "keys.see", "XXXXXX_ XX___", "see keys (never their secrets)"
    KEYS_CREATE = "keys.create", "_XXX_X_ ____X", "create a key"
    KEYS_EDIT = (
        "keys.edit",
        "_XXo_X_ ____X",
        "change a key: name, expiry, doors, models, limits, budgets",
    )
    KEYS_DISABLE = "keys.disable", "XXXo_X_ _X___", "disable and enable a key"
    KEYS_ROTATE = "keys.rotate", "_XXo_X_ ____X", "give a key a new secret"
    KEYS_DELETE = "keys.delete", "XXXo_X_ _X___", "delete a key"
    KEYS_TRANSFER = (
        "keys.transfer",
        "XXX____ _X___",
        "transfer a key to a member, also one of a removed member",
    )
    MANAGEMENT_KEYS = (
        "management_keys.change",
        "XXX____ _X___",
        "do any of this with management keys",
    )
    BOUNDS_SET = (
        "bounds.set",
        "X______ _X___",
        "set limits, budgets, allowed models and doors of the project, and of users",
    )
    BOUNDS_LOWER = (
        "bounds.lower",
        "XX_____ _X___",
        "set lower limits and budgets for the project and its members",
    )
    CREDITS_PUT = "credits.put", "X______ _X___", "add credits to the project, and take them out"
    CREDITS_BUY = "credits.buy", "XXX____ _____", "buy credits for the project"
    MODELS_ASK = (
        "models.ask",
        "_XXX___ _____",
        "send requests from the playground, which the project pays for",
    )
    USAGE_SEE = "usage.see", "XXXXXX_ XX_X_", "see usage and cost"
    ACTIVITY_SEE = (
        "activity.see",
        "XXXXXX_ XX_X_",
        "see single requests (never prompts and replies)",
    )
    RECORDING_SET = (
        "recording.set",
        "_XX__X_ _____",
        "turn request logging of the project on and off",
    )
    CONTENTS_SEE = "contents.see", "_XXo___ _____", "see logged prompts and replies"
    CONTENTS_EXPORT = "contents.export", "_X_____ _____", "export logged prompts and replies"
    AUDIT_SEE = "audit.see", "XXX____ XX___", "see the audit log of the project"
    USERS_SEE = "users.see", "X______ XX_X_", "see all users and projects"
    USERS_INVITE = (
        "users.invite",
        "X______ _X___",
        "invite people to the service and create links for new passwords",
    )
    USERS_CHANGE = (
        "users.change",
        "X______ _X___",
        "create, disable and enable users, and remove two-factor authentication",
    )
    OPERATORS_CHANGE = (
        "operators.change",
        "X______ _____",
        "appoint operators, do any of this with their accounts, and create and delete operator "
        "keys",
    )
    PROJECTS_CREATE = "projects.create", "X______ _X___", "create a project"
    USAGE_SEE_ALL = (
        "usage.see_all",
        "X______ XX_X_",
        "see usage and cost of the whole service, and its single requests as in a project",
    )
    SERVICE_SEE = (
        "service.see",
        "X______ X_X__",
        "see health, alerts and audit log of the whole service",
    )
    PROVIDERS_SEE = (
        "providers.see",
        "X______ X_X__",
        "see providers, their capabilities, and routing explanations",
    )
    PROVIDERS_PROBE = "providers.probe", "X______ __X__", "probe providers and apply the results"
    CONFIGURATION_CHANGE = (
        "configuration.change",
        "X______ __X__",
        "try providers; create, change and delete configuration entries",
    )
    ALERTS_TEST = "alerts.test", "X______ __X__", "send a test by a channel of alerts"


RIGHTS: dict[Action, dict[RoleColumn, Extent]] = {
    action: {
        column: {"X": Extent.ALL, "o": Extent.OWN, "_": Extent.NO}[letter]
        for column, letter in zip(RoleColumn, action.extents.replace(" ", ""), strict=True)
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
        found.update(map(RoleColumn, person_status.rights))
        if person_status.role is not None:
            found.add(RoleColumn(person_status.role))
    return frozenset(found)
