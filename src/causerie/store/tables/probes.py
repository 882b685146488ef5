"""Results of probes: of each model at each provider the newest, and the one in force, as JSON."""

from __future__ import annotations

from sqlalchemy import Column, Table, Text

from causerie.store.tables.base import METADATA

probe_results = Table(
    "probe_results",
    METADATA,
    Column("provider", Text, primary_key=True),
    Column("model", Text, primary_key=True),
    Column("kept", Text, nullable=False),
)
