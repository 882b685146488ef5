"""Contents of requests, of projects that keep them: sealed, with an expiry."""

from __future__ import annotations

from sqlalchemy import Boolean, Column, Table, Text, Uuid

from causerie.store.columns import Moment
from causerie.store.tables.base import METADATA

# The ids are those of usage records.
recordings = Table(
    "recordings",
    METADATA,
    Column("id", Uuid(as_uuid=False), primary_key=True),
    Column("project_id", Text, nullable=False, index=True),
    Column("user_id", Text, nullable=False),
    Column("at", Moment, nullable=False),
    Column("expires_at", Moment, nullable=False, index=True),
    Column("request", Text, nullable=False),
    Column("request_cut", Boolean, nullable=False),
    Column("reply", Text, nullable=False),
    Column("reply_cut", Boolean, nullable=False),
)
