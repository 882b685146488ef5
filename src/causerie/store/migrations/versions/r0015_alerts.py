"""Alerts that have fired, and the deliveries of their messages."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "alerts",
        sa.Column("key", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("summary", sa.Text, nullable=False),
        sa.Column("details", sa.Text, nullable=False),
        sa.Column("level", sa.Integer, nullable=False),
        sa.Column("recovers", sa.Boolean, nullable=False),
        sa.Column("since", sa.BigInteger, nullable=False),
        sa.Column("seen_at", sa.BigInteger, nullable=False),
        sa.Column("resolved_at", sa.BigInteger),
        sa.PrimaryKeyConstraint("key", name="pk_alerts"),
    )
    op.create_table(
        "alert_deliveries",
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("channel", sa.Text, nullable=False),
        sa.Column("to", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("firing", sa.Boolean, nullable=False),
        sa.Column("summary", sa.Text, nullable=False),
        sa.Column("details", sa.Text, nullable=False),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("next_at", sa.BigInteger),
        sa.Column("outcome", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_alert_deliveries"),
    )
    for column in ("at", "next_at"):
        op.create_index(f"ix_alert_deliveries_{column}", "alert_deliveries", [column])


def downgrade() -> None:
    """Forget all alerts."""
    op.drop_table("alert_deliveries")
    op.drop_table("alerts")
