"""Records of request contents and of configuration entries, as the store keeps them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

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
        """Return its subject in the audit log."""
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
