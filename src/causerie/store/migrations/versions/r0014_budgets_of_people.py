"""Budgets of people: their sums over all projects are found by an index."""

from __future__ import annotations

from alembic import op

revision = "0014"
down_revision = "0013"

_SUMS = ("usage_hourly", "usage_daily")


def upgrade() -> None:
    """Index the sums by person."""
    for table in _SUMS:
        op.create_index(f"ix_{table}_user_id_start", table, ["user_id", "start"])


def downgrade() -> None:
    """Find them by reading all."""
    for table in _SUMS:
        op.drop_index(f"ix_{table}_user_id_start", table)
