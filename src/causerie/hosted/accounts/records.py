"""Records in the store: contents of requests, configuration entries and the audit log.

The audit log never holds secrets or contents.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Literal, Self

from causerie.hosted.accounts.people import Actor

LONGEST_DAYS = 90


@dataclass(frozen=True, slots=True)
class Recording:
    """Contents of one request; ``id`` is the id of its usage record."""

    id: str
    project_id: str
    user_id: str
    """User who created the key, or used the playground."""
    at: datetime
    request: str = field(repr=False)
    """JSON, or its beginning if ``request_cut``."""
    request_cut: bool
    reply: str = field(repr=False)
    """JSON, or its beginning if ``reply_cut``; empty without a reply."""
    reply_cut: bool


CHANGED = "configuration"
"""Subject of the announcements of configuration changes to all processes."""

EntryKind = Literal[
    "provider", "alias", "catalog_model", "model", "door", "policy", "webhook", "email"
]


@dataclass(frozen=True, slots=True)
class StoredEntry:
    """A stored configuration entry; ``version`` counts its changes."""

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
    """The key that encrypted its credential is missing."""

    @property
    def label(self) -> str:
        """Return the entry's name in the audit log."""
        return f"{self.kind}:{self.name}"


@dataclass(frozen=True, slots=True)
class EntryDraft:
    """Wanted state of an entry; ``credential``: ``None`` keeps the stored one, empty removes it."""

    kind: EntryKind
    name: str
    body: Mapping[str, Any]
    credential: str | None = field(default=None, repr=False)
    enabled: bool = True


class Taken(Exception):
    """A unique value exists already."""


_BECAME = " -> "


class AuditKind(StrEnum):
    """Kind of the object that an entry of the audit log is about."""

    title_words: str
    """Of its entries together."""

    def __new__(cls, name: str, words: str = "") -> Self:
        kind = str.__new__(cls, name)
        kind._value_ = name
        kind.title_words = words
        return kind

    KEY = "key", "API keys"
    MEMBER = "member", "Members and invitations"
    PROJECT = "project", "Projects"
    CREDITS = "credits", "Credits"
    USER = "user", "Users"
    OPERATOR_KEY = "operator_key", "Operator keys"
    SIGN_IN = "sign_in", "Sign-ins"
    GROUP = "group", "Groups of directories"
    PROVIDER = "provider", "Providers"
    TAG = "tag", "Budgets of tags"
    ALIAS = "alias", "Aliases"
    MODEL = "model", "Own models"
    DOOR = "door", "Doors"
    CATALOG_MODEL = "catalog_model", "Catalog models"
    POLICY = "policy", "Policies"
    ALERTS = "alerts", "Alerts"


CONFIGURATION = "configuration."
"""Prefix of the actions on entries of the configuration; their subjects begin with a kind."""
_NAMED_ALIKE = ("provider", "alias", "model", "door", "catalog_model", "policy")
ENTRY_KINDS: Mapping[str, AuditKind] = MappingProxyType(
    {kind: AuditKind(kind) for kind in _NAMED_ALIKE}
    | {"webhook": AuditKind.ALERTS, "email": AuditKind.ALERTS}
)
"""Kinds of audit entries by kinds of configuration entries."""


@dataclass(frozen=True, slots=True)
class AuditEntry:
    at: datetime
    actor: str
    actor_name: str
    action: str
    subject: str
    """Id of the object."""
    project_id: str | None = None
    details: Mapping[str, str] = field(default_factory=dict)
    """The changes, as text; of a changed value :func:`difference`."""
    id: int = 0
    subject_name: str | None = None
    """Name of the object now, if it is a key, a user or a project."""
    subject_deleted: bool = False


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """Filter of audit entries; ``before`` is the last id of the page before."""

    project_id: str | None = None
    actor: str | None = None
    action: str | None = None
    subject: str | None = None
    kind: AuditKind | None = None
    before: int | None = None
    limit: int = 100

    @property
    def count(self) -> int:
        return min(max(self.limit, 1), 500)


def entry(
    at: datetime,
    actor: Actor,
    action: str,
    subject: str,
    project_id: str | None = None,
    **details: str,
) -> AuditEntry:
    return AuditEntry(at, actor.label, actor.name, action, subject, project_id, details)


def difference(before: object, after: object) -> str:
    """Return old and new value as one text, for the details of an audit entry."""
    return f"{before}{_BECAME}{after}"


def differences(before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, str]:
    """Return the :func:`difference` of each value that has changed, by its name."""
    return {
        name: difference(before[name], after[name])
        for name in before
        if before[name] != after[name]
    }


def both(detail: str) -> tuple[str, str] | None:
    """Return the old and the new value of a :func:`difference`; ``None`` for other details."""
    before, became, after = detail.partition(_BECAME)
    return (before, after) if became and _BECAME not in after else None
