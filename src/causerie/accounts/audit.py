"""The audit log: who did what to whom, and when. Never a secret, never contents."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from causerie.accounts.people import Actor

_MOST = 500


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One entry of the audit log."""

    at: datetime
    actor: str
    actor_name: str
    action: str
    subject: str
    """Id of the object."""
    project_id: str | None = None
    details: Mapping[str, str] = field(default_factory=dict)
    """The changes, as text."""
    id: int = 0


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """Filter of audit entries; ``before`` is the id that the last page ended with."""

    project_id: str | None = None
    actor: str | None = None
    action: str | None = None
    subject: str | None = None
    before: int | None = None
    limit: int = 100

    @property
    def count(self) -> int:
        """Return the number of entries to return at most."""
        return min(max(self.limit, 1), _MOST)


def entry(
    at: datetime,
    actor: Actor,
    action: str,
    subject: str,
    project_id: str | None = None,
    **details: str,
) -> AuditEntry:
    """An entry of something that this actor did."""
    return AuditEntry(at, actor.label, actor.name, action, subject, project_id, details)
