"""Contents of one request, as a project keeps them."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

LONGEST_DAYS = 90


@dataclass(frozen=True, slots=True)
class Recording:
    """The contents of one request, by the id of its usage record.

    ``user_id`` is whose request it was: who made the key, or used the
    playground. ``request`` and ``reply`` are JSON, or its beginning where they
    are cut; the reply is empty where there was none.
    """

    id: str
    project_id: str
    user_id: str
    at: datetime
    request: str = field(repr=False)
    request_cut: bool
    reply: str = field(repr=False)
    reply_cut: bool
