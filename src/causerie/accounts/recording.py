"""Contents of one request, as a project keeps them."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

LONGEST_DAYS = 90


@dataclass(frozen=True, slots=True)
class Recording:
    """Contents of one request, by the id of its usage record."""

    id: str
    project_id: str
    user_id: str
    """User who created the key, or used the playground."""
    at: datetime
    request: str = field(repr=False)
    """JSON, or its beginning if it is cut."""
    request_cut: bool
    reply: str = field(repr=False)
    """JSON, or its beginning if it is cut; empty if there was none."""
    reply_cut: bool
