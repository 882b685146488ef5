"""An entry of the configuration that operators make while the service runs, as it is kept.

What it says is for ``settings`` to judge; here it is a name and a body. Its credential is kept
apart, encrypted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

CHANGED = "configuration"
"""The subject under which every process hears of a change."""

EntryKind = Literal["provider", "alias", "catalog_model", "model", "door", "webhook", "email"]


@dataclass(frozen=True, slots=True)
class StoredEntry:
    """An entry as it is kept; ``version`` counts its changes."""

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
    """Its credential was encrypted with a key that is not here any more."""

    @property
    def label(self) -> str:
        """Return what the audit log calls it."""
        return f"{self.kind}:{self.name}"


@dataclass(frozen=True, slots=True)
class EntryDraft:
    """Wanted state of an entry.

    Without a ``credential`` one that is kept stays; an empty one removes it.
    """

    kind: EntryKind
    name: str
    body: Mapping[str, Any]
    credential: str | None = field(default=None, repr=False)
    enabled: bool = True
