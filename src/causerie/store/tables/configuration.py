"""Entries of the configuration that do not stand in the file; their credentials are sealed."""

from __future__ import annotations

from sqlalchemy import Boolean, Column, Integer, Table, Text, UniqueConstraint

from causerie.store.columns import JSON_OBJECT, Moment
from causerie.store.tables.base import METADATA

configuration_entries = Table(
    "configuration_entries",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("kind", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("body", JSON_OBJECT, nullable=False),
    Column("credential", Text),
    Column("enabled", Boolean, nullable=False),
    Column("version", Integer, nullable=False),
    Column("created_at", Moment, nullable=False),
    Column("created_by", Text, nullable=False),
    Column("updated_at", Moment, nullable=False),
    Column("updated_by", Text, nullable=False),
    UniqueConstraint("kind", "name"),
)
