"""Keys, what they may use, and the counter by which other processes hear of changes."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, ForeignKey, Index, Integer, LargeBinary, Table, Text

from causerie.store.columns import NAME_SET, Moment, Money
from causerie.store.tables.base import METADATA

# `person` is the user that a key derives from, empty for nobody; `NULL` where a version wrote it
# that did not know persons.
api_keys = Table(
    "api_keys",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("project_id", Text, ForeignKey("projects.id"), nullable=False),
    Column("created_by", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("purpose", Text, nullable=False),
    Column("doors", NAME_SET),
    Column("models", NAME_SET),
    Column("created_at", Moment, nullable=False),
    Column("expires_at", Moment),
    Column("disabled_at", Moment),
    Column("disabled_by", Text),
    Column("deleted_at", Moment),
    Column("person", Text, index=True),
    Column("withdrawn_at", Moment),
    Index(None, "project_id", "created_at"),
)

# A key that is being rotated has two secrets for a while; the old one has an end.
key_secrets = Table(
    "key_secrets",
    METADATA,
    Column("digest", LargeBinary, primary_key=True),
    Column("key_id", Text, ForeignKey("api_keys.id"), nullable=False, index=True),
    Column("expires_at", Moment),
)

# Owners are `key:ID`, `user:ID` and `project:ID`. The model is empty where a row is for all models.
limits = Table(
    "limits",
    METADATA,
    Column("owner", Text, primary_key=True),
    Column("model", Text, primary_key=True),
    Column("requests_per_minute", BigInteger),
    Column("tokens_per_minute", BigInteger),
    Column("input_tokens_per_minute", BigInteger),
    Column("output_tokens_per_minute", BigInteger),
    Column("concurrent", BigInteger),
)

# `amount` counts billionths of money, or tokens.
budgets = Table(
    "budgets",
    METADATA,
    Column("owner", Text, primary_key=True),
    Column("model", Text, primary_key=True),
    Column("unit", Text, primary_key=True),
    Column("period", Text, primary_key=True),
    Column("amount", BigInteger, nullable=False),
)

# Amounts paid in for projects; withdrawals have a minus.
credits = Table(
    "credits",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("project_id", Text, nullable=False),
    Column("amount", Money, nullable=False),
    Column("at", Moment, nullable=False),
    Column("by", Text, nullable=False),
    Column("note", Text, nullable=False),
    Index(None, "project_id", "at"),
)

# One row, raised by whoever changes a key or project: its lock makes the order of
# numbers the order of commits, which a sequence does not.
change_counter = Table(
    "change_counter",
    METADATA,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("number", BigInteger, nullable=False),
)

changes = Table(
    "changes",
    METADATA,
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("subject", Text, nullable=False),
    Column("at", Moment, nullable=False, index=True),
)
