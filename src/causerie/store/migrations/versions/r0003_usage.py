"""Usage: records, and their sums by hour and by day."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Make the tables."""
    _records()
    for name in ("usage_hourly", "usage_daily"):
        _sums(name)
    _first_tokens()


def downgrade() -> None:
    """Remove them."""
    for table in ("usage_first_token", "usage_daily", "usage_hourly", "usage_records"):
        op.drop_table(table)


def _records() -> None:
    op.create_table(
        "usage_records",
        sa.Column("id", sa.Uuid, nullable=False),
        sa.Column("request_id", sa.Text, nullable=False),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("project_id", sa.Text, nullable=False),
        sa.Column("key_id", sa.Text, nullable=False),
        sa.Column("user_id", sa.Text, nullable=False),
        sa.Column("door", sa.Text, nullable=False),
        sa.Column("model", sa.Text, nullable=False),
        sa.Column("served_by", sa.Text, nullable=False),
        sa.Column("stream", sa.Boolean, nullable=False),
        sa.Column("status", sa.Integer, nullable=False),
        sa.Column("code", sa.Text),
        sa.Column("finish", sa.Text),
        sa.Column("attempts", sa.Integer, nullable=False),
        *(
            sa.Column(name, sa.BigInteger, nullable=False)
            for name in ("prompt", "cached", "completion", "reasoning", "cost", "queue_us")
        ),
        sa.Column("first_token_us", sa.BigInteger),
        sa.Column("duration_us", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_usage_records"),
    )
    op.create_index("ix_usage_records_request_id", "usage_records", ["request_id"])
    op.create_index("ix_usage_records_at", "usage_records", ["at"])
    op.create_index("ix_usage_records_project_id_at", "usage_records", ["project_id", "at"])
    op.create_index("ix_usage_records_key_id_at", "usage_records", ["key_id", "at"])


def _sums(name: str) -> None:
    place = ("key_id", "user_id", "model", "door")
    sums = (
        *("requests", "refused", "failed", "aborted"),
        *("prompt", "cached", "completion", "reasoning", "cost"),
        *("first_token_us", "first_tokens", "duration_us"),
    )
    op.create_table(
        name,
        sa.Column("project_id", sa.Text, nullable=False),
        sa.Column("start", sa.BigInteger, nullable=False),
        *(sa.Column(each, sa.Text, nullable=False) for each in place),
        *(sa.Column(each, sa.BigInteger, nullable=False) for each in sums),
        sa.PrimaryKeyConstraint("project_id", "start", *place, name=f"pk_{name}"),
    )
    op.create_index(f"ix_{name}_start", name, ["start"])
    op.create_index(f"ix_{name}_key_id_start", name, ["key_id", "start"])


def _first_tokens() -> None:
    op.create_table(
        "usage_first_token",
        sa.Column("project_id", sa.Text, nullable=False),
        sa.Column("start", sa.BigInteger, nullable=False),
        sa.Column("model", sa.Text, nullable=False),
        sa.Column("bucket", sa.Integer, nullable=False),
        sa.Column("requests", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint(
            "project_id", "start", "model", "bucket", name="pk_usage_first_token"
        ),
    )
    op.create_index("ix_usage_first_token_start", "usage_first_token", ["start"])
