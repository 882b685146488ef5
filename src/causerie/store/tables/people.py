"""People: who they are, how they prove it, what they belong to, and what they did."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    Table,
    Text,
)

from causerie.store.columns import JSON_OBJECT, Moment
from causerie.store.tables.base import METADATA

users = Table(
    "users",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("email", Text, nullable=False, unique=True),
    Column("name", Text, nullable=False),
    Column("password", Text),
    Column("operator", Boolean, nullable=False),
    Column("created_at", Moment, nullable=False),
    Column("disabled_at", Moment),
    Column("operator_group", Text, nullable=False, server_default=""),
)

identities = Table(
    "identities",
    METADATA,
    Column("issuer", Text, primary_key=True),
    Column("subject", Text, primary_key=True),
    Column("user_id", Text, ForeignKey("users.id"), nullable=False, index=True),
    Column("linked_at", Moment, nullable=False),
)

projects = Table(
    "projects",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("name", Text, nullable=False),
    Column("created_at", Moment, nullable=False),
    Column("archived_at", Moment),
    Column("recording_days", Integer),
)

memberships = Table(
    "memberships",
    METADATA,
    Column("project_id", Text, ForeignKey("projects.id"), primary_key=True),
    Column("user_id", Text, ForeignKey("users.id"), primary_key=True, index=True),
    Column("role", Text, nullable=False),
    Column("since", Moment, nullable=False),
    Column("from_group", Text, nullable=False, server_default=""),
)

one_time_links = Table(
    "one_time_links",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("kind", Text, nullable=False),
    Column("digest", LargeBinary, nullable=False, unique=True),
    Column("email", Text),
    Column("project_id", Text, ForeignKey("projects.id"), index=True),
    Column("role", Text),
    Column("operator", Boolean, nullable=False),
    Column("user_id", Text, ForeignKey("users.id")),
    Column("created_by", Text, nullable=False),
    Column("created_at", Moment, nullable=False),
    Column("expires_at", Moment, nullable=False),
    Column("used_at", Moment),
    Column("person", Text, index=True),
)

# When somebody last left a project: older invitations let them in no more.
departures = Table(
    "departures",
    METADATA,
    Column("project_id", Text, ForeignKey("projects.id"), primary_key=True),
    Column("user_id", Text, ForeignKey("users.id"), primary_key=True),
    Column("at", Moment, nullable=False),
)

sessions = Table(
    "sessions",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("digest", LargeBinary, nullable=False, unique=True),
    Column("user_id", Text, ForeignKey("users.id"), nullable=False, index=True),
    Column("stage", Text, nullable=False),
    Column("created_at", Moment, nullable=False),
    Column("seen_at", Moment, nullable=False),
    Column("expires_at", Moment, nullable=False),
    Column("address", Text, nullable=False),
    Column("agent", Text, nullable=False),
)

totp = Table(
    "totp",
    METADATA,
    Column("user_id", Text, ForeignKey("users.id"), primary_key=True),
    Column("secret", Text, nullable=False),
    Column("confirmed_at", Moment),
    Column("last_step", BigInteger, nullable=False),
)

recovery_codes = Table(
    "recovery_codes",
    METADATA,
    Column("user_id", Text, ForeignKey("users.id"), primary_key=True),
    Column("digest", LargeBinary, primary_key=True),
)

attempts = Table(
    "attempts",
    METADATA,
    Column("scope", Text, primary_key=True),
    Column("failures", Integer, nullable=False),
    Column("last_at", Moment, nullable=False, index=True),
)

audit = Table(
    "audit",
    METADATA,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("at", Moment, nullable=False),
    Column("actor", Text, nullable=False),
    Column("actor_name", Text, nullable=False),
    Column("action", Text, nullable=False),
    Column("project_id", Text),
    Column("subject", Text, nullable=False),
    Column("details", JSON_OBJECT, nullable=False),
    Index(None, "project_id", "id"),
)
