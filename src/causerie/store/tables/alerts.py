"""Alerts that have fired, and the deliveries of their messages."""

from __future__ import annotations

from sqlalchemy import Boolean, Column, Integer, Table, Text

from causerie.store.columns import JSON_OBJECT, Moment
from causerie.store.tables.base import METADATA

alerts = Table(
    "alerts",
    METADATA,
    Column("key", Text, primary_key=True),
    Column("kind", Text, nullable=False),
    Column("summary", Text, nullable=False),
    Column("details", JSON_OBJECT, nullable=False),
    Column("level", Integer, nullable=False),
    Column("recovers", Boolean, nullable=False),
    Column("since", Moment, nullable=False),
    Column("seen_at", Moment, nullable=False),
    Column("resolved_at", Moment),
)

alert_deliveries = Table(
    "alert_deliveries",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("channel", Text, nullable=False),
    Column("to", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("firing", Boolean, nullable=False),
    Column("summary", Text, nullable=False),
    Column("details", JSON_OBJECT, nullable=False),
    Column("at", Moment, nullable=False, index=True),
    Column("state", Text, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("next_at", Moment, index=True),
    Column("outcome", Text, nullable=False),
)
