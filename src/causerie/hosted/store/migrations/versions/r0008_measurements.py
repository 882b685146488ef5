"""Measurements of targets by the quarter of an hour and by the day."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0006"

_SUMS = ("answered", "failed", "first_tokens", "first_token_us", "speeds", "speed")


def upgrade() -> None:
    """Add both tables; measurements were in memory before."""
    for table in ("target_quarters", "target_days"):
        op.create_table(
            table,
            sa.Column("target", sa.Text, nullable=False),
            sa.Column("start", sa.BigInteger, nullable=False, autoincrement=False),
            *(sa.Column(name, sa.BigInteger, nullable=False) for name in _SUMS),
            sa.PrimaryKeyConstraint("target", "start", name=f"pk_{table}"),
        )
        op.create_index(f"ix_{table}_start", table, ["start"])
